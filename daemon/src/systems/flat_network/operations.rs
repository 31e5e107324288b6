//! What the system can be asked for.

use std::collections::BTreeMap;

use fipd_core::Ledger;
use serde_json::{Value, json};

use super::pod::PodController;
use crate::{
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
    ],
};

const SUBNETS: &str = "subnets";
const PODS: &str = "pods";

/// The rows of a list, of all clusters that are served now.
pub(super) fn rows(
    sites: &Connected<PodController>,
    list: &SystemOperation,
) -> BTreeMap<String, Value> {
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

fn subnets(pods: &PodController) -> Vec<(Key, Value)> {
    let all = pods.subnets.all().into_iter();
    all.map(|(key, subnet)| {
        let mut row = json!({
            "namespace": &*key.namespace, "name": &*key.name, "flat_mode": subnet.spec.flat_mode,
            "master": subnet.spec.master, "vlan": subnet.spec.vlan, "cidr": subnet.spec.cidr,
            "phase": subnet.status.phase, "message": subnet.status.failure_message,
        });
        let found = pods.context.read(|ledger: &Ledger| {
            let pool = pods.context.site.mirror_in(ledger, &key.to_string())?;
            Some((pool.clone(), ledger.usage(pool.id)?))
        });
        if let Some((pool, usage)) = found {
            row["pool"] = json!(&*pool.spec.name);
            row["pool_id"] = json!(pool.id.0);
            row["used"] = json!(usage.used.saturating_add(usage.out_of_range));
            row["free"] = json!(usage.free);
        }
        (key, row)
    })
    .collect()
}

fn addresses(pods: &PodController) -> Vec<(Key, Value)> {
    let all = pods.ips.context.objects.all().into_iter();
    all.map(|(key, ip)| {
        let mut conditions = ip.status.conditions.iter();
        let ready = conditions.find(|one| one.type_ == READY);
        let waits = ready.filter(|ready| ready.status != "True");
        let pod = pods.context.objects.get(&key);
        let network = pods.context.read(|ledger| {
            let identity = pods.ips.context.identity(&key);
            let leases = ledger.leases_of(&identity);
            let lease = leases.first()?;
            ledger
                .network(lease.key.network)
                .map(|network| network.name.to_string())
        });
        let row = json!({
            "namespace": &*key.namespace, "name": &*key.name, "subnet": ip.spec.subnet,
            "address": Some(&ip.status.addr).filter(|text| !text.is_empty()),
            "address_network": network, "mac": ip.status.mac,
            "node": pod.as_ref().and_then(|pod| pod.node.clone()),
            "phase": ip.status.phase,
            "reason": waits.map(|ready| ready.reason.clone()),
            "message": waits.map(|ready| ready.message.clone()),
        });
        (key, row)
    })
    .collect()
}
