//! What fipd writes for a Cluster: its claims, its addresses and its conditions.

use serde_json::{Map, Value, json};

use super::{
    choose::{VipPool, VipRole, VipSlot},
    observe::CapiClusterView,
    plan::{VipApply, is_label_value},
    second::SecondApply,
};
use crate::{
    controller::{kind::Kind, store::Key},
    systems::cluster_api::names::{
        CLUSTER_NAME, CLUSTER_VIP, CONTROL_PLANE_CLAIM, CONTROL_PLANE_VIP, INGRESS_CLAIM,
        INGRESS_VIP, IPAM_GROUP, RELEASE_ADDRESS, ROLE, SECOND_CLUSTER_VIP,
        SECOND_CONTROL_PLANE_CLAIM, SECOND_CONTROL_PLANE_VIP, SECOND_INGRESS_CLAIM,
        SECOND_INGRESS_VIP, WATCH_FILTER,
    },
};

/// The field manager of an apply. What a manager leaves out of an apply is removed, so that each always has the same fields.
pub fn manager(apply: &VipApply) -> &'static str {
    let filled = apply.variable.is_some() || apply.annotation.is_some();
    match (apply.endpoint.is_some(), filled, apply.ingress.is_some()) {
        (true, _, false) => "fipd-cluster-endpoint",
        (true, _, true) | (false, false, false) => "fipd-cluster-vip",
        (false, false, true) => "fipd-cluster-ingress",
        // Of an endpoint that is not of a claim, which stays whatever they leave out.
        (false, true, false) => "fipd-cluster-variable",
        (false, true, true) => "fipd-cluster-variable-ingress",
    }
}

/// The same of the second family.
pub fn second_manager(apply: &SecondApply) -> &'static str {
    match (apply.control_plane.is_some(), apply.ingress.is_some()) {
        (true, false) => "fipd-cluster-second-endpoint",
        (false, true) => "fipd-cluster-second-ingress",
        (true, true) | (false, false) => "fipd-cluster-second-vip",
    }
}

/// The field manager of the conditions.
pub const CONDITION_MANAGER: &str = "fipd-cluster-conditions";

/// The claim of an address.
pub fn claim_key(cluster: &Key, slot: VipSlot) -> Key {
    let prefix = match (slot.role, slot.second) {
        (VipRole::ControlPlane, false) => CONTROL_PLANE_CLAIM,
        (VipRole::Ingress, false) => INGRESS_CLAIM,
        (VipRole::ControlPlane, true) => SECOND_CONTROL_PLANE_CLAIM,
        (VipRole::Ingress, true) => SECOND_INGRESS_CLAIM,
    };
    Key::new(&cluster.namespace, &format!("{prefix}{}", cluster.name))
}

/// The claim of an address on this pool. `served`: fipd serves it, so that it has fipd's finalizer from the start.
pub fn claim(
    (kind, api): (Kind, &str),
    (key, cluster): (&Key, &CapiClusterView),
    (slot, pool): (VipSlot, &VipPool),
    served: bool,
) -> Value {
    let name = claim_key(key, slot).name;
    let mut labels = json!({ ROLE: slot.role.name(), CLUSTER_NAME: &*key.name });
    // So that the shard that serves the Cluster serves its claim.
    if let Some(filter) = &cluster.filter {
        labels[WATCH_FILTER] = json!(filter);
    }
    let finalizers = served.then_some([RELEASE_ADDRESS]);
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": {
            "name": &*name, "namespace": &*key.namespace,
            "labels": labels, "finalizers": finalizers,
            "ownerReferences": [owner(api, key, cluster)],
        },
        "spec": {
            "clusterName": &*key.name,
            "poolRef": { "apiGroup": IPAM_GROUP, "kind": pool.kind.kind, "name": &*pool.key.name },
        },
    })
}

/// The Cluster as the owner of its claims; `api` is the version that it is read in.
pub fn owner(api: &str, key: &Key, cluster: &CapiClusterView) -> Value {
    json!({
        "apiVersion": api, "kind": "Cluster", "name": &*key.name, "uid": &*cluster.meta.uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Both addresses, in one apply of exactly these fields.
pub fn addresses(api: &str, key: &Key, cluster: &CapiClusterView, apply: &VipApply) -> Value {
    let mut meta = as_read(key, cluster);
    if let Some(address) = apply.annotation {
        meta["annotations"][CONTROL_PLANE_VIP] = json!(address.to_string());
    }
    if let Some(address) = apply.ingress {
        let text = address.to_string();
        meta["annotations"][INGRESS_VIP] = json!(text);
        if is_label_value(&text) {
            meta["labels"] = json!({ INGRESS_VIP: text });
        }
    }
    let mut spec = Map::new();
    if let Some(address) = apply.variable {
        let topology = variable(CLUSTER_VIP, &address.to_string());
        spec.insert("topology".into(), topology);
    }
    if let Some((host, port)) = &apply.endpoint {
        let endpoint = json!({ "host": host, "port": port });
        spec.insert("controlPlaneEndpoint".into(), endpoint);
    }
    let mut body = json!({ "apiVersion": api, "kind": "Cluster", "metadata": meta });
    if !spec.is_empty() {
        body["spec"] = spec.into();
    }
    body
}

/// Those of the second family, in one apply of exactly these fields.
pub fn second_addresses(
    api: &str,
    key: &Key,
    cluster: &CapiClusterView,
    apply: &SecondApply,
) -> Value {
    let mut annotations = Map::new();
    let shown = [
        (SECOND_CONTROL_PLANE_VIP, apply.control_plane),
        (SECOND_INGRESS_VIP, apply.ingress),
    ];
    for (name, address) in shown {
        if let Some(address) = address {
            annotations.insert(name.into(), address.to_string().into());
        }
    }
    let mut meta = as_read(key, cluster);
    meta["annotations"] = annotations.into();
    let mut body = json!({ "apiVersion": api, "kind": "Cluster", "metadata": meta });
    if let Some(address) = apply.control_plane.filter(|_| apply.variable) {
        let topology = variable(SECOND_CLUSTER_VIP, &address.to_string());
        body["spec"] = json!({ "topology": topology });
    }
    body
}

fn identity(key: &Key, cluster: &CapiClusterView) -> Value {
    json!({
        "name": &*key.name, "namespace": &*key.namespace, "uid": &*cluster.meta.uid,
    })
}

/// The Cluster in the version that was read: an apply takes fields over, and must not take what somebody wrote meanwhile.
fn as_read(key: &Key, cluster: &CapiClusterView) -> Value {
    let mut meta = identity(key, cluster);
    meta["resourceVersion"] = json!(cluster.meta.version);
    meta
}

fn variable(name: &str, value: &str) -> Value {
    json!({ "variables": [{ "name": name, "value": value }] })
}

/// The conditions, where the version of the Cluster has those of the form of `metav1.Condition`.
pub fn conditions(api: &str, key: &Key, cluster: &CapiClusterView, all: &Value) -> Value {
    let status = match cluster.is_v1beta1 {
        true => json!({ "v1beta2": { "conditions": all } }),
        false => json!({ "conditions": all }),
    };
    json!({
        "apiVersion": api, "kind": "Cluster",
        "metadata": identity(key, cluster),
        "status": status,
    })
}
