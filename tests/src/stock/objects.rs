//! What Rancher has of a cluster and a project that are served, where no cluster manager is there to make it.

use serde_json::{Value, json};

/// What the clusters of a project share.
pub fn secret(project: &str) -> String {
    format!("{project}-0123456789abcdef0123456789abcdef")
}

/// Rancher's object of a cluster, with the namespace of its projects.
pub fn cluster(id: &str) -> [Value; 2] {
    [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": id } }),
        json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": { "name": id },
            "spec": { "displayName": id.trim_start_matches("c-m-") },
        }),
    ]
}

/// A project of a cluster, with its secret and what it may have of each pool.
pub fn project(cluster: &str, id: &str, quota: &Value) -> [Value; 3] {
    [
        json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Project",
            "metadata": { "name": id, "namespace": cluster }, "spec": { "clusterName": cluster },
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": format!("rancher-fip-config-{id}"), "namespace": cluster },
            "stringData": { "project": id, "clientSecret": secret(id) },
        }),
        json!({
            "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPProjectQuota",
            "metadata": { "name": id }, "spec": { "displayName": id, "floatingIPQuota": quota },
        }),
    ]
}

pub fn pool(name: &str, subnet: &str, start: &str, end: &str) -> Value {
    json!({
        "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPPool",
        "metadata": { "name": name },
        "spec": {
            "ipConfig": { "subnet": subnet, "pool": { "start": start, "end": end } },
            "targetCluster": "dc", "targetNetwork": name,
        },
    })
}
