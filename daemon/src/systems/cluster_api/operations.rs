//! What the system can be asked for.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::sites::IpamSites;
use crate::config::operation::{Column, Does, Operations, Served, SystemOperation};

/// All of it.
pub(super) static OPERATIONS: Operations = Operations {
    title: "Cluster API",
    about: "cluster-api: claims of Cluster API and the addresses that they have",
    all: &[SystemOperation {
        name: CLAIMS,
        about: "IPAddressClaims, their pools and addresses, and why they wait",
        path: "/api/v1/cluster-api/claims",
        variable: "",
        does: Does::List {
            field: "claims",
            kind: "IPAddressClaim",
            columns: &[
                Column::new("CLUSTER", "cluster"),
                Column::new("NAMESPACE", "namespace"),
                Column::new("NAME", "name"),
                Column::new("POOL", "pool"),
                Column::new("ADDRESS", "address"),
                Column::new("READY", "ready"),
                Column::new("REASON", "reason"),
                Column::new("MESSAGE", "message"),
            ],
        },
        served: Served::BySystem,
    }],
};

/// The operation that lists claims.
pub(super) const CLAIMS: &str = "claims";

/// The claims of all connected clusters.
pub(super) fn claims(sites: &IpamSites) -> BTreeMap<String, Value> {
    let mut rows = BTreeMap::new();
    for (cluster, claims) in sites.connected() {
        for (key, claim) in claims.context.objects.all() {
            let there = claims.user.address_of(&key, &claim.pool);
            let address = there.and_then(|there| there.address);
            let ready = claim
                .conditions
                .iter()
                .find(|one| one.type_ == super::names::READY);
            let row = json!({
                "cluster": &*cluster, "namespace": &*key.namespace, "name": &*key.name,
                "pool": format!("{}/{}", claim.pool.kind, claim.pool.name),
                "address": address.map(|address| address.to_string()),
                "ready": ready.map(|ready| &*ready.status),
                "reason": ready.map(|ready| &*ready.reason),
                "message": ready.map(|ready| &*ready.message),
            });
            rows.insert(format!("{cluster}/{key}"), row);
        }
    }
    rows
}
