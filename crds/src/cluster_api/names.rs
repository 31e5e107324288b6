//! Names of Cluster API, of its in-cluster IPAM provider and of capi-vip-allocator. Users' objects carry them; none may change.

/// API group of claims, addresses and pools.
pub const IPAM_GROUP: &str = "ipam.cluster.x-k8s.io";
/// API group of `Cluster` and `ClusterClass`.
pub const CLUSTER_GROUP: &str = "cluster.x-k8s.io";
/// API group of `ExtensionConfig`.
pub const RUNTIME_GROUP: &str = "runtime.cluster.x-k8s.io";
/// API group of the requests and responses of runtime hooks.
pub const HOOKS_GROUP: &str = "hooks.runtime.cluster.x-k8s.io";
/// The version that hooks use.
pub const HOOKS_VERSION: &str = "v1alpha1";
/// The stored version of core's kinds.
pub const V1BETA2: &str = "v1beta2";
/// The deprecated version of core's kinds.
pub const V1BETA1: &str = "v1beta1";
/// The stored version of the pools.
pub const POOL_VERSION: &str = "v1alpha2";

/// Finalizer on a claim: releases the address before the claim goes.
pub const RELEASE_ADDRESS: &str = "ipam.cluster.x-k8s.io/ReleaseAddress";
/// Finalizer on an `IPAddress`: keeps it until its claim goes.
pub const PROTECT_ADDRESS: &str = "ipam.cluster.x-k8s.io/ProtectAddress";
/// Finalizer on a pool: keeps it while an `IPAddress` refers to it.
pub const PROTECT_POOL: &str = "ipam.cluster.x-k8s.io/ProtectPool";
/// Annotation on a claim, a pool or a `Cluster`: stops allocation and release, whatever its value.
pub const PAUSED: &str = "cluster.x-k8s.io/paused";
/// Annotation on a pool: skips the validation of its deletion, whatever its value.
pub const SKIP_VALIDATE_DELETE: &str = "ipam.cluster.x-k8s.io/skip-validate-delete-webhook";
/// Label on a claim: the shard of providers that handles it.
pub const WATCH_FILTER: &str = "cluster.x-k8s.io/watch-filter";
/// Label on a claim or a pool: name of the `Cluster` that it belongs to.
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// Label on objects that the topology controller made.
pub const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";
/// Annotation on objects that `clusterctl move` deletes at the source.
pub const DELETE_FOR_MOVE: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";
/// Annotation on a pool: what a conversion to the stored version would lose.
pub const CONVERSION_DATA: &str = "cluster.x-k8s.io/conversion-data";
/// Annotation on an `ExtensionConfig`: `<namespace>/<name>` of the Secret with its CA.
pub const INJECT_CA_FROM_SECRET: &str = "runtime.cluster.x-k8s.io/inject-ca-from-secret";

/// Label on a definition: `clusterctl move` looks at the kind.
pub const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";
/// Label on a definition: `clusterctl move` moves its objects and all that they own.
pub const MOVE_HIERARCHY: &str = "clusterctl.cluster.x-k8s.io/move-hierarchy";

/// Label on a pool: the `ClusterClass` that the pool serves. Annotation with the same key: a list of classes, used if the label is `true`.
pub const CLUSTER_CLASS: &str = "vip.capi.gorizond.io/cluster-class";
/// Label on a pool and on a claim: [`CONTROL_PLANE`] or [`INGRESS`].
pub const ROLE: &str = "vip.capi.gorizond.io/role";
/// [`ROLE`]: the endpoint of a control plane.
pub const CONTROL_PLANE: &str = "control-plane";
/// [`ROLE`]: the address of an ingress.
pub const INGRESS: &str = "ingress";
/// Annotation on a `Cluster`: exactly `false` switches its ingress address off.
pub const INGRESS_ENABLED: &str = "vip.capi.gorizond.io/ingress-enabled";
/// Annotation and label on a `Cluster`: its ingress address.
pub const INGRESS_VIP: &str = "vip.capi.gorizond.io/ingress-vip";
/// Variable of a `ClusterClass`: the endpoint of the control plane.
pub const CLUSTER_VIP: &str = "clusterVip";
/// Annotation on a `Cluster`: the address of its control plane, for patches of a class without that variable. fipd's own.
pub const CONTROL_PLANE_VIP: &str = "fipd.io/control-plane-vip";
/// Name of a control-plane claim, without the name of its `Cluster`.
pub const CONTROL_PLANE_CLAIM: &str = "vip-cp-";
/// Name of an ingress claim, without the name of its `Cluster`.
pub const INGRESS_CLAIM: &str = "vip-ingress-";
/// Port of a control plane endpoint that names none.
pub const DEFAULT_PORT: i32 = 6443;

/// Lease of the in-cluster provider while it runs.
pub const IN_CLUSTER_LEASE: &str = "7bb7acb4.ipam.cluster.x-k8s.io";
/// Namespace of the in-cluster provider and its lease.
pub const IN_CLUSTER_NAMESPACE: &str = "capi-ipam-in-cluster-system";
/// Lease of capi-vip-allocator while it runs.
pub const VIP_ALLOCATOR_LEASE: &str = "capi-vip-allocator.gorizond.io";
/// Namespace of capi-vip-allocator and its lease.
pub const VIP_ALLOCATOR_NAMESPACE: &str = "capi-system";

/// Condition type of a claim and a pool.
pub const READY: &str = "Ready";
/// Reason of [`READY`]: the claim has its address.
pub const ADDRESS_ALLOCATED: &str = "AddressAllocated";
/// Reason of [`READY`]: no address, for a reason in the message.
pub const ALLOCATION_FAILED: &str = "AllocationFailed";
/// Reason of [`READY`]: the pool does not exist, is paused or is invalid.
pub const POOL_NOT_READY: &str = "PoolNotReady";
/// Reason of [`READY`]: the pool has no free address.
pub const POOL_EXHAUSTED: &str = "PoolExhausted";

/// Annotation on a dual-stack `Cluster`: the address of its control plane in the family that its endpoint does not have. fipd's own.
pub const SECOND_CONTROL_PLANE_VIP: &str = "fipd.io/second-control-plane-vip";
/// Annotation on a dual-stack `Cluster`: the address of its ingress in the family that [`INGRESS_VIP`] does not have. fipd's own.
pub const SECOND_INGRESS_VIP: &str = "fipd.io/second-ingress-vip";
/// Variable of a `ClusterClass`: the value of [`SECOND_CONTROL_PLANE_VIP`]. fipd's own.
pub const SECOND_CLUSTER_VIP: &str = "clusterSecondVip";
/// Name of the claim of [`SECOND_CONTROL_PLANE_VIP`], without the name of its `Cluster`. It begins like no other claim of a `Cluster`.
pub const SECOND_CONTROL_PLANE_CLAIM: &str = "vip-second-cp-";
/// Name of the claim of [`SECOND_INGRESS_VIP`], without the name of its `Cluster`.
pub const SECOND_INGRESS_CLAIM: &str = "vip-second-ingress-";

/// Annotation on a claim: this address and no other. fipd's own.
pub const ADDRESS: &str = "fipd.io/address";
/// Annotation on an `IPAddress` whose claim is gone: end of its grace period (RFC 3339). fipd's own.
pub const GRACE_ENDS: &str = "fipd.io/grace-ends";
/// Annotation on a claim: this address and no other, as metal3's IPAM has it.
pub const METAL3_ADDRESS: &str = "ipAddress";
