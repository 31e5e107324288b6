//! What is kept of a cluster that Rancher manages.

use std::fmt;

use fipd_crds::{
    labels::{
        ENABLED, HARVESTER, LOAD_BALANCER_TYPE, LOCAL_CLUSTER, METALLB, PROVIDER, PURELB,
        RANCHER_FIP,
    },
    management::Cluster,
};

/// A `management.cattle.io` Cluster, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RancherCluster {
    pub uid: String,
    pub display_name: String,
    /// Whether its label switches floating IPs on.
    pub enabled: bool,
    /// A Harvester cluster: served through its guests.
    pub harvester: bool,
    /// Rancher's own cluster.
    pub local: bool,
    pub load_balancer: LoadBalancer,
}

/// Which load balancer a cluster is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadBalancer {
    #[default]
    PureLb,
    MetalLb,
}

impl RancherCluster {
    pub fn slim(object: Cluster) -> Self {
        let meta = object.metadata;
        let labels = meta.labels.unwrap_or_default();
        let is = |key: &str, value: &str| labels.get(key).is_some_and(|set| set == value);
        Self {
            uid: meta.uid.unwrap_or_default(),
            display_name: object.spec.display_name,
            enabled: is(RANCHER_FIP, ENABLED),
            harvester: is(PROVIDER, HARVESTER),
            local: meta.name.as_deref() == Some(LOCAL_CLUSTER),
            load_balancer: if is(LOAD_BALANCER_TYPE, METALLB) {
                LoadBalancer::MetalLb
            } else {
                LoadBalancer::PureLb
            },
        }
    }

    /// Whether it is to be looked after.
    pub fn is_guest(&self) -> bool {
        self.enabled && !self.harvester && !self.local
    }
}

impl LoadBalancer {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PureLb => PURELB,
            Self::MetalLb => METALLB,
        }
    }
}

impl fmt::Display for LoadBalancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(name: &str, labels: serde_json::Value) -> RancherCluster {
        let object = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
            "metadata": { "name": name, "labels": labels }, "spec": { "displayName": "prod" },
        });
        RancherCluster::slim(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn only_labelled_clusters_that_are_neither_rancher_nor_harvester_are_guests() {
        let on = json!({ "rancher-fip": "enabled" });
        assert!(cluster("c-1", on.clone()).is_guest());
        assert!(!cluster("local", on).is_guest());
        let harvester = json!({ "rancher-fip": "enabled", "provider.cattle.io": "harvester" });
        assert!(!cluster("c-1", harvester).is_guest());
        for off in [json!({}), json!({ "rancher-fip": "true" })] {
            assert!(!cluster("c-1", off).is_guest());
        }
    }

    #[test]
    fn anything_but_metallb_means_purelb() {
        for (label, expected) in [
            ("metallb", "metallb"),
            ("purelb", "purelb"),
            ("x", "purelb"),
        ] {
            let labels = json!({ "rancher-fip-lbtype": label });
            assert_eq!(cluster("c-1", labels).load_balancer.as_str(), expected);
        }
        assert_eq!(cluster("c-1", json!({})).load_balancer.as_str(), "purelb");
    }
}
