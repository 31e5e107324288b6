//! What is kept of a cluster that Rancher manages.

use std::fmt;

use fipd_crds::{
    labels::{
        CHART_ENGINE, DISABLED, ENABLED, HARVESTER, LOAD_BALANCER_TYPE, LOCAL_CLUSTER, METALLB,
        PROVIDER, PURELB, RANCHER_FIP,
    },
    management::Cluster,
};

use crate::config::ChartEngine;

/// A `management.cattle.io` Cluster, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RancherCluster {
    pub uid: String,
    /// It is being deleted.
    pub ending: bool,
    pub display_name: String,
    /// What its label says.
    pub switch: Switch,
    /// A Harvester cluster: served through its guests.
    pub harvester: bool,
    /// Rancher's own cluster.
    pub local: bool,
    /// Which load balancer its label means.
    pub load_balancer: LoadBalancer,
    pub load_balancer_label: TypeLabel,
    pub engine: EngineWish,
}

/// What the annotation of a cluster says of what installs its charts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EngineWish {
    /// Nothing: the configuration counts.
    #[default]
    None,
    Some(ChartEngine),
    /// None of the values that mean something.
    Unclear(String),
}

/// What the label `rancher-fip-lbtype` of a cluster says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TypeLabel {
    /// There is no label.
    #[default]
    Silent,
    Known(LoadBalancer),
    /// None of the values that mean something.
    Unclear(String),
}

/// What the label `rancher-fip` of a cluster says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    On,
    /// By the word of somebody.
    Off,
    /// There is no label.
    #[default]
    Silent,
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
        let annotations = meta.annotations.unwrap_or_default();
        let known = [ChartEngine::Helm, ChartEngine::HelmChart];
        let is = |key: &str, value: &str| labels.get(key).is_some_and(|set| set == value);
        let load_balancer_label = TypeLabel::read(labels.get(LOAD_BALANCER_TYPE));
        Self {
            uid: meta.uid.unwrap_or_default(),
            ending: meta.deletion_timestamp.is_some(),
            display_name: object.spec.display_name,
            switch: match labels.get(RANCHER_FIP).map(String::as_str) {
                None => Switch::Silent,
                Some(ENABLED) => Switch::On,
                Some(DISABLED) => Switch::Off,
                Some(other) => Switch::Unclear(other.to_owned()),
            },
            engine: match annotations.get(CHART_ENGINE) {
                None => EngineWish::None,
                Some(said) => match known.into_iter().find(|one| one.as_str() == said) {
                    Some(engine) => EngineWish::Some(engine),
                    None => EngineWish::Unclear(said.clone()),
                },
            },
            harvester: is(PROVIDER, HARVESTER),
            local: meta.name.as_deref() == Some(LOCAL_CLUSTER),
            load_balancer: load_balancer_label.means(),
            load_balancer_label,
        }
    }

    pub fn mode(&self) -> GuestMode<'_> {
        match &self.switch {
            _ if self.harvester || self.local => GuestMode::Silent,
            Switch::On => GuestMode::Guest,
            Switch::Off => GuestMode::Off,
            Switch::Silent => GuestMode::Silent,
            Switch::Unclear(value) => GuestMode::Unclear(value),
        }
    }

    /// Whether it is to be looked after.
    pub fn is_guest(&self) -> bool {
        self.mode() == GuestMode::Guest
    }
}

impl TypeLabel {
    fn read(label: Option<&String>) -> Self {
        match label.map(String::as_str) {
            None => Self::Silent,
            Some(PURELB) => Self::Known(LoadBalancer::PureLb),
            Some(METALLB) => Self::Known(LoadBalancer::MetalLb),
            Some(other) => Self::Unclear(other.to_owned()),
        }
    }

    /// Anything but `metallb` means PureLB.
    fn means(&self) -> LoadBalancer {
        match self {
            Self::Known(load_balancer) => *load_balancer,
            Self::Silent | Self::Unclear(_) => LoadBalancer::PureLb,
        }
    }
}

impl LoadBalancer {
    pub const ALL: [Self; 2] = [Self::PureLb, Self::MetalLb];

    pub fn other(self) -> Self {
        match self {
            Self::PureLb => Self::MetalLb,
            Self::MetalLb => Self::PureLb,
        }
    }

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
            RancherCluster::slim(serde_json::from_value(object).unwrap()).engine
        };
        assert_eq!(engine("helm"), EngineWish::Some(ChartEngine::Helm));
        assert_eq!(
            engine("helm-chart"),
            EngineWish::Some(ChartEngine::HelmChart)
        );
        assert_eq!(engine("HelmChart"), EngineWish::Unclear("HelmChart".into()));
        assert_eq!(cluster("c-1", json!({})).engine, EngineWish::None);
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
