//! What Rancher holds of the clusters whose machines it makes on a Harvester cluster.

use anyhow::Result;
use fipd_crds::{management, provisioning::Cluster};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::site::{FLEET, Site};

/// Where Rancher keeps cloud credentials.
pub(super) const CREDENTIALS: &str = "cattle-global-data";

/// A provisioning Cluster with one machine pool, its HarvesterConfig and its cloud credential.
#[derive(Debug, Clone)]
pub struct HarvesterGuest {
    /// Name of the provisioning Cluster, which is also the display name.
    pub name: String,
    /// Rancher's id of the Harvester cluster, as the credential says it.
    pub harvester: String,
    /// JSON text, as the HarvesterConfig says it.
    pub network_info: String,
    /// The reference to the credential, as the provisioning Cluster says it.
    pub credential: String,
    /// Rancher's id of the cluster, which is in the status of the provisioning Cluster.
    pub id: Option<String>,
    /// Of the provisioning Cluster.
    pub labels: Value,
}

impl HarvesterGuest {
    /// Its machines are on one network, `NAMESPACE/NAME`.
    pub fn new(name: &str, harvester: &str, network: &str) -> Self {
        Self {
            name: name.to_owned(),
            harvester: harvester.to_owned(),
            network_info: json!({ "interfaces": [{ "networkName": network }] }).to_string(),
            credential: format!("{CREDENTIALS}:cc-{name}"),
            id: None,
            labels: json!({}),
        }
    }

    /// All of its objects, as YAML.
    fn objects(&self) -> String {
        let name = &self.name;
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": CREDENTIALS },
        });
        let credential = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": format!("cc-{name}"), "namespace": CREDENTIALS },
            "stringData": { "harvestercredentialConfig-clusterId": self.harvester },
        });
        let machine = json!({
            "apiVersion": "rke-machine-config.cattle.io/v1", "kind": "HarvesterConfig",
            "metadata": { "name": format!("nc-{name}"), "namespace": FLEET },
            "vmNamespace": "guests", "networkInfo": self.network_info,
        });
        let all = [namespace, credential, machine, self.cluster()];
        all.iter()
            .map(|object| format!("---\n{object}\n"))
            .collect()
    }

    fn cluster(&self) -> Value {
        let pool = json!({
            "name": "pool1", "controlPlaneRole": true,
            "machineConfigRef": { "kind": "HarvesterConfig", "name": format!("nc-{}", self.name) },
        });
        json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": { "name": self.name, "namespace": FLEET, "labels": self.labels },
            "spec": {
                "cloudCredentialSecretName": self.credential, "rkeConfig": { "machinePools": [pool] },
            },
        })
    }
}

impl Site {
    /// Writes the objects of a guest, all that differ.
    pub async fn make_on_harvester(&self, guest: &HarvesterGuest) -> Result<()> {
        self.rancher.apply(&guest.objects()).await?;
        let Some(id) = &guest.id else { return Ok(()) };
        let clusters: Api<Cluster> = Api::namespaced(self.rancher.client().await?, FLEET);
        let status = Patch::Merge(json!({ "status": { "clusterName": id } }));
        let params = PatchParams::default();
        clusters.patch_status(&guest.name, &params, &status).await?;
        Ok(())
    }

    /// Sets labels of Rancher's object for the cluster called `display_name`; `null` removes one.
    pub async fn label_cluster(&self, display_name: &str, labels: Value) -> Result<()> {
        let api: Api<management::Cluster> = Api::all(self.rancher.client().await?);
        let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        let id = &self.cluster(display_name)?.id;
        api.patch(id, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}
