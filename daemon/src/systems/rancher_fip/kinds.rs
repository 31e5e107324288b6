//! The kinds of management clusters.

use crate::controller::kind::Kind;

const API: &str = "apis/rancher.k8s.binbash.org/v1beta2";

pub const FLOATING_IP: Kind = Kind::namespaced(API, "floatingips", "FloatingIP");
pub const POOL: Kind = Kind::cluster(API, "floatingippools", "FloatingIPPool");
pub const QUOTA: Kind = Kind::cluster(API, "floatingipprojectquotas", "FloatingIPProjectQuota");
/// Rancher's own of a cluster.
pub const CLUSTER: Kind = Kind::cluster("apis/management.cattle.io/v3", "clusters", "Cluster");
/// Rancher's own of how a cluster was made.
pub const PROVISIONED_CLUSTER: Kind =
    Kind::namespaced("apis/provisioning.cattle.io/v1", "clusters", "Cluster");
