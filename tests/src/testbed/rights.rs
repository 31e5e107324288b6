//! Gives the user without rights the roles of manifests.

use anyhow::Result;
use serde_json::json;

use super::control_plane::{ControlPlane, RESTRICTED_USER};
use super::site::Site;

const GROUP: &str = "rbac.authorization.k8s.io";

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

impl Site {
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
            let role = match &*cluster.display_name {
                "harvester" => "fipd-rancher-fip-harvester",
                _ => "fipd-rancher-fip-guest",
            };
            cluster.plane.bind_role(role, None).await?;
            cluster.plane.grant_identity().await?;
            let kubeconfig = cluster.plane.kubeconfig_of(RESTRICTED_USER);
            self.publish_kubeconfig(&client, &cluster.id, &kubeconfig)
                .await?;
        }
        Ok(self.rancher.kubeconfig_of(RESTRICTED_USER))
    }
}
