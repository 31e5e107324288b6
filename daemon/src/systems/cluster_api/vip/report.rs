//! How a Cluster is doing, for whoever shows or counts it. Pure.

use serde::Serialize;

use super::{
    observe::CapiClusterView,
    plan::{CONDITIONS, ENDPOINT_DIFFERS, ENDPOINT_READY},
};
use crate::{
    controller::store::Key,
    systems::cluster_api::{
        names::{CLUSTER_CLASS, PAUSED},
        settings::ClusterApiSettings,
    },
};

fipd_core::words! {
    /// What fipd does for a Cluster.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    pub enum VipState {
        /// It has all addresses that it is to have.
        Served = "served",
        /// It lacks one.
        Waiting = "waiting",
        Paused = "paused",
        /// It keeps its addresses until it is gone.
        Deleting = "deleting",
        /// fipd gives it no addresses.
        LeftAlone = "left-alone",
    }
}

/// A state, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VipReport {
    pub state: VipState,
    /// A word; empty where nothing is to be said.
    pub reason: String,
    /// With the next step.
    pub message: String,
}

impl VipReport {
    fn new(state: VipState, reason: &str, message: impl Into<String>) -> Self {
        Self {
            state,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// Why fipd does nothing for a Cluster; `None`: it serves it.
pub fn idle(
    settings: &ClusterApiSettings,
    key: &Key,
    cluster: &CapiClusterView,
) -> Option<VipReport> {
    let left = |reason, message: String| VipReport::new(VipState::LeftAlone, reason, message);
    if cluster.meta.is_terminating() {
        let message = "its addresses are released once it is gone";
        Some(VipReport::new(VipState::Deleting, "Deleting", message))
    } else if !settings.vips {
        let message = "vips = false in [cluster.cluster-api]";
        Some(left("Off", message.to_owned()))
    } else if !settings.covers(&key.namespace, cluster.filter.as_deref()) {
        let message = "namespace and watch-filter of [cluster.cluster-api] leave it out";
        Some(left("NotCovered", message.to_owned()))
    } else if cluster.class_name().is_none() {
        let message =
            format!("it has no ClusterClass; the annotation {CLUSTER_CLASS} names a class for it");
        Some(left("NoClass", message))
    } else if cluster.paused {
        let message = format!(
            "it is paused; nothing is done until spec.paused and the annotation {PAUSED} are gone"
        );
        Some(VipReport::new(VipState::Paused, "Paused", message))
    } else {
        None
    }
}

/// How a Cluster is doing, by what its conditions say.
pub fn report(settings: &ClusterApiSettings, key: &Key, cluster: &CapiClusterView) -> VipReport {
    if let Some(idle) = idle(settings, key, cluster) {
        return idle;
    }
    let says = |kind| cluster.conditions.iter().find(|one| one.type_ == kind);
    let of_all = CONDITIONS.map(says);
    if of_all.iter().all(Option::is_none) {
        let message = "fipd has not said anything of it yet";
        return VipReport::new(VipState::Waiting, "New", message);
    }
    let unready = of_all.into_iter().flatten();
    let unready: Vec<_> = unready.filter(|one| one.status != "True").collect();
    let waits = unready.iter().any(|one| one.reason != ENDPOINT_DIFFERS);
    let messages: Vec<_> = unready.iter().map(|one| &*one.message).collect();
    let reason = unready.first().map_or("", |one| &*one.reason);
    let state = match waits {
        true => VipState::Waiting,
        false => VipState::Served,
    };
    VipReport::new(state, reason, messages.join("; "))
}

/// Whether the endpoint differs from its lease, which nobody but an admin may put right.
pub fn endpoint_differs(cluster: &CapiClusterView) -> bool {
    let mut conditions = cluster.conditions.iter();
    conditions.any(|one| one.type_ == ENDPOINT_READY && one.reason == ENDPOINT_DIFFERS)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::systems::cluster_api::vip::{plan::INGRESS_READY, second::SECOND_ENDPOINT_READY};

    fn cluster(fields: Value, conditions: &[(&str, &str, &str)]) -> CapiClusterView {
        let mut object = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": { "name": "c", "namespace": "ns" },
            "spec": { "topology": { "classRef": { "name": "rke2" } } },
        });
        if let (Some(object), Some(fields)) = (object.as_object_mut(), fields.as_object()) {
            object.extend(fields.clone());
        }
        let all = conditions.iter().map(|(kind, status, reason)| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": format!("{reason} it is"),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        });
        object["status"] = json!({ "conditions": all.collect::<Vec<_>>() });
        CapiClusterView::of(serde_json::from_value(object).expect("a Cluster"))
    }

    #[test]
    fn a_cluster_waits_for_the_first_thing_that_it_lacks_and_drift_is_no_wait() {
        let settings = ClusterApiSettings::default();
        let key = Key::new("ns", "c");
        let (endpoint, ingress) = (ENDPOINT_READY, INGRESS_READY);
        let off = ClusterApiSettings {
            vips: false,
            ..ClusterApiSettings::default()
        };
        for (settings, fields, conditions, state, reason) in [
            (&settings, json!({}), &[][..], VipState::Waiting, "New"),
            (
                &settings,
                json!({}),
                &[
                    (endpoint, "True", "AddressAllocated"),
                    (ingress, "False", "PoolNotFound"),
                ],
                VipState::Waiting,
                "PoolNotFound",
            ),
            (
                &settings,
                json!({}),
                &[
                    (endpoint, "True", "EndpointGiven"),
                    (ingress, "True", "AddressAllocated"),
                ],
                VipState::Served,
                "",
            ),
            (
                &settings,
                json!({}),
                &[
                    (endpoint, "True", "AddressAllocated"),
                    (ingress, "True", "AddressAllocated"),
                    (SECOND_ENDPOINT_READY, "False", "PoolNotFound"),
                ],
                VipState::Waiting,
                "PoolNotFound",
            ),
            (
                &settings,
                json!({}),
                &[(endpoint, "False", ENDPOINT_DIFFERS)],
                VipState::Served,
                ENDPOINT_DIFFERS,
            ),
            (
                &settings,
                json!({ "spec": {} }),
                &[],
                VipState::LeftAlone,
                "NoClass",
            ),
            (&off, json!({}), &[], VipState::LeftAlone, "Off"),
            (
                &settings,
                json!({ "spec": { "paused": true, "topology": { "classRef": { "name": "r" } } } }),
                &[],
                VipState::Paused,
                "Paused",
            ),
            (
                &settings,
                json!({ "metadata": { "name": "c", "namespace": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
                &[],
                VipState::Deleting,
                "Deleting",
            ),
        ] {
            let cluster = cluster(fields, conditions);
            let report = report(settings, &key, &cluster);
            assert_eq!(
                (report.state, &*report.reason),
                (state, reason),
                "{report:?}"
            );
            assert_eq!(report.message.is_empty(), reason.is_empty(), "{report:?}");
            assert_eq!(endpoint_differs(&cluster), reason == ENDPOINT_DIFFERS);
        }
    }
}
