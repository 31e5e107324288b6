//! A small Rancher site: one API server that plays Rancher's management cluster, and the downstream clusters it manages.

use std::sync::Arc;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::control_plane::{ControlPlane, ControlPlaneOptions, Foundation};
use super::fault_proxy::FaultProxy;
use super::manifests;

/// Stand-ins for the kinds Rancher brings along.
pub const RANCHER_CRDS: &str = include_str!("../../crds/rancher.yaml");

/// Stand-ins for the kinds with which MetalLB and PureLB are told which address to announce; install them in a downstream
/// cluster that is to look as if it had one of the two.
pub const ANNOUNCER_CRDS: &str = include_str!("../../crds/announcers.yaml");

/// Where Rancher keeps the kubeconfigs of its clusters.
pub(super) const FLEET: &str = "fleet-default";

/// What a site consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteOptions {
    /// Display names of the downstream clusters.
    pub downstream: Vec<String>,
    /// Run a controller manager in each downstream cluster (never needed in the Rancher one).
    pub controller_manager: bool,
    /// Put a fault proxy in front of every API server; all kubeconfigs the site gives away go through them.
    pub proxied: bool,
    /// Let a later test of the process have the site: see [`super::KeptSite`]. Neither with controller managers nor with proxies.
    pub kept: bool,
}

impl SiteOptions {
    /// Downstream clusters of these names, nothing else.
    pub fn of(downstream: &[&str]) -> Self {
        let downstream = downstream.iter().map(|name| (*name).to_string()).collect();
        Self {
            downstream,
            controller_manager: false,
            proxied: false,
            kept: false,
        }
    }

    /// The same for one test after another.
    pub fn kept(self) -> Self {
        Self { kept: true, ..self }
    }
}

/// One cluster managed by Rancher.
pub struct Downstream {
    /// Rancher's id of the cluster, `c-m-<display name>`; also the namespace of its projects.
    pub id: String,
    /// What people call it.
    pub display_name: String,
    /// Rancher's id of its one project, `p-<display name>`.
    pub project: String,
    pub plane: ControlPlane,
    /// There when the site is proxied.
    pub proxy: Option<FaultProxy>,
}

impl Downstream {
    /// The kubeconfig as Rancher would give it away.
    pub fn kubeconfig(&self) -> &str {
        self.proxy
            .as_ref()
            .map_or_else(|| self.plane.kubeconfig_yaml(), FaultProxy::kubeconfig_yaml)
    }

    /// Makes a namespace of the cluster that belongs to the project.
    pub async fn add_namespace(&self, name: &str) -> Result<()> {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": name,
                "annotations": { "field.cattle.io/projectId": format!("{}:{}", self.id, self.project) },
                "labels": { "field.cattle.io/projectId": self.project },
            },
        });
        self.plane.apply(&namespace.to_string()).await
    }
}

/// The running site.
pub struct Site {
    pub rancher: ControlPlane,
    /// There when the site is proxied.
    pub rancher_proxy: Option<FaultProxy>,
    pub downstream: Vec<Downstream>,
}

impl Site {
    /// Starts all API servers at once over one etcd and fills the Rancher one.
    pub async fn start(options: &SiteOptions) -> Result<Self> {
        let foundation = Foundation::start().await?;
        let rancher = ControlPlane::start_on(
            Arc::clone(&foundation),
            "rancher",
            ControlPlaneOptions::default(),
        );
        let others = options
            .downstream
            .iter()
            .map(|name| start_downstream(&foundation, name, options));
        let (rancher, downstream) =
            futures::future::try_join(rancher, try_join_all(others)).await?;
        let rancher_proxy = options.proxied.then(|| rancher.fault_proxy()).transpose()?;
        let site = Self {
            rancher,
            rancher_proxy,
            downstream,
        };
        let client = site.rancher.client().await?;
        manifests::install_crds(&client, RANCHER_CRDS).await?;
        manifests::apply_yaml(&client, &rancher_objects(&site.downstream)).await?;
        for cluster in &site.downstream {
            site.publish_kubeconfig(&client, &cluster.id, cluster.kubeconfig())
                .await?;
        }
        Ok(site)
    }

    /// The kubeconfig of the Rancher cluster for fipd's config.
    pub fn rancher_kubeconfig(&self) -> &str {
        self.rancher_proxy.as_ref().map_or_else(
            || self.rancher.kubeconfig_yaml(),
            FaultProxy::kubeconfig_yaml,
        )
    }

    /// The downstream cluster called `display_name`.
    pub fn cluster(&self, display_name: &str) -> Result<&Downstream> {
        let found = self
            .downstream
            .iter()
            .find(|cluster| cluster.display_name == display_name);
        found.with_context(|| format!("the site has no cluster {display_name}"))
    }

    /// The same, to stop and restart its API server.
    pub fn cluster_mut(&mut self, display_name: &str) -> Result<&mut Downstream> {
        let found = self
            .downstream
            .iter_mut()
            .find(|cluster| cluster.display_name == display_name);
        found.with_context(|| format!("the site has no cluster {display_name}"))
    }

    /// Writes the Secret in which Rancher keeps a cluster's kubeconfig; also to replace it.
    pub async fn publish_kubeconfig(
        &self,
        client: &Client,
        cluster_id: &str,
        kubeconfig: &str,
    ) -> Result<()> {
        let name = format!("{cluster_id}-kubeconfig");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "stringData": { "value": kubeconfig },
        });
        let api: Api<Secret> = Api::namespaced(client.clone(), FLEET);
        let manager = PatchParams::apply("rancher").force();
        api.patch(&name, &manager, &Patch::Apply(&secret))
            .await
            .with_context(|| format!("write Secret {name}"))?;
        Ok(())
    }
}

async fn start_downstream(
    foundation: &Arc<Foundation>,
    name: &str,
    options: &SiteOptions,
) -> Result<Downstream> {
    let plane_options = ControlPlaneOptions {
        controller_manager: options.controller_manager,
        ..ControlPlaneOptions::default()
    };
    let plane = ControlPlane::start_on(Arc::clone(foundation), name, plane_options).await?;
    let proxy = options.proxied.then(|| plane.fault_proxy()).transpose()?;
    Ok(Downstream {
        id: format!("c-m-{name}"),
        display_name: name.to_string(),
        project: format!("p-{name}"),
        plane,
        proxy,
    })
}

/// What Rancher would hold about these clusters, as YAML (JSON documents are YAML documents).
fn rancher_objects(clusters: &[Downstream]) -> String {
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": FLEET } }),
        json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
            "metadata": { "name": "local" }, "spec": { "displayName": "local" },
        }),
    ];
    for cluster in clusters {
        let Downstream {
            id,
            display_name,
            project,
            ..
        } = cluster;
        objects.extend([
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": id } }),
            json!({
                "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
                "metadata": { "name": id, "labels": { "rancher-fip": "enabled" } },
                "spec": { "displayName": display_name },
            }),
            json!({
                "apiVersion": "management.cattle.io/v3", "kind": "Project",
                "metadata": { "name": project, "namespace": id },
                "spec": { "clusterName": id, "displayName": format!("Project of {display_name}") },
            }),
            json!({
                "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
                "metadata": { "name": display_name, "namespace": FLEET },
                "spec": {},
            }),
        ]);
    }
    objects
        .iter()
        .map(|object| format!("---\n{object}\n"))
        .collect()
}
