//! What the system can be asked for.

use std::collections::BTreeMap;

use fipd_core::Ledger;
use serde_json::{Value, json};

use super::{
    ip::FlatIpView,
    names::pod_key,
    pod::{PodController, observe::PodView},
};
use crate::{
    cni::CniHealth,
    config::operation::{Column, ColumnLink, Does, Operations, Served, SystemOperation},
    connected::Connected,
    controller::{conditions::READY, store::Key},
};

/// All of it.
pub(super) static OPERATIONS: Operations = Operations {
    title: "Pod networks",
    about: "flat-network: subnets of macvlan and ipvlan networks, and the addresses of pods",
    all: &[
        SystemOperation {
            name: SUBNETS,
            about: "FlatNetworkSubnets, and how much of them is in use",
            path: "/api/v1/flat-network/subnets",
            variable: "",
            does: Does::List {
                field: SUBNETS,
                kind: "FlatNetworkSubnet",
                columns: &[
                    Column::new("CLUSTER", "cluster"),
                    Column::new("NAME", "name").to(ColumnLink::Rows(PODS)),
                    Column::new("MODE", "flat_mode"),
                    Column::new("MASTER", "master"),
                    Column::new("VLAN", "vlan"),
                    Column::new("CIDR", "cidr"),
                    Column::new("POOL", "pool").to(ColumnLink::Pool),
                    Column::new("USED", "used"),
                    Column::new("FREE", "free"),
                    Column::new("PHASE", "phase"),
                    Column::new("MESSAGE", "message"),
                ],
            },
            served: Served::BySystem,
        },
        SystemOperation {
            name: PODS,
            about: "Pods on flat networks, their addresses, and why they wait",
            path: "/api/v1/flat-network/pods",
            variable: "",
            does: Does::List {
                field: PODS,
                kind: "FlatNetworkIP",
                columns: &[
                    Column::new("CLUSTER", "cluster"),
                    Column::new("NAMESPACE", "namespace"),
                    Column::new("NAME", "name"),
                    Column::new("INTERFACE", "interface"),
                    Column::new("SUBNET", "subnet").to(ColumnLink::Rows(SUBNETS)),
                    Column::new("ADDRESS", "address").to(ColumnLink::Lease),
                    Column::new("MAC", "mac"),
                    Column::new("NODE", "node"),
                    Column::new("PHASE", "phase"),
                    Column::new("REASON", "reason"),
                    Column::new("MESSAGE", "message"),
                ],
            },
            served: Served::BySystem,
        },
        SystemOperation {
            name: NODE,
            about: "Health of the CNI plugin of this host alone, and what it keeps here; each node has its own",
            path: "/api/v1/flat-network/node",
            variable: "",
            does: Does::List {
                field: NODE,
                kind: "CniNode",
                columns: &[
                    Column::new("NODE", "name"),
                    Column::new("PLUGIN", "version"),
                    Column::new("ATTACHMENTS", "attachments"),
                    Column::new("KEPT", "kept"),
                    Column::new("ANSWERED", "answered"),
                    Column::new("REFUSED", "refused"),
                    Column::new("LAST GC", "last_gc"),
                    Column::new("LAST ERROR", "last_error"),
                    Column::new("MESSAGE", "message"),
                ],
            },
            served: Served::OfHost,
        },
    ],
};

const SUBNETS: &str = "subnets";
const PODS: &str = "pods";
const NODE: &str = "node";

/// The rows of a list: of all clusters that are served now, or of this host.
pub(super) fn rows(
    sites: &Connected<PodController>,
    (node, cni): (&str, &CniHealth),
    list: &SystemOperation,
) -> BTreeMap<String, Value> {
    if list.name == NODE {
        let row = cni.serves.then(|| (node.to_owned(), of_node(node, cni)));
        return row.into_iter().collect();
    }
    let mut rows = BTreeMap::new();
    for (cluster, pods) in sites.all() {
        let found = match list.name {
            SUBNETS => subnets(&pods),
            _ => addresses(&pods),
        };
        for (key, mut row) in found {
            row["cluster"] = json!(&*cluster);
            rows.insert(format!("{cluster}/{key}"), row);
        }
    }
    rows
}

fn of_node(name: &str, cni: &CniHealth) -> Value {
    let failure = cni.last_error.as_ref();
    json!({
        "name": name, "version": cni.plugin,
        "attachments": cni.attachments, "kept": cni.kept, "answered": cni.answered, "refused": cni.refused,
        "last_gc": cni.last_gc.map(|at| at.to_string()),
        "last_error": failure.map(|one| format!("{} {} at {}", one.verb, one.code, one.at)),
        "message": failure.map(|one| one.message.clone()),
    })
}

fn subnets(pods: &PodController) -> Vec<(Key, Value)> {
    let all = pods.subnets.all().into_iter();
    all.map(|(key, subnet)| {
        let spec = subnet.status.accepted.as_ref().unwrap_or(&subnet.spec);
        let mut row = json!({
            "namespace": &*key.namespace, "name": &*key.name, "flat_mode": spec.flat_mode,
            "master": spec.master, "vlan": spec.vlan, "cidr": spec.cidr,
            "phase": subnet.status.phase, "message": subnet.status.failure_message,
        });
        let found = pods.context.read(|ledger: &Ledger| {
            let pool = pods.context.site.mirror_in(ledger, &key.to_string())?;
            Some((pool.clone(), ledger.usage(pool.id)?))
        });
        if let Some((pool, usage)) = found {
            row["pool"] = json!(&*pool.spec.name);
            row["pool_id"] = json!(pool.id.0);
            row["used"] = json!(usage.attributed);
            row["free"] = json!(usage.free);
        }
        (key, row)
    })
    .collect()
}

/// The addresses of pods, and pods that get none for what their annotations say.
fn addresses(pods: &PodController) -> Vec<(Key, Value)> {
    let all = pods.ips.context.objects.all().into_iter();
    let addressed = all.map(|(key, ip)| {
        let row = address(pods, &key, &ip);
        (key, row)
    });
    let refused = pods.refused().into_iter();
    let without = refused.map(|one| {
        let mut row = named(&one.key, Some(&one.pod));
        let interface = Some(&one.pod.interface.name);
        row["interface"] = json!(interface.filter(|name| !name.is_empty()));
        row["pod"] = json!(&*one.pod.pod);
        row["reason"] = json!(one.reason);
        row["message"] = json!(one.message);
        (one.key, row)
    });
    addressed.chain(without).collect()
}

fn named(key: &Key, pod: Option<&PodView>) -> Value {
    json!({
        "namespace": &*key.namespace, "name": &*key.name, "pod": &*pod_key(key).name,
        "node": pod.and_then(|pod| pod.node.clone()),
    })
}

fn address(pods: &PodController, key: &Key, ip: &FlatIpView) -> Value {
    let mut conditions = ip.status.conditions.iter();
    let ready = conditions.find(|one| one.type_ == READY);
    let waits = ready.filter(|ready| ready.status != "True");
    let network = pods.context.read(|ledger| {
        let identity = pods.ips.context.identity(key);
        let leases = ledger.leases_of(&identity);
        leases.first().map(|lease| lease.key.network.0)
    });
    let mut row = named(key, pods.context.objects.get(key).as_deref());
    row["interface"] = json!(ip.interface);
    row["subnet"] = json!(ip.spec.subnet);
    row["address"] = json!(Some(&ip.status.addr).filter(|text| !text.is_empty()));
    row["address_network"] = json!(network);
    row["mac"] = json!(ip.status.mac);
    row["phase"] = json!(ip.status.phase);
    row["reason"] = json!(waits.map(|ready| ready.reason.clone()));
    row["message"] = json!(waits.map(|ready| ready.message.clone()));
    row
}
