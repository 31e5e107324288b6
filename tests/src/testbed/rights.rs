//! Gives the user without rights the roles of manifests.

use anyhow::Result;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use super::control_plane::{ControlPlane, RESTRICTED_USER};
use super::harvester::CREDENTIALS;
use super::kubeconfig::with_server;
use super::site::{Downstream, FLEET, Site};

const GROUP: &str = "rbac.authorization.k8s.io";

/// What helm needs beside fipd's own rights: those of all that is in the stand-in charts.
const CHARTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: charts}
rules:
  - {apiGroups: [apps], resources: ["*"], verbs: ["*"]}
"#;

impl ControlPlane {
    /// Binds a ClusterRole to [`RESTRICTED_USER`], in one namespace or everywhere. The binding has the name of the role.
    pub async fn bind_role(&self, role: &str, namespace: Option<&str>) -> Result<()> {
        let mut binding = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding",
            "metadata": { "name": role },
            "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": RESTRICTED_USER }],
        });
        if let Some(namespace) = namespace {
            binding["kind"] = json!("RoleBinding");
            binding["metadata"]["namespace"] = json!(namespace);
        }
        self.apply(&binding.to_string()).await
    }

    /// Takes a role of that user away that was bound everywhere.
    pub async fn unbind_role(&self, role: &str) -> Result<()> {
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client().await?);
        bindings.delete(role, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Lets [`RESTRICTED_USER`] bring the workloads of charts.
    pub async fn grant_charts(&self) -> Result<()> {
        self.apply(CHARTS).await?;
        self.bind_role("charts", None).await
    }

    /// Lets [`RESTRICTED_USER`] keep the Secret that tells the cluster from its clones.
    pub async fn grant_identity(&self) -> Result<()> {
        self.grant_identity_in("kube-system").await
    }

    /// The same in another namespace.
    pub async fn grant_identity_in(&self, namespace: &str) -> Result<()> {
        let role = include_str!("../../../packaging/rbac/identity.yaml")
            .replace("namespace: kube-system", &format!("namespace: {namespace}"));
        let binding = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding",
            "metadata": { "name": "fipd-identity", "namespace": namespace },
            "roleRef": { "apiGroup": GROUP, "kind": "Role", "name": "fipd-identity" },
            "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": RESTRICTED_USER }],
        });
        self.apply(&format!("{role}\n---\n{binding}")).await
    }
}

impl Downstream {
    /// Binds the role of Harvester clusters in the one called `harvester`, and this one in a guest.
    async fn bind_guest_role(&self, guest: &str) -> Result<()> {
        let role = match &*self.display_name {
            "harvester" => "fipd-rancher-fip-harvester",
            _ => guest,
        };
        self.plane.bind_role(role, None).await
    }

    /// The kubeconfig of [`RESTRICTED_USER`] as Rancher would give it away.
    pub fn restricted_kubeconfig(&self) -> String {
        let direct = self.plane.kubeconfig_of(RESTRICTED_USER);
        let proxy = self.proxy.as_ref().map(|proxy| proxy.port());
        match proxy {
            Some(port) => with_server(&direct, &format!("https://127.0.0.1:{port}")),
            None => direct,
        }
    }
}

impl Site {
    /// Gives the user without rights what kube-fip and its charts need, here and in all clusters; that user's kubeconfig for
    /// Rancher.
    pub async fn restrict_kube_fip(&self) -> Result<String> {
        let rancher = &self.rancher;
        for name in [CREDENTIALS, "kube-fip"] {
            let namespace =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            rancher.apply(&namespace.to_string()).await?;
        }
        let roles = include_str!("../../../packaging/rbac/kube-fip.yaml");
        rancher.apply(roles).await?;
        for (role, namespace) in [
            ("fipd-kube-fip", None),
            ("fipd-kube-fip-kubeconfigs", Some(FLEET)),
            ("fipd-kube-fip-credentials", Some(CREDENTIALS)),
            ("fipd-kube-fip-config", Some("kube-fip")),
        ] {
            rancher.bind_role(role, namespace).await?;
        }
        rancher.grant_identity().await?;
        let roles = [
            include_str!("../../../packaging/rbac/kube-fip-guest.yaml"),
            include_str!("../../../packaging/rbac/rancher-fip-guest.yaml"),
        ];
        for cluster in &self.downstream {
            for roles in roles {
                cluster.plane.apply(roles).await?;
            }
            cluster.bind_guest_role("fipd-kube-fip-guest").await?;
            cluster.plane.grant_charts().await?;
        }
        Ok(rancher.kubeconfig_of(RESTRICTED_USER))
    }

    /// Gives the user without rights what the cluster manager needs with this app namespace, here and in all clusters, of
    /// which the one called `harvester` is a Harvester; that user's kubeconfig for Rancher.
    pub async fn restrict_cluster_manager(&self, app: &str) -> Result<String> {
        for manifest in [
            include_str!("../../../packaging/rbac/rancher-fip-management.yaml"),
            include_str!("../../../packaging/rbac/rancher-fip-cluster-manager.yaml"),
        ] {
            self.rancher.apply(manifest).await?;
        }
        for (role, namespace) in [
            ("management", None),
            ("cluster-manager", None),
            ("cluster-manager-fleet", Some("fleet-default")),
            ("cluster-manager-app", Some(app)),
        ] {
            let role = format!("fipd-rancher-fip-{role}");
            self.rancher.bind_role(&role, namespace).await?;
        }
        self.rancher.grant_identity().await?;
        let client = self.rancher.client().await?;
        let roles = include_str!("../../../packaging/rbac/rancher-fip-guest.yaml");
        for cluster in &self.downstream {
            cluster.plane.apply(roles).await?;
            cluster.bind_guest_role("fipd-rancher-fip-guest").await?;
            cluster.plane.grant_identity().await?;
            let kubeconfig = cluster.plane.kubeconfig_of(RESTRICTED_USER);
            self.publish_kubeconfig(&client, &cluster.id, &kubeconfig)
                .await?;
        }
        Ok(self.rancher.kubeconfig_of(RESTRICTED_USER))
    }
}
