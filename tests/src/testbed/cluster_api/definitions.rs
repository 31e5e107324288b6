//! The CRDs of core, from the sources of its release.

use std::fs;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, WebhookClientConfig, WebhookConversion,
};
use kube::api::Api;

use super::providers::definition;
use crate::testbed::control_plane::ControlPlane;
use crate::testbed::manifests;
use crate::testbed::ports::free_port;
use crate::toolchain::go::cluster_api_sources;

/// The URL of its conversion webhook has the port on which the core manager listens.
const CLUSTERS: &str = "clusters.cluster.x-k8s.io";

/// The API versions that a server has of Cluster API's kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// All versions of the release. Conversion between them needs the core manager.
    Both,
    /// As Cluster API before 1.11.
    OnlyV1Beta1,
    /// As Cluster API from 1.16 on, which no longer serves v1beta1.
    OnlyV1Beta2,
}

/// The CRDs of core as the sources have them: without conversion, which the release adds by kustomize. Read once per process.
pub fn definitions() -> Result<Vec<CustomResourceDefinition>> {
    static READ: OnceLock<Vec<CustomResourceDefinition>> = OnceLock::new();
    if let Some(all) = READ.get() {
        return Ok(all.clone());
    }
    let all = definitions_in("core/config/crd/bases")?;
    Ok(READ.get_or_init(|| all).clone())
}

/// The CRDs in a folder of the sources.
fn definitions_in(folder: &str) -> Result<Vec<CustomResourceDefinition>> {
    let folder = cluster_api_sources()?.join(folder);
    let mut files = Vec::new();
    let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    for entry in entries {
        files.push(entry?.path());
    }
    files.sort();
    let mut definitions = Vec::new();
    for file in files {
        for document in manifests::documents(&fs::read_to_string(&file)?)? {
            let definition = serde_json::from_value(document);
            definitions.push(definition.with_context(|| format!("{}", file.display()))?);
        }
    }
    Ok(definitions)
}

/// Installs the CRDs of core and waits until they are served.
pub async fn install_definitions(plane: &ControlPlane, versions: Versions) -> Result<()> {
    let mut all = tokio::task::spawn_blocking(definitions).await??;
    let port = free_port()?;
    for definition in &mut all {
        match versions {
            Versions::Both => convert_by_webhook(definition, plane, port),
            // ExtensionConfig has no v1beta1.
            Versions::OnlyV1Beta1 => keep_only(definition, &["v1beta1", "v1alpha1"])?,
            Versions::OnlyV1Beta2 => keep_only(definition, &["v1beta2"])?,
        }
    }
    plane.install_definitions(&all).await
}

/// Installs the CRDs that the packaged examples name: those of kubeadm from the sources, for RKE2 and Proxmox stand-ins that
/// take any spec. Nobody acts on their objects.
pub async fn install_example_providers(plane: &ControlPlane) -> Result<()> {
    const STAND_INS: [(&str, &str, &[&str]); 3] = [
        (
            "infrastructure.cluster.x-k8s.io",
            "v1alpha1",
            &["ProxmoxCluster", "ProxmoxMachine"],
        ),
        (
            "controlplane.cluster.x-k8s.io",
            "v1beta1",
            &["RKE2ControlPlane"],
        ),
        ("bootstrap.cluster.x-k8s.io", "v1beta1", &["RKE2Config"]),
    ];
    let mut yaml = String::new();
    for (group, version, kinds) in STAND_INS {
        for kind in kinds
            .iter()
            .flat_map(|kind| [(*kind).to_owned(), format!("{kind}Template")])
        {
            let stand_in = definition(group, (version, "v1beta1"), &kind);
            yaml.push_str(&format!("---\n{stand_in}\n"));
        }
    }
    for folder in ["bootstrap", "controlplane"] {
        let folder = format!("{folder}/kubeadm/config/crd/bases");
        let all = tokio::task::spawn_blocking(move || definitions_in(&folder)).await??;
        for mut definition in all {
            keep_only(&mut definition, &["v1beta2"])?;
            // The release adds it by kustomize.
            let contract = ("cluster.x-k8s.io/v1beta2".to_owned(), "v1beta2".to_owned());
            definition
                .metadata
                .labels
                .get_or_insert_default()
                .extend([contract]);
            yaml.push_str(&format!("---\n{}\n", serde_json::to_string(&definition)?));
        }
    }
    plane.install_crds(&yaml).await
}

/// The port of the conversion webhook; `None`: only one version is installed.
pub(super) async fn webhook_port(plane: &ControlPlane) -> Result<Option<u16>> {
    let api: Api<CustomResourceDefinition> = Api::all(plane.client().await?);
    let clusters = api.get(CLUSTERS).await?;
    let webhook = clusters.spec.conversion.and_then(|one| one.webhook);
    let url = webhook.and_then(|webhook| webhook.client_config?.url);
    let Some(url) = url else { return Ok(None) };
    let url: http::Uri = url.parse()?;
    Ok(url.port_u16())
}

fn convert_by_webhook(definition: &mut CustomResourceDefinition, plane: &ControlPlane, port: u16) {
    let authority = plane.foundation().authority();
    let client_config = WebhookClientConfig {
        url: Some(format!("https://127.0.0.1:{port}/convert")),
        ca_bundle: Some(ByteString(authority.pem().into_bytes())),
        service: None,
    };
    definition.spec.conversion = Some(CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(client_config),
            conversion_review_versions: vec!["v1".to_owned()],
        }),
    });
}

/// Keeps only the first of `versions` that the definition has.
fn keep_only(definition: &mut CustomResourceDefinition, versions: &[&str]) -> Result<()> {
    let name = definition.metadata.name.clone();
    let all = &mut definition.spec.versions;
    let has = |version: &&&str| all.iter().any(|one| one.name == **version);
    let kept = versions.iter().find(has);
    let kept = kept.with_context(|| format!("{name:?} has none of {versions:?}"))?;
    all.retain(|one| one.name == *kept);
    for version in all {
        (version.served, version.storage) = (true, true);
        version.deprecated = None;
        version.deprecation_warning = None;
    }
    Ok(())
}
