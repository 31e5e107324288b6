//! What is kept of pods: of those that ask for an address of a flat network, and of no others.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::Text;
use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    jiff,
};

use super::alive;
use crate::{
    controller::{
        meta::{Meta, View},
        store::Key,
    },
    systems::flat_network::names::{
        ADDITIONAL_INTERFACES, FLAT_MODE, IP_TYPE, NETWORK_STATUS, SELECTED_IP, SELECTED_MAC,
        SUBNET, WORKLOAD_SELECTOR,
    },
    validation::{
        Wrong,
        flat_network::{
            annotations::{self, Annotations, PodAddresses, annotation},
            interfaces::{InterfaceId, PodInterface, is_pod_name},
            multus,
            workload::{WorkloadRef, check_lists},
        },
    },
};

const TEMPLATE_HASH: &str = "pod-template-hash";
/// Where they are, for messages.
pub const ANNOTATIONS: &str = "metadata.annotations";
/// The labels that the originals write on pods, and that of its workload.
const LABELS: [&str; 6] = [
    SUBNET,
    SELECTED_IP,
    SELECTED_MAC,
    IP_TYPE,
    FLAT_MODE,
    WORKLOAD_SELECTOR,
];

/// An interface of a pod on a flat network, as far as it and the pod matter.
#[derive(Clone, Debug, PartialEq)]
pub struct PodView {
    /// Of the pod.
    pub meta: Meta,
    /// Name of the pod.
    pub pod: Text,
    pub interface: InterfaceId,
    /// Of the first interface: the others of the pod, as its address names them.
    pub further: Option<String>,
    /// What it asks for, or the annotation that makes no sense.
    pub wants: Result<PodAddresses, Wrong>,
    pub node: Option<String>,
    /// Since when it has that, where its scheduler says so.
    pub scheduled: Option<jiff::Timestamp>,
    /// All its containers have ended for good.
    pub finished: bool,
    /// The addresses that its interfaces on the flat network have, by what Multus says.
    pub uses: Vec<IpAddr>,
    /// Who made it.
    pub controller: Option<OwnerReference>,
    /// The workload whose template it has, as far as the pod says it.
    pub workload: Option<WorkloadRef>,
    /// Of those that the originals write.
    pub labels: BTreeMap<&'static str, String>,
    /// How many seconds the next pod of its name is waited for, where it says so.
    pub keeps: Option<u32>,
}

impl View for PodView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

impl PodView {
    /// It uses no address any more, or not for long.
    pub fn is_over(&self) -> bool {
        self.finished || self.meta.is_terminating()
    }

    /// The pod; `ip` is the key of its address.
    pub fn key(&self, ip: &Key) -> Key {
        Key::new(&ip.namespace, &self.pod)
    }

    /// Those of a pod, by the names of their addresses; empty: it asks for none. One that makes no sense asks for one.
    pub fn all_of(pod: &Pod) -> BTreeMap<Text, Self> {
        let name: Text = pod.metadata.name.as_deref().unwrap_or_default().into();
        let Some(annotations) = &pod.metadata.annotations else {
            return BTreeMap::new();
        };
        let (interfaces, keeps) = match read(&name, annotations) {
            Ok(found) => found,
            Err(wrong) => {
                // No object is called so, where the name is that of another pod's address.
                let free = || format!("{name}/").into();
                let object = if is_pod_name(&name) { name } else { free() };
                return BTreeMap::from([(object, Self::of(pod, Err(wrong)))]);
            }
        };
        let base = Self {
            keeps,
            ..Self::of(pod, Ok(PodAddresses::default()))
        };
        let ids = interfaces.values().map(|one| &one.id);
        let others: Vec<_> = ids.filter(|id| !id.is_first()).collect();
        let others = (!others.is_empty()).then(|| InterfaceId::list(&others));
        let views = interfaces.into_iter().map(|(object, one)| {
            let view = Self {
                further: others.clone().filter(|_| one.id.is_first()),
                interface: one.id,
                // The webhook may not have been asked.
                wants: check_lists(&one.asked, &one.fields).map(|()| one.asked),
                ..base.clone()
            };
            (object, view)
        });
        views.collect()
    }

    fn of(pod: &Pod, wants: Result<PodAddresses, Wrong>) -> Self {
        let meta = &pod.metadata;
        let owners = meta.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        let controller = controllers.next().cloned();
        Self {
            pod: meta.name.as_deref().unwrap_or_default().into(),
            interface: InterfaceId::default(),
            further: None,
            workload: controller.as_ref().and_then(|owner| workload(meta, owner)),
            wants,
            uses: used(meta),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            scheduled: alive::scheduled(pod),
            finished: alive::is_finished(pod),
            controller,
            labels: labels(meta),
            keeps: None,
            meta: Meta::of(meta),
        }
    }
}

/// The interfaces of a pod by the names of their addresses.
type NamedInterfaces = BTreeMap<Text, PodInterface>;

/// With how many seconds the addresses wait for the next pod of its name.
fn read(pod: &Text, annotations: &Annotations) -> Result<(NamedInterfaces, Option<u32>), Wrong> {
    let mut named = NamedInterfaces::new();
    for one in PodInterface::read_all(ANNOTATIONS, annotations)? {
        let name: Text = one.id.object_name(ANNOTATIONS, pod)?.into();
        if let Some(other) = named.get(&name) {
            let allowed = format!(
                "its address would be called like that of interface {:?}; give it another name",
                other.id.name
            );
            let field = annotation(ANNOTATIONS, ADDITIONAL_INTERFACES);
            return Err(Wrong::new(field, &one.id.name, allowed));
        }
        named.insert(name, one);
    }
    if named.is_empty() {
        return Ok((named, None));
    }
    Ok((named, annotations::keep_seconds(ANNOTATIONS, annotations)?))
}

/// The addresses that a pod has on the flat network, by what Multus says.
pub fn used(meta: &ObjectMeta) -> Vec<IpAddr> {
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let text = meta
        .annotations
        .as_ref()
        .and_then(|all| all.get(NETWORK_STATUS));
    let read = text.and_then(|text| multus::shown_addresses(namespace, NETWORK_STATUS, text).ok());
    read.unwrap_or_default()
}

/// A ReplicaSet has the name of its Deployment, and behind it the hash that its pods have as a label.
fn workload(meta: &ObjectMeta, owner: &OwnerReference) -> Option<WorkloadRef> {
    let namespace = meta.namespace.as_deref()?;
    let (kind, name) = match &*owner.kind {
        "ReplicaSet" => {
            let hash = meta.labels.as_ref()?.get(TEMPLATE_HASH)?;
            let name = owner.name.strip_suffix(hash.as_str())?;
            ("Deployment", name.strip_suffix('-')?)
        }
        kind => (kind, &*owner.name),
    };
    Some(WorkloadRef::new(kind, namespace, name))
}

fn labels(meta: &ObjectMeta) -> BTreeMap<&'static str, String> {
    let all = meta.labels.as_ref();
    let of = |key: &'static str| Some((key, all?.get(key)?.clone()));
    LABELS.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Defect 14 of g.1: the original takes the name of a Deployment for its kind.
    #[test]
    fn g1_14_a_deployment_that_is_called_like_a_kind_is_a_deployment() {
        let meta = json!({ "namespace": "ns", "labels": { TEMPLATE_HASH: "7d9f" } });
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "StatefulSet-7d9f", "uid": "r",
        });
        let meta = serde_json::from_value(meta).expect("metadata");
        let owner = serde_json::from_value(owner).expect("an owner");
        let expected = WorkloadRef::new("Deployment", "ns", "StatefulSet");
        assert_eq!(workload(&meta, &owner), Some(expected));
    }
}
