//! What the system can be asked for.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::Ledger;
use fipd_crds::cluster_api::Endpoint;
use serde_json::{Value, json};

use super::{
    claim::{observe::IpClaimView, wish},
    metrics::phase,
    names::READY,
    pool::{InClusterView, object_of},
    sites::IpamSites,
    vip::{
        CapiClusterView, VipController,
        choose::VipSlot,
        report::{VipState, endpoint_differs, report},
        write::claim_key,
    },
};
use crate::{
    config::operation::{Column, ColumnLink, Does, Operations, Served, SystemOperation},
    controller::{kind::Kind, store::Key},
};

/// All of it.
pub(super) static OPERATIONS: Operations = Operations {
    title: "Cluster API",
    about: "cluster-api: Clusters and claims of Cluster API, and the addresses that they have",
    all: &[
        SystemOperation {
            name: CLUSTERS,
            about: "Clusters, their endpoints and ingress addresses, and why they wait",
            path: "/api/v1/cluster-api/clusters",
            variable: "",
            does: Does::List {
                field: CLUSTERS,
                kind: "Cluster",
                columns: &[
                    Column::new("CLUSTER", "cluster"),
                    Column::new("NAMESPACE", "namespace"),
                    Column::new("NAME", "name").to(ColumnLink::Rows(CLAIMS)),
                    Column::new("API", "api_version"),
                    Column::new("STATE", "state"),
                    Column::new("ENDPOINT", "endpoint"),
                    Column::new("CONTROL PLANE", "control_plane").to(ColumnLink::Lease),
                    Column::new("INGRESS", "ingress").to(ColumnLink::Lease),
                    Column::new("CLAIMS", "claims"),
                    Column::new("MODE", "mode"),
                    Column::new("ALARM", "alarm"),
                    Column::new("REASON", "reason"),
                    Column::new("MESSAGE", "message"),
                ],
            },
            served: Served::BySystem,
        },
        SystemOperation {
            name: CLAIMS,
            about: "IPAddressClaims, their pools and addresses, and why they wait",
            path: "/api/v1/cluster-api/claims",
            variable: "",
            does: Does::List {
                field: CLAIMS,
                kind: "IPAddressClaim",
                columns: &[
                    Column::new("CLUSTER", "cluster"),
                    Column::new("NAMESPACE", "namespace"),
                    Column::new("NAME", "name"),
                    Column::new("OF", "of").to(ColumnLink::Rows(CLUSTERS)),
                    Column::new("POOL", "pool").to(ColumnLink::Pool),
                    Column::new("ADDRESS", "address").to(ColumnLink::Lease),
                    Column::new("READY", "ready"),
                    Column::new("REASON", "reason"),
                    Column::new("MESSAGE", "message"),
                ],
            },
            served: Served::BySystem,
        },
        SystemOperation {
            name: POOLS,
            about: "Pools of the in-cluster provider, and how much of them is in use",
            path: "/api/v1/cluster-api/pools",
            variable: "",
            does: Does::List {
                field: POOLS,
                kind: "",
                columns: &[
                    Column::new("CLUSTER", "cluster"),
                    Column::new("KIND", "kind"),
                    Column::new("NAMESPACE", "namespace"),
                    Column::new("NAME", "name").to(ColumnLink::Rows(CLAIMS)),
                    Column::new("POOL", "pool").to(ColumnLink::Pool),
                    Column::new("USED", "used"),
                    Column::new("FREE", "free"),
                    Column::new("SERVES", "serves"),
                    Column::new("READY", "ready"),
                    Column::new("REASON", "reason"),
                    Column::new("MESSAGE", "message"),
                ],
            },
            served: Served::BySystem,
        },
    ],
};

const CLUSTERS: &str = "clusters";
const CLAIMS: &str = "claims";
const POOLS: &str = "pools";

/// The rows of a list, of all clusters that are served now.
pub(super) fn rows(sites: &IpamSites, list: &SystemOperation) -> BTreeMap<String, Value> {
    let mut rows = BTreeMap::new();
    for (cluster, vips) in sites.vips.all() {
        let found: Vec<(String, Value)> = match list.name {
            CLUSTERS => {
                let all = vips.context.objects.all().into_iter();
                all.map(|(key, one)| (key.to_string(), of_cluster(&vips, &key, &one)))
                    .collect()
            }
            CLAIMS => {
                let all = vips.claims.context.objects.all().into_iter();
                all.filter(|(_, claim)| claim.served)
                    .map(|(key, claim)| (key.to_string(), of_claim(&vips, &key, &claim)))
                    .collect()
            }
            _ => pools(&vips),
        };
        for (key, mut row) in found {
            row["cluster"] = json!(&*cluster);
            rows.insert(format!("{cluster}/{key}"), row);
        }
    }
    rows
}

fn of_cluster(vips: &VipController, key: &Key, cluster: &CapiClusterView) -> Value {
    let said = report(vips.context.site.settings(), key, cluster);
    let endpoint = cluster.endpoint.as_ref();
    let class = cluster.class.as_ref();
    let declares = class.and_then(|class| vips.classes.get(class));
    let has_variable = declares.is_some_and(|class| class.declares_vip);
    let claims = VipSlot::ALL.map(|slot| claim_key(key, slot));
    let names = claims
        .iter()
        .filter(|claim| vips.claims.context.objects.get(claim).is_some());
    let names: Vec<&str> = names.map(|claim| &*claim.name).collect();
    let mut row = json!({
        "namespace": &*key.namespace, "name": &*key.name,
        "api_version": vips.context.kind().api_version(), "class": cluster.class_name(),
        "state": said.state.as_str(), "waiting": said.state == VipState::Waiting,
        "endpoint": endpoint.map(host_and_port),
        "claims": names, "mode": if has_variable { "variable" } else { "annotation" },
        "alarm": endpoint_differs(cluster).then_some("the endpoint differs from its lease"),
        "reason": said.reason, "message": said.message,
    });
    let shown = [
        ("control_plane", cluster.host()),
        ("ingress", cluster.ingress_host()),
    ];
    for ((field, shown), claim) in shown.into_iter().zip(&claims) {
        let lease = lease(vips, key, claim, shown);
        row[field] = json!(lease.map(|(address, _)| address).or(shown));
        row[format!("{field}_network")] = json!(lease.map(|(_, network)| network));
    }
    row
}

/// An IPv6 address is in brackets, as in a URL.
fn host_and_port(endpoint: &Endpoint) -> String {
    let Endpoint { host, port } = endpoint;
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// What the claim of a role has, else what is reserved of what the Cluster shows: address, and number of its network.
fn lease(
    vips: &VipController,
    cluster: &Key,
    claim: &Key,
    shown: Option<IpAddr>,
) -> Option<(IpAddr, u32)> {
    let (by_claim, own) = (
        vips.claims.context.identity(claim),
        vips.context.identity(cluster),
    );
    vips.context.read(|ledger: &Ledger| {
        let claimed = ledger.leases_of(&by_claim).into_iter().next();
        let mut own = ledger.leases_of(&own).into_iter();
        let key = claimed
            .or_else(|| own.find(|lease| Some(lease.key.address) == shown))?
            .key;
        Some((key.address, key.network.0))
    })
}

fn of_claim(vips: &VipController, key: &Key, claim: &IpClaimView) -> Value {
    let claims = &vips.claims;
    let site = &claims.context.site;
    let there = claims.user.address_of(key, &claim.pool);
    let identity = claims.context.identity(key);
    let (network, pool) = claims.context.read(|ledger| {
        let lease = ledger.leases_of(&identity).into_iter().next();
        let pool = wish::pool(ledger, site, &key.namespace, &claim.pool).ok();
        let pool = pool.map(|pool| pool.id.0);
        (lease.map(|lease| lease.key.network.0), pool)
    });
    let ready = claim.ready();
    json!({
        "namespace": &*key.namespace, "name": &*key.name, "of": claim.cluster,
        "pool": format!("{}/{}", claim.pool.kind, claim.pool.name), "pool_id": pool,
        "address": there.and_then(|there| there.address), "address_network": network,
        "waiting": phase(claim) == "waiting",
        "ready": ready.map(|ready| &*ready.status),
        "reason": ready.map(|ready| &*ready.reason),
        "message": ready.map(|ready| &*ready.message),
    })
}

fn pools(vips: &VipController) -> Vec<(String, Value)> {
    let kinds = vips.claims.user.pools.iter();
    let all = kinds.flat_map(|(kind, objects)| {
        let objects = objects.all().into_iter();
        objects.map(|(key, pool)| {
            (
                format!("{}/{key}", kind.kind),
                of_pool(vips, *kind, &key, &pool),
            )
        })
    });
    all.collect()
}

fn of_pool(vips: &VipController, kind: Kind, key: &Key, pool: &InClusterView) -> Value {
    let object = object_of(kind.plural, key);
    let site = &vips.context.site;
    let mirror = vips.context.read(|ledger| {
        let mirror = site.mirror_in(ledger, &object)?;
        Some((mirror.id.0, mirror.spec.name.to_string()))
    });
    let counts = pool.status.ip_addresses;
    let serves = pool.vip.iter().flat_map(|labels| labels.pairs());
    let serves: Vec<_> = serves
        .map(|(class, role)| format!("{class} {role}"))
        .collect();
    let ready = pool.status.conditions.iter().find(|one| one.type_ == READY);
    json!({
        "kind": kind.kind, "namespace": &*key.namespace, "name": &*key.name,
        "pool": mirror.as_ref().map(|(_, name)| name), "pool_id": mirror.as_ref().map(|(id, _)| id),
        "used": counts.map(|counts| counts.used), "free": counts.map(|counts| counts.free),
        "serves": serves, "paused": pool.paused,
        "waiting": counts.is_some_and(|counts| counts.free == 0),
        "ready": ready.map(|ready| &*ready.status),
        "reason": ready.map(|ready| &*ready.reason),
        "message": ready.map(|ready| &*ready.message),
    })
}
