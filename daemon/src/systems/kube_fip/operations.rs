//! What the system can be asked for.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::metrics::VipSites;
use crate::config::operation::{Column, ColumnLink, Does, Operations, Served, SystemOperation};

/// All of it.
pub(super) static OPERATIONS: Operations = Operations {
    title: "kube-fip",
    about: "kube-fip: addresses and kube-vip of guest clusters",
    all: &[
        SystemOperation {
            name: "guests",
            about: "Guest clusters, their addresses and their releases, and how they are doing",
            path: "/api/v1/kube-fip/guests",
            variable: "",
            does: Does::List {
                field: "guests",
                kind: "",
                columns: &[
                    Column::new("ID", "id"),
                    Column::new("NAME", "display_name"),
                    Column::new("PHASE", "phase"),
                    Column::new("REASON", "reason"),
                    Column::new("ADDRESSES", "addresses"),
                    Column::new("RANGES", "ranges"),
                    Column::new("SINCE", "since"),
                    Column::new("MESSAGE", "message"),
                ],
            },
            served: Served::Guests,
        },
        SystemOperation {
            name: "ranges",
            about: "FloatingIPRanges, their networks and how much of them is in use",
            path: "/api/v1/kube-fip/ranges",
            variable: "",
            does: Does::List {
                field: "ranges",
                kind: "",
                columns: &[
                    Column::new("CLUSTER", "cluster"),
                    Column::new("NAME", "name"),
                    Column::new("RANGE", "range"),
                    Column::new("HARVESTER", "harvester"),
                    Column::new("NETWORK", "network"),
                    Column::new("POOL", "pool").to(ColumnLink::Pool),
                    Column::new("USED", "used"),
                    Column::new("FREE", "free"),
                ],
            },
            served: Served::BySystem,
        },
    ],
};

/// The ranges of all connected Ranchers. One that is no pool has no figures.
pub(super) fn ranges(sites: &VipSites) -> BTreeMap<String, Value> {
    let mut rows = BTreeMap::new();
    for (cluster, guests) in sites.guests.all() {
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
