//! What holds between the clusters of a configuration.

use std::{collections::BTreeSet, ops::Range};

use fipd_core::System;
use toml::Spanned;

use super::{
    ClusterConfig, ClusterSettings, Discovery, Draws, PoolsIn, Systems, cluster::says_node,
};

/// The management cluster of the system, if there is exactly one.
pub(super) fn only_management<'a>(
    system: &System,
    clusters: impl Iterator<Item = &'a ClusterConfig>,
) -> Option<&'a ClusterConfig> {
    let mut all = clusters.filter(|cluster| cluster.is_management(system));
    let first = all.next();
    if all.next().is_some() { None } else { first }
}

/// What holds between clusters. The error comes with its place in the file.
pub(super) fn check_together(
    clusters: &[Spanned<ClusterConfig>],
    discovery: Option<&Spanned<Discovery>>,
) -> Result<(), (Range<usize>, String)> {
    let mut seen = BTreeSet::new();
    let mut all = clusters.iter();
    if let Some(twice) = all.find(|one| !seen.insert(&one.get_ref().name)) {
        let what = format!(
            "[[cluster]] name = {:?} is there twice; each cluster needs a name of its own",
            twice.get_ref().name
        );
        return Err((twice.span(), what));
    }
    for cluster in clusters {
        let given = cluster.get_ref();
        let table = |system: &System| format!("[[cluster]] {:?}, [cluster.{system}]", given.name);
        check_management(table, &given.systems, &given.settings, clusters)
            .map_err(|what| (cluster.span(), what))?;
    }
    let mut nodes = clusters.iter().filter(|one| one.get_ref().is_node());
    if let (Some(one), Some(other)) = (nodes.next(), nodes.next()) {
        let what = format!(
            "node = true is written for [[cluster]] {:?} and for {:?}, and this host is a node of one; write node = false for the other, \
             which could answer for pods of the first",
            one.get_ref().name,
            other.get_ref().name
        );
        return Err((other.span(), what));
    }
    let Some(discovery) = discovery else {
        return Ok(());
    };
    let given = discovery.get_ref();
    let fail = |what: String| Err((discovery.span(), what));
    if !seen.contains(&given.cluster) {
        return fail(format!(
            "[discovery] cluster = {:?} is no [[cluster]]; allowed are {}",
            given.cluster,
            names(&clusters.iter().map(Spanned::get_ref).collect::<Vec<_>>())
        ));
    }
    if says_node(&given.systems, &given.settings) {
        let what = "[discovery]: node = true is for one cluster, and many may be found; write it in a [[cluster]]";
        return fail(what.to_owned());
    }
    let table = |system: &System| format!("[discovery.{system}]");
    check_management(table, &given.systems, &given.settings, clusters).or_else(fail)
}

/// Where nobody says of which cluster this host is a node, it is one of the only cluster whose pods may ask it.
pub(super) fn default_nodes(known: Systems, clusters: &mut [ClusterConfig]) {
    let asks = |system: &System| known.get(system.as_str()).is_some_and(|one| one.cni);
    let asking = clusters.iter().filter(|one| one.systems.iter().any(asks));
    let is_only = asking.count() == 1;
    for cluster in clusters {
        let is_node = is_only && cluster.systems.iter().any(asks);
        for (_, settings) in cluster.settings.all_mut() {
            if settings.node().is_none() {
                settings.set_node(is_node);
            }
        }
    }
}

/// Each system that draws from a management cluster names one.
fn check_management(
    table: impl Fn(&System) -> String,
    systems: &BTreeSet<System>,
    settings: &ClusterSettings,
    all: &[Spanned<ClusterConfig>],
) -> Result<(), String> {
    let drawing = |system: &&System| settings.draws(system) == Draws::Management;
    for system in systems.iter().filter(drawing) {
        let (place, clusters) = (table(system), all.iter().map(Spanned::get_ref));
        let managements: Vec<_> = clusters.filter(|one| one.is_management(system)).collect();
        let named = match settings.any(system).map(|one| one.pools_in()) {
            None | Some(PoolsIn::Here) => continue,
            Some(PoolsIn::OnlyManagement) if managements.len() == 1 => continue,
            Some(PoolsIn::OnlyManagement) => {
                return Err(format!(
                    "{place}: management is missing: role = \"downstream\" needs the name of the cluster that holds the pools; allowed are {}",
                    names(&managements)
                ));
            }
            Some(PoolsIn::Cluster(name)) => name,
        };
        if !managements.iter().any(|cluster| cluster.name == *named) {
            return Err(format!(
                "{place}: management = {named:?} is no cluster with the system {system} and role = \"management\"; allowed are {}",
                names(&managements)
            ));
        }
    }
    Ok(())
}

fn names(clusters: &[&ClusterConfig]) -> String {
    let names: Vec<String> = clusters
        .iter()
        .map(|cluster| format!("{:?}", cluster.name))
        .collect();
    if names.is_empty() {
        "none yet: add one".into()
    } else {
        names.join(", ")
    }
}
