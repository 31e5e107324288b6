//! What holds between the clusters of a configuration.

use std::{collections::BTreeSet, ops::Range};

use fipd_core::System;
use toml::Spanned;

use super::{ClusterConfig, ClusterSettings, Discovery, RancherFipRole};

/// The management cluster, if there is exactly one.
pub(super) fn only_management<'a>(
    clusters: impl Iterator<Item = &'a ClusterConfig>,
) -> Option<&'a ClusterConfig> {
    let mut all = clusters.filter(|cluster| cluster.is_management());
    let first = all.next();
    if all.next().is_some() { None } else { first }
}

/// What holds between clusters. The error comes with its place in the file.
pub(super) fn check_together(
    clusters: &[Spanned<ClusterConfig>],
    discovery: Option<&Spanned<Discovery>>,
) -> Result<(), (Range<usize>, String)> {
    let mut seen = BTreeSet::new();
    for cluster in clusters {
        let name = &cluster.get_ref().name;
        if !seen.insert(name.clone()) {
            let what = format!(
                "[[cluster]] name = {name:?} is there twice; each cluster needs a name of its own"
            );
            return Err((cluster.span(), what));
        }
    }
    for cluster in clusters {
        check_management(cluster.get_ref(), clusters).map_err(|what| (cluster.span(), what))?;
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
    check_named_management(
        "[discovery.rancher-fip]",
        &given.systems,
        &given.settings,
        clusters,
    )
    .or_else(fail)
}

fn check_management(cluster: &ClusterConfig, all: &[Spanned<ClusterConfig>]) -> Result<(), String> {
    let place = format!("[[cluster]] {:?}, [cluster.rancher-fip]", cluster.name);
    check_named_management(&place, &cluster.systems, &cluster.settings, all)
}

fn check_named_management(
    place: &str,
    systems: &BTreeSet<System>,
    settings: &ClusterSettings,
    all: &[Spanned<ClusterConfig>],
) -> Result<(), String> {
    let settings = &settings.rancher_fip;
    if !systems.contains(&System::rancher_fip()) || settings.role == RancherFipRole::Management {
        return Ok(());
    }
    let managements = || {
        all.iter()
            .map(Spanned::get_ref)
            .filter(|cluster| cluster.is_management())
    };
    match &settings.management {
        Some(name) if managements().any(|cluster| cluster.name == *name) => Ok(()),
        Some(name) => Err(format!(
            "{place}: management = {name:?} is no cluster with the system rancher-fip and role = \"management\"; allowed are {}",
            names(&managements().collect::<Vec<_>>())
        )),
        None if managements().count() == 1 => Ok(()),
        None => Err(format!(
            "{place}: management is missing: role = \"downstream\" needs the name of the cluster that holds the pools; allowed are {}",
            names(&managements().collect::<Vec<_>>())
        )),
    }
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
