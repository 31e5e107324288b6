//! Definitions of kinds of the originals, and whether an object fits one.

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

/// The definition of a kind with these fields: its group and version, kind and scope.
pub fn definition(
    (group, version): (&str, &str),
    (kind, scope): (&str, &str),
    spec: &Value,
    status: &Value,
) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let schema = json!({ "type": "object", "properties": { "spec": spec, "status": status } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": scope,
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase() },
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema }, "subresources": { "status": {} },
            }],
        },
    })
}

/// Stores an object, which has a kind, and this status of it as a restore does. The API server refuses what the definition does
/// not know.
pub async fn restore(
    api: &Api<DynamicObject>,
    object: &Value,
    status: Option<&Value>,
) -> Result<()> {
    let mut bare: DynamicObject = serde_json::from_value(object.clone())?;
    let metadata = std::mem::take(&mut bare.metadata);
    bare.metadata.name = metadata.name;
    bare.metadata.namespace = metadata.namespace;
    bare.metadata.labels = metadata.labels;
    bare.metadata.annotations = metadata.annotations;
    bare.metadata.owner_references = metadata.owner_references;
    bare.metadata.finalizers = metadata.finalizers;
    if let Some(fields) = bare.data.as_object_mut() {
        fields.remove("status");
    }
    let name = bare.name_any();
    let strict = PatchParams::apply("judge").force().validation_strict();
    let stored = api.patch(&name, &strict, &Patch::Apply(&bare)).await;
    stored.with_context(|| format!("store {name}"))?;
    let Some(status) = status else { return Ok(()) };
    let body = json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": { "name": name },
        "status": status,
    });
    let stored = api.patch_status(&name, &strict, &Patch::Apply(&body)).await;
    let stored = stored.with_context(|| format!("store the status of {name}"))?;
    anyhow::ensure!(
        stored.data["status"] == *status,
        "{name}: {}",
        stored.data["status"]
    );
    Ok(())
}
