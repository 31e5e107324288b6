//! Names that stand in objects of users' clusters.

/// The only namespace in which subnets count.
pub const NAMESPACE: &str = "cattle-flat-network";

/// Finalizer on subnets.
pub const SUBNET_REMOVE: &str = "wrangler.cattle.io/rancher-flat-network-subnet-remove";
/// Finalizer on addresses of pods.
pub const IP_REMOVE: &str = "wrangler.cattle.io/rancher-flat-network-ip-remove";

/// Annotation on a pod: `auto`, one address, or several joined by `-`, of which it gets one.
pub const IP: &str = "flatnetwork.pandaria.io/ip";
/// Annotation on a pod, and label on pods and workloads: name of the subnet.
pub const SUBNET: &str = "flatnetwork.pandaria.io/subnet";
/// Annotation on a pod: `auto`, one MAC, or several joined by `-`.
pub const MAC: &str = "flatnetwork.pandaria.io/mac";
/// Annotation on a pod: `disabled` keeps the companion of its Services away.
pub const FLAT_NETWORK_SERVICE: &str = "flatnetwork.pandaria.io/flatNetworkService";
/// Annotation on an Ingress: `true` sends it to the flat network.
pub const INGRESS: &str = "flatnetwork.pandaria.io/ingress";
/// Annotation on a subnet: pods get a 6to4 address as well.
pub const IPV6TO4: &str = "flatnetwork.pandaria.io/ipv6to4";

/// Label: `auto` or `specific`.
pub const IP_TYPE: &str = "flatnetwork.pandaria.io/flatNetworkIPType";
/// Label: `macvlan` or `ipvlan`.
pub const FLAT_MODE: &str = "flatnetwork.pandaria.io/flatMode";
/// Label on a pod: its address, with `.` for `:`.
pub const SELECTED_IP: &str = "flatnetwork.pandaria.io/selectedIP";
/// Label on a pod: its MAC without colons.
pub const SELECTED_MAC: &str = "flatnetwork.pandaria.io/selectedMac";
/// Label on an address: name of the subnet.
pub const SUBNET_OF_IP: &str = "subnet";
/// Label on namespaces and addresses: the project of Rancher.
pub const PROJECT: &str = "field.cattle.io/projectId";
/// Label on pods and addresses: the workload.
pub const WORKLOAD_SELECTOR: &str = "workload.user.cattle.io/workloadselector";

/// Annotation of Multus on a pod: further networks.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Annotation of Multus on a pod: the network in the place of the cluster's.
pub const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
/// Annotation that Multus writes: the addresses that the pod has.
pub const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// The NetworkAttachmentDefinition in each namespace.
pub const ATTACHMENT: &str = "rancher-flat-network";
/// The CNI plugin that it names.
pub const CNI_TYPE: &str = "rancher-flat-network-cni";
/// The end of the name of a companion Service.
pub const COMPANION_SUFFIX: &str = "-flat-network";
/// Value of the label of EndpointSlices that say who keeps them.
pub const SLICE_MANAGER: &str = "rancher-flat-network-controller";

/// The Lease of the original's operator, and its Deployment, in [`NAMESPACE`].
pub const OPERATOR: &str = "rancher-flat-network-operator";
/// Its service account and that of all its parts.
pub const SERVICE_ACCOUNT: &str = "rancher-flat-network-multus";
/// Its webhook.
pub const VALIDATING_WEBHOOK: &str = "rancher-flat-network-subnets-validating-config";
/// The CronJob that renews the webhook's certificate, and the Job that made the first, in [`NAMESPACE`].
pub const TLS_ROLLOUT: &str = "rancher-flat-network-tls-rollout";
/// Reason of its Events on pods.
pub const IP_ERROR: &str = "FlatNetworkIPError";

/// Annotation on a pod: further interfaces on flat networks, a list in JSON. fipd's own.
pub const ADDITIONAL_INTERFACES: &str = "fipd.io/additional-interfaces";
/// Annotation on a pod: `true` gives each interface an address of the partner of its subnet as well. fipd's own.
pub const DUAL_STACK: &str = "fipd.io/dual-stack";
/// Annotation on a pod template: how many seconds the address of an ordinal waits for its successor. fipd's own.
pub const KEEP_SECONDS: &str = "fipd.io/keep-address-seconds";
/// Annotation on the address of a pod's first interface: the others of the pod, as the node is to know them. fipd's own.
pub const FURTHER_INTERFACES: &str = "fipd.io/further-interfaces";
/// Annotation on a subnet: those of its exclusions that are addresses of pods on macvlan, joined by `,`. fipd's own.
pub const MIGRATED_ADDRESSES: &str = "fipd.io/migrated-addresses";
/// Annotation on an address: the MAC of those that its pod names. fipd's own.
pub const CHOSEN_MAC: &str = "fipd.io/mac";
