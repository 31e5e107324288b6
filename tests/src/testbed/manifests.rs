//! YAML onto an API server: ordinary objects by server-side apply, CRDs with waiting until they are served.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use kube::{Client, ResourceExt};

use super::control_plane::ControlPlane;
use crate::wait::wait_until;

const FIELD_MANAGER: &str = "fipd-testbed";
const SERVED_WITHIN: Duration = Duration::from_secs(30);

impl ControlPlane {
    /// Applies all objects of a YAML text as administrator.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        apply_yaml(&self.client().await?, yaml).await.map(drop)
    }

    /// Applies CRDs and waits until they are served.
    pub async fn install_crds(&self, yaml: &str) -> Result<()> {
        install_crds(&self.client().await?, yaml).await
    }

    /// The same with CRDs that are parsed.
    pub async fn install_definitions(&self, crds: &[CustomResourceDefinition]) -> Result<()> {
        install_definitions(&self.client().await?, crds).await
    }

    /// The same with all CRDs of fipd.
    pub async fn install_fipd_crds(&self) -> Result<()> {
        self.install_definitions(&fipd_crds::all()).await
    }
}

/// The documents of a YAML text; empty ones are left out.
pub fn documents(yaml: &str) -> Result<Vec<serde_json::Value>> {
    let all: Vec<serde_json::Value> = serde_saphyr::from_multiple(yaml).context("parse YAML")?;
    Ok(all
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

/// Applies every object of a YAML text, namespaced ones without a namespace to `default`.
pub async fn apply_yaml(client: &Client, yaml: &str) -> Result<Vec<DynamicObject>> {
    let mut applied = Vec::new();
    for document in documents(yaml)? {
        let object: DynamicObject =
            serde_json::from_value(document).context("a Kubernetes object")?;
        let name = object
            .metadata
            .name
            .clone()
            .context("metadata.name is missing")?;
        let types = object
            .types
            .clone()
            .with_context(|| format!("{name}: apiVersion and kind are missing"))?;
        let gvk = GroupVersionKind::try_from(&types)?;
        let (resource, capabilities) = kube::discovery::pinned_kind(client, &gvk)
            .await
            .with_context(|| format!("{} {name}", types.kind))?;
        let namespace = object.metadata.namespace.clone();
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => Api::namespaced_with(
                client.clone(),
                namespace.as_deref().unwrap_or("default"),
                &resource,
            ),
        };
        let patch = PatchParams::apply(FIELD_MANAGER).force();
        let done = api.patch(&name, &patch, &Patch::Apply(&object)).await;
        applied.push(done.with_context(|| format!("apply {} {name}", types.kind))?);
    }
    Ok(applied)
}

/// The same as [`install_definitions`] of a YAML text.
pub async fn install_crds(client: &Client, yaml: &str) -> Result<()> {
    let crds = documents(yaml)?
        .into_iter()
        .map(|document| serde_json::from_value(document).context("a CustomResourceDefinition"));
    let crds = crds.collect::<Result<Vec<CustomResourceDefinition>>>()?;
    if crds.is_empty() {
        bail!("no CRD in the given YAML");
    }
    install_definitions(client, &crds).await
}

/// Applies all CRDs, then waits until each version of each of them can be listed.
pub async fn install_definitions(client: &Client, crds: &[CustomResourceDefinition]) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let patch = PatchParams::apply(FIELD_MANAGER).force();
    for crd in crds {
        let done = api.patch(&crd.name_any(), &patch, &Patch::Apply(crd)).await;
        done.with_context(|| format!("apply CRD {}", crd.name_any()))?;
    }
    for crd in crds {
        for version in crd.spec.versions.iter().filter(|version| version.served) {
            wait_listable(client, crd, &version.name).await?;
        }
    }
    Ok(())
}

async fn wait_listable(
    client: &Client,
    crd: &CustomResourceDefinition,
    version: &str,
) -> Result<()> {
    let spec = &crd.spec;
    let gvk = GroupVersionKind::gvk(&spec.group, version, &spec.names.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &spec.names.plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let what = format!("{}/{version} is served", crd.name_any());
    wait_until(&what, SERVED_WITHIN, || async {
        api.list(&ListParams::default().limit(1)).await
    })
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_documents_are_left_out() {
        let all = documents("---\nkind: A\n---\n---\nkind: B\n").unwrap();
        let kinds = all
            .iter()
            .map(|document| document["kind"].as_str().unwrap())
            .collect::<Vec<_>>();
        assert_eq!(kinds, ["A", "B"]);
    }
}
