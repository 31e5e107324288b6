//! What the original programs left: their Leases, their webhook, their Deployments.

use fipd_crds::labels::{API_SERVICE, JWT_SECRET, WEBHOOK_CONFIGURATION};

use super::{
    found::{ApiService, Found, LeaseSeen, LeaseState, Looked},
    report::{Action, By, Kind, Report, some},
};

/// The Deployment of the original webhook, and its Service.
pub const WEBHOOK: &str = "rancher-fip-manager-webhook";
/// The Deployments of the originals.
pub const DEPLOYMENTS: [&str; 4] = [
    "rancher-fip-manager",
    API_SERVICE,
    "rancher-fip-cluster-manager",
    WEBHOOK,
];

/// Says what is left, and what is in the way.
pub fn judge(found: &Found, report: &mut Report) {
    for lease in &found.leases {
        self::lease(found, lease, report);
    }
    deployments(found, report);
    webhook(found, report);
    service(found, report);
    key(found, report);
    for one in &found.remains {
        match one {
            Ok(name) => report.fine(
                Kind::Leftover,
                name,
                "does no harm, and a way back to the originals needs it; delete it when there is none",
            ),
            Err(why) => report.unseen.push(why.clone()),
        }
    }
}

fn lease(found: &Found, lease: &LeaseSeen, report: &mut Report) {
    let name = format!("Lease {}", lease.name);
    match &lease.state {
        LeaseState::Missing => {}
        LeaseState::Free => report.fine(Kind::Leftover, name, "nobody holds it"),
        LeaseState::Ours { .. } => report.fine(Kind::Leftover, name, "fipd holds it"),
        LeaseState::Unknown(why) => {
            report.unseen.push(format!("{name}: {why}"));
            if lease.rival {
                let says =
                    format!("{name} cannot be looked at: whether that program runs is not known");
                report.blockers.push(says);
            }
            return;
        }
        LeaseState::Held {
            by, alive: true, ..
        } => {
            let says = format!("{by} holds and renews it: that program runs");
            if lease.rival {
                report.blockers.push(format!(
                    "{by} holds {name} and renews it: stop that program first"
                ));
                report.wrong(Kind::Leftover, name, says);
            } else {
                report.fine(
                    Kind::Leftover,
                    name,
                    format!("{says}, and fipd does not do its work here"),
                );
            }
            return;
        }
        LeaseState::Held { by, renewed, .. } => {
            let since = renewed.as_deref().unwrap_or("a time it does not say");
            let says =
                format!("{by} holds it and has not renewed it since {since}: that program is dead");
            report.wrong(Kind::Leftover, &name, says);
            if lease.rival {
                report.change(By::Itself, &name, "takes it over once it has expired");
            }
        }
    }
    let ours = matches!(lease.state, LeaseState::Ours { .. });
    if lease.rival && found.duties.leader_elect && !ours {
        report.blockers.push(format!(
            "fipd does not hold Lease {} yet: `fipd clusters list` says what it waits for",
            lease.name
        ));
    }
}

fn deployments(found: &Found, report: &mut Report) {
    let all = match &found.deployments {
        Some(Ok(all)) => all,
        Some(Err(why)) => {
            return report
                .unseen
                .push(format!("Deployments of the originals: {why}"));
        }
        None => return,
    };
    for (name, replicas) in all {
        let shown = format!("Deployment {}/{name}", found.duties.app_namespace);
        if *replicas == 0 {
            report.fine(Kind::Leftover, shown, "scaled to 0");
        } else {
            let says = format!("is to have {replicas} replicas: it takes over whenever fipd stops");
            report.wrong(Kind::Leftover, &shown, says);
            report.change(By::You, shown, "scale it to 0");
        }
    }
}

fn webhook(found: &Found, report: &mut Report) {
    let name = format!("ValidatingWebhookConfiguration {WEBHOOK_CONFIGURATION}");
    let webhook = match &found.webhook {
        Some(Ok(webhook)) => webhook,
        Some(Err(why)) => return report.unseen.push(format!("{name}: {why}")),
        None => return,
    };
    if !webhook.original {
        report.fine(
            Kind::Leftover,
            name,
            "does not point at the Service of the original; it stays",
        );
    } else if webhook_runs(&found.deployments) {
        report.wrong(
            Kind::Leftover,
            name,
            "the original answers it; it stays until that is scaled to 0",
        );
    } else {
        let fails = match webhook.fails {
            true => "every write of a pool or a FloatingIP fails where nobody answers it",
            false => "nobody answers it",
        };
        report.wrong(
            Kind::Leftover,
            &name,
            format!("points at the Service of the original: {fails}"),
        );
        let action = Action::RemoveWebhook {
            uid: webhook.uid.clone(),
            version: webhook.version.clone(),
        };
        report.act(name, "deletes it", action);
    }
}

fn service(found: &Found, report: &mut Report) {
    let name = format!("Service {}/{API_SERVICE}", found.duties.app_namespace);
    match &found.service {
        None | Some(Ok(ApiService::Missing)) => {}
        Some(Err(why)) => report.unseen.push(format!("{name}: {why}")),
        Some(Ok(ApiService::Abandoned)) => {
            let says = "leads nowhere once the original is stopped, and with it every Ingress and node port on it";
            report.wrong(Kind::Leftover, &name, says);
            let url = found.duties.api_url.as_deref();
            let url = url.unwrap_or("the URL that [api] advertise is to say, with /v1");
            let does = format!(
                "set api-service = true in [cluster.rancher-fip] of the cluster, or see that all clients use {url}"
            );
            report.change(By::You, name, does);
        }
        Some(Ok(ApiService::Kept(Err(wrong)))) => {
            report.wrong(Kind::Leftover, name, wrong.to_string());
        }
        Some(Ok(ApiService::Kept(Ok(want)))) => {
            let addresses: Vec<String> = want.addresses.iter().map(ToString::to_string).collect();
            let ports = want
                .ports
                .iter()
                .map(|(port, to)| format!("{port} to {to}"));
            let ports: Vec<String> = ports.collect();
            let plain = match want.ports.len() {
                1 => {
                    "; 8080 leads nowhere: no [[listener]] with tls = false serves fip-v1 to others"
                }
                _ => "",
            };
            let says = format!("leads to {}, {}{plain}", some(&addresses), ports.join(", "));
            report.fine(Kind::Leftover, &name, says);
            report.change(
                By::Itself,
                name,
                "takes its selector off and keeps its EndpointSlices",
            );
        }
    }
}

fn key(found: &Found, report: &mut Report) {
    let name = format!("Secret {}/{JWT_SECRET}", found.duties.app_namespace);
    match &found.key {
        None => {}
        Some(Err(why)) => report.unseen.push(format!("{name}: {why}")),
        Some(Ok(Err(wrong))) => {
            let says = format!("{wrong}; clients get tokens of fipd's own key");
            report.wrong(Kind::Leftover, name, says);
        }
        Some(Ok(Ok(bytes))) if found.known_keys.contains(bytes) => {
            report.fine(Kind::Leftover, name, "fipd knows the key");
        }
        Some(Ok(Ok(_))) if found.tokens_over => {
            report.fine(Kind::Leftover, name, "every token that it signed has ended");
        }
        Some(Ok(Ok(bytes))) => {
            report.fine(Kind::Leftover, &name, "signed the tokens of the original");
            let does = "takes the key over: tokens that it signed go on to count until they end";
            report.act(name, does, Action::TakeKey(bytes.clone()));
        }
    }
}

/// Whether the original webhook is known to be meant to run.
pub fn webhook_runs(deployments: &Option<Looked<Vec<(String, i32)>>>) -> bool {
    let Some(Ok(all)) = deployments else {
        return false;
    };
    all.iter()
        .any(|(name, replicas)| name == WEBHOOK && *replicas > 0)
}
