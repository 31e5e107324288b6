//! What the original programs left: their Leases, their webhook, their Deployments.

use fipd_crds::labels::{API_SERVICE, APP_NAMESPACE, JWT_SECRET, WEBHOOK_CONFIGURATION};

use super::{
    AdoptAction, SiteReport, api_service,
    inventory::{LeaseSeen, SiteInventory},
};
use crate::adopt::{ChangeBy, FindingKind, leases::LeaseHolder};

/// The Deployment of the original webhook, and its Service.
pub const WEBHOOK: &str = "rancher-fip-manager-webhook";
/// The Deployment of the original cluster manager.
pub const CLUSTER_MANAGER: &str = "rancher-fip-cluster-manager";
/// The Deployments of the originals.
pub const DEPLOYMENTS: [&str; 4] = ["rancher-fip-manager", API_SERVICE, CLUSTER_MANAGER, WEBHOOK];

/// What the report calls the original's webhook configuration.
pub fn webhook_name() -> String {
    format!("ValidatingWebhookConfiguration {WEBHOOK_CONFIGURATION}")
}

/// Says what is left, and what is in the way.
pub fn judge(found: &SiteInventory, report: &mut SiteReport) {
    for lease in &found.leases {
        self::lease(found, lease, report);
    }
    deployments(found, report);
    webhook(found, report);
    api_service::judge(found, report);
    api_service::judge_url(found, report);
    key(found, report);
    for one in &found.remains {
        match one {
            Ok(name) => report.fine(
                FindingKind::Leftover,
                name,
                "does no harm, and a way back to the originals needs it; delete it when there is none",
            ),
            Err(why) => report.unseen.push(why.clone()),
        }
    }
}

fn lease(found: &SiteInventory, lease: &LeaseSeen, report: &mut SiteReport) {
    let name = format!("Lease {}", lease.name);
    match &lease.holder {
        LeaseHolder::Missing => {}
        LeaseHolder::Nobody => report.fine(FindingKind::Leftover, name, "nobody holds it"),
        LeaseHolder::Ours { .. } => report.fine(FindingKind::Leftover, name, "fipd holds it"),
        LeaseHolder::Unknown(why) => {
            report.unseen.push(format!("{name}: {why}"));
            if lease.rival {
                let says =
                    format!("{name} cannot be looked at: whether that program runs is not known");
                report.blockers.push(says);
            }
            return;
        }
        LeaseHolder::Other {
            by, alive: true, ..
        } => {
            let says = format!("{by} holds and renews it: that program runs");
            if lease.rival {
                report.blockers.push(format!(
                    "{by} holds {name} and renews it: stop that program first"
                ));
                report.wrong(FindingKind::Leftover, name, says);
            } else {
                report.fine(
                    FindingKind::Leftover,
                    name,
                    format!("{says}, and fipd does not do its work here"),
                );
            }
            return;
        }
        LeaseHolder::Other { by, renewed, .. } => {
            let since = renewed.as_deref().unwrap_or("a time it does not say");
            let says =
                format!("{by} holds it and has not renewed it since {since}: that program is dead");
            report.wrong(FindingKind::Leftover, &name, says);
            if lease.rival {
                report.change(ChangeBy::Itself, &name, "takes it over once it has expired");
            }
        }
    }
    let ours = matches!(lease.holder, LeaseHolder::Ours { .. });
    if lease.rival && found.duties.settings.leader_elect && !ours {
        report.blockers.push(format!(
            "fipd does not hold Lease {} yet: `fipd clusters list` says what it waits for",
            lease.name
        ));
    }
}

fn deployments(found: &SiteInventory, report: &mut SiteReport) {
    let what = "Deployments of the originals";
    let Some(all) = report.seen(what, &found.deployments) else {
        return;
    };
    for one in all {
        let shown = one.to_string();
        let rival = one.name != CLUSTER_MANAGER || found.duties.settings.cluster_manager.enabled;
        let says = format!("is to have {} replicas", one.replicas);
        if one.replicas == 0 {
            report.fine(FindingKind::Leftover, shown, "scaled to 0");
        } else if !rival {
            let says = format!("{says}, and fipd does not do its work here");
            report.fine(FindingKind::Leftover, shown, says);
        } else {
            let scale = format!(
                "kubectl -n {} scale deployment {} --replicas=0",
                one.namespace, one.name
            );
            report
                .blockers
                .push(format!("{shown} {says}: `{scale}` first"));
            let says = format!("{says}: it takes over whenever fipd stops");
            report.wrong(FindingKind::Leftover, &shown, says);
            report.change(ChangeBy::You, shown, format!("scale it to 0: `{scale}`"));
        }
    }
}

fn webhook(found: &SiteInventory, report: &mut SiteReport) {
    let name = webhook_name();
    let deletes = "deletes it";
    let webhook = match &found.webhook {
        Some(Ok(webhook)) => webhook,
        Some(Err(why)) => {
            report.unseen.push(format!("{name}: {why}"));
            let why = format!(
                "whether it is there could not be seen, and it may refuse every write of a pool or a FloatingIP: bind \
                 ClusterRole fipd-rancher-fip-adopt to fipd's user ({why})"
            );
            return report.cannot(name, deletes, why);
        }
        None => return,
    };
    let runs = webhook_runs(found);
    if !webhook.original {
        report.fine(
            FindingKind::Leftover,
            name,
            "does not point at the Service of the original; it stays",
        );
    } else if let Err(why) = runs {
        let why = format!(
            "it stays, as whether the original answers it is not known: bind ClusterRole fipd-rancher-fip-adopt-app in namespace \
             {APP_NAMESPACE} to fipd's user ({why})"
        );
        report.wrong(FindingKind::Leftover, &name, &*why);
        report.cannot(name, deletes, why);
    } else if runs == Ok(true) {
        report.wrong(
            FindingKind::Leftover,
            name,
            "the original answers it; it stays until that is scaled to 0",
        );
    } else {
        let fails = match webhook.fails {
            true => "every write of a pool or a FloatingIP fails where nobody answers it",
            false => "nobody answers it",
        };
        report.wrong(
            FindingKind::Leftover,
            &name,
            format!("points at the Service of the original: {fails}"),
        );
        let action = AdoptAction::RemoveWebhook {
            uid: webhook.uid.clone(),
            version: webhook.version.clone(),
        };
        report.act(name, deletes, action);
    }
}

fn key(found: &SiteInventory, report: &mut SiteReport) {
    let name = format!("Secret {APP_NAMESPACE}/{JWT_SECRET}");
    let Some(key) = report.seen(&name, &found.key) else {
        return;
    };
    match key {
        Err(wrong) => {
            let says = format!("{wrong}; clients get tokens of fipd's own key");
            report.wrong(FindingKind::Leftover, name, says);
        }
        Ok(bytes) if found.known_keys.contains(bytes) => {
            report.fine(FindingKind::Leftover, name, "fipd knows the key");
        }
        Ok(_) if found.tokens_over => {
            let says = "every token that it signed has ended";
            report.fine(FindingKind::Leftover, name, says);
        }
        Ok(bytes) => {
            let says = "signed the tokens of the original";
            report.fine(FindingKind::Leftover, &name, says);
            let does = "takes the key over: tokens that it signed go on to count until they end";
            report.act(name, does, AdoptAction::TakeKey(bytes.clone()));
        }
    }
}

/// Whether the original webhook is meant to run, or why that is not known.
fn webhook_runs(found: &SiteInventory) -> Result<bool, &str> {
    match &found.deployments {
        Some(Ok(all)) => Ok(all
            .iter()
            .any(|one| one.name == WEBHOOK && one.replicas > 0)),
        Some(Err(why)) => Err(why),
        None => Err("its Deployment was not looked at"),
    }
}
