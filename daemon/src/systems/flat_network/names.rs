//! Kinds and names that the originals, fipd's objects and the ledger agree on.

use crate::{
    controller::{kind::Kind, store::Key},
    validation::flat_network::interfaces::pod_of,
};

pub use fipd_crds::flat_network::names::*;

const API: &str = "apis/flatnetwork.pandaria.io/v1";

pub const SUBNET_OBJECT: Kind = Kind::namespaced(API, "flatnetworksubnets", "FlatNetworkSubnet");
pub const FLAT_IP: Kind = Kind::namespaced(API, "flatnetworkips", "FlatNetworkIP");

/// Phase of a subnet that is a pool, and of an address that its pod has.
pub const ACTIVE: &str = "Active";
/// Phase of an address that its pod does not have yet.
pub const PENDING: &str = "Pending";
/// Phase of a subnet that is no pool, and of an object without an address.
pub const FAILED: &str = "Failed";

/// Annotation on an address: `Kind/name` of the workload that its pod is of. fipd's own.
pub const WORKLOAD: &str = "fipd.io/workload";
/// Annotation on an address that is not called like its pod: the interface of the pod; empty: the first. fipd's own.
pub const INTERFACE: &str = "fipd.io/interface";
/// Annotation on an address: since when it waits for the next pod of its name. fipd's own.
pub const KEPT_SINCE: &str = "fipd.io/kept-since";

/// The pod of the FlatNetworkIP with this key.
pub fn pod_key(ip: &Key) -> Key {
    Key::new(&ip.namespace, pod_of(&ip.name))
}
