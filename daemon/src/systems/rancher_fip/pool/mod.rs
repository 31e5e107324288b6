//! FloatingIPPools as sources of pools. No finalizer keeps one, so that its FloatingIPs stay deletable.

#[cfg(test)]
mod conformance_tests;
pub mod status;

pub use crate::validation::pool as validate;

use std::sync::Arc;

use fipd_core::{Lease, NetworkId, Order, Pool, PoolSpec, Sticky, System};
use fipd_crds::floating_ip::{FloatingIPPool, FloatingIPPoolSpec, PoolStatus};
use k8s_openapi::jiff;

use super::{
    Site, floating_ip,
    names::NETWORK,
    rancher::{Data, annotation},
    settings::{RancherFipQuotas, RancherFipSettings},
};
use crate::{
    config::{NetworkChoice, PoolLink},
    controller::{
        attachments::{Attachments, HarvesterNetwork},
        meta::{Meta, View, trim},
        pool_source::{
            Leaving, OUT_OF_RANGE, PoolController, PoolReport, PoolSource, PoolState, SourceFacts,
            link_of, pool_facts,
        },
        store::Key,
    },
    validation::mirror::MirrorOf,
};

/// The controller of all FloatingIPPools of a management cluster.
pub type FloatingIpPools = PoolController<FloatingIpPoolSource>;

/// What FloatingIPPools say of pools.
pub struct FloatingIpPoolSource {
    data: Arc<Data>,
    /// A project without a quota gets nothing.
    quota_required: bool,
}

impl FloatingIpPoolSource {
    pub fn new(site: &Site, data: &Arc<Data>) -> Self {
        let settings = site.settings::<RancherFipSettings>();
        Self {
            data: Arc::clone(data),
            quota_required: settings.quotas == RancherFipQuotas::Required,
        }
    }
}

impl View for FloatingIPPool {
    fn meta(&self) -> Meta {
        Meta::of(&self.metadata)
    }
}

impl PoolSource for FloatingIpPoolSource {
    type View = FloatingIPPool;
    type Status = PoolStatus;

    const METRIC: &'static str = "floatingippool";
    const FINALIZER: Option<&'static str> = None;
    /// As the admission webhook does.
    const LEAVING: Leaving = Leaving::Refused;
    /// It has a condition of its own.
    const AMBIGUOUS_IS_UNREADY: bool = false;
    const LISTED: usize = status::MOST_ENTRIES;

    fn facts<'a>(&'a self, pool: &'a FloatingIPPool) -> SourceFacts<'a> {
        facts(&pool.spec, annotation(pool, NETWORK))
    }

    fn spec(&self, mirror: &MirrorOf<'_>, pool: &FloatingIPPool) -> Result<PoolSpec, String> {
        let config = pool.spec.ip_config.as_ref();
        let ranges = validate::validate(config).map_err(|wrong| wrong.to_string())?;
        let network = (NetworkId::DEFAULT, false);
        let required = self.quota_required;
        Ok(desired(mirror, required, &ranges, network))
    }

    fn written(&self, pool: &FloatingIPPool) -> PoolStatus {
        pool.status.clone().unwrap_or_default()
    }

    fn status(
        &self,
        pool: &FloatingIPPool,
        report: &PoolReport,
        now: jiff::Timestamp,
    ) -> PoolStatus {
        status::desired(&self.written(pool), report, pool.metadata.generation, now)
    }

    fn entry(&self, lease: &Lease) -> String {
        status::entry(lease, |project| self.data.display_name(project))
    }

    fn attachments(&self) -> Option<&Arc<Attachments>> {
        self.data.attachments.get()
    }

    /// An annotation that makes no difference to the mirror.
    fn remark(&self, pool: &FloatingIPPool) -> Option<(&'static str, String)> {
        let wrong = floating_ip::return_after(pool).err()?;
        Some(("InvalidAnnotation", wrong))
    }

    /// As the admission webhook does where it is asked.
    fn warnings(&self, state: &PoolState) -> Vec<(&'static str, String)> {
        let outside = (state.usage.out_of_range > 0).then(|| status::LEFT_OUT.to_owned());
        let overlap = state.overlap.clone();
        [(OUT_OF_RANGE, outside), ("Overlapping", overlap)]
            .into_iter()
            .filter_map(|(reason, text)| Some((reason, text?)))
            .collect()
    }
}

/// What decides about the network of a pool; `network` is the one that its annotation names.
pub fn facts<'a>(spec: &'a FloatingIPPoolSpec, network: Option<&'a str>) -> SourceFacts<'a> {
    let (cluster, of_cluster) = (&*spec.target_cluster, &*spec.target_network);
    let named = !cluster.is_empty() && !of_cluster.is_empty();
    SourceFacts {
        interface: Some(&spec.target_network_interface),
        network,
        harvester: named.then_some(HarvesterNetwork {
            cluster,
            network: of_cluster,
        }),
    }
}

/// The network that the mirror of the object is put into, as far as its VLAN is known; it need not exist yet.
pub fn network_choice(
    site: &Site,
    name: &str,
    pool: &FloatingIPPool,
    mirror: Option<&Pool>,
    attachments: Option<&Attachments>,
) -> NetworkChoice {
    let facts = facts(&pool.spec, annotation(pool, NETWORK));
    let link = match (attachments, mirror, facts.harvester) {
        // Nothing is read before fipd leads; a pool that is there stays until then.
        (None, Some(_), Some(_)) => PoolLink {
            unread: true,
            ..PoolLink::NONE
        },
        _ => link_of(&facts, attachments, mirror.is_none()).unwrap_or_default(),
    };
    let key = Key::new("", name);
    let facts = pool_facts(site, &key, &facts, &link);
    site.session.network_choice(&facts, mirror)
}

/// What is kept of a pool object.
pub fn view(mut pool: FloatingIPPool) -> FloatingIPPool {
    trim(&mut pool.metadata);
    // The version changes with every write of the status and says nothing.
    pool.metadata.resource_version = None;
    pool
}

/// The specification of the mirror of a FloatingIPPool. `quota_required`: a project without a quota gets nothing.
pub fn desired(
    mirror: &MirrorOf<'_>,
    quota_required: bool,
    ranges: &validate::Ranges,
    (network, network_by_default): (NetworkId, bool),
) -> PoolSpec {
    let system = System::rancher_fip();
    PoolSpec {
        allocation_length: None,
        quota_unit: Default::default(),
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
