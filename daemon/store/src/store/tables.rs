//! Every table of the file, in one place.
//!
//! Keys of numbers are big-endian, so that redb's byte order is theirs. Values are rows of [`super::rows`] in an
//! [`super::envelope`]; only [`super::codec`] makes or reads them. What is said of a table's value is what schema 1 had.

use std::net::IpAddr;

use fipd_core::{Hour, LeaseKey, NetworkId, PoolId, Separation, System, Tenant};
use redb::{Key, ReadOnlyTable, ReadTransaction, TableDefinition, TableError};

use super::codec::DecodeError;

/// What a lease is found by: network (u32), family (4 or 6), address in the last 4 or all of 16 bytes.
pub(super) type LeaseBytes = [u8; 21];

/// Key: [`SCHEMA`], [`STATE`], [`EPOCH`], [`CLOCK`] or [`REWRITE`]. Value: what is said there.
pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// Key: network number. Value: [`super::rows::NetworkV1`].
pub(super) const NETWORKS: TableDefinition<'_, [u8; 4], &[u8]> = TableDefinition::new("networks");
/// Key: pool number. Value: [`super::rows::PoolV1`] or a later one.
pub(super) const POOLS: TableDefinition<'_, [u8; 4], &[u8]> = TableDefinition::new("pools");
/// Key: pool number, tenant. Value: [`super::rows::QuotaV1`]. Made by its first row.
pub(super) const QUOTAS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("quotas");
/// Key: [`LeaseBytes`]. Value: [`super::rows::LeaseV1`].
pub(super) const LEASES: TableDefinition<'_, LeaseBytes, &[u8]> = TableDefinition::new("leases");
/// Key: [`LeaseBytes`]. Value: [`super::rows::PastV1`]. Made by its first row.
pub(super) const PASTS: TableDefinition<'_, LeaseBytes, &[u8]> = TableDefinition::new("pasts");
/// Key: UID of the cluster's `kube-system`. Value: [`super::rows::ClusterV1`].
pub(super) const CLUSTERS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("clusters");
/// Key: the numbers of two networks that are two, the lower first. Value: nothing but a version. Made by its first row.
pub(super) const SEPARATIONS: TableDefinition<'_, [u8; 8], &[u8]> =
    TableDefinition::new("separations");
/// Key: network number, length of the system's name, its name, the cluster. Value: [`super::rows::AdoptionV1`].
pub(super) const ADOPTIONS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("adoptions");
/// Key: name of the account. Value: [`super::rows::AccountV1`] or [`super::rows::AccountV2`].
pub(super) const ACCOUNTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("accounts");
/// Key: number of the token. Value: [`super::rows::TokenV1`] or [`super::rows::TokenV2`].
pub(super) const TOKENS: TableDefinition<'_, [u8; 8], &[u8]> = TableDefinition::new("tokens");
/// Key: number of the key. Value: [`super::rows::KeyV1`]. Made by its first row.
pub(super) const KEYS: TableDefinition<'_, [u8; 8], &[u8]> = TableDefinition::new("keys");
/// Key: pool number, hours since the epoch. Value: [`super::rows::RollupV1`]. Made by its first row.
pub(super) const ROLLUPS: TableDefinition<'_, [u8; 8], &[u8]> = TableDefinition::new("rollups");
/// Key: number of the entry, from 1, without gaps. Value: [`super::rows::AuditV1`].
pub(super) const AUDIT: TableDefinition<'_, [u8; 8], &[u8]> = TableDefinition::new("audit");

/// Key: [`super::seal::ROW`]. Value: [`super::rows::SealV1`]. Only in backups.
pub(super) const SEAL: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("seal");

/// Row of [`META`]: the schema version, as u32 big-endian and without an envelope, so that every fipd can read it.
pub(super) const SCHEMA: &str = "schema";
/// Row of [`META`]: what each commit moves on, a [`super::rows::StateV1`].
pub(super) const STATE: &str = "state";
/// Row of [`META`]: the restore that the rows come from, a [`super::rows::EpochV1`]; missing where there was none.
pub(super) const EPOCH: &str = "epoch";
/// Row of [`META`]: book time at a moment of a boot, a [`super::rows::ClockV6`]; missing where it was never measured.
pub(super) const CLOCK: &str = "clock";
/// Row of [`META`]: how far older rows were rewritten, a [`super::rows::RewriteV6`].
pub(super) const REWRITE: &str = "rewrite";

/// Row of [`META`]: says that a high-water record is kept beside the store, and the host that the store belongs to; 0 for an
/// unknown one.
pub(super) const HIGH_WATER: &str = "high-water";

/// Does something with each table of a store.
pub(super) trait Visit {
    type Error;
    fn table<K: Key + 'static>(
        &mut self,
        definition: TableDefinition<'static, K, &'static [u8]>,
    ) -> Result<(), Self::Error>;
}

/// Every table but the seal, [`META`] last: a copy without it does not open.
pub(super) fn each<V: Visit>(visit: &mut V) -> Result<(), V::Error> {
    visit.table(NETWORKS)?;
    visit.table(POOLS)?;
    visit.table(QUOTAS)?;
    visit.table(LEASES)?;
    visit.table(PASTS)?;
    visit.table(SEPARATIONS)?;
    visit.table(CLUSTERS)?;
    visit.table(ADOPTIONS)?;
    visit.table(ACCOUNTS)?;
    visit.table(TOKENS)?;
    visit.table(KEYS)?;
    visit.table(ROLLUPS)?;
    visit.table(AUDIT)?;
    visit.table(META)
}

/// A table to read; `None` in a file that no row of it was ever written to.
pub(super) fn existing<K: Key + 'static>(
    txn: &ReadTransaction,
    definition: TableDefinition<'static, K, &'static [u8]>,
) -> Result<Option<ReadOnlyTable<K, &'static [u8]>>, TableError> {
    match txn.open_table(definition) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        table => table.map(Some),
    }
}

/// The row key of a quota.
pub(super) fn quota_key(pool: PoolId, tenant: &Tenant) -> Vec<u8> {
    [&pool.0.to_be_bytes(), tenant.0.as_bytes()].concat()
}

/// The pool and tenant a row key names.
///
/// # Errors
/// Fewer bytes than a pool number has, or a tenant that is no text.
pub(super) fn parse_quota_key(bytes: &[u8]) -> Result<(PoolId, Tenant), DecodeError> {
    let parts = bytes.split_first_chunk().and_then(|(pool, tenant)| {
        let tenant = std::str::from_utf8(tenant).ok()?;
        Some((PoolId(u32::from_be_bytes(*pool)), Tenant(tenant.into())))
    });
    parts.ok_or_else(|| DecodeError::value("quota key", format!("{bytes:02x?}")))
}

/// The row key of a roll-up.
pub(super) fn rollup_key(pool: PoolId, hour: Hour) -> [u8; 8] {
    (u64::from(pool.0) << 32 | u64::from(hour.0)).to_be_bytes()
}

/// The pool and hour a row key names.
pub(super) fn parse_rollup_key(bytes: [u8; 8]) -> (PoolId, Hour) {
    let [p0, p1, p2, p3, h0, h1, h2, h3] = bytes;
    let pool = PoolId(u32::from_be_bytes([p0, p1, p2, p3]));
    (pool, Hour(u32::from_be_bytes([h0, h1, h2, h3])))
}

/// The row key of a lease.
pub(super) fn lease_key(key: LeaseKey) -> LeaseBytes {
    let mut bytes = [0; 21];
    let (network, rest) = bytes.split_at_mut(4);
    network.copy_from_slice(&key.network.0.to_be_bytes());
    if let Some((family, address)) = rest.split_first_mut() {
        match key.address {
            IpAddr::V4(v4) => {
                *family = 4;
                address.split_at_mut(12).1.copy_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                *family = 6;
                address.copy_from_slice(&v6.octets());
            }
        }
    }
    bytes
}

/// The lease a row key names.
///
/// # Errors
/// A family other than 4 and 6, or an IPv4 address with bytes before it.
pub(super) fn parse_lease_key(bytes: &LeaseBytes) -> Result<LeaseKey, DecodeError> {
    let [n0, n1, n2, n3, family, address @ ..] = *bytes;
    let network = NetworkId(u32::from_be_bytes([n0, n1, n2, n3]));
    let address = match (family, address) {
        (4, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, v4 @ ..]) => IpAddr::from(v4),
        (6, v6) => IpAddr::from(v6),
        (_, _) => return Err(DecodeError::value("lease key", format!("{bytes:02x?}"))),
    };
    Ok(LeaseKey { network, address })
}

/// The row key of an adoption marker.
pub(super) fn adoption_key(network: NetworkId, cluster: &str, system: &System) -> Vec<u8> {
    let system = system.as_str().as_bytes();
    let mut key = Vec::with_capacity(5 + system.len() + cluster.len());
    key.extend_from_slice(&network.0.to_be_bytes());
    key.push(u8::try_from(system.len()).unwrap_or(u8::MAX));
    key.extend_from_slice(system);
    key.extend_from_slice(cluster.as_bytes());
    key
}

/// The key of a pair of networks.
pub(super) fn separation_key((one, other): Separation) -> [u8; 8] {
    (u64::from(one.0) << 32 | u64::from(other.0)).to_be_bytes()
}

pub(super) fn parse_separation_key(key: [u8; 8]) -> Separation {
    let [a, b, c, d, other @ ..] = key;
    let number = |bytes| NetworkId(u32::from_be_bytes(bytes));
    (number([a, b, c, d]), number(other))
}
