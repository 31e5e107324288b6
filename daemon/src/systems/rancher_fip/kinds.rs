//! The kinds of management clusters.

use crate::controller::kind::Kind;

pub use crate::guests::clusters::{CLUSTER, PROVISIONED_CLUSTER};

const API: &str = "apis/rancher.k8s.binbash.org/v1beta2";

pub const FLOATING_IP: Kind = Kind::namespaced(API, "floatingips", "FloatingIP");
pub const POOL: Kind = Kind::cluster(API, "floatingippools", "FloatingIPPool");
pub const QUOTA: Kind = Kind::cluster(API, "floatingipprojectquotas", "FloatingIPProjectQuota");
