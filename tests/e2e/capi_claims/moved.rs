//! `clusterctl move` of a Cluster with its pools, claims and addresses between two management clusters that one fipd serves.

use std::process::Command;

use fipd_tests::process::run_bound;
use fipd_tests::testbed::cluster_api::definitions;
use fipd_tests::toolchain::Component;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};

use super::*;

const CLUSTER: &str = "Cluster";
const SIDES: [&str; 2] = ["source", "target"];
/// Chosen for a Cluster by hand.
const GIVEN: &str = "10.41.0.15";
/// Claims that a Cluster and the test make, and the pool of each.
const CLAIMS: [(&str, (&str, &str)); 3] = [
    ("one/node-0", (POOL, "nodes")),
    ("one/loose", (POOL, "nodes")),
    ("one/vip-cp-prod", (GLOBAL, "planes")),
];

/// One of the two management clusters.
struct Side {
    objects: IpamObjects,
    plane: ControlPlane,
}

impl Side {
    async fn start(name: &str) -> Self {
        let plane = ManagementPlane::with(name, Versions::OnlyV1Beta2);
        let plane = plane.await.unwrap();
        let client = plane.client().await.unwrap();
        let version = "v1beta2";
        let side = Self {
            objects: IpamObjects { client, version },
            plane,
        };
        side.label_core().await;
        side
    }

    /// The labels that the definitions of core have in its release, by which clusterctl finds them.
    async fn label_core(&self) {
        let api: Api<CustomResourceDefinition> = Api::all(self.objects.client.clone());
        let core = tokio::task::spawn_blocking(definitions).await.unwrap();
        let labels = Patch::Merge(json!({ "metadata": { "labels": {
            "cluster.x-k8s.io/provider": "cluster-api", "clusterctl.cluster.x-k8s.io": "",
            "cluster.x-k8s.io/v1beta2": "v1beta2",
        } } }));
        for definition in core.unwrap() {
            let name = definition.metadata.name.unwrap();
            api.patch(&name, &PatchParams::default(), &labels)
                .await
                .unwrap();
        }
    }

    /// Two Clusters, one with an endpoint that somebody chose, two pools and three claims. One claim does not name its Cluster, so
    /// nothing pauses it.
    async fn fill(&self) {
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "one" } });
        self.plane.apply(&namespace.to_string()).await.unwrap();
        let objects = &self.objects;
        let nodes =
            json!({ "addresses": ["10.40.0.10-10.40.0.20"], "prefix": 24, "gateway": "10.40.0.1" });
        objects.pool("one/nodes", nodes).await.unwrap();
        let planes = json!({
            "metadata": { "labels": {
                "vip.capi.gorizond.io/cluster-class": "rke2", "vip.capi.gorizond.io/role": "control-plane",
            } },
            "spec": { "addresses": ["10.41.0.10-10.41.0.20"], "prefix": 24, "addressReuseGracePeriodSeconds": 60 },
        });
        objects.make(GLOBAL, "planes", planes).await.unwrap();
        let cluster = self.cluster("prod", json!({})).await;
        let given = json!({ "host": GIVEN, "port": 6443 });
        self.cluster("given", json!({ "controlPlaneEndpoint": given }))
            .await;
        let owner = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": CLUSTER, "name": "prod", "uid": cluster.metadata.uid,
        });
        for (path, pool) in CLAIMS.into_iter().take(2) {
            let mut rest = json!({ "metadata": { "ownerReferences": [owner] } });
            if path == "one/node-0" {
                rest["spec"] = json!({ "clusterName": "prod" });
            }
            objects.claim_with(path, pool, rest).await.unwrap();
        }
    }

    /// A Cluster that is provisioned, with the pools of a class.
    async fn cluster(&self, name: &str, mut spec: Value) -> DynamicObject {
        spec["clusterNetwork"] = json!({ "serviceDomain": "cluster.local" });
        let cluster = json!({
            "metadata": { "annotations": {
                "vip.capi.gorizond.io/cluster-class": "rke2", "vip.capi.gorizond.io/ingress-enabled": "false",
            } },
            "spec": spec,
        });
        let path = format!("one/{name}");
        self.objects.make(CLUSTER, &path, cluster).await.unwrap();
        let status = json!({ "status": {
            "initialization": { "infrastructureProvisioned": true, "controlPlaneInitialized": true },
            "conditions": [{
                "type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        } });
        let api = self.objects.of(CLUSTER, Some("one"));
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap()
    }

    async fn addresses(&self) -> Vec<String> {
        let mut addresses = Vec::new();
        for (path, _) in CLAIMS {
            addresses.push(self.objects.wait_address(path).await.unwrap());
        }
        addresses
    }
}

/// Both clusters, whose API servers ask fipd about pools.
fn config(fipd: &Fipd) -> String {
    let one = |name: &str| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nkubeconfig = \"{name}.kubeconfig\"\nsystems = [\"cluster-api\"]\n"
        )
    };
    let clusters = SIDES.map(one).concat();
    format!("[api]\nadvertise = \"{}\"\n{clusters}", fipd.url())
}

/// The owner of each address.
async fn leases(fipd: &Fipd) -> BTreeMap<String, String> {
    let listed = fipd.cli(["lease", "list", "-o", "json"]).await;
    let listed = listed.unwrap().json().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let leases = listed["leases"].as_array().unwrap().iter();
    leases
        .map(|lease| (text(&lease["address"]), text(&lease["owner"])))
        .collect()
}

/// What clusterctl says of its move; it succeeds.
async fn clusterctl_move(from: &ControlPlane, to: &ControlPlane, home: &std::path::Path) {
    let binary = tokio::task::spawn_blocking(|| Component::Clusterctl.path()).await;
    let mut command = Command::new(binary.unwrap().unwrap());
    command.env("HOME", home).env("XDG_CONFIG_HOME", home);
    // It would ask GitHub for a newer one.
    command.env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
    command.args(["move", "--namespace", "one", "-v", "5"]);
    command.arg("--kubeconfig").arg(from.kubeconfig_path());
    command.arg("--to-kubeconfig").arg(to.kubeconfig_path());
    let output = run_bound(command).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e_20_clusterctl_moves_a_cluster_with_its_addresses() {
    let source = Side::start(SIDES[0]).await;
    let target = Side::start(SIDES[1]).await;
    let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    for side in [&source, &target] {
        let kubeconfig = side.plane.kubeconfig_of(RESTRICTED_USER);
        write_kubeconfig(&fipd, side.plane.name(), &kubeconfig).unwrap();
    }
    fipd.write_config(&config(&fipd)).unwrap();
    fipd.restart().await.unwrap();
    fipd.wait_ready(DEADLINE).await.unwrap();
    source.fill().await;
    let before = source.addresses().await;
    let held = wait_until("all leases", DEADLINE, || async {
        let held = leases(&fipd).await;
        match held.len() == CLAIMS.len() + 1 && held.contains_key(GIVEN) {
            true => Ok(held),
            false => Err(format!("{held:?}")),
        }
    })
    .await
    .unwrap();
    wait_until("the endpoint", DEADLINE, || async {
        let cluster = source.objects.get(CLUSTER, "one/prod").await;
        let cluster = cluster.map_err(|e| e.to_string())?.unwrap_or_default();
        let host = &cluster["spec"]["controlPlaneEndpoint"]["host"];
        (*host == before[2])
            .then_some(())
            .ok_or(cluster.to_string())
    })
    .await
    .unwrap();

    // Each address is leased all the time.
    let moving = clusterctl_move(&source.plane, &target.plane, fipd.directory());
    let watching = async {
        loop {
            let now = leases(&fipd).await;
            assert!(now.keys().eq(held.keys()), "{now:?}");
        }
    };
    tokio::select! {
        () = moving => {}
        () = watching => {}
    }
    assert_eq!(target.addresses().await, before);
    let name = |owner: &str| owner.rsplit('/').next().map(str::to_owned);
    wait_until("the leases of the target", DEADLINE, || async {
        let now = leases(&fipd).await;
        let moved = now.iter().all(|(address, owner)| {
            let was = held.get(address);
            was.is_some_and(|was| was != owner && name(was) == name(owner))
        });
        match moved && now.len() == held.len() {
            true => Ok(()),
            false => Err(format!("{now:?}")),
        }
    })
    .await
    .unwrap();
    for (path, _) in CLAIMS {
        source.objects.wait_gone(CLAIM, path).await.unwrap();
        source.objects.wait_gone(ADDRESS, path).await.unwrap();
    }
    source.objects.wait_gone(POOL, "one/nodes").await.unwrap();
    let cluster = target.objects.get(CLUSTER, "one/prod").await.unwrap();
    let cluster = cluster.unwrap();
    assert_eq!(cluster["spec"]["controlPlaneEndpoint"]["host"], before[2]);
    assert_eq!(cluster["spec"]["paused"], Value::Null);

    // They live on there, and nothing of the source is left to pass them back to.
    target.objects.delete(CLAIM, "one/node-0").await.unwrap();
    target.objects.wait_gone(CLAIM, "one/node-0").await.unwrap();
    wait_until("its address is free", DEADLINE, || async {
        let now = leases(&fipd).await;
        match now.contains_key(&before[0]) {
            true => Err(format!("{now:?}")),
            false => Ok(()),
        }
    })
    .await
    .unwrap();
    wait_until("the source's pool is gone", DEADLINE, || async {
        let pools = fipd.cli(["pool", "list", "-o", "json"]).await;
        let pools = pools
            .and_then(|all| all.json())
            .map_err(|e| e.to_string())?;
        match pools.to_string().contains("cluster-api/source/one/nodes") {
            true => Err(pools.to_string()),
            false => Ok(()),
        }
    })
    .await
    .unwrap();
}
