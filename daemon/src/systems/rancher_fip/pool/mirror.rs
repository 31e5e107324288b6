//! The pool of the address book that a FloatingIPPool is mirrored as.

use fipd_core::{NetworkId, Order, PoolSpec, Sticky, System};

use crate::validation::{mirror::MirrorOf, pool::Ranges};

/// The specification of the mirror of a FloatingIPPool. `quota_required`: a project without a quota gets nothing.
pub fn desired(
    mirror: &MirrorOf<'_>,
    quota_required: bool,
    ranges: &Ranges,
    (network, network_by_default): (NetworkId, bool),
) -> PoolSpec {
    let system = System::rancher_fip();
    PoolSpec {
        name: mirror.pool_name(&system),
        network,
        network_by_default,
        addresses: vec![ranges.addresses],
        exclusions: ranges.exclusions.clone(),
        gateway: None,
        prefix_len: Some(ranges.subnet.prefix_len()),
        subnet: Some(ranges.subnet),
        ends: ranges.ends,
        order: Order::Lowest,
        sticky: Sticky::OFF,
        share_across_clusters: false,
        quota_required,
        origin: mirror.origin(system),
        closed: false,
        quarantine: 0,
        priority: 0,
        scopes: Vec::new(),
    }
}
