//! Orphans: what belongs to clusters and projects that are gone, and Secrets of projects without a quota.

use std::collections::{BTreeMap, BTreeSet};

use super::{AdoptAction, SiteReport, inventory::SiteInventory, some};
use crate::adopt::{ChangeBy, FindingKind};
use crate::{
    controller::store::Key,
    systems::rancher_fip::{
        floating_ip::observe::Fip, guests::sweep::left_by, settings::RancherFipQuotas,
    },
};

/// Where each project is.
type Homes<'a> = BTreeMap<&'a str, Vec<&'a Key>>;

/// Says what has no owner any more.
pub fn judge(found: &SiteInventory, report: &mut SiteReport) {
    let mut homes = Homes::new();
    for key in &found.projects {
        homes.entry(&key.name).or_default().push(key);
    }
    let mut gone: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut haunted = Vec::new();
    for (key, fip) in &found.fips {
        match fip.cluster.as_deref() {
            // No cluster at all says that the list is wrong rather than that all are gone.
            Some(cluster)
                if !found.clusters.is_empty() && !found.clusters.contains_key(cluster) =>
            {
                gone.entry(cluster).or_default().push(key.to_string());
            }
            Some(_) => {}
            None if ghosts(key, fip, report) => haunted.push(key.clone()),
            None => {}
        }
        project(found, &homes, key, fip, report);
    }
    for (cluster, names) in gone {
        let says = format!("cluster {cluster} is gone; used by {}", some(&names));
        report.wrong(FindingKind::Orphan, cluster, says);
        let does = format!(
            "takes {} FloatingIPs off it; they stay their projects'",
            names.len()
        );
        report.change(ChangeBy::Itself, format!("cluster {cluster}"), does);
    }
    if !haunted.is_empty() {
        let names: Vec<String> = haunted.iter().map(ToString::to_string).collect();
        let name = format!("FloatingIP {}", some(&names));
        let does = "takes the labels of Services and group off";
        report.act(name, does, AdoptAction::RemoveGhosts(haunted));
    }
    quotas(found, &homes, report);
    secrets(found, &homes, report);
}

/// Whether labels name Services on an address that no cluster has.
fn ghosts(key: &Key, fip: &Fip, report: &mut SiteReport) -> bool {
    let named = !fip.services.is_empty() || fip.group.is_some();
    if !named || fip.holder.is_some() || fip.meta.deleted.is_some() {
        return false;
    }
    let named = fip.services.iter();
    let named = named.map(|one| format!("{}/{}", one.service_namespace, one.service_name));
    let says = format!(
        "no cluster has it, but its labels name {}",
        match &*named.collect::<Vec<_>>() {
            [] => "a group".to_owned(),
            names => format!("Services: {}", some(names)),
        }
    );
    report.wrong(FindingKind::Orphan, key.to_string(), says);
    true
}

fn project(
    found: &SiteInventory,
    homes: &Homes<'_>,
    key: &Key,
    fip: &Fip,
    report: &mut SiteReport,
) {
    let Some(project) = &fip.project else {
        return;
    };
    let homes = homes.get(&*project.0).map_or(&[][..], |homes| homes);
    if homes.is_empty() && !found.projects.is_empty() {
        let says = format!(
            "its project {} is gone; it is kept until somebody deletes it",
            project.0
        );
        report.wrong(FindingKind::Orphan, key.to_string(), says);
    } else if !homes.is_empty() && !homes.iter().any(|home| home.namespace == key.namespace) {
        let homes: Vec<String> = homes
            .iter()
            .map(|home| home.namespace.to_string())
            .collect();
        let says = format!("its project {} is in namespace {}", project.0, some(&homes));
        report.wrong(FindingKind::Orphan, key.to_string(), says);
    } else if !found.has_quota(&project.0) {
        let more = match found.duties.settings.quotas {
            RancherFipQuotas::Required => "the project gets no more addresses",
            RancherFipQuotas::Optional => "the project gets any number of addresses",
        };
        let says = format!(
            "its project {} has no quota: it keeps its address, {more}",
            project.0
        );
        report.wrong(FindingKind::Orphan, key.to_string(), says);
    }
}

fn quotas(found: &SiteInventory, homes: &Homes<'_>, report: &mut SiteReport) {
    for project in found.quotas.keys() {
        if !found.projects.is_empty() && !homes.contains_key(&**project) {
            report.wrong(
                FindingKind::Orphan,
                project,
                "a quota of a project that Rancher does not have",
            );
        }
    }
}

/// The sweep of Secrets deletes what nobody needs; what it leaves alone is said as well.
fn secrets(found: &SiteInventory, homes: &Homes<'_>, report: &mut SiteReport) {
    let Some(keys) = report.seen("Secrets of projects", &found.secrets) else {
        return;
    };
    let namespaces: BTreeSet<&str> = homes
        .values()
        .flatten()
        .map(|home| &*home.namespace)
        .collect();
    let of_rancher = |name: &str| found.clusters.contains_key(name) || namespaces.contains(name);
    for key in keys {
        report.count("Secrets of projects", 1);
        let Some(project) = left_by(&key.name, |project| found.has_quota(project)) else {
            continue;
        };
        let mut says = format!("project {project} has no quota");
        let ours = of_rancher(&key.namespace);
        if !ours {
            says += "; it stays, as its namespace is that of no cluster of Rancher";
        }
        report.wrong(FindingKind::Secret, key.to_string(), says);
        // No quota at all says that the list is wrong rather than that all are gone.
        if ours && found.duties.settings.cluster_manager.enabled && found.has_quotas() {
            let name = format!("Secret {key}");
            report.change(
                ChangeBy::Itself,
                name,
                "deletes it, here and in the project's clusters",
            );
        }
    }
}
