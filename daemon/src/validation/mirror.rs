//! The pool of the address book that an object is mirrored as.

use fipd_core::{ClusterId, NetworkId, Order, Origin, PoolSpec, Sticky, System, Text};

use super::pool::Ranges;

/// The object that a pool mirrors.
#[derive(Clone, Copy, Debug)]
pub struct MirrorOf<'a> {
    pub cluster: &'a ClusterId,
    pub cluster_name: &'a str,
    /// `[namespace/]name`.
    pub object: &'a str,
    pub uid: &'a str,
}

impl MirrorOf<'_> {
    /// The name of the pool in the address book.
    pub fn pool_name(&self, system: &System) -> Text {
        format!("{system}/{}/{}", self.cluster_name, self.object).into()
    }

    pub fn origin(&self, system: System) -> Origin {
        Origin::Mirror {
            system,
            cluster: self.cluster.clone(),
            object: self.object.into(),
            uid: self.uid.into(),
        }
    }
}

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
