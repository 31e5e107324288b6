//! IPAddressClaims on pools of the in-cluster provider, with the definitions of Cluster API on a real API server.
//!
//! All tests have one server, one after another; each has a fipd and a store of its own, and begins without objects. Numbers of
//! rows are those of the contract's conformance table.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "capi_claims/lifecycle.rs"]
mod lifecycle;
#[path = "capi_claims/networks.rs"]
mod networks;
#[path = "capi_claims/takeover.rs"]
mod takeover;
#[path = "capi_claims/versions.rs"]
mod versions;

use std::collections::BTreeMap;
use std::time::Duration;

use fipd_tests::cluster_api::IpamObjects;
use fipd_tests::scenario::write_kubeconfig;
use fipd_tests::testbed::cluster_api::{Versions, install_definitions};
use fipd_tests::testbed::{
    ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, ForAllTests, RESTRICTED_USER, wait_until,
};
use serde_json::{Value, json};
use tokio::sync::MappedMutexGuard;

const DEADLINE: Duration = Duration::from_secs(60);
const CLAIM: &str = "IPAddressClaim";
const ADDRESS: &str = "IPAddress";
const POOL: &str = "InClusterIPPool";
const GLOBAL: &str = "GlobalInClusterIPPool";

static PLANE: ForAllTests<ControlPlane> = ForAllTests::new();

struct Bed {
    // Dropped in this order: fipd ends before the next test has the server.
    fipd: Fipd,
    objects: IpamObjects,
    plane: MappedMutexGuard<'static, ControlPlane>,
}

async fn plane(name: &str, versions: Versions) -> anyhow::Result<ControlPlane> {
    let mut plane = ControlPlane::start(name, ControlPlaneOptions::default()).await?;
    install_definitions(&plane, versions).await?;
    for crd in fipd_crds::all() {
        plane.install_crds(&fipd_crds::yaml(&crd)?).await?;
    }
    plane.restrict_cluster_api().await?;
    plane.start_controller_manager().await?;
    Ok(plane)
}

impl Bed {
    /// fipd runs, with these lines in `[cluster.cluster-api]`.
    async fn start(settings: &str) -> Self {
        let mut bed = Self::prepare(settings).await;
        bed.restart().await;
        bed
    }

    /// All but the daemon's process.
    async fn prepare(settings: &str) -> Self {
        let plane = PLANE.take(async || plane("management", Versions::OnlyV1Beta2).await);
        let plane = plane.await.unwrap();
        let client = plane.client().await.unwrap();
        let objects = IpamObjects {
            client,
            version: "v1beta2",
        };
        objects.remove_all().await.unwrap();
        let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
        let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
        write_kubeconfig(&fipd, "management", &kubeconfig).unwrap();
        fipd.write_config(&config(settings)).unwrap();
        for namespace in ["one", "two"] {
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace },
            });
            plane.apply(&namespace.to_string()).await.unwrap();
        }
        Self {
            fipd,
            objects,
            plane,
        }
    }

    async fn restart(&mut self) {
        self.fipd.restart().await.unwrap();
        self.fipd.wait_ready(DEADLINE).await.unwrap();
    }

    /// A pool of these addresses, with a gateway where that is not empty.
    async fn pool(&self, path: &str, addresses: &[&str], prefix: u8, gateway: &str) {
        let mut spec = json!({ "addresses": addresses, "prefix": prefix });
        if !gateway.is_empty() {
            spec["gateway"] = json!(gateway);
        }
        self.objects.pool(path, spec).await.unwrap();
    }

    async fn claim(&self, path: &str, pool: (&str, &str)) {
        self.objects.claim(path, pool).await.unwrap();
    }

    async fn address(&self, path: &str) -> String {
        self.objects.wait_address(path).await.unwrap()
    }

    /// Waits until the object is not served for this reason, which an Event says as well.
    async fn refused(&self, path: &str, reason: &str, event: &str) -> String {
        let said = self.objects.wait_reason(CLAIM, path, reason).await.unwrap();
        let name = path.rsplit('/').next().unwrap();
        let told = self.objects.wait_event(CLAIM, name, event).await.unwrap();
        assert!(!said.is_empty() && !told.is_empty(), "{said:?} {told:?}");
        let address = self.objects.get(ADDRESS, path).await.unwrap();
        assert_eq!(address, None, "nothing is allocated");
        said
    }

    /// Waits until the pool counts so: total, used, free, out of range.
    async fn counts(&self, kind: &str, path: &str, wanted: [i64; 4]) {
        wait_until(&format!("counts of {path}"), DEADLINE, || async {
            let pool = self
                .objects
                .get(kind, path)
                .await
                .map_err(|e| e.to_string())?;
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
        .unwrap();
    }

    /// The owner of each address.
    async fn leases(&self) -> BTreeMap<String, String> {
        let listed = self.fipd.cli(["lease", "list", "-o", "json"]).await;
        let listed = listed.unwrap().json().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let leases = listed["leases"].as_array().unwrap().iter();
        leases
            .map(|lease| (text(&lease["address"]), text(&lease["owner"])))
            .collect()
    }
}

fn config(settings: &str) -> String {
    format!(
        "[[cluster]]\nname = \"management\"\nkubeconfig = \"management.kubeconfig\"\nsystems = [\"cluster-api\"]\n\
         [cluster.cluster-api]\n{settings}\n"
    )
}
