//! Cluster API: the pools of the in-cluster IPAM provider, which fipd serves, and the kinds of core that it reads.
//!
//! fipd installs the four pool kinds only. `IPAddressClaim`, `IPAddress`, `Cluster`, `ClusterClass` and `ExtensionConfig` belong to
//! Cluster API; their types here read v1beta1 and v1beta2 alike and keep the version of the object in `api_version`.

mod address;
mod claim;
mod class;
mod cluster;
mod conditions;
mod extension;
pub mod names;
mod object;
mod pool;
mod prefix_pool;
mod v1alpha1;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use address::{ClaimRef, IPAddress, IPAddressSpec};
pub use claim::{AddressRef, IPAddressClaim, IPAddressClaimSpec, IPAddressClaimStatus, PoolRef};
pub use class::{
    ClassVariable, ClassVariableStatus, ClusterClass, ClusterClassSpec, ClusterClassStatus,
    VariableDefinition,
};
pub use cluster::{
    ClassRef, Cluster, ClusterNetwork, ClusterSpec, ClusterStatus, Endpoint, Initialization,
    NetworkRanges, Topology, Variable,
};
pub use conditions::{AnyCondition, ConditionsV1Beta1, ConditionsV1Beta2, DeprecatedStatus};
pub use extension::{
    ClientConfig, ExtensionConfig, ExtensionConfigSpec, ExtensionConfigStatus, ServiceReference,
};
pub use pool::{
    GlobalInClusterIPPool, GlobalInClusterIPPoolSpec, InClusterIPPool, InClusterIPPoolSpec,
    InClusterPool, InClusterPoolCounts, InClusterPoolStatus,
};
pub use prefix_pool::{
    DEFAULT_ALLOCATION_PREFIX_LENGTH, GlobalInClusterPrefixPool, GlobalInClusterPrefixPoolSpec,
    InClusterPrefixPool, InClusterPrefixPoolSpec,
};
pub use v1alpha1::{
    GlobalInClusterIPPoolV1Alpha1, GlobalInClusterIPPoolV1Alpha1Spec, InClusterIPPoolV1Alpha1,
    InClusterIPPoolV1Alpha1Spec, to_v1alpha1, to_v1alpha2,
};

/// Whether the object carries the pause annotation. Its value does not matter.
#[must_use]
pub fn has_paused_annotation(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(names::PAUSED))
}

#[cfg(test)]
mod tests;
