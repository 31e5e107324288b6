//! What the system can be asked for.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::metrics::VipSites;
use crate::config::operation::{Column, Does, Operations, Served, SystemOperation};

/// All of it.
pub(super) static OPERATIONS: Operations = Operations {
    about: "kube-fip: addresses and kube-vip of guest clusters",
    all: &[
        SystemOperation {
            name: "guests",
            about: "Guest clusters, their addresses and their releases, and how they are doing",
            path: "/api/v1/guests",
            variable: "",
            does: Does::List {
                field: "guests",
                columns: &[
                    column("ID", "id"),
                    column("NAME", "display_name"),
                    column("PHASE", "phase"),
                    column("REASON", "reason"),
                    column("ADDRESSES", "addresses"),
                    column("RANGES", "ranges"),
                    column("SINCE", "since"),
                    column("MESSAGE", "message"),
                ],
            },
            served: Served::ByFipd,
        },
        SystemOperation {
            name: "ranges",
            about: "FloatingIPRanges, their networks and how much of them is in use",
            path: "/api/v1/kube-fip/ranges",
            variable: "",
            does: Does::List {
                field: "ranges",
                columns: &[
                    column("CLUSTER", "cluster"),
                    column("NAME", "name"),
                    column("RANGE", "range"),
                    column("HARVESTER", "harvester"),
                    column("NETWORK", "network"),
                    column("POOL", "pool"),
                    column("USED", "used"),
                    column("FREE", "free"),
                ],
            },
            served: Served::BySystem,
        },
    ],
};

const fn column(title: &'static str, field: &'static str) -> Column {
    Column { title, field }
}

/// The ranges of all connected Ranchers. One that is no pool has no figures.
pub(super) fn ranges(sites: &VipSites) -> BTreeMap<String, Value> {
    let mut rows = BTreeMap::new();
    for (cluster, guests) in sites.connected() {
        guests.usages(|key, range, found| {
            let mut row = json!({
                "cluster": &*cluster, "name": &*key.name, "range": range.spec.iprange,
                "harvester": range.harvester, "network": range.network,
            });
            if let Some((pool, usage)) = found {
                row["pool"] = json!(&*pool.spec.name);
                row["pool_id"] = json!(pool.id.0);
                row["used"] = json!(usage.used);
                row["free"] = json!(usage.free);
            }
            rows.insert(format!("{cluster}/{}", key.name), row);
        });
    }
    rows
}
