//! What is kept of a cluster that Rancher manages.

use fipd_core::words;
use fipd_crds::{
    labels::{
        CHART_ENGINE, DISABLED, ENABLED, HARVESTER, LOAD_BALANCER_TYPE, LOCAL_CLUSTER, PROVIDER,
        RANCHER_FIP,
    },
    management::Cluster,
};
use serde::Serialize;

use crate::config::ChartEngine;

/// A `management.cattle.io` Cluster, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RancherCluster {
    pub uid: String,
    /// It is being deleted.
    pub ending: bool,
    pub display_name: String,
    /// What its label `rancher-fip` says.
    pub switch: ClusterMark<bool>,
    /// A Harvester cluster: served through its guests.
    pub harvester: bool,
    /// Rancher's own cluster.
    pub local: bool,
    /// Which load balancer its label means.
    pub load_balancer: LoadBalancer,
    /// `rancher-fip-lbtype`.
    pub load_balancer_label: ClusterMark<LoadBalancer>,
    /// What its annotation says of what installs its charts; without it the configuration counts.
    pub engine: ClusterMark<ChartEngine>,
}

/// What a label or annotation of a cluster says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterMark<T> {
    /// It is not there.
    #[default]
    Silent,
    Known(T),
    /// None of the values that mean something.
    Unclear(String),
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
        let meta = object.metadata;
        let labels = meta.labels.unwrap_or_default();
        let annotations = meta.annotations.unwrap_or_default();
        let is = |key: &str, value: &str| labels.get(key).is_some_and(|set| set == value);
        let load_balancers = LoadBalancer::ALL.map(|one| (one.as_str(), one));
        let load_balancer_label = ClusterMark::read(labels.get(LOAD_BALANCER_TYPE), load_balancers);
        let engines = [ChartEngine::Helm, ChartEngine::HelmChart].map(|one| (one.as_str(), one));
        Self {
            uid: meta.uid.unwrap_or_default(),
            ending: meta.deletion_timestamp.is_some(),
            display_name: object.spec.display_name,
            switch: ClusterMark::read(
                labels.get(RANCHER_FIP),
                [(ENABLED, true), (DISABLED, false)],
            ),
            engine: ClusterMark::read(annotations.get(CHART_ENGINE), engines),
            harvester: is(PROVIDER, HARVESTER),
            local: meta.name.as_deref() == Some(LOCAL_CLUSTER),
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

impl<T> ClusterMark<T> {
    fn read(said: Option<&String>, known: impl IntoIterator<Item = (&'static str, T)>) -> Self {
        let Some(said) = said else {
            return Self::Silent;
        };
        let mut known = known.into_iter();
        match known.find(|(value, _)| value == said) {
            Some((_, meaning)) => Self::Known(meaning),
            None => Self::Unclear(said.clone()),
        }
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
    fn the_engine_is_read_strictly() {
        let engine = |said: &str| {
            let object = json!({
                "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
                "metadata": { "name": "c-1", "annotations": { "fipd.io/chart-engine": said } },
            });
            RancherCluster::view(serde_json::from_value(object).unwrap()).engine
        };
        assert_eq!(engine("helm"), ClusterMark::Known(ChartEngine::Helm));
        assert_eq!(
            engine("helm-chart"),
            ClusterMark::Known(ChartEngine::HelmChart)
        );
        assert_eq!(
            engine("HelmChart"),
            ClusterMark::Unclear("HelmChart".into())
        );
        assert_eq!(cluster("c-1", json!({})).engine, ClusterMark::Silent);
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
