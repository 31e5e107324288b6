//! The pool of the address book that a FloatingIPPool is mirrored as.

use fipd_core::{ClusterId, NetworkId, Order, Origin, PoolSpec, Sticky, System, Text};

use super::pool::Ranges;

/// The object that is mirrored.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    pub cluster: &'a ClusterId,
    pub cluster_name: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    /// A project without a quota gets nothing.
    pub quota_required: bool,
}

/// The specification of the mirror.
pub fn desired(
    source: &Source<'_>,
    ranges: &Ranges,
    (network, network_by_default): (NetworkId, bool),
) -> PoolSpec {
    PoolSpec {
        name: full_name(source.cluster_name, source.name),
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
        quota_required: source.quota_required,
        origin: Origin::Mirror {
            system: System::rancher_fip(),
            cluster: source.cluster.clone(),
            object: source.name.into(),
            uid: source.uid.into(),
        },
        closed: false,
        quarantine: 0,
        priority: 0,
        scopes: Vec::new(),
    }
}

/// The name of a mirror in the address book.
pub fn full_name(cluster: &str, pool: &str) -> Text {
    format!("{}/{cluster}/{pool}", System::rancher_fip()).into()
}
