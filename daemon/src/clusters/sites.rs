//! Which clusters there should be: configured ones and discovered ones, as one list.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{System, Text};

use super::{
    discovery::Found,
    link::{Access, LinkSpec},
};
use crate::config::{ClusterSettings, Config, Source};

/// One of the ways to a cluster. The configured one counts first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
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
    /// Place in the configuration file; discovered ones come after, by name. Where several are the same cluster,
    /// the first one's systems and settings count.
    pub order: usize,
    pub systems: BTreeSet<System>,
    pub settings: ClusterSettings,
    pub management: Option<Text>,
    pub links: BTreeMap<Way, LinkSpec>,
}

/// All sites of a configuration and of what its discovery found.
pub(super) fn wanted(config: &Config, found: &[Found]) -> BTreeMap<Text, SiteSpec> {
    let mut sites: BTreeMap<Text, SiteSpec> = config
        .clusters
        .iter()
        .enumerate()
        .map(|(order, cluster)| {
            let access = match &cluster.source {
                Source::File { path, context } => Access::File {
                    path: path.clone(),
                    context: context.clone(),
                },
                Source::InCluster => Access::InCluster,
            };
            let link = LinkSpec {
                access,
                insecure: cluster.insecure_skip_tls_verify,
            };
            let rancher_fip = &cluster.settings.rancher_fip;
            let on = cluster.systems.contains(&System::rancher_fip());
            let mut names = vec![cluster.name.clone()];
            names.extend(
                rancher_fip
                    .cluster_id
                    .iter()
                    .filter(|id| **id != cluster.name)
                    .cloned(),
            );
            let site = SiteSpec {
                name: cluster.name.clone(),
                names,
                discovered: false,
                order,
                systems: cluster.systems.clone(),
                settings: cluster.settings.clone(),
                management: on
                    .then(|| config.management_of(&cluster.name, rancher_fip))
                    .flatten(),
                links: BTreeMap::from([(Way::Config, link)]),
            };
            (cluster.name.clone(), site)
        })
        .collect();
    let Some(discovery) = &config.discovery else {
        return sites;
    };
    for found in found {
        let links = found.secrets.iter().map(|(secret, text)| {
            let access = Access::Text {
                origin: format!("Secret {secret}").into(),
                text: text.clone(),
            };
            (
                Way::Secret(secret.clone()),
                LinkSpec {
                    access,
                    insecure: discovery.insecure_skip_tls_verify,
                },
            )
        });
        // A Secret named like a configured cluster is another way to that one, if it leads there.
        if let Some(site) = sites.get_mut(&found.name) {
            site.links.extend(links);
            continue;
        }
        let mut settings = discovery.settings.clone();
        settings.rancher_fip.cluster_id = found.rancher_id.clone();
        let on = discovery.systems.contains(&System::rancher_fip());
        let site = SiteSpec {
            name: found.name.clone(),
            names: found.names.clone(),
            discovered: true,
            order: config.clusters.len(),
            systems: discovery.systems.clone(),
            management: on
                .then(|| config.management_of(&found.name, &settings.rancher_fip))
                .flatten(),
            settings,
            links: links.collect(),
        };
        sites.insert(found.name.clone(), site);
    }
    sites
}
