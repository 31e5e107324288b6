//! Kinds that fipd serves and reads as a provider of addresses for Cluster API.

use crate::controller::kind::Kind;

pub use fipd_crds::cluster_api::names::*;

const IPAM: &str = "apis/ipam.cluster.x-k8s.io/v1beta2";
const OLDER_IPAM: &[&str] = &["apis/ipam.cluster.x-k8s.io/v1beta1"];
const POOLS: &str = "apis/ipam.cluster.x-k8s.io/v1alpha2";
const CLUSTERS: &str = "apis/cluster.x-k8s.io/v1beta2";
const OLDER_CLUSTERS: &[&str] = &["apis/cluster.x-k8s.io/v1beta1"];

pub const CLAIM: Kind = Kind::namespaced(IPAM, "ipaddressclaims", "IPAddressClaim").or(OLDER_IPAM);
pub const ADDRESS_OBJECT: Kind = Kind::namespaced(IPAM, "ipaddresses", "IPAddress").or(OLDER_IPAM);
pub const POOL: Kind = Kind::namespaced(POOLS, "inclusterippools", "InClusterIPPool").optional();
pub const GLOBAL_POOL: Kind =
    Kind::cluster(POOLS, "globalinclusterippools", "GlobalInClusterIPPool").optional();
pub const PREFIX_POOL: Kind =
    Kind::namespaced(POOLS, "inclusterprefixpools", "InClusterPrefixPool").optional();
pub const GLOBAL_PREFIX_POOL: Kind = Kind::cluster(
    POOLS,
    "globalinclusterprefixpools",
    "GlobalInClusterPrefixPool",
)
.optional();
pub const CLUSTER_CLASS_OBJECT: Kind =
    Kind::namespaced(CLUSTERS, "clusterclasses", "ClusterClass").or(OLDER_CLUSTERS);
pub const CLUSTER: Kind = Kind::namespaced(CLUSTERS, "clusters", "Cluster")
    .or(OLDER_CLUSTERS)
    .optional();

pub const EXTENSION_CONFIG: Kind = Kind::cluster(
    "apis/runtime.cluster.x-k8s.io/v1beta2",
    "extensionconfigs",
    "ExtensionConfig",
)
.or(&["apis/runtime.cluster.x-k8s.io/v1alpha1"]);

/// Annotation on a pool: pools with a higher number are asked first for Clusters. fipd's own.
pub const PRIORITY: &str = "fipd.io/priority";

/// Condition of a claim: whether somebody else uses its address was not checked. fipd's own.
pub const ADDRESS_CHECKED: &str = "AddressChecked";
/// Its reason.
pub const NO_INTERFACE: &str = "NoInterface";

/// The pool kinds of the in-cluster provider.
pub const IN_CLUSTER: [Kind; 4] = [POOL, GLOBAL_POOL, PREFIX_POOL, GLOBAL_PREFIX_POOL];
