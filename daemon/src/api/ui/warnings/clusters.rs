//! Warnings of clusters, and of the guest clusters that Rancher has made.

use fipd_web_ui::{ClusterRow, Health, Warning, links};

use super::{link, part};
use crate::{
    clusters::DiscoveryView,
    guests::{GuestBoard, GuestPhase},
};

pub(super) fn discovery(known: Option<DiscoveryView>) -> Option<Warning> {
    let discovery = known?;
    let error = discovery.last_error?;
    Some(Warning {
        urgent: true,
        what: format!(
            "Clusters cannot be discovered through {}",
            discovery.cluster
        ),
        why: part(&error),
        next: "Clusters that are known go on, new ones are not found. See that this one answers and lets fipd list its Secrets; fipd tries again by itself.".to_owned(),
        commands: vec![format!("fipd clusters show {}", discovery.cluster)],
        link: link(links::CLUSTERS, "Open the clusters"),
        ..Warning::default()
    })
}

pub(super) fn ill(clusters: &[ClusterRow]) -> impl Iterator<Item = Warning> {
    let ill = clusters.iter().filter(|row| row.health == Health::Bad);
    ill.map(|row| Warning {
        urgent: true,
        what: match row.since {
            Some(_) => format!("Cluster {} is {} since", row.name, row.state),
            None => format!("Cluster {} is {}", row.name, row.state),
        },
        at: row.since,
        why: part(&row.last_error),
        next: "Its leases stay as they are. See that its server answers and that its kubeconfig is still good; fipd tries again by itself.".to_owned(),
        commands: vec!["fipd check".to_owned()],
        link: link(&links::cluster(&row.name), "Open the cluster"),
    })
}

pub(super) fn held_back(clusters: &[ClusterRow]) -> impl Iterator<Item = Warning> {
    let held = clusters.iter().filter(|row| !row.held_back.is_empty());
    held.map(|row| Warning {
        what: format!(
            "The owners of {} of cluster {} seem to be gone",
            row.held_back.join(" and of "),
            row.name
        ),
        next: "They are more than are released without a word. If that is right of all of them:"
            .to_owned(),
        commands: vec![format!("fipd clusters confirm-release {}", row.name)],
        link: link(&links::cluster(&row.name), "Open the cluster"),
        ..Warning::default()
    })
}

pub(super) fn guests(board: &GuestBoard) -> Vec<Warning> {
    let failed = board.all();
    let failed = failed
        .iter()
        .filter(|view| view.says.phase == GuestPhase::Failed);
    let warning = |view: &crate::guests::GuestView| Warning {
        what: format!("Guest cluster {} has failed", view.display_name),
        why: part(&view.says.message),
        next: "Put that right in Rancher or in the guest cluster; fipd tries again by itself."
            .to_owned(),
        link: link(links::GUESTS, "Open the guest clusters"),
        ..Warning::default()
    };
    failed.map(warning).collect()
}
