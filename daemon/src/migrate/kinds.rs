//! Kinds that are migrated, beside those that all controllers know.

use crate::controller::kind::Kind;

pub const MACVLAN_SUBNET: Kind = Kind::namespaced(
    "apis/macvlan.cluster.cattle.io/v1",
    "macvlansubnets",
    "MacvlanSubnet",
);
pub const MACVLAN_IP: Kind = Kind::namespaced(
    "apis/macvlan.cluster.cattle.io/v1",
    "macvlanips",
    "MacvlanIP",
);
pub const FLAT_NETWORK_SUBNET: Kind = Kind::namespaced(
    "apis/flatnetwork.pandaria.io/v1",
    "flatnetworksubnets",
    "FlatNetworkSubnet",
);
