//! The JSON of `/api/v1`, as the server writes it and the command line reads it.
//!
//! Plain data only. Addresses, times and owners are text, so that every client can read them.

use std::net::IpAddr;

use fipd_core::{EndsOf, Family, LeaseState, Mark, Order, PortClaim, Role};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::{IntoParams, ToSchema};

/// A count of addresses: a JSON number up to 2^53, above that (IPv6) its decimal digits as a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u128);

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkView {
    pub id: u32,
    pub name: String,
    pub pools: usize,
    /// Clusters that must be adopted before the network gives a new address; empty when it may.
    pub waiting_for: Vec<HoldView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkList {
    /// By id.
    pub networks: Vec<NetworkView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HoldView {
    pub cluster: String,
    /// The cluster's identity, once it was reached.
    pub id: Option<String>,
    pub system: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkCreate {
    /// 1 to 63 of `a-z`, `0-9` and `-`.
    pub name: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolView {
    pub id: u32,
    pub name: String,
    pub network: String,
    #[schema(value_type = String)]
    pub family: Option<Family>,
    pub addresses: Vec<String>,
    pub exclusions: Vec<String>,
    #[schema(value_type = Option<String>)]
    pub gateway: Option<IpAddr>,
    /// Prefix length handed out with an address; null: that of the CIDR around it.
    pub prefix: Option<u8>,
    pub subnet: Option<String>,
    pub reserve: Reserve,
    #[schema(value_type = String)]
    pub order: Order,
    /// `own`, or the object that the pool mirrors.
    pub origin: OriginView,
    /// A closed pool gives no new address.
    pub closed: bool,
    /// What the ETag shows.
    pub generation: u64,
    pub created: String,
    pub usage: Usage,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolList {
    /// By id.
    pub pools: Vec<PoolView>,
}

/// How many addresses at the ends are never given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reserve {
    pub first: u32,
    pub last: u32,
    /// `prefix` or `each-cidr`.
    #[schema(value_type = String)]
    pub of: EndsOf,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum OriginView {
    Own,
    Mirror {
        system: String,
        cluster: String,
        object: String,
    },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Addresses the pool can give.
    #[schema(value_type = u64)]
    pub size: Count,
    #[schema(value_type = u64)]
    pub used: Count,
    #[schema(value_type = u64)]
    pub free: Count,
    /// Addresses taken out by exclusions.
    #[schema(value_type = u64)]
    pub excluded: Count,
    /// Addresses that are the gateway or reserved ends.
    #[schema(value_type = u64)]
    pub reserved: Count,
    /// Leases of the pool that are outside its assignable addresses.
    #[schema(value_type = u64)]
    pub out_of_range: Count,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolCreate {
    pub name: String,
    /// Name of the network; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// CIDRs (`10.0.0.0/24`), single addresses and ranges (`10.0.0.10-10.0.0.20`) of one family.
    pub addresses: Vec<String>,
    #[serde(default)]
    pub exclusions: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// 0 to 32 or 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<u8>,
    /// The link's subnet where it is wider than the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_first: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_last: Option<u32>,
    /// `prefix` or `each-cidr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_of: Option<String>,
}

/// Changes to a pool: what is left out stays, `null` takes the value away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolPatch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only while the pool has no lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusions: Option<Vec<String>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub gateway: Option<Option<String>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u8>)]
    pub prefix: Option<Option<u8>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub subnet: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_first: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_last: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_of: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<bool>,
    /// Keep leases that the change leaves out of range, instead of refusing the change.
    #[serde(default)]
    pub force: bool,
}

/// What an asker needs to know of an address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LeaseSummary {
    #[schema(value_type = String)]
    pub address: IpAddr,
    pub prefix: u8,
    #[schema(value_type = Option<String>)]
    pub gateway: Option<IpAddr>,
    pub network: String,
    pub pool: Option<String>,
    #[schema(value_type = String)]
    pub state: LeaseState,
    /// `SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME`; null while the address cools down.
    pub owner: Option<String>,
}

/// All of a lease.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseView {
    #[serde(flatten)]
    pub summary: LeaseSummary,
    #[schema(value_type = Vec<String>)]
    pub marks: Vec<Mark>,
    pub members: Vec<MemberView>,
    pub contenders: Vec<ContenderView>,
    pub tenant: Option<String>,
    /// Key of the sharing group.
    pub group: Option<String>,
    pub since: String,
    pub until: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    pub owner: String,
    /// Object UID or container id; empty where the owner has none.
    pub instance: String,
    #[schema(value_type = Vec<Object>)]
    pub ports: Vec<PortClaim>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ContenderView {
    pub owner: String,
    pub instance: String,
    pub since: String,
}

/// What was allocated, in the order of the wants.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Granted {
    pub leases: Vec<LeaseSummary>,
}

/// One page of a list; `next` is the cursor of the page after it, null on the last.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeasePage {
    pub leases: Vec<LeaseView>,
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Allocate {
    /// `SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME`; asking again with the same owner answers the same addresses.
    pub owner: String,
    /// UID of the owner's instance; left out where it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// One for a single family, two for dual-stack; all or nothing.
    pub wants: Vec<Want>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Want {
    /// Name of a pool.
    pub pool: String,
    /// This address and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// 1 to 1024; 1 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// Gives back what an owner holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    pub owner: String,
    /// Only leases of this instance; left out: of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Only these addresses; left out: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// For the audit log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What was given back; empty when there was nothing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Released {
    pub released: Vec<ReleasedAddress>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReleasedAddress {
    pub network: String,
    #[schema(value_type = String)]
    pub address: IpAddr,
}

/// Which leases to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LeaseQuery {
    /// Name of a pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Name of a network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Name or id of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// `allocated`, `reserved`, `probing`, `quarantined` or `orphaned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// 1 to 1000; 100 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterView {
    pub name: String,
    /// Every name it goes by.
    pub names: Vec<String>,
    /// UID of the `kube-system` namespace; null until the cluster was reached once.
    pub id: Option<String>,
    pub state: String,
    pub last_error: Option<String>,
    /// Since when it is in that state.
    pub since: String,
    pub systems: Vec<String>,
    pub server: Option<String>,
    /// Found through Rancher's kubeconfig Secrets.
    pub discovered: bool,
    pub leases: usize,
    /// A release that waits for `confirm-release`.
    pub held_back: Option<HeldBackView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HeldBackView {
    pub system: String,
    /// Leases that would be released.
    pub leases: usize,
    /// How many may be without an admin's word.
    pub limit: usize,
    pub since: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterList {
    /// By name.
    pub clusters: Vec<ClusterView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SkipAdoption {
    /// The network that shall not wait for the cluster.
    pub network: String,
}

/// What was done, in one sentence.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    pub message: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Only entries with a smaller number (`next` of the page before).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// 1 to 1000; 100 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    /// Newest first.
    pub entries: Vec<AuditView>,
    pub next: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    pub number: u64,
    pub at: String,
    pub actor: String,
    pub action: String,
    pub network: Option<String>,
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    pub pool: Option<String>,
    pub owner: Option<String>,
    pub detail: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CheckReport {
    pub ok: bool,
    pub checks: Vec<Checked>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Checked {
    /// `ledger`, `store`, `writer`, `config`, `cluster NAME`.
    pub what: String,
    pub ok: bool,
    /// What was seen, or what is wrong.
    pub detail: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCreate {
    /// 1 to 63 characters.
    pub name: String,
    #[schema(value_type = String)]
    pub role: Role,
    /// RFC 3339; left out: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    pub id: u64,
    pub name: String,
    #[schema(value_type = String)]
    pub role: Role,
    pub created: String,
    pub expires: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// By id.
    pub tokens: Vec<TokenView>,
}

/// A fresh token; `token` is shown here and never again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    #[serde(flatten)]
    pub view: TokenView,
    pub token: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    pub ready: bool,
    /// Why it is not, or what a person should know.
    pub reasons: Vec<String>,
}

/// Tells a field that is `null` from one that is left out.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match u64::try_from(self.0) {
            Ok(small) if small <= 1 << 53 => to.serialize_u64(small),
            Ok(_) | Err(_) => to.collect_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Digits(String),
        }
        match Either::deserialize(from)? {
            Either::Number(number) => Ok(Self(number.into())),
            Either::Digits(digits) => digits.parse().map(Self).map_err(serde::de::Error::custom),
        }
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The text of an enum that is serialised as a string.
pub fn text_of<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_at_any_size() {
        for (count, text) in [
            (0, "0"),
            (1 << 53, "9007199254740992"),
            ((1 << 53) + 1, "\"9007199254740993\""),
            (1 << 64, "\"18446744073709551616\""),
        ] {
            assert_eq!(serde_json::to_string(&Count(count)).unwrap(), text);
            assert_eq!(serde_json::from_str::<Count>(text).unwrap(), Count(count));
        }
    }

    #[test]
    fn null_and_left_out_differ_in_a_patch() {
        let cleared: PoolPatch = serde_json::from_str(r#"{"gateway":null}"#).unwrap();
        assert_eq!(cleared.gateway, Some(None));
        let untouched: PoolPatch = serde_json::from_str("{}").unwrap();
        assert_eq!(untouched.gateway, None);
        assert_eq!(
            serde_json::to_string(&cleared).unwrap(),
            r#"{"gateway":null,"force":false}"#
        );
    }
}
