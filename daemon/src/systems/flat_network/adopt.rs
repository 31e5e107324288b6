//! Taking over from rancher-flat-network: what is found of it, and what its chart leaves behind. The addresses are adopted when the
//! system starts, all of them before the first new one; here is told what becomes of each.

mod multus;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use fipd_core::{System, Text};
use fipd_crds::flat_network::{FlatNetworkIP, FlatNetworkSubnet};
use k8s_openapi::api::{apps::v1::Deployment, rbac::v1::ClusterRoleBinding};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::Value;

use super::{
    ip::{FlatIpView, leaked},
    lease,
    names::{FLAT_IP, NAMESPACE, OPERATOR, SERVICE_ACCOUNT, TLS_ROLLOUT, VALIDATING_WEBHOOK},
    settings::FlatNetworkSettings,
    subnet::SubnetView,
};
use crate::{
    adopt::{
        self, AdoptLog, ChangeBy, FindingKind, OriginalWorkload, Takeover, TakeoverError,
        TakeoverFuture, TakeoverReport,
    },
    clusters::{ClusterSession, adoption::complete_list},
    controller::{
        client::{DEADLINE, Remote, Target},
        kind::{
            CRON_JOB, DEPLOYMENT, JOB, SERVICE_ACCOUNT as ACCOUNT, VALIDATING_WEBHOOK_CONFIGURATION,
        },
        store::Key,
    },
    ipam::Ipam,
};

const CLUSTER_ADMIN: &str = "cluster-admin";

/// Looks at what the originals left in a cluster.
pub struct FlatTakeover {
    pub ipam: Ipam,
    /// What this daemon calls itself in Leases.
    pub me: Text,
}

/// An object of the originals that goes: where it is, and its UID.
type Removal = (Target, String);
type FlatReport = TakeoverReport<Removal>;
type Named<V> = (Key, V);

impl FlatTakeover {
    async fn report(&self, session: &ClusterSession) -> Result<FlatReport, TakeoverError> {
        adopt::require(session, &System::flat_network())?;
        session.verify_identity().await?;
        let mut report = FlatReport {
            wording: ("changes", "made"),
            ..FlatReport::default()
        };
        let remote = Remote::new(session.client.clone());
        let settings = session.settings.of::<FlatNetworkSettings>();
        self.program(&remote, settings, &mut report).await;
        leftovers(&remote, &mut report).await;
        multus::report(&remote, &mut report).await;
        let (client, all) = (|| session.client.clone(), ListParams::default);
        let subnets: Api<FlatNetworkSubnet> = Api::all(client());
        let keep = |one: FlatNetworkSubnet| Some((Key::of(&one.metadata), SubnetView::of(one)));
        let subnets = complete_list(session, &subnets, all(), "list FlatNetworkSubnets", keep);
        let subnets = subnets.await?;
        let ips: Api<FlatNetworkIP> = Api::all(client());
        let keep = |one: FlatNetworkIP| Some((Key::of(&one.metadata), FlatIpView::of(one)));
        let ips = complete_list(session, &ips, all(), "list FlatNetworkIPs", keep).await?;
        report.count("FlatNetworkSubnets", subnets.len());
        report.count("FlatNetworkIPs", ips.len());
        self.subnets(session, (&subnets, &ips), &mut report);
        self.addresses(session, &ips, &mut report);
        Ok(report)
    }

    /// Whether the original still runs.
    async fn program(
        &self,
        remote: &Remote,
        settings: &FlatNetworkSettings,
        report: &mut FlatReport,
    ) {
        let namespace = &settings.namespace;
        let found = remote
            .get::<Deployment>(&DEPLOYMENT.named(namespace, OPERATOR))
            .await;
        match found.map(|found| found.map(|one| OriginalWorkload::deployment(&one))) {
            Ok(Some(program)) => {
                if let Some(why) = program.gives_addresses() {
                    report.in_the_way(program.to_string(), why);
                }
            }
            Ok(None) => {}
            Err(error) => {
                let why = format!("it is not known whether the original still runs: {error}");
                report.blockers.push(why);
            }
        }
        let lock = lease(settings);
        if let Some(why) = adopt::leases::renewed_by_other(remote, &self.me, &lock).await {
            report.in_the_way(lock.to_string(), why);
        }
    }

    /// Which subnets are pools, and which of their used addresses nobody has.
    fn subnets(
        &self,
        session: &ClusterSession,
        (subnets, ips): (&[Named<SubnetView>], &[Named<FlatIpView>]),
        report: &mut FlatReport,
    ) {
        let mut users: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
        for (_, ip) in ips {
            let address: Option<IpAddr> = ip.status.addr.parse().ok();
            users.entry(&ip.spec.subnet).or_default().extend(address);
        }
        for (key, subnet) in subnets {
            let pool = self.ipam.read(|ledger| {
                let pool = ledger.mirror(&System::flat_network(), &session.id, &key.to_string());
                let pool = pool.filter(|pool| !pool.spec.closed);
                pool.map(|pool| pool.spec.name.clone())
            });
            let says = match &pool {
                Some(pool) => format!("it is pool {pool}"),
                None => "it is no pool: its condition Ready says why".to_owned(),
            };
            let mut wrongs: Vec<String> = pool
                .is_none()
                .then(|| "no pod gets an address of it".to_owned())
                .into_iter()
                .collect();
            let lost = users.get(&*key.name).map_or_else(
                || leaked::count(&subnet.status, &BTreeSet::new()),
                |users| leaked::count(&subnet.status, users),
            );
            if lost > 0 {
                wrongs.push(format!(
                    "status.usedIP has {lost} addresses that no FlatNetworkIP has; they are free once two lists of the cluster, a minute apart, show that none has"
                ));
            }
            report.judge(FindingKind::Pool, key.to_string(), says, wrongs);
        }
    }

    /// Which addresses their pods keep. Of two with one address the first that was made keeps it.
    fn addresses(
        &self,
        session: &ClusterSession,
        ips: &[(Key, FlatIpView)],
        report: &mut FlatReport,
    ) {
        let mut first: BTreeMap<(&str, &str), (&Key, &FlatIpView)> = BTreeMap::new();
        for (key, ip) in ips.iter().filter(|(_, ip)| !ip.status.addr.is_empty()) {
            let of_address = first.entry((&ip.spec.subnet, &ip.status.addr));
            let of_address = of_address.or_insert((key, ip));
            let age = |one: &(&Key, &FlatIpView)| (one.1.meta.created, one.0.clone());
            if age(&(key, ip)) < age(of_address) {
                *of_address = (key, ip);
            }
        }
        for (key, ip) in ips {
            let Ok(address) = ip.status.addr.parse::<IpAddr>() else {
                continue;
            };
            let identity = key.identity(System::flat_network(), &session.id, FLAT_IP.kind);
            let (held, rival) = self.ipam.read(|ledger| {
                let leases = ledger.leases_of(&identity);
                let held = leases.iter().any(|lease| lease.key.address == address);
                let waits = ledger.contentions_of(&identity);
                let rival = waits.iter().find(|lease| lease.key.address == address);
                let rival = rival.and_then(|lease| lease.owner());
                (held, rival.map(|holder| holder.identity.to_string()))
            });
            // Before anything is adopted the objects alone say it.
            let older = first.get(&(&*ip.spec.subnet, &*ip.status.addr));
            let older = older.filter(|(older, _)| *older != key);
            let rival = rival.or_else(|| older.map(|(older, _)| older.to_string()));
            let name = key.to_string();
            match (held, rival) {
                (true, _) => {
                    report.fine(FindingKind::Address, name, format!("{address} is adopted"))
                }
                (false, Some(rival)) => {
                    let says = format!(
                        "{address} is that of {rival} as well, which keeps it: delete one of the two pods"
                    );
                    report.wrong(FindingKind::Conflict, name, says);
                }
                (false, None) => {
                    let why = format!(
                        "{address} is not adopted yet: `fipd clusters show {}` shows whether the adoption waits",
                        session.name
                    );
                    report.wrong(FindingKind::Address, name, why);
                }
            }
        }
    }
}

/// Where the original's CNI plugin and Multus find the cluster; K3s has it in a folder of its own.
const KUBECONFIG: &str = "kubeconfig /etc/cni/net.d/multus.d/multus.kubeconfig";

/// What the chart of the originals leaves behind: a webhook that nobody answers and what renews its certificate, which go, and
/// rights over the whole cluster. The CNI plugin on the nodes and Multus have those too, so who takes them away is whoever knows
/// that no node needs them.
async fn leftovers(remote: &Remote, report: &mut FlatReport) {
    let renews = "it renews the certificate of a webhook that is gone";
    for (kind, namespace, name, why) in [
        (
            VALIDATING_WEBHOOK_CONFIGURATION,
            "",
            VALIDATING_WEBHOOK,
            "it asks a program that is gone",
        ),
        (CRON_JOB, NAMESPACE, TLS_ROLLOUT, renews),
        (JOB, NAMESPACE, TLS_ROLLOUT, renews),
    ] {
        let (target, name) = (kind.named(namespace, name), format!("{} {name}", kind.kind));
        match remote.get::<Value>(&target).await {
            Ok(None) => {}
            Ok(Some(found)) => {
                let uid = found["metadata"]["uid"].as_str().unwrap_or_default();
                report.wrong(FindingKind::Leftover, name.clone(), why);
                let does = format!("it is deleted: {why}");
                report.act(name, does, (target, uid.to_owned()));
            }
            Err(error) => report.unseen.push(format!("{name}: {error}")),
        }
    }
    let account = ACCOUNT.named(NAMESPACE, SERVICE_ACCOUNT);
    let name = format!("ServiceAccount {SERVICE_ACCOUNT}");
    match remote.get::<Value>(&account).await {
        Ok(None) => {}
        Ok(Some(_)) => {
            rights(name, "it is that of all programs of the original", report);
            let kubeconfig = format!("{KUBECONFIG} on each node");
            rights(
                kubeconfig,
                "it has the rights of that ServiceAccount",
                report,
            );
        }
        Err(error) => report.unseen.push(format!("{name}: {error}")),
    }
    let bindings: Api<ClusterRoleBinding> = Api::all(remote.client());
    let all = ListParams::default();
    let listed = tokio::time::timeout(DEADLINE, bindings.list(&all)).await;
    let listed = match listed {
        Ok(Ok(listed)) => listed.items,
        Ok(Err(error)) => return report.unseen.push(format!("ClusterRoleBindings: {error}")),
        Err(_) => {
            return report
                .unseen
                .push("ClusterRoleBindings: no answer in time".to_owned());
        }
    };
    for binding in listed.into_iter().filter(gives_all_rights) {
        let name = format!("ClusterRoleBinding {}", binding.name_any());
        let why = "it makes every program of the original, on every node, cluster-admin";
        rights(name, why, report);
    }
}

fn rights(name: String, why: &str, report: &mut FlatReport) {
    report.wrong(FindingKind::Leftover, name.clone(), why);
    let does = "delete it once neither Multus nor the CNI plugin of a node uses it";
    report.change(ChangeBy::You, name, does);
}

fn gives_all_rights(binding: &ClusterRoleBinding) -> bool {
    let account = |one: &k8s_openapi::api::rbac::v1::Subject| {
        let of_original = one.namespace.as_deref() == Some(NAMESPACE);
        one.kind == "ServiceAccount" && one.name == SERVICE_ACCOUNT && of_original
    };
    let mut subjects = binding.subjects.iter().flatten();
    binding.role_ref.name == CLUSTER_ADMIN && subjects.all(account) && binding.subjects.is_some()
}

impl Takeover for FlatTakeover {
    fn look<'a>(&'a self, session: &'a ClusterSession) -> TakeoverFuture<'a> {
        Box::pin(async { Ok(self.report(session).await?.shown()) })
    }

    fn adopt<'a>(&'a self, log: AdoptLog<'a>) -> TakeoverFuture<'a> {
        Box::pin(async move {
            let mut report = self.report(log.session).await?.unblocked()?;
            let remote = Remote::new(log.session.client.clone());
            let remote = &remote;
            let remove = |(target, uid): Removal| async move {
                let gone = remote.delete(&target, &uid).await;
                gone.map_err(|error| error.to_string())
            };
            log.carry_out(&mut report.changes, remove).await;
            Ok(report.shown())
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_binding_of_the_originals_alone_goes() {
        let binding = |role: &str, subjects: Value| -> ClusterRoleBinding {
            serde_json::from_value(json!({
                "metadata": { "name": "b" }, "subjects": subjects,
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            }))
            .expect("a binding")
        };
        let own =
            json!({ "kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE });
        let other = json!({ "kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": "x" });
        for (binding, goes) in [
            (binding(CLUSTER_ADMIN, json!([own.clone()])), true),
            (binding("view", json!([own.clone()])), false),
            (binding(CLUSTER_ADMIN, json!([own, other.clone()])), false),
            (binding(CLUSTER_ADMIN, json!([other])), false),
            (binding(CLUSTER_ADMIN, Value::Null), false),
        ] {
            assert_eq!(gives_all_rights(&binding), goes, "{binding:?}");
        }
    }
}
