//! Leases, and what is asked about them.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::{LeaseState, Mark, prefix_text};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// What an asker needs to know of an address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LeaseSummary {
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Bits of the prefix that is leased and begins with the address; left out where it is just the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u8>,
    pub prefix: u8,
    #[schema(value_type = Option<String>)]
    pub gateway: Option<IpAddr>,
    pub network: String,
    pub pool: Option<String>,
    #[schema(value_type = String)]
    pub state: LeaseState,
    /// `SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME`; null while the address cools down.
    pub owner: Option<String>,
    /// When a reservation, a check or a quarantine ends; null where nothing ends by itself.
    pub until: Option<String>,
}

impl LeaseSummary {
    /// What is leased: an address, or a prefix such as `2001:db8::/64`.
    pub fn what(&self) -> String {
        prefix_text(self.address, self.length)
    }
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
    /// What people noted about it; left out where there is nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub since: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    pub owner: String,
    /// Object UID or container id; empty where the owner has none.
    pub instance: String,
    /// Ports it has for itself in a sharing group, such as `TCP/80`.
    pub ports: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ContenderView {
    pub owner: String,
    pub instance: String,
    /// Who is charged once it gets the address.
    pub tenant: Option<String>,
    pub since: String,
    /// The prefixes of the lease that it uses and gets; left out where it uses all of the lease.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<String>,
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
    pub tenant: Option<String>,
    /// One for a single family, two for dual-stack; all or nothing.
    pub wants: Vec<Want>,
    /// The addresses may be shared with others. Asking again changes the ports.
    pub share: Option<Share>,
    /// What the owner does not use yet has state `probing` until the asker has checked on the wire whether somebody else
    /// uses it, and reported that by `/api/v1/leases/{network}/{address}/probed`; without a report it is free again after
    /// 30 s. Not together with `share`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub probe: bool,
}

/// What a check on the wire has come to.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbedReport {
    /// Who has the lease.
    pub owner: String,
    /// `free`: nobody answered, and the owner has it in use from then on. `taken`: somebody answered; it is given to nobody
    /// for an hour, or to who was found using it, and the owner asks again.
    pub verdict: String,
    /// Who answered, such as a MAC address; only where the address is taken, for the audit log.
    pub by: Option<String>,
}

/// Owners that are charged to one tenant, name one key and have no port in common get the same address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// 1 to 253 bytes.
    pub key: String,
    /// What the owner has for itself, such as `TCP/80`; at most 100. Without any, nothing is shared.
    pub ports: Vec<String>,
}

/// As [`Allocate`], for an owner that comes later.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveRequest {
    /// `SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME`; it has the addresses once it allocates from the same pools.
    pub owner: String,
    pub tenant: Option<String>,
    /// One for a single family, two for dual-stack; all or nothing.
    pub wants: Vec<Want>,
    /// When the reservation ends, RFC 3339, in the future; never when left out. Asking again changes it.
    pub until: Option<String>,
    /// Instead of `until`: seconds from now, by fipd's time.
    #[schema(minimum = 1)]
    pub lasts: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Want {
    /// Name of a pool.
    pub pool: Option<String>,
    /// Instead of `pool`: the pool with the highest priority that is there for the asker and can give.
    pub select: Option<Select>,
    /// This address and no other; of a pool of prefixes this one, such as `2001:db8:0:3::/64`.
    pub address: Option<String>,
    /// 1 to 1024; 1 when left out.
    pub count: Option<u32>,
}

/// Who asks, to be held against the scopes of pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Select {
    /// Only pools of this network.
    pub network: Option<String>,
    /// `ipv4` or `ipv6`; may be left out where an address is named.
    pub family: Option<String>,
    /// Only pools that give prefixes of so many bits; left out: only pools of addresses.
    pub length: Option<u8>,
    /// Name or id of the asker's cluster.
    pub cluster: Option<String>,
    pub project: Option<String>,
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Gives back what an owner holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    pub owner: String,
    /// Only leases of this instance; left out: of any.
    pub instance: Option<String>,
    /// Only these addresses, or prefixes; left out: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    pub pool: Option<String>,
    pub network: Option<String>,
    /// For the audit log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Gives a lease to another owner.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferRequest {
    /// Who has it then: `SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME`.
    pub to: String,
    /// UID of the new owner's instance; left out where it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// Refused with status 409 unless this owner has it; left out: whoever has it alone.
    pub from: Option<String>,
    /// Only from this instance of `from`; left out: from any.
    pub from_instance: Option<String>,
    /// Who is charged from then on; left out: as before.
    pub tenant: Option<String>,
    /// The tenant may have it beyond its quota; only for admins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// For the audit log; not empty.
    pub reason: String,
}

/// Changes labels of a lease; the others stay.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelRequest {
    /// A lease has at most 16. Keys have 1 to 317 bytes, no `=` or `;` and no `-` at the end; values at most 253 bytes and
    /// no `;`. Neither has spaces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
    /// Keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
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
    /// Bits of the prefix that begins with the address; left out where it is just the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u8>,
}

impl ReleasedAddress {
    /// The address or prefix.
    pub fn what(&self) -> String {
        prefix_text(self.address, self.length)
    }
}

/// Which leases to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LeaseQuery {
    /// Name of a pool.
    pub pool: Option<String>,
    /// Name of a network.
    pub network: Option<String>,
    /// Name or id of a cluster.
    pub cluster: Option<String>,
    pub system: Option<String>,
    /// `allocated`, `reserved`, `probing`, `quarantined` or `orphaned`.
    pub state: Option<String>,
    pub tenant: Option<String>,
    /// Leases on these addresses, of prefixes those that are whole in them: a CIDR, a range or one address.
    pub within: Option<String>,
    /// Leases that have all of these addresses: a CIDR, a range or one address.
    pub containing: Option<String>,
    /// `key` or `key=value`, once for each label that a lease must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub label: Vec<String>,
    pub owner: Option<String>,
    /// The lease of this address, or of the prefix around it.
    pub address: Option<String>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// 1 to 1000; 100 when left out.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}
