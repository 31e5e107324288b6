//! What is to become of the companion of a Service.

use std::sync::Arc;

use fipd_core::Text;
use fipd_crds::{
    flat_network::names::{ATTACHMENT, NETWORKS},
    labels::{FIELD_MANAGER, MANAGED_BY},
};
use k8s_openapi::{
    api::core::v1::ServicePort,
    apimachinery::pkg::{apis::meta::v1::OwnerReference, util::intstr::IntOrString},
};
use serde_json::{Value, json};

use super::observe::{FlatPodView, FlatServiceView, SELECTOR_BEFORE};
use crate::controller::{kind::SERVICE, store::Key};

/// What decides about the companion of a Service.
pub struct CompanionFacts<'a> {
    pub original: (&'a Key, &'a FlatServiceView),
    /// Name of the companion.
    pub name: &'a str,
    /// The Service of that name.
    pub found: Option<&'a FlatServiceView>,
    /// The pods that the original selects, as far as they matter.
    pub pods: &'a [(Key, Arc<FlatPodView>)],
}

/// What is to become of a companion.
#[derive(Clone, Debug, PartialEq)]
pub enum CompanionPlan {
    Leave,
    /// With this body.
    Create(Value),
    /// By this merge patch.
    Refresh(Value),
    /// The one with this UID.
    Delete(Text),
    /// It is wanted, and a Service that is none has its name.
    Taken,
}

/// Plans it.
///
/// A companion differs from those of the original in three ways:
/// - It has no selector. With one, the controllers of Kubernetes write a slice of the pods' primary addresses beside fipd's, and
///   everyone who resolves the companion gets both (row 62); they would also undo each change of its Endpoints. fipd reads the
///   selector of the original. A headless Service without selector may have slices of both families in any cluster as well.
/// - The Service alone owns it. The original adds the Service's own owners; an object goes only once all of its owners are
///   gone, so a companion would outlive its Service.
/// - Its ports are those of the Service, also where that is headless. The original adds one to each port and target port there,
///   which makes 1 of a named one (g1-15) and publishes ports on which no pod listens. Nobody needs that: who resolves a headless
///   Service brings a port of its own, and two Services never compete for one.
pub fn plan(facts: &CompanionFacts<'_>) -> CompanionPlan {
    let (key, original) = facts.original;
    if is_skipped(&key.name, original) {
        return CompanionPlan::Leave;
    }
    let ours = facts.found.filter(|found| is_ours(facts, found));
    let alive = || facts.pods.iter().filter(|(_, pod)| pod.is_alive);
    if !original.selects() || alive().any(|(_, pod)| pod.is_opted_out) {
        return match ours.filter(|found| !found.meta.is_terminating()) {
            Some(found) => CompanionPlan::Delete(Text::clone(&found.meta.uid)),
            None => CompanionPlan::Leave,
        };
    }
    let wanted = alive().any(|(_, pod)| pod.is_flat);
    match (facts.found, ours) {
        (_, Some(found)) => refresh(facts.original, found),
        (Some(_), None) if wanted => CompanionPlan::Taken,
        (None, None) if wanted => CompanionPlan::Create(body(facts)),
        (Some(_) | None, None) => CompanionPlan::Leave,
    }
}

/// Services that get no companion.
fn is_skipped(name: &str, service: &FlatServiceView) -> bool {
    service.is_of_ingress(name) || service.is_companion(name) || service.is_v1_companion(name)
}

/// Whether the Service of the companion's name is one: by the contract's test, or because the original owns it.
fn is_ours(facts: &CompanionFacts<'_>, found: &FlatServiceView) -> bool {
    let (_, original) = facts.original;
    let owned = found.is_owned_by(&original.meta.uid);
    found.is_companion(facts.name) || owned && found.is_cluster_ip && found.is_headless
}

fn body(facts: &CompanionFacts<'_>) -> Value {
    let (key, original) = facts.original;
    json!({
        "apiVersion": SERVICE.api_version(),
        "kind": SERVICE.kind,
        "metadata": {
            "namespace": &*key.namespace,
            "name": facts.name,
            "labels": { MANAGED_BY: FIELD_MANAGER },
            "annotations": { NETWORKS: ATTACHMENT },
            "ownerReferences": [owner(facts.original)],
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "clusterIPs": ["None"],
            "ports": ports(original),
        },
    })
}

/// What differs of fipd's fields. The lists are replaced, so that an edit which fipd has not seen must not be lost.
fn refresh(original: (&Key, &FlatServiceView), found: &FlatServiceView) -> CompanionPlan {
    let wanted_owners = owners(original, &found.owners);
    let wanted_ports = ports(original.1);
    let same_networks = found.networks.as_deref() == Some(ATTACHMENT);
    let same_owners = wanted_owners == found.owners;
    let same_ports = wanted_ports == ports(found);
    let same = same_networks && same_owners && same_ports && found.selector.is_empty();
    if same || found.meta.is_terminating() {
        return CompanionPlan::Leave;
    }
    let (uid, version) = (&*found.meta.uid, &found.meta.version);
    let mut patch = json!({ "metadata": { "uid": uid, "resourceVersion": version } });
    if !same_networks {
        patch["metadata"]["annotations"] = json!({ NETWORKS: ATTACHMENT });
    }
    if !same_owners {
        patch["metadata"]["ownerReferences"] = json!(wanted_owners);
    }
    if !same_ports {
        patch["spec"]["ports"] = json!(wanted_ports);
    }
    if !found.selector.is_empty() {
        patch["spec"]["selector"] = Value::Null;
        // It comes back when fipd leaves the cluster.
        let before = json!(found.selector).to_string();
        patch["metadata"]["annotations"][SELECTOR_BEFORE] = json!(before);
    }
    CompanionPlan::Refresh(patch)
}

/// The owners of a companion: the original, and those that somebody else added. The owners of the original, and a former Service
/// of its name, are none.
fn owners(original: (&Key, &FlatServiceView), found: &[OwnerReference]) -> Vec<OwnerReference> {
    let (key, service) = original;
    let uid = &*service.meta.uid;
    let copied = |one: &OwnerReference| service.is_owned_by(&one.uid);
    let former = |one: &OwnerReference| {
        one.kind == SERVICE.kind && *one.name == *key.name && *one.uid != *uid
    };
    let mut owners: Vec<OwnerReference> = Vec::new();
    for one in found.iter().filter(|one| !copied(one) && !former(one)) {
        if owners.iter().all(|other| other.uid != one.uid) {
            owners.push(one.clone());
        }
    }
    if owners.iter().all(|other| *other.uid != *uid) {
        owners.push(owner(original));
    }
    owners
}

/// The Service as the owner of what fipd makes because of it.
pub fn owner((key, service): (&Key, &FlatServiceView)) -> OwnerReference {
    OwnerReference {
        api_version: SERVICE.api_version().to_owned(),
        kind: SERVICE.kind.to_owned(),
        name: key.name.to_string(),
        uid: service.meta.uid.to_string(),
        ..OwnerReference::default()
    }
}

/// The ports of a Service as its companion has them, with what the API server fills in.
fn ports(service: &FlatServiceView) -> Vec<ServicePort> {
    let ports = service.ports.iter().map(|one| ServicePort {
        node_port: None,
        protocol: one.protocol.clone().or_else(|| Some("TCP".to_owned())),
        target_port: one.target_port.clone().or(Some(IntOrString::Int(one.port))),
        ..one.clone()
    });
    ports.collect()
}

#[cfg(test)]
mod tests;
