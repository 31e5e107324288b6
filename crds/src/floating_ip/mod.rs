//! `rancher.k8s.binbash.org`: pools, project quotas and floating IPs of the rancher-fip family.
//!
//! `v1beta2` is what is stored and what fipd reads and writes; `v1beta1` is served for clients that still have only it. Field
//! names and what is left out when empty are those of the Go types, so that the family's own programs can go on reading and
//! writing the same objects. What the values mean is judged elsewhere.

pub mod labels;
pub mod v1beta2;

pub(crate) use v1beta2::ADDRESS_OR_EMPTY;
pub use v1beta2::{
    AddressRange, Assigned, FloatingIP, FloatingIPPool, FloatingIPPoolSpec, FloatingIPProjectQuota,
    FloatingIPProjectQuotaSpec, FloatingIPSpec, FloatingIPStatus, IpConfig, PoolStatus,
    QuotaStatus, QuotaUsage, ServiceRef,
};

/// The API group of all three kinds.
pub const GROUP: &str = "rancher.k8s.binbash.org";

/// `status.state` of a floating IP that has an address.
pub const STATE_ALLOCATED: &str = "Allocated";
/// `status.state` of a floating IP that could not get an address.
pub const STATE_ERROR: &str = "Error";
/// In `status.allocated` of a pool: the address is excluded.
pub const EXCLUDED: &str = "excluded";
/// In `status.allocated` of a pool and of a quota: the address belongs to a project but to no cluster, or to no project.
pub const UNASSIGNED: &str = "Unassigned";

/// The value of `status.allocated` of a pool for an address of `project`; without a display name the project has no quota object.
#[must_use]
pub fn allocated_text(project: &str, display_name: Option<&str>) -> String {
    format!("{project} [{}]", display_name.unwrap_or(UNASSIGNED))
}

/// The name the family computes for the pool of a network: clients look pools up by this text, whatever they are really called.
#[must_use]
pub fn pool_name(cluster_display_name: &str, network: &str) -> String {
    format!("{cluster_display_name}--{network}")
}

#[cfg(test)]
mod tests;
