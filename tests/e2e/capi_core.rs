//! The behaviour of Cluster API's core manager that fipd relies on, who overwrites the fields that fipd sets, and the hook that
//! core asks before it creates what belongs to a Cluster.
//!
//! The tests share one management cluster, one after another; each has a namespace of its own.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "capi_core/fipd_hook.rs"]
mod fipd_hook;
#[path = "capi_core/hook_nonsense.rs"]
mod hook_nonsense;
#[path = "capi_core/hooks.rs"]
mod hooks;
#[path = "capi_core/ipam.rs"]
mod ipam;
#[path = "capi_core/ownership.rs"]
mod ownership;

use std::time::{Duration, Instant};

use fipd_tests::say::progress;
use fipd_tests::testbed::ForAllTests;
use fipd_tests::testbed::cluster_api::{
    ApiVersion, CLUSTER_VIP, Class, ClusterApiObjects, CoreManager, INGRESS_VIP, StandIn,
    StandInProviders, Versions, install_definitions, install_stand_ins,
};
use fipd_tests::testbed::{ControlPlane, ControlPlaneOptions, wait_until};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::MappedMutexGuard;

const DEADLINE: Duration = Duration::from_secs(60);
/// The field manager of fipd.
const FIPD: &str = "fipd";

static MANAGEMENT: ForAllTests<Management> = ForAllTests::new();

struct Management {
    // Dropped in this order: clients end before the API server.
    _providers: StandInProviders,
    manager: CoreManager,
    plane: ControlPlane,
}

struct Bed {
    objects: ClusterApiObjects,
    management: MappedMutexGuard<'static, Management>,
}

impl Bed {
    /// The management cluster with an empty namespace.
    async fn start(namespace: &str) -> Self {
        let management = MANAGEMENT.take(async || {
            let options = ControlPlaneOptions::default();
            let mut plane = ControlPlane::start("management", options).await?;
            let start = Instant::now();
            install_definitions(&plane, Versions::Both).await?;
            install_stand_ins(&plane).await?;
            plane.give_cluster_api_to_fipd().await?;
            plane.bind_role("fipd-cluster-api-hook", None).await?;
            let installed = start.elapsed().as_secs_f64();
            let manager = CoreManager::start(&plane).await?;
            let ready = start.elapsed().as_secs_f64() - installed;
            progress(format_args!(
                "CRDs of Cluster API after {installed:.1} s, its core manager {ready:.1} s later"
            ));
            Ok(Management {
                _providers: StandInProviders::start(&plane)?,
                manager,
                plane,
            })
        });
        let management = management.await.unwrap();
        let plane = &management.plane;
        Self {
            objects: ClusterApiObjects::of(plane, namespace).await.unwrap(),
            management,
        }
    }

    async fn class(&self, class: Class) {
        self.objects.make_class(&class).await.unwrap();
    }

    /// A Cluster of a class in v1beta2.
    async fn cluster(&self, name: &str, class: &str) -> Value {
        let version = ApiVersion::V1Beta2;
        let api = self.objects.clusters(version);
        let cluster = version.cluster(name, class);
        self.objects.create(&api, cluster).await.unwrap()
    }

    /// Applies endpoint and variable as fipd.
    async fn apply_vip(&self, cluster: &str, vip: &str) -> Value {
        let api = self.objects.clusters(ApiVersion::V1Beta2);
        let object = vip_fields(cluster, vip);
        self.objects.apply(&api, FIPD, object).await.unwrap()
    }

    /// Waits until a Cluster passes a test.
    async fn wait_cluster(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        let api = self.objects.clusters(ApiVersion::V1Beta2);
        self.objects.wait(what, (&api, name), test).await.unwrap()
    }

    async fn wait_infrastructure(
        &self,
        name: &str,
        what: &str,
        test: impl Fn(&Value) -> bool,
    ) -> Value {
        let api = self.objects.stand_ins(StandIn::Cluster);
        self.objects.wait(what, (&api, name), test).await.unwrap()
    }
}

/// The fields of a Cluster that fipd applies.
fn vip_fields(cluster: &str, vip: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": { "name": cluster },
        "spec": {
            "controlPlaneEndpoint": { "host": vip, "port": 6443 },
            "topology": { "variables": [{ "name": CLUSTER_VIP, "value": vip }] },
        },
    })
}

/// The value of a variable; `Null` if the Cluster does not have it.
fn variable<'a>(cluster: &'a Value, name: &str) -> &'a Value {
    let all = cluster["spec"]["topology"]["variables"].as_array();
    let mut all = all.into_iter().flatten();
    all.find(|one| one["name"] == name)
        .map_or(&Value::Null, |one| &one["value"])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_waits_for_its_endpoint_and_is_provisioned_with_it() {
    let bed = Bed::start("direct").await;
    bed.class(Class::without_endpoint("direct")).await;
    let clusters = bed.objects.clusters(ApiVersion::V1Beta2);
    let mut cluster = ApiVersion::V1Beta2.cluster("one", "direct");
    let workers = json!([{ "class": "workers", "name": "workers", "replicas": 1 }]);
    cluster["spec"]["topology"]["workers"] = json!({ "machineDeployments": workers });
    bed.objects.create(&clusters, cluster).await.unwrap();
    let (infrastructure, control_plane) = bed.objects.wait_rendered("one").await.unwrap();
    let rendered = bed
        .wait_infrastructure(&infrastructure, "is there", |_| true)
        .await;
    assert_eq!(rendered["spec"], json!({}), "{rendered}");
    let api = bed.objects.stand_ins(StandIn::ControlPlane);
    let rendered = api.get(&control_plane).await.unwrap();
    assert_eq!(rendered.data["spec"]["replicas"], 1, "{rendered:?}");
    let seen = bed
        .wait_cluster("one", "is in phase Provisioning", |cluster| {
            cluster["status"]["phase"] == "Provisioning"
        })
        .await;
    assert_eq!(seen["spec"]["controlPlaneEndpoint"], Value::Null, "{seen}");

    let mut endpoint = vip_fields("one", "10.20.0.5");
    endpoint["spec"].as_object_mut().unwrap().remove("topology");
    bed.objects.apply(&clusters, FIPD, endpoint).await.unwrap();
    bed.wait_cluster("one", "is provisioned", |cluster| {
        let done = &cluster["status"]["initialization"];
        cluster["status"]["phase"] == "Provisioned" && done["controlPlaneInitialized"] == true
    })
    .await;
    let machines = bed.objects.machines(ApiVersion::V1Beta2);
    let is_provisioned = |machine: &DynamicObject| machine.data["status"]["phase"] == "Provisioned";
    wait_until("its machine is provisioned", DEADLINE, || async {
        let all = machines.list(&ListParams::default()).await;
        let all = all.map_err(|error| error.to_string())?.items;
        match &*all {
            [machine] if is_provisioned(machine) => Ok(()),
            _ => Err(format!("{all:?}")),
        }
    })
    .await
    .unwrap();
    bed.objects.delete(&clusters, "one").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_variable_and_annotation_reach_the_infrastructure() {
    let mut bed = Bed::start("legacy").await;
    bed.class(Class::with_cluster_vip("legacy")).await;
    let old = ApiVersion::V1Beta1;
    let mut cluster = old.cluster("one", "legacy");
    cluster["spec"]["topology"]["variables"] = json!([{ "name": "region", "value": "north" }]);
    let clusters = bed.objects.clusters(old);
    let made = bed.objects.create(&clusters, cluster).await.unwrap();
    assert_eq!(variable(&made, CLUSTER_VIP), "", "defaulted: {made}");
    let (infrastructure, _) = bed.objects.wait_rendered("one").await.unwrap();
    let rendered = bed
        .wait_infrastructure(&infrastructure, "is there", |_| true)
        .await;
    assert_eq!(
        rendered["spec"],
        json!({ "controlPlaneEndpoint": { "port": 6443 } }),
        "the topology controller leaves out an empty host"
    );

    // No field manager owns what the webhook defaulted, so nothing conflicts.
    let vip = Patch::Apply(vip_fields("one", "10.20.0.6"));
    let clusters = bed.objects.clusters(ApiVersion::V1Beta2);
    let applied = clusters.patch("one", &PatchParams::apply(FIPD), &vip).await;
    let applied = json!(applied.unwrap());
    assert_eq!(variable(&applied, "region"), "north", "{applied}");
    bed.wait_infrastructure(&infrastructure, "has the address", |one| {
        one["spec"]["controlPlaneEndpoint"] == json!({ "host": "10.20.0.6", "port": 6443 })
    })
    .await;
    bed.wait_cluster("one", "is provisioned", |cluster| {
        cluster["status"]["phase"] == "Provisioned"
    })
    .await;

    // A killed manager resumes.
    bed.management.manager.kill().unwrap();
    let annotations = json!({ INGRESS_VIP: "fd00:20::7" });
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    let refused = clusters.patch("one", &PatchParams::default(), &patch).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("failed calling webhook"), "{refused}");
    let Management { manager, plane, .. } = &mut *bed.management;
    manager.restart(plane).await.unwrap();
    clusters
        .patch("one", &PatchParams::default(), &patch)
        .await
        .unwrap();
    bed.wait_infrastructure(&infrastructure, "has both addresses", |one| {
        one["spec"]["ingressVip"] == "fd00:20::7"
            && one["spec"]["controlPlaneEndpoint"]["host"] == "10.20.0.6"
    })
    .await;
}
