//! What is kept of a cluster that Rancher manages.

use std::ops::Deref;

use fipd_core::words;
use fipd_crds::{
    labels::{DISABLED, ENABLED, LOAD_BALANCER_TYPE, RANCHER_FIP},
    management::Cluster,
};
use serde::Serialize;

use crate::guests::clusters::{ClusterMark, ManagedCluster};

/// A `management.cattle.io` Cluster, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RancherCluster {
    /// What matters to every system.
    pub managed: ManagedCluster,
    /// What its label `rancher-fip` says.
    pub switch: ClusterMark<bool>,
    /// Which load balancer its label means.
    pub load_balancer: LoadBalancer,
    /// `rancher-fip-lbtype`.
    pub load_balancer_label: ClusterMark<LoadBalancer>,
}

/// What is to be done about a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestMode<'a> {
    /// It is looked after.
    Guest,
    /// What fipd made there goes.
    Off,
    /// The same, but only once it is certain that nothing is missing by mistake.
    Silent,
    /// Everything stays as it is. The value of the label.
    Unclear(&'a str),
}

words! {
    /// Which load balancer a cluster is to have.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    pub enum LoadBalancer {
        #[default]
        PureLb = "purelb",
        MetalLb = "metallb",
    }
}

impl RancherCluster {
    pub fn view(object: Cluster) -> Self {
        let managed = ManagedCluster::view(&object);
        let labels = object.metadata.labels.unwrap_or_default();
        let load_balancers = LoadBalancer::ALL.map(|one| (one.as_str(), one));
        let load_balancer_label = ClusterMark::read(labels.get(LOAD_BALANCER_TYPE), load_balancers);
        Self {
            managed,
            switch: ClusterMark::read(
                labels.get(RANCHER_FIP),
                [(ENABLED, true), (DISABLED, false)],
            ),
            load_balancer: match load_balancer_label {
                ClusterMark::Known(load_balancer) => load_balancer,
                // Anything but `metallb` means PureLB.
                ClusterMark::Silent | ClusterMark::Unclear(_) => LoadBalancer::PureLb,
            },
            load_balancer_label,
        }
    }

    pub fn mode(&self) -> GuestMode<'_> {
        match &self.switch {
            _ if self.harvester || self.local => GuestMode::Silent,
            ClusterMark::Known(true) => GuestMode::Guest,
            ClusterMark::Known(false) => GuestMode::Off,
            ClusterMark::Silent => GuestMode::Silent,
            ClusterMark::Unclear(value) => GuestMode::Unclear(value),
        }
    }

    /// Whether it is to be looked after.
    pub fn is_guest(&self) -> bool {
        self.mode() == GuestMode::Guest
    }
}

impl Deref for RancherCluster {
    type Target = ManagedCluster;

    fn deref(&self) -> &ManagedCluster {
        &self.managed
    }
}

impl AsRef<ManagedCluster> for RancherCluster {
    fn as_ref(&self) -> &ManagedCluster {
        &self.managed
    }
}

impl LoadBalancer {
    pub fn other(self) -> Self {
        match self {
            Self::PureLb => Self::MetalLb,
            Self::MetalLb => Self::PureLb,
        }
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
        RancherCluster::view(serde_json::from_value(object).unwrap())
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
    fn a_typo_in_the_label_switches_nothing_off() {
        let mode = |value: &str| {
            let cluster = cluster("c-1", json!({ "rancher-fip": value }));
            match cluster.mode() {
                GuestMode::Unclear(value) => format!("unclear {value}"),
                other @ (GuestMode::Guest | GuestMode::Off | GuestMode::Silent) => {
                    format!("{other:?}")
                }
            }
        };
        assert_eq!(mode("enabled"), "Guest");
        assert_eq!(mode("disabled"), "Off");
        for typo in ["enabeld", "Enabled", "true", ""] {
            assert_eq!(mode(typo), format!("unclear {typo}"));
        }
        assert_eq!(cluster("c-1", json!({})).mode(), GuestMode::Silent);
        let harvester = json!({ "rancher-fip": "x", "provider.cattle.io": "harvester" });
        assert_eq!(cluster("c-1", harvester).mode(), GuestMode::Silent);
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
