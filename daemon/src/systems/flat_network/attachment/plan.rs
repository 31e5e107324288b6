//! What is to become of the definition of a namespace.

use fipd_crds::flat_network::names::CNI_TYPE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::AttachmentView;
use crate::controller::{kind::NAMESPACE, store::Key};

/// What is to become of a definition.
#[derive(Clone, Debug, PartialEq)]
pub enum AttachmentPlan {
    Leave,
    /// With this body.
    Create(Value),
    /// By this merge patch.
    Repair(Value),
    /// It is somebody else's.
    Foreign,
}

/// Plans it. `namespace` is with its UID.
pub fn plan(
    namespace: (&Key, &str),
    config: &Value,
    found: Option<&AttachmentView>,
) -> AttachmentPlan {
    let text = config.to_string();
    let Some(found) = found else {
        let metadata = json!({ "ownerReferences": [owner(namespace)] });
        return AttachmentPlan::Create(json!({ "metadata": metadata, "spec": { "config": text } }));
    };
    let said: Value = serde_json::from_str(&found.config).unwrap_or_default();
    let is_of = |one: &OwnerReference| one.kind == NAMESPACE.kind && one.name == *namespace.0.name;
    let is_owned = found.owners.iter().any(is_of);
    if !is_owned && !found.is_marked && said["type"] != CNI_TYPE {
        return AttachmentPlan::Foreign;
    }
    let (key, uid) = namespace;
    let mut owners = found.owners.clone();
    // One with another UID is of a former namespace of this name.
    owners.retain(|one| !is_of(one) || one.uid == uid);
    if owners.iter().all(|one| one.uid != uid) {
        owners.push(owner((key, uid)));
    }
    let mut patch = json!({ "metadata": { "uid": &*found.uid, "resourceVersion": found.version } });
    if owners != found.owners {
        patch["metadata"]["ownerReferences"] = json!(owners);
    }
    if said != *config {
        patch["spec"]["config"] = json!(text);
    }
    match owners == found.owners && said == *config {
        true => AttachmentPlan::Leave,
        false => AttachmentPlan::Repair(patch),
    }
}

fn owner((key, uid): (&Key, &str)) -> OwnerReference {
    OwnerReference {
        api_version: NAMESPACE.api_version().to_owned(),
        kind: NAMESPACE.kind.to_owned(),
        name: key.name.to_string(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}
