//! The rows as they lie in the file. **Frozen**: a field is never added, removed, reordered or retyped here.
//!
//! They are apart from the core's types so that those may change without changing files on disk. Text is
//! borrowed: writing a row clones nothing.
//!
//! # How to add a field
//! A field that comes later is a tagged field of the row, which older builds of the same schema keep without knowing it:
//!
//! 1. Add a `pub(super) const TAG_NAME: u16` at the end of this file, with the next number of its table, and
//!    `("table", TAG_NAME)` to [`KNOWN_TAGS`]. A number is never given another meaning.
//! 2. In the codec, encode it only where it is not its default: `let mut tags = Tags::default();
//!    tags.set(TAG_NAME, &value)?; RowDraft::tagged(&tags, &row)`; the value is any type of serde's, frozen as rows are.
//! 3. Decode it with `row.tags.get::<Type>(TAG_NAME)?`, `None` being the default.
//! 4. Add it to the property test of the row in `tests/codec.rs`.
//!
//! A build that does not know a tag of a row carries it over when it writes that row anew ([`super::envelope::insert`]), even
//! where the row then has another holder: a field that must end with its holder says whose it is.
//!
//! The structs below version 6 are read from stores of schema 1 alone, and are the latest rows' parts.

use serde::{Deserialize, Serialize};

/// The version byte before each row of this module.
pub(super) const V1: u8 = 1;
/// The version byte before a [`PoolV2`], [`TokenV2`], [`AccountV2`] or [`LeaseV2`].
pub(super) const V2: u8 = 2;
/// The version byte before a [`PoolV3`].
pub(super) const V3: u8 = 3;
/// The version byte before a [`PoolV4`].
pub(super) const V4: u8 = 4;
/// The version byte before a [`PoolV5`].
pub(super) const V5: u8 = 5;
/// The version byte of all rows since schema 2; see [`super::envelope`]. The row in it is the latest of its kind.
pub(super) const V6: u8 = 6;

/// All tagged fields that this fipd reads and writes, with their tables.
pub(super) const KNOWN_TAGS: &[(&str, u16)] = &[
    ("audit", TAG_AUDIT_LENGTH),
    ("leases", TAG_LEASE_USES),
    ("clusters", TAG_CLUSTER_PROOF),
    ("networks", TAG_NETWORK_HOLD),
    ("pools", TAG_POOL_LENGTH),
    ("pools", TAG_POOL_QUOTA_UNIT),
];

/// How far the rewrite of older rows has come; row `rewrite` of table `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RewriteV6<'a> {
    /// The table, and the last key of it that was looked at (empty: none); `None`: finished, no older row is left.
    #[serde(borrow)]
    pub at: Option<(&'a str, &'a [u8])>,
}

/// What each commit moves on; row `state` of table `meta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StateV1 {
    /// Number of commits of decisions.
    pub sequence: u64,
    /// The latest point in time of a decision, in milliseconds since the epoch.
    pub last_time: u64,
    /// Number of the oldest audit entry kept.
    pub audit_first: u64,
    /// Number of the next audit entry.
    pub audit_next: u64,
    /// Sum of the lengths of all audit values.
    pub audit_bytes: u64,
    /// One more than the highest pool number ever used: numbers are never used again.
    pub next_pool: u32,
}

/// The restore that the rows come from. `hold`: what is left of it and about when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EpochV1 {
    pub number: u64,
    pub began: u64,
    pub hold: Option<(u64, u64)>,
}

/// Book time at a moment of a boot, in milliseconds; row `clock` of table `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClockV6 {
    pub boot: Option<[u8; 16]>,
    pub uptime: u64,
    pub book: u64,
    pub unconfirmed: u64,
}

/// What a backup says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SealV1<'a> {
    pub created: u64,
    pub version: &'a str,
    pub schema: u32,
    pub revision: u64,
    pub digest: [u8; 32],
}

/// An address without its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum IpV1 {
    V4([u8; 4]),
    V6([u8; 16]),
}

/// A set of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SpecV1 {
    Cidr(IpV1, u8),
    Single(IpV1),
    Range(IpV1, IpV1),
}

/// A network; its number is the key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NetworkV1<'a> {
    pub name: &'a str,
}

/// Who asks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct IdentityV1<'a> {
    pub system: &'a str,
    pub cluster: Option<&'a str>,
    pub kind: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub interface: &'a str,
}

/// An identity and its instance.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HolderV1<'a> {
    #[serde(borrow)]
    pub identity: IdentityV1<'a>,
    pub instance: &'a str,
}

/// One holder of a lease; ports are (0 TCP, 1 UDP, 2 SCTP; number).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MemberV1<'a> {
    #[serde(borrow)]
    pub holder: HolderV1<'a>,
    pub ports: Vec<(u8, u16)>,
}

/// Someone found using an address that another holds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ContenderV1<'a> {
    #[serde(borrow)]
    pub holder: HolderV1<'a>,
    pub tenant: Option<&'a str>,
    pub since: u64,
}

/// A lease; network and address are the key. `state`: see [`super::codec`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeaseV1<'a> {
    pub pool: Option<u32>,
    pub state: u8,
    #[serde(borrow)]
    pub members: Vec<MemberV1<'a>>,
    #[serde(borrow)]
    pub contenders: Vec<ContenderV1<'a>>,
    pub tenant: Option<&'a str>,
    pub group: Option<&'a str>,
    pub since: u64,
    pub until: Option<u64>,
}

/// A [`LeaseV1`] and its labels, by key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeaseV2<'a> {
    #[serde(borrow)]
    pub lease: LeaseV1<'a>,
    #[serde(borrow)]
    pub labels: Vec<(&'a str, &'a str)>,
}

/// A [`LeaseV2`] and how many bits of the key's address are its prefix: all of them for an address.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeaseV6<'a> {
    pub prefix_len: u8,
    #[serde(borrow)]
    pub lease: LeaseV2<'a>,
}

/// The last lease of an address; network and address are the key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PastV1<'a> {
    pub pool: u32,
    #[serde(borrow)]
    pub identity: IdentityV1<'a>,
    pub released: u64,
    pub own: bool,
}

/// Whose pool it is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum OriginV1<'a> {
    Own,
    Mirror {
        system: &'a str,
        cluster: &'a str,
        object: &'a str,
        uid: &'a str,
    },
}

/// A pool; its number is the key. `ends_of`: 0 prefix, 1 each CIDR. `order`: 0 lowest, 1 random, 2 least
/// recently used.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PoolV1<'a> {
    pub name: &'a str,
    pub network: u32,
    pub addresses: Vec<SpecV1>,
    pub exclusions: Vec<SpecV1>,
    pub gateway: Option<IpV1>,
    pub prefix_len: Option<u8>,
    pub subnet: Option<(IpV1, u8)>,
    pub ends_first: u32,
    pub ends_last: u32,
    pub ends_of: u8,
    pub order: u8,
    #[serde(borrow)]
    pub origin: OriginV1<'a>,
    pub closed: bool,
    pub created: u64,
    pub generation: u64,
}

/// A [`PoolV1`] and how long its addresses cool, in seconds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PoolV2<'a> {
    #[serde(borrow)]
    pub pool: PoolV1<'a>,
    pub quarantine: u32,
}

/// A [`PoolV2`], for how many seconds and how many addresses it remembers who had them, for whom it is there, and
/// whether sharing groups may span clusters.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PoolV3<'a> {
    #[serde(borrow)]
    pub pool: PoolV2<'a>,
    pub sticky_lasts: u32,
    pub sticky_most: u32,
    pub priority: u16,
    pub scopes: Vec<ScopeV1<'a>>,
    pub share_across_clusters: bool,
}

/// A [`PoolV3`] and whether its network was chosen by nobody.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PoolV4<'a> {
    #[serde(borrow)]
    pub pool: PoolV3<'a>,
    pub network_by_default: bool,
}

/// A [`PoolV4`] and whether who has no quota gets nothing.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PoolV5<'a> {
    #[serde(borrow)]
    pub pool: PoolV4<'a>,
    pub quota_required: bool,
}

/// For whom a pool is there; labels are (key, value).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ScopeV1<'a> {
    pub cluster: Option<&'a str>,
    pub project: Option<&'a str>,
    #[serde(borrow)]
    pub namespaces: Vec<&'a str>,
    #[serde(borrow)]
    pub labels: Vec<(&'a str, &'a str)>,
}

/// A quota; pool and tenant are the key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct QuotaV1 {
    pub limit: u64,
}

/// A cluster; its identity is the key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClusterV1<'a> {
    #[serde(borrow)]
    pub names: Vec<&'a str>,
    pub discovered: bool,
    pub first_seen: u64,
}

/// An adoption marker. The key is derived from it and only orders the table.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AdoptionV1<'a> {
    pub network: u32,
    pub cluster: &'a str,
    pub system: &'a str,
    pub at: u64,
    pub skipped: bool,
}

/// An account; its name is the key. `role`: 0 viewer, 1 operator, 2 admin.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AccountV1<'a> {
    pub role: u8,
    pub password_hash: &'a str,
    pub created: u64,
}

/// An [`AccountV1`] and whether it may not sign in.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AccountV2<'a> {
    #[serde(borrow)]
    pub account: AccountV1<'a>,
    pub disabled: bool,
}

/// A token; its number is the key. `role` as in [`AccountV1`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TokenV1<'a> {
    pub name: &'a str,
    pub role: u8,
    pub hash: [u8; 32],
    pub created: u64,
    pub expires: Option<u64>,
}

/// A [`TokenV1`] and what it is for: numbers of pools and networks, tenants, and from which CIDRs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TokenV2<'a> {
    #[serde(borrow)]
    pub token: TokenV1<'a>,
    pub pools: Vec<u32>,
    pub networks: Vec<u32>,
    #[serde(borrow)]
    pub tenants: Vec<&'a str>,
    pub from: Vec<(IpV1, u8)>,
}

/// A key that signs tokens; its number is the key of the row.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeyV1<'a> {
    pub created: u64,
    pub until: Option<u64>,
    /// PKCS#1, DER.
    pub bytes: &'a [u8],
}

/// How an hour of a pool ended; pool and hour are the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RollupV1 {
    pub size: u128,
    pub used: u64,
    pub quarantined: u64,
    pub highest: u64,
    pub given: u64,
    pub released: u64,
    pub refused: u64,
}

/// One decision in the audit log; its number is the key. `action`: see [`super::codec`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AuditV1<'a> {
    pub at: u64,
    pub actor: &'a str,
    pub action: u8,
    pub network: Option<u32>,
    pub address: Option<IpV1>,
    pub pool: Option<u32>,
    #[serde(borrow)]
    pub identity: Option<IdentityV1<'a>>,
    pub detail: &'a str,
}

/// Field of a network whose free addresses are held: milliseconds left, and until about when.
pub(super) const TAG_NETWORK_HOLD: u16 = 1;
pub(super) type NetworkHoldV6 = (u64, u64);

/// Field of a cluster: a [`ClusterProofV6`].
pub(super) const TAG_CLUSTER_PROOF: u16 = 1;

/// Field of a pool of prefixes: how many bits they have, a `u8`.
pub(super) const TAG_POOL_LENGTH: u16 = 1;

/// Field of a pool whose quotas count something else than leases, a `u8`: 1 addresses.
pub(super) const TAG_POOL_QUOTA_UNIT: u16 = 2;

/// Field of an audit entry about a prefix: how many bits it has, a `u8`.
pub(super) const TAG_AUDIT_LENGTH: u16 = 1;

/// Field of a lease of which contenders use parts: a [`UsesV6`].
pub(super) const TAG_LEASE_USES: u16 = 1;
/// Contenders and the prefixes that each uses. One who is not in it uses all of the lease; one who is no contender of the row
/// any more uses nothing.
pub(super) type UsesV6 = Vec<(OwnerV6, Vec<(IpV1, u8)>)>;
/// System, cluster; kind, namespace, name and interface.
pub(super) type OwnerV6 = (String, Option<String>, [String; 4]);

/// What a way to the cluster has to show.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClusterProofV6 {
    pub nonce: Option<String>,
    pub value: String,
    pub next: Option<String>,
    pub ca: String,
    pub lead: String,
    pub way: String,
}
