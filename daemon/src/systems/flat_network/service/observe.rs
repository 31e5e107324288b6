//! What is kept of Services and of the pods behind them.

use std::sync::Arc;

use fipd_core::Text;
use fipd_crds::flat_network::names::{
    ATTACHMENT, CNI_TYPE, COMPANION_SUFFIX, FLAT_NETWORK_SERVICE, NETWORK_STATUS, NETWORKS,
};
use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, PodStatus, Service, ServicePort},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use crate::{
    controller::meta::{Meta, View},
    validation::flat_network::{
        annotations::{Annotations, PodAddresses},
        multus::NetworkStatus,
    },
};

/// Labels of a pod, or what a Service selects by them.
pub type PodLabels = Annotations;

/// What the annotation for networks was until 2024; the original still writes it on backends of Ingresses (g1-12).
pub const FORMER_ATTACHMENT: &str = CNI_TYPE;
/// Annotation on a Service: that of its networks is there because of an Ingress. fipd's own.
pub const NETWORKS_SET_BY: &str = "fipd.io/networks-set-by";
/// Annotation on a companion of the original: the selector that it had. fipd's own.
pub const SELECTOR_BEFORE: &str = "fipd.io/selector-before";
/// Value of [`FLAT_NETWORK_SERVICE`].
const DISABLED: &str = "disabled";
/// The network of the program before the original, and the end of its companions' names.
const V1_ATTACHMENT: &str = "static-macvlan-cni-attach";
const V1_SUFFIX: &str = "-macvlan";

/// A Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlatServiceView {
    pub meta: Meta,
    /// `spec.type` is `ClusterIP` or left out.
    pub is_cluster_ip: bool,
    /// `spec.type` is `ExternalName`: nobody reads its selector.
    pub is_external: bool,
    pub is_headless: bool,
    pub selector: PodLabels,
    pub ports: Vec<ServicePort>,
    /// Pods count as ready when they are not.
    pub publishes_unready: bool,
    /// The annotation for networks.
    pub networks: Option<String>,
    /// fipd put that annotation there because of an Ingress.
    pub is_set_by_ingress: bool,
    pub owners: Vec<OwnerReference>,
}

/// A pod with an address on a flat network, or one that keeps companions away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlatPodView {
    pub uid: Text,
    pub labels: Arc<PodLabels>,
    /// It asks for an address on a flat network.
    pub is_flat: bool,
    /// It keeps companions away.
    pub is_opted_out: bool,
    /// It is neither being deleted nor has it ended.
    pub is_alive: bool,
    /// By its condition `Ready`.
    pub is_ready: bool,
    pub node: Option<String>,
    pub hostname: Option<String>,
    pub subdomain: Option<String>,
    /// The interfaces that Multus reports; none until it does.
    pub interfaces: Vec<NetworkStatus>,
    /// Ports of containers that have a name.
    pub ports: Vec<NamedPort>,
}

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    pub name: String,
    pub protocol: String,
    pub number: i32,
}

impl FlatServiceView {
    pub fn of(service: Service) -> Self {
        let mut meta = service.metadata;
        let annotations = meta.annotations.take().unwrap_or_default();
        let spec = service.spec.unwrap_or_default();
        let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
        Self {
            is_cluster_ip: kind == "ClusterIP",
            is_external: kind == "ExternalName",
            is_headless: spec.cluster_ip.as_deref() == Some("None"),
            selector: spec.selector.unwrap_or_default(),
            ports: spec.ports.unwrap_or_default(),
            publishes_unready: spec.publish_not_ready_addresses == Some(true),
            networks: annotations.get(NETWORKS).cloned(),
            is_set_by_ingress: annotations.contains_key(NETWORKS_SET_BY),
            owners: meta.owner_references.take().unwrap_or_default(),
            meta: Meta::of(&meta),
        }
    }

    /// Whether it selects pods: the selector of an ExternalName is none.
    pub fn selects(&self) -> bool {
        !self.selector.is_empty() && !self.is_external
    }

    /// Whether it is the companion of another, by the contract's test. Those of 2024 name the network as it was then.
    pub fn is_companion(&self, name: &str) -> bool {
        let networks = self.networks.as_deref();
        name.ends_with(COMPANION_SUFFIX)
            && self.is_cluster_ip
            && self.is_headless
            && [Some(ATTACHMENT), Some(FORMER_ATTACHMENT)].contains(&networks)
    }

    /// Whether it is a companion of the program before the original.
    pub fn is_v1_companion(&self, name: &str) -> bool {
        name.ends_with(V1_SUFFIX)
            && self.is_headless
            && self.networks.as_deref() == Some(V1_ATTACHMENT)
    }

    /// Whether Rancher made it for an Ingress.
    pub fn is_of_ingress(&self, name: &str) -> bool {
        name.starts_with("ingress-") && self.owners.iter().any(|owner| owner.kind == "Ingress")
    }

    /// Whether the object with this UID owns it.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.owners.iter().any(|owner| owner.uid == uid)
    }
}

impl View for FlatServiceView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

/// Whether a pod asks for an address on a flat network, and whether it keeps companions away, by its annotations.
fn asks(annotations: &Annotations) -> (bool, bool) {
    let is_flat = !matches!(PodAddresses::read("", annotations), Ok(None));
    let said = annotations.get(FLAT_NETWORK_SERVICE);
    (is_flat, said.is_some_and(|said| said == DISABLED))
}

/// Whether anything is kept of a pod.
pub fn concerns(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations
        .map(asks)
        .is_some_and(|asks| asks != (false, false))
}

/// Nothing of a pod that neither has an address on a flat network nor keeps companions away.
pub fn pod(pod: Pod) -> Option<FlatPodView> {
    let meta = pod.metadata;
    let annotations = meta.annotations.unwrap_or_default();
    let (is_flat, is_opted_out) = asks(&annotations);
    if !is_flat && !is_opted_out {
        return None;
    }
    let status = pod.status.unwrap_or_default();
    let spec = pod.spec.unwrap_or_default();
    let networks = annotations.get(NETWORK_STATUS).map(String::as_str);
    Some(FlatPodView {
        uid: meta.uid.unwrap_or_default().into(),
        labels: Arc::new(meta.labels.unwrap_or_default()),
        is_flat,
        is_opted_out,
        is_alive: meta.deletion_timestamp.is_none() && !has_ended(&status),
        is_ready: is_ready(&status),
        interfaces: NetworkStatus::parse_all(networks.unwrap_or_default()),
        ports: named_ports(&spec),
        node: spec.node_name,
        hostname: spec.hostname,
        subdomain: spec.subdomain,
    })
}

fn has_ended(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn is_ready(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

/// Of its containers, and of init containers that go on beside them, as the controllers of Kubernetes look for them.
fn named_ports(spec: &PodSpec) -> Vec<NamedPort> {
    let init = spec.init_containers.iter().flatten();
    let sidecars = init.filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let ports = |container: &Container| container.ports.clone().unwrap_or_default();
    let all = spec.containers.iter().chain(sidecars).flat_map(ports);
    all.filter_map(|one| {
        Some(NamedPort {
            name: one.name.filter(|name| !name.is_empty())?,
            protocol: one.protocol.unwrap_or_else(|| "TCP".to_owned()),
            number: one.container_port,
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod_of(annotations: &Value, status: &Value) -> Option<FlatPodView> {
        let object = json!({
            "metadata": { "name": "web-0", "uid": "p", "annotations": annotations },
            "spec": {
                "containers": [{ "name": "a", "ports": [
                    { "containerPort": 8080, "name": "http", "protocol": "TCP" }, { "containerPort": 9 },
                ] }],
                "initContainers": [
                    { "name": "b", "ports": [{ "containerPort": 1, "name": "once" }] },
                    { "name": "c", "restartPolicy": "Always", "ports": [{ "containerPort": 2, "name": "side" }] },
                ],
            },
            "status": status,
        });
        pod(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn only_flat_pods_and_those_that_opt_out_are_kept() {
        let none = json!({});
        assert_eq!(pod_of(&json!({ "other": "x" }), &none), None);
        let no_subnet = json!({ "flatnetwork.pandaria.io/ip": "auto" });
        assert_eq!(pod_of(&no_subnet, &none), None);
        let opted_out = json!({ FLAT_NETWORK_SERVICE: "disabled" });
        let opted_out = pod_of(&opted_out, &none).unwrap();
        assert!(opted_out.is_opted_out && !opted_out.is_flat);
    }

    /// Defect g1-16: what is published is the condition of the pod.
    #[test]
    fn readiness_is_that_of_the_pod_and_one_that_ended_is_out() {
        let flat = json!({ "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "blue" });
        let fresh = pod_of(&flat, &json!({})).unwrap();
        assert!(fresh.is_alive && !fresh.is_ready && fresh.interfaces.is_empty());
        let named: Vec<_> = fresh
            .ports
            .iter()
            .map(|one| (&*one.name, one.number))
            .collect();
        assert_eq!(named, [("http", 8080), ("side", 2)]);
        let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        assert!(pod_of(&flat, &ready).unwrap().is_ready);
        let ended = json!({ "phase": "Succeeded" });
        assert!(!pod_of(&flat, &ended).unwrap().is_alive);
    }
}
