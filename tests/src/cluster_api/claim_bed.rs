//! A management cluster without a core manager, for tests of claims and pools.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

use super::{IpamObjects, LEASES};
use crate::scenario::write_kubeconfig;
use crate::testbed::cluster_api::{Versions, install_definitions};
use crate::testbed::{
    ClustersOfTest, ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, RESTRICTED_USER,
    SharedClusters, SharedSite, TestFipd, wait_until,
};

const DEADLINE: Duration = Duration::from_secs(60);
const CLAIM: &str = "IPAddressClaim";
const ADDRESS: &str = "IPAddress";

static SITE: SharedSite<ManagementPlane> = SharedSite::new();

/// An API server with the definitions of Cluster API and of fipd, and the garbage collector.
pub struct ManagementPlane(pub ControlPlane);

impl ManagementPlane {
    /// One that serves these versions.
    pub async fn with(name: &str, versions: Versions) -> Result<ControlPlane> {
        let mut plane = ControlPlane::start(name, ControlPlaneOptions::default()).await?;
        install_definitions(&plane, versions).await?;
        plane.give_cluster_api_to_fipd().await?;
        Ok(plane)
    }
}

impl SharedClusters for ManagementPlane {
    async fn start() -> Result<Self> {
        let plane = Self::with("management", Versions::OnlyV1Beta2).await?;
        Ok(Self(plane))
    }

    async fn clean(&self) -> Result<()> {
        let client = self.0.client().await?;
        let version = "v1beta2";
        IpamObjects { client, version }.remove_all().await?;
        self.0.forget_leaders().await
    }

    async fn prepare_fipd(&self, settings: &str) -> Result<Fipd> {
        let mut fipd = Fipd::prepare(FipdOptions::default()).await?;
        let kubeconfig = self.0.kubeconfig_of(RESTRICTED_USER);
        write_kubeconfig(&fipd, "management", &kubeconfig)?;
        fipd.write_config(&management_config(&fipd, settings))?;
        Ok(fipd)
    }
}

/// fipd serves Cluster API in the cluster `management`, with these lines in `[cluster.cluster-api]`.
pub fn management_config(fipd: &Fipd, settings: &str) -> String {
    format!(
        "[api]\nadvertise = \"{}\"\n[[cluster]]\nname = \"management\"\nkubeconfig = \"management.kubeconfig\"\n\
         systems = [\"cluster-api\"]\n[cluster.cluster-api]\n{settings}\n",
        fipd.url()
    )
}

/// What a test of claims or pools works with.
pub struct ClaimBed {
    // Dropped in this order: fipd ends before another test has the server.
    pub fipd: TestFipd,
    pub objects: IpamObjects,
    pub plane: ClustersOfTest<ManagementPlane>,
}

impl ClaimBed {
    /// With the fipd of all tests. The namespaces are the test's own, and so are the names of its global pools and its
    /// addresses, since all are in one network.
    pub async fn share(namespaces: &[&str]) -> Result<Self> {
        let (fipd, plane) = SITE.share("").await?;
        Self::of(fipd, plane, namespaces).await
    }

    /// With a fipd of its own, which runs, with these lines in `[cluster.cluster-api]`.
    pub async fn alone(settings: &str) -> Result<Self> {
        let mut bed = Self::prepare(settings).await?;
        bed.restart().await?;
        Ok(bed)
    }

    /// The same before the first start of fipd.
    pub async fn prepare(settings: &str) -> Result<Self> {
        let (fipd, plane) = SITE.alone(settings).await?;
        Self::of(fipd, plane, &["one", "two"]).await
    }

    async fn of(
        fipd: TestFipd,
        plane: ClustersOfTest<ManagementPlane>,
        namespaces: &[&str],
    ) -> Result<Self> {
        for name in namespaces {
            let namespace =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            plane.0.apply(&namespace.to_string()).await?;
        }
        let client = plane.0.client().await?;
        let version = "v1beta2";
        Ok(Self {
            fipd,
            objects: IpamObjects { client, version },
            plane,
        })
    }

    pub async fn restart(&mut self) -> Result<()> {
        let fipd = self.fipd.own()?;
        fipd.restart().await?;
        fipd.wait_ready(DEADLINE).await
    }

    /// A pool of these addresses, with a gateway where that is not empty.
    pub async fn pool(
        &self,
        path: &str,
        addresses: &[&str],
        prefix: u8,
        gateway: &str,
    ) -> Result<()> {
        let mut spec = json!({ "addresses": addresses, "prefix": prefix });
        if !gateway.is_empty() {
            spec["gateway"] = json!(gateway);
        }
        self.objects.pool(path, spec).await
    }

    pub async fn claim(&self, path: &str, pool: (&str, &str)) -> Result<()> {
        self.objects.claim(path, pool).await
    }

    pub async fn address(&self, path: &str) -> Result<String> {
        self.objects.wait_address(path).await
    }

    /// Waits until the claim is not served for this reason, which an Event says as well.
    pub async fn refused(&self, path: &str, reason: &str, event: &str) -> Result<String> {
        let message = self.objects.wait_reason(CLAIM, path, reason).await?;
        let note = self.objects.wait_event(CLAIM, path, event).await?;
        ensure!(
            !message.is_empty() && !note.is_empty(),
            "{path}: {message:?} {note:?}"
        );
        let address = self.objects.get(ADDRESS, path).await?;
        ensure!(address.is_none(), "{path} has an address: {address:?}");
        Ok(message)
    }

    /// Waits until the pool counts so: total, used, free, out of range.
    pub async fn counts(&self, kind: &str, path: &str, wanted: [i64; 4]) -> Result<()> {
        wait_until(&format!("counts of {path}"), DEADLINE, || async {
            let pool = self.objects.get(kind, path).await;
            let pool = pool.map_err(|error| error.to_string())?;
            let counts = pool.unwrap_or_default()["status"]["ipAddresses"].clone();
            let field = |name: &str| counts[name].as_i64().unwrap_or(-1);
            let have = ["total", "used", "free", "outOfRange"].map(field);
            if have == wanted {
                Ok(())
            } else {
                Err(counts.to_string())
            }
        })
        .await
    }

    /// The owner of each address that begins so.
    pub async fn leases(&self, prefix: &str) -> Result<BTreeMap<String, String>> {
        let listed = self.fipd.cli(["lease", "list", "-o", "json"]).await?;
        let listed = listed.json()?;
        let leases = listed["leases"].as_array().context("leases")?.iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let leases = leases.map(|lease| (text(&lease["address"]), text(&lease["owner"])));
        Ok(leases
            .filter(|(address, _)| address.starts_with(prefix))
            .collect())
    }
}

impl ControlPlane {
    /// fipd's definitions, its rights, and the garbage collector, which takes the claims of Clusters that are gone.
    pub async fn give_cluster_api_to_fipd(&mut self) -> Result<()> {
        self.install_fipd_crds().await?;
        self.restrict_cluster_api().await?;
        self.start_controller_manager().await
    }

    /// Removes the leader-election Leases of a fipd that was killed.
    pub async fn forget_leaders(&self) -> Result<()> {
        let client = self.client().await?;
        for namespace in LEASES {
            let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
            let (all, params) = (ListParams::default(), DeleteParams::default());
            leases.delete_collection(&params, &all).await?;
        }
        Ok(())
    }
}
