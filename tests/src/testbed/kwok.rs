//! kwok: nodes and pods that run nowhere.

use std::process::Command;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::control_plane::ControlPlane;
use super::directory::TestDirectory;
use crate::process::Process;
use crate::toolchain::Component;
use crate::toolchain::go::GARBAGE;

/// The real kwok on one cluster. Dropping it ends it.
pub struct Kwok {
    _process: Process,
    _directory: TestDirectory,
}

impl Kwok {
    /// Plays these nodes, which say that they have room for any number of pods.
    pub async fn start(plane: &ControlPlane, nodes: &[&str]) -> Result<Self> {
        let api: Api<Node> = Api::all(plane.client().await?);
        for name in nodes {
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": name, "annotations": { "kwok.x-k8s.io/node": "fake" } },
            });
            plane.apply(&node.to_string()).await?;
            // A new node is tainted, and the controller that would see it ready does not run.
            let ready = Patch::Merge(json!({ "spec": { "taints": null } }));
            api.patch(name, &PatchParams::default(), &ready).await?;
        }
        let binary = tokio::task::spawn_blocking(|| Component::Kwok.path()).await??;
        let directory = TestDirectory::new()?;
        let stages = directory.path().join("kwok.yaml");
        std::fs::write(&stages, include_str!("kwok.yaml"))?;
        let mut command = Command::new(binary);
        command
            .env(GARBAGE.0, GARBAGE.1)
            .arg(format!(
                "--kubeconfig={}",
                plane.kubeconfig_path().display()
            ))
            .arg(format!("--config={}", stages.display()))
            .args(["--manage-all-nodes", "--cidr=10.244.0.0/16"]);
        let log = directory.path().join("kwok.log");
        Ok(Self {
            _process: Process::spawn("kwok", command, &log)?,
            _directory: directory,
        })
    }
}
