//! Which clusters there should be: configured ones and discovered ones, as one list.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use fipd_core::{System, Text};

use super::{discovery::FoundCluster, link::LinkSpec};
use crate::config::{
    ClusterConfig, ClusterSettings, Config, Discovery, Draws, Pattern, Secret, SightingMode, Source,
};

/// One of the ways to a cluster. The configured one counts first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SiteWay {
    Config,
    /// `namespace/name` of a Secret.
    Secret(Text),
}

/// A cluster as it should be.
#[derive(Clone, PartialEq)]
pub(super) struct SiteSpec {
    pub name: Text,
    /// `name` among them.
    pub names: Vec<Text>,
    pub discovered: bool,
    pub uploaded: bool,
    /// Place in the configuration file; discovered ones come after, by name. Where several are the same cluster,
    /// the first one's systems and settings count.
    pub order: usize,
    pub systems: BTreeSet<System>,
    pub settings: ClusterSettings,
    /// For each system that draws from pools, the cluster that has them.
    pub pools_in: BTreeMap<System, Text>,
    /// The cluster that an admin says it is.
    pub same_as: Option<Text>,
    pub links: BTreeMap<SiteWay, LinkSpec>,
}

impl SiteSpec {
    /// What becomes of sightings there.
    pub fn sightings(&self) -> SightingMode {
        self.settings.sightings(&self.systems)
    }
}

/// The systems of a cluster that draw from fipd's own pools, with their patterns for these.
pub(super) fn drawing_from_own<'a>(
    cluster: &'a Text,
    systems: &'a BTreeSet<System>,
    settings: &'a ClusterSettings,
) -> impl Iterator<Item = (&'a Text, &'a System, &'a [Pattern])> {
    let own = move |system: &&System| settings.draws(system) == Draws::Own;
    let patterns = move |system| Some((cluster, system, settings.any(system)?.offered_pools()));
    systems.iter().filter(own).filter_map(patterns)
}

/// All sites of a configuration and of what its discovery found.
pub(super) fn wanted(config: &Config, found: &[FoundCluster]) -> BTreeMap<Text, SiteSpec> {
    let configured = config.clusters.iter().enumerate();
    let mut sites: BTreeMap<Text, SiteSpec> = configured
        .map(|(order, cluster)| {
            (
                cluster.name.clone(),
                configured_site(config, cluster, order),
            )
        })
        .collect();
    let Some(discovery) = &config.discovery else {
        return sites;
    };
    for found in found {
        // A Secret named like a configured cluster is another way to that one, if it leads there.
        match sites.entry(found.name.clone()) {
            Entry::Occupied(site) => site.into_mut().links.extend(links(discovery, found)),
            Entry::Vacant(free) => {
                free.insert(discovered_site(config, discovery, found));
            }
        }
    }
    sites
}

fn configured_site(config: &Config, cluster: &ClusterConfig, order: usize) -> SiteSpec {
    let link = LinkSpec {
        source: cluster.source.clone(),
        insecure: cluster.insecure_skip_tls_verify,
        namespace: cluster.identity_namespace.clone(),
    };
    let mut aliases = cluster.settings.all().filter_map(|(_, one)| one.alias());
    let alias = aliases.find(|id| **id != cluster.name).cloned();
    SiteSpec {
        name: cluster.name.clone(),
        names: std::iter::once(cluster.name.clone()).chain(alias).collect(),
        discovered: false,
        uploaded: matches!(cluster.source, Source::Text { .. }),
        order,
        systems: cluster.systems.clone(),
        pools_in: pools_in(config, &cluster.name, &cluster.systems, &cluster.settings),
        settings: cluster.settings.clone(),
        same_as: cluster.same_as.clone(),
        links: BTreeMap::from([(SiteWay::Config, link)]),
    }
}

fn discovered_site(config: &Config, discovery: &Discovery, found: &FoundCluster) -> SiteSpec {
    let mut settings = discovery.settings.clone();
    settings.set_rancher_id(found.rancher_id.as_ref());
    SiteSpec {
        name: found.name.clone(),
        names: found.names.clone(),
        discovered: true,
        uploaded: false,
        order: config.clusters.len(),
        systems: discovery.systems.clone(),
        pools_in: pools_in(config, &found.name, &discovery.systems, &settings),
        settings,
        same_as: None,
        links: links(discovery, found).collect(),
    }
}

fn links(discovery: &Discovery, found: &FoundCluster) -> impl Iterator<Item = (SiteWay, LinkSpec)> {
    found.secrets.iter().map(|(secret, text)| {
        let link = LinkSpec {
            source: Source::Text {
                origin: format!("Secret {secret}").into(),
                text: Secret(Arc::clone(text)),
            },
            insecure: discovery.insecure_skip_tls_verify,
            namespace: discovery.identity_namespace.clone(),
        };
        (SiteWay::Secret(secret.clone()), link)
    })
}

/// For each system that draws from pools, the cluster that has them.
pub(super) fn pools_in(
    config: &Config,
    name: &Text,
    systems: &BTreeSet<System>,
    settings: &ClusterSettings,
) -> BTreeMap<System, Text> {
    let systems = systems.iter();
    systems
        .filter_map(|system| {
            let pools_in = config.pools_of(system, name, settings)?;
            Some((system.clone(), pools_in))
        })
        .collect()
}
