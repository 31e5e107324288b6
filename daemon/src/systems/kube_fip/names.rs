//! Names that the original, fipd's objects and the ledger agree on.

use std::collections::BTreeMap;

use crate::controller::kind::Kind;

pub use fipd_crds::kube_fip::{
    CLUSTER_NAME, FIP_CLEANUP, FIP_RANGE, HARVESTER_CLUSTER, HARVESTER_NETWORK, RANGE_CLEANUP,
    SERVICE_NAMESPACE, UPDATE_CONFIG_MAP,
};

const API: &str = "apis/kubefip.k8s.binbash.org/v1";

pub const RANGE: Kind = Kind::cluster(API, "floatingipranges", "FloatingIPRange");
pub const FLOATING_IP: Kind = Kind::namespaced(API, "floatingips", "FloatingIP");

/// An annotation that says something; white space around it counts for nothing.
pub fn annotation<'a>(
    annotations: Option<&'a BTreeMap<String, String>>,
    key: &str,
) -> Option<&'a str> {
    let text = annotations?.get(key)?.trim();
    (!text.is_empty()).then_some(text)
}
