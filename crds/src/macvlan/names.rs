//! Names that stand in objects of users' clusters.

/// The only namespace in which subnets count.
pub const NAMESPACE: &str = "kube-system";
/// Name of the definition of subnets.
pub const SUBNET_DEFINITION: &str = "macvlansubnets.macvlan.cluster.cattle.io";
/// Name of the definition of addresses.
pub const IP_DEFINITION: &str = "macvlanips.macvlan.cluster.cattle.io";

/// How all annotations and labels of macvlan begin.
pub const PREFIXES: [&str; 2] = ["macvlan.pandaria.cattle.io/", "macvlan.panda.io/"];

/// Annotation on a pod: `auto`, one address, or several joined by `-`.
pub const IP: &str = "macvlan.pandaria.cattle.io/ip";
/// Annotation on a pod, and label on pods and workloads: name of the subnet.
pub const SUBNET: &str = "macvlan.pandaria.cattle.io/subnet";
/// Annotation on a pod: `auto`, one MAC, or several joined by `-`.
pub const MAC: &str = "macvlan.pandaria.cattle.io/mac";
/// Annotation on an Ingress and on templates: `true` sends it to the network.
pub const INGRESS: &str = "macvlan.panda.io/ingress";
/// Annotation on a pod: `disabled` keeps the companion of its Services away.
pub const MACVLAN_SERVICE: &str = "macvlan.panda.io/macvlanService";
/// Annotation on a subnet or a pod: pods get a 6to4 address as well.
pub const IPV6TO4: &str = "macvlan.panda.io/ipv6to4";
/// Annotation on an address: when it may be given again.
pub const IP_DELAY_REUSE_TIMESTAMP: &str = "macvlan.panda.io/ipDelayReuseTimestamp";

/// Label on a pod: its address.
pub const SELECTED_IP: &str = "macvlan.pandaria.cattle.io/selectedIp";
/// Label on pods of one list of addresses.
pub const MULTIPLE_IP_HASH: &str = "macvlan.pandaria.cattle.io/multipleIpHash";
/// Label: `auto` or `specific`.
pub const IP_TYPE: &str = "macvlan.panda.io/macvlanIpType";
/// Label on a pod: its MAC.
pub const SELECTED_MAC: &str = "macvlan.panda.io/selectedMac";
/// Labels on a subnet that repeat its spec.
pub const SUBNET_LABELS: [&str; 3] = ["master", "vlan", "mode"];

/// What macvlan holds addresses by that are not to be given again at once.
pub const IP_DELAY_REUSE: &str = "macvlan.panda.io/ipDelayReuse";

/// The NetworkAttachmentDefinition of pods.
pub const ATTACHMENT: &str = "static-macvlan-cni-attach";
/// The end of the name of a companion Service.
pub const COMPANION_SUFFIX: &str = "-macvlan";
/// Reason of Events on pods.
pub const IP_ERROR: &str = "MacvlanIPError";

/// Whether an annotation or label is one of macvlan.
#[must_use]
pub fn is_of_macvlan(key: &str) -> bool {
    PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}
