//! Pools.

use std::net::IpAddr;

use fipd_core::{EndsOf, Family, Order, QuotaUnit};
use serde::{Deserialize, Serialize};
use serde_with::{rust::double_option, skip_serializing_none};
use utoipa::{IntoParams, ToSchema};

use super::{Count, ForecastView, LeaseSummary, PoolScope};

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolView {
    pub id: u32,
    pub name: String,
    pub network: String,
    /// Nobody chose the network, neither by name nor by a rule.
    #[serde(default)]
    pub network_by_default: bool,
    #[schema(value_type = String)]
    pub family: Option<Family>,
    pub addresses: Vec<String>,
    pub exclusions: Vec<String>,
    /// The pool gives prefixes of so many bits, and counts those; left out for a pool of addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_length: Option<u8>,
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
    /// Seconds that an address cools after a release before it is free.
    pub quarantine: u32,
    /// Seconds for which who had an address gets the same one again; 0: not.
    pub sticky_for: u32,
    /// How many addresses are remembered for that.
    pub sticky_most: u32,
    /// Of the pools that are there for an asker the one with the highest is asked first; equal ones by name.
    pub priority: u16,
    /// For whom the pool is there without being named; empty: it is given only by name.
    pub scopes: Vec<PoolScope>,
    /// Whether the members of a sharing group may be of several clusters.
    pub share_across_clusters: bool,
    /// Whether a tenant without a quota gets nothing.
    #[serde(default)]
    pub quota_required: bool,
    /// What quotas of the pool count: `lease`, or `address`.
    #[serde(default)]
    #[schema(value_type = String)]
    pub quota_unit: QuotaUnit,
    /// The first 20 runs of addresses that other pools of the network may give as well; only where one pool is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlaps: Vec<OverlapView>,
    /// The first 20 runs of addresses that it does not give, because a pool of another network may mean the same and nobody
    /// chose the networks; only where one pool is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ambiguous: Vec<OverlapView>,
    /// The first 20 ranges of other load balancers in clusters of its network that have addresses of it; only where one pool is
    /// shown, to those who see all pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedRangeView>,
    /// When it is full at the pace of the last days; only where pools are listed or one is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastView>,
    /// What the ETag shows.
    pub generation: u64,
    pub created: String,
    pub usage: Usage,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolList {
    /// By id.
    pub pools: Vec<PoolView>,
    /// Cursor of the next page; null on the last.
    pub next: Option<String>,
}

/// Which pools to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PoolQuery {
    /// Name of a network.
    pub network: Option<String>,
    /// Pools whose entries list all of a CIDR, a range or one address.
    pub containing: Option<String>,
    /// Pools all of whose entries are on these addresses: a CIDR or a range.
    pub within: Option<String>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// 1 to 1000; 100 when left out.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Addresses that another pool of the network may give as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverlapView {
    pub pool: String,
    #[schema(value_type = String)]
    pub first: IpAddr,
    #[schema(value_type = String)]
    pub last: IpAddr,
}

/// `10.0.0.4-10.0.0.7 with POOL`.
impl std::fmt::Display for OverlapView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{} with {}", self.first, self.last, self.pool)
    }
}

/// Addresses of a pool that another load balancer may allocate as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SharedRangeView {
    pub cluster: String,
    /// Kind, namespace and name: `IPAddressPool metallb-system/public`.
    pub object: String,
    #[schema(value_type = String)]
    pub first: IpAddr,
    #[schema(value_type = String)]
    pub last: IpAddr,
}

/// `10.0.0.4-10.0.0.7 with IPAddressPool metallb-system/public of cluster edge`.
impl std::fmt::Display for SharedRangeView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, last) = (self.first, self.last);
        write!(
            f,
            "{first}-{last} with {} of cluster {}",
            self.object, self.cluster
        )
    }
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
        /// UID of the object.
        #[serde(default)]
        uid: String,
    },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Addresses that the pool can give, or prefixes, as all of these counts.
    pub size: Count,
    pub used: Count,
    pub free: Count,
    /// Leases that cool after a release; counted in `used`.
    pub quarantined: Count,
    /// Addresses taken out by exclusions.
    pub excluded: Count,
    /// Addresses that are the gateway or reserved ends.
    pub reserved: Count,
    /// Leases of the pool on addresses that it neither gives nor withholds.
    pub out_of_range: Count,
    /// Addresses that a pool of another network may mean as well; no part of `size`.
    #[serde(default)]
    pub withheld: Count,
    /// Leases of the pool on withheld addresses; with `used` and `out_of_range` all that it has.
    #[serde(default)]
    pub withheld_in_use: Count,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolCreate {
    pub name: String,
    /// Name of the network; `default` when left out.
    pub network: Option<String>,
    /// CIDRs (`10.0.0.0/24`), single addresses and ranges (`10.0.0.10-10.0.0.20`) of one family.
    pub addresses: Vec<String>,
    #[serde(default)]
    pub exclusions: Vec<String>,
    /// Give prefixes of so many bits, 1 to 32 or 128, instead of addresses; `addresses` are CIDRs at least as large then.
    /// It stays as it is.
    pub allocation_length: Option<u8>,
    pub gateway: Option<String>,
    /// 0 to 32 or 128.
    pub prefix: Option<u8>,
    /// The link's subnet where it is wider than the pool.
    pub subnet: Option<String>,
    pub reserve_first: Option<u32>,
    pub reserve_last: Option<u32>,
    /// `prefix` or `each-cidr`.
    pub reserve_of: Option<String>,
    /// Which free address is given next: `lowest` (when left out), `random` or `least-recently-used`.
    pub order: Option<String>,
    /// Seconds that an address cools after a release, up to 30 days; 0 when left out.
    pub quarantine: Option<u32>,
    /// Seconds for which who had an address gets the same one again, up to 365 days; 0: not. 7 days when left out.
    pub sticky_for: Option<u32>,
    /// How many addresses are remembered for that, up to 65,536; 1,000 when left out.
    pub sticky_most: Option<u32>,
    /// 0 when left out.
    pub priority: Option<u16>,
    /// At most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<PoolScope>,
    /// Whether the members of a sharing group may be of several clusters.
    pub share_across_clusters: Option<bool>,
    /// Whether a tenant without a quota gets nothing, instead of any number.
    pub quota_required: Option<bool>,
    /// What quotas of the pool count: `lease` (when left out), or `address`, of which a /64 of IPv6 has 2^64.
    pub quota_unit: Option<String>,
}

/// Changes to a pool: what is left out stays, `null` takes the value away.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolPatch {
    pub name: Option<String>,
    /// Only while the pool has no lease.
    pub network: Option<String>,
    pub addresses: Option<Vec<String>>,
    /// Beside those that it has; not together with `addresses`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_addresses: Vec<String>,
    pub exclusions: Option<Vec<String>>,
    /// It cannot be changed: only the present value is accepted.
    #[serde(default, with = "double_option")]
    #[schema(value_type = Option<u8>)]
    pub allocation_length: Option<Option<u8>>,
    #[serde(default, with = "double_option")]
    #[schema(value_type = Option<String>)]
    pub gateway: Option<Option<String>>,
    #[serde(default, with = "double_option")]
    #[schema(value_type = Option<u8>)]
    pub prefix: Option<Option<u8>>,
    #[serde(default, with = "double_option")]
    #[schema(value_type = Option<String>)]
    pub subnet: Option<Option<String>>,
    pub reserve_first: Option<u32>,
    pub reserve_last: Option<u32>,
    pub reserve_of: Option<String>,
    pub closed: Option<bool>,
    /// `lowest`, `random` or `least-recently-used`.
    pub order: Option<String>,
    /// Seconds; what cools already is not changed.
    pub quarantine: Option<u32>,
    /// Seconds; 0: nobody is remembered.
    pub sticky_for: Option<u32>,
    pub sticky_most: Option<u32>,
    pub priority: Option<u16>,
    /// In place of all that it has.
    pub scopes: Option<Vec<PoolScope>>,
    /// Who shares an address already goes on.
    pub share_across_clusters: Option<bool>,
    /// Whether a tenant without a quota gets nothing, instead of any number.
    pub quota_required: Option<bool>,
    /// `lease` or `address`.
    pub quota_unit: Option<String>,
    /// Keep leases that the change leaves out of range, instead of refusing the change.
    #[serde(default)]
    pub force: bool,
    /// Why, for the audit log.
    pub reason: Option<String>,
}

/// What an edit of a pool would do.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolPreviewView {
    pub pool: String,
    /// How many addresses it can give.
    pub size_before: Count,
    pub size_after: Count,
    /// Other pools of the network that list an address of it.
    pub overlaps: Vec<String>,
    /// Leases that would be out of range, in order of network and address: with any, the edit is refused without `force`.
    /// It may be empty where `next` is not null.
    pub leaving: Vec<LeaseSummary>,
    /// Cursor of the next page; null on the last.
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

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
