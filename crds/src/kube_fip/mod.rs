//! `kubefip.k8s.binbash.org`: address ranges of Harvester networks and the floating IPs of guest clusters, as
//! kube-fip-operator has them.
//!
//! Every object that the original takes is taken: nothing is required, also no spec. Status, IPv6 and the other fields of a
//! range are fipd's; the original writes specs only and never reads what it does not know. What the values mean is judged
//! elsewhere. All names here stand in users' clusters; none may ever change.

mod floating_ip;
mod range;

pub use floating_ip::{GuestFloatingIP, GuestFloatingIPSpec};
pub use range::{FloatingIPRange, FloatingIPRangeSpec};

/// The API group of both kinds.
pub const GROUP: &str = "kubefip.k8s.binbash.org";

/// Annotation on a floating IP: name of the provisioning cluster. Mandatory.
pub const CLUSTER_NAME: &str = "clustername";
/// Annotation on a floating IP: name of the range. Mandatory.
pub const FIP_RANGE: &str = "fiprange";
/// Annotation on a floating IP: `true` keeps the ConfigMap of the guest in step.
pub const UPDATE_CONFIG_MAP: &str = "updateConfigMap";
/// Annotation on a floating IP: the one namespace of the guest whose Services may have the address. fipd's own.
pub const SERVICE_NAMESPACE: &str = "fipd.io/service-namespace";
/// Label on a provisioning cluster: whether kube-vip is installed.
pub const KUBE_VIP: &str = "kube-vip";
/// Annotation on a provisioning cluster: name of the range of its first floating IP. fipd's own.
pub const GUEST_RANGE: &str = "fipd.io/floating-ip-range";
/// Namespace in a guest of the ConfigMap and of Harvester's kube-vip.
pub const KUBE_SYSTEM: &str = "kube-system";
/// ConfigMap in a guest with its addresses.
pub const ADDRESS_MAP: &str = "kubevip";
/// Annotation on a range: display name of the Harvester cluster.
pub const HARVESTER_CLUSTER: &str = "harvesterClusterName";
/// Annotation on a range: name of the network there, without namespace.
pub const HARVESTER_NETWORK: &str = "harvesterNetworkName";

/// Finalizer on floating IPs: the address is free before the object goes.
pub const FIP_CLEANUP: &str = "fipd.io/guest-address";
/// Finalizer on ranges: nobody holds an address of one before the object goes.
pub const RANGE_CLEANUP: &str = "fipd.io/guest-range";

#[cfg(test)]
mod tests;
