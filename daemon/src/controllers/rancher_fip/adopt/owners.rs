//! Orphans: what belongs to clusters and projects that are gone, and Secrets of projects without a quota.

use std::collections::BTreeMap;

use fipd_crds::labels::PROJECT_SECRET_PREFIX;

use super::{
    addresses::place,
    found::Found,
    holders::namespaces,
    report::{Action, By, Kind, Report, some},
};
use crate::controllers::{objects::Key, rancher_fip::floating_ip::observe::Fip};

/// Says what has no owner any more.
pub fn judge(found: &Found, report: &mut Report) {
    let mut gone: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut haunted = Vec::new();
    for (key, fip) in &found.fips {
        match fip.cluster.as_deref() {
            // No cluster at all says that the list is wrong rather than that all are gone.
            Some(cluster)
                if !found.clusters.is_empty() && !found.clusters.contains_key(cluster) =>
            {
                gone.entry(cluster).or_default().push(place(key));
            }
            Some(_) => {}
            None if ghosts(key, fip, report) => haunted.push(key.clone()),
            None => {}
        }
        project(found, key, fip, report);
    }
    for (cluster, names) in gone {
        let says = format!("cluster {cluster} is gone; used by {}", some(&names));
        report.wrong(Kind::Orphan, cluster, says);
        let does = format!(
            "takes {} FloatingIPs off it; they stay their projects'",
            names.len()
        );
        report.change(By::Itself, format!("cluster {cluster}"), does);
    }
    if !haunted.is_empty() {
        let names: Vec<String> = haunted.iter().map(place).collect();
        let name = format!("FloatingIP {}", some(&names));
        let does = "takes the labels of Services and group off";
        report.act(name, does, Action::RemoveGhosts(haunted));
    }
    quotas(found, report);
    secrets(found, report);
}

/// Whether labels name Services on an address that no cluster has.
fn ghosts(key: &Key, fip: &Fip, report: &mut Report) -> bool {
    let named = !fip.services.is_empty() || fip.group.is_some();
    if !named || fip.holder.is_some() || fip.terminating {
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
    report.wrong(Kind::Orphan, place(key), says);
    true
}

fn project(found: &Found, key: &Key, fip: &Fip, report: &mut Report) {
    let Some(project) = &fip.project else {
        return;
    };
    let homes = namespaces(found, &project.0);
    if homes.is_empty() && !found.projects.is_empty() {
        let says = format!(
            "its project {} is gone; it is kept until somebody deletes it",
            project.0
        );
        report.wrong(Kind::Orphan, place(key), says);
    } else if !homes.is_empty() && !homes.iter().any(|home| home.namespace == key.namespace) {
        let homes: Vec<String> = homes
            .iter()
            .map(|home| home.namespace.to_string())
            .collect();
        let says = format!("its project {} is in namespace {}", project.0, some(&homes));
        report.wrong(Kind::Orphan, place(key), says);
    } else if !found.quotas.contains_key(&*project.0) {
        let more = match found.duties.quotas_required {
            true => "the project gets no more addresses",
            false => "the project gets any number of addresses",
        };
        let says = format!(
            "its project {} has no quota: it keeps its address, {more}",
            project.0
        );
        report.wrong(Kind::Orphan, place(key), says);
    }
}

fn quotas(found: &Found, report: &mut Report) {
    for project in found.quotas.keys() {
        if !found.projects.is_empty() && namespaces(found, project).is_empty() {
            report.wrong(
                Kind::Orphan,
                project,
                "a quota of a project that Rancher does not have",
            );
        }
    }
}

fn secrets(found: &Found, report: &mut Report) {
    let keys = match &found.secrets {
        Some(Ok(keys)) => keys,
        Some(Err(why)) => return report.unseen.push(format!("Secrets of projects: {why}")),
        None => return,
    };
    for key in keys {
        let project = key
            .name
            .strip_prefix(PROJECT_SECRET_PREFIX)
            .unwrap_or_default();
        report.count("Secrets of projects", 1);
        if found.quotas.contains_key(project) {
            continue;
        }
        let says = format!("project {project} has no quota");
        report.wrong(Kind::Secret, place(key), says);
        if found.duties.cluster_manager && !found.quotas.is_empty() {
            let name = format!("Secret {}", place(key));
            report.change(
                By::Itself,
                name,
                "deletes it, here and in the project's clusters",
            );
        }
    }
}
