//! What the demo's site is told: fipd's config, and the objects that an admin and a user make.

use std::path::Path;

use anyhow::Result;
use fipd_crds::labels::{APP_NAMESPACE, CONFIG_NAME, LB_CONTROLLER};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::{CLUSTER, POOL};

/// Rancher by its kubeconfig, all other clusters found through Rancher. `url`: where guests find fipd.
pub(super) fn config(url: &str, helm: &Path) -> String {
    let helm = helm.display();
    format!(
        r#"
[api]
advertise = "{url}"

[helm]
path = "{helm}"

[[cluster]]
name = "rancher"
kubeconfig = "rancher.kubeconfig"
systems = ["rancher-fip"]

[cluster.rancher-fip.cluster-manager]
enabled = true

[discovery]
cluster = "rancher"
match-labels = {{ rancher-fip = "enabled" }}
systems = ["rancher-fip"]
"#
    )
}

/// Addresses of the range kept for documentation, as the default pool of the cluster.
pub(super) fn pool() -> Value {
    json!({
        "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPPool",
        "metadata": { "name": POOL, "annotations": { "rancher-fip-default-network": "true" } },
        "spec": {
            "ipConfig": {
                "family": "IPv4", "subnet": "192.0.2.0/24",
                "pool": { "start": "192.0.2.10", "end": "192.0.2.250" },
            },
            "targetCluster": CLUSTER, "targetNetwork": "public", "targetNetworkInterface": "eth0",
        },
    })
}

/// Who has no quota gets nothing.
pub(super) fn quota(project: &str) -> Value {
    json!({
        "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPProjectQuota",
        "metadata": { "name": project },
        "spec": { "displayName": "demo", "floatingIPQuota": { (POOL): 10 } },
    })
}

/// Which charts the clusters get, as the originals' ConfigMap says it. Where guests find the API it leaves to fipd.
pub(super) fn settings(repository: &str) -> Value {
    let mut data = serde_json::Map::new();
    for (prefix, chart, version) in [
        ("RancherFipLBController", LB_CONTROLLER, "0.4.1"),
        ("PureLBController", "purelb", "0.14.1"),
    ] {
        for (key, value) in [
            ("ChartName", chart),
            ("ChartRef", repository),
            ("ChartVersion", version),
            ("Namespace", APP_NAMESPACE),
        ] {
            data.insert(format!("{prefix}{key}"), json!(value));
        }
    }
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": CONFIG_NAME, "namespace": APP_NAMESPACE }, "data": data,
    })
}

/// Rancher's object of the cluster with the label that switches the system on, or without.
pub(super) fn label(enabled: bool) -> Value {
    let value = enabled.then_some("enabled");
    json!({ "metadata": { "labels": { "rancher-fip": value } } })
}

pub(super) fn service(name: &str, class: Option<&str>) -> Result<Service> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": class,
            "selector": { "app": name }, "ports": [{ "port": 80, "protocol": "TCP" }],
        },
    }))?)
}
