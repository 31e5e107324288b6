//! Which fields of a Cluster survive writes of core, of fipd and of kubectl.

use std::process::Command;

use fipd_tests::process::run_bound;
use fipd_tests::testbed::cluster_api::{ApiVersion, CLUSTER_VIP, Class, condition};
use fipd_tests::toolchain::Component;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Bed, FIPD, variable, vip_fields};

const ENDPOINT_READY: &str = "fipd.io/EndpointReady";

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_others_and_of_core_live_side_by_side() {
    let bed = Bed::start("conditions").await;
    bed.class(Class::without_endpoint("conditions")).await;
    bed.cluster("one", "conditions").await;
    bed.wait_cluster("one", "has conditions", |cluster| {
        condition(cluster, "Available").is_object()
    })
    .await;
    let clusters = bed.objects.clusters(ApiVersion::V1Beta2);
    let ready = |status: &str, reason: &str| {
        let condition = json!({
            "type": ENDPOINT_READY, "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": { "name": "one" },
            "status": { "conditions": [condition] },
        })
    };
    let manager = PatchParams::apply(FIPD);
    let waiting = Patch::Apply(ready("False", "Waiting"));
    let applied = clusters.patch_status("one", &manager, &waiting).await;
    let applied = json!(applied.unwrap());
    assert!(condition(&applied, "Available").is_object(), "{applied}");

    // Core updates its conditions several times until the Cluster is provisioned.
    let mut endpoint = vip_fields("one", "10.20.1.5");
    endpoint["spec"].as_object_mut().unwrap().remove("topology");
    bed.objects.apply(&clusters, FIPD, endpoint).await.unwrap();
    let seen = bed
        .wait_cluster("one", "is provisioned", |cluster| {
            condition(cluster, "ControlPlaneInitialized")["status"] == "True"
        })
        .await;
    assert_eq!(
        condition(&seen, ENDPOINT_READY)["reason"],
        "Waiting",
        "{seen}"
    );

    let types = |cluster: &Value| -> Vec<String> {
        let all = cluster["status"]["conditions"].as_array().unwrap().iter();
        let mut types: Vec<_> = all
            .map(|one| one["type"].as_str().unwrap().to_owned())
            .collect();
        types.sort();
        types
    };
    let allocated = Patch::Apply(ready("True", "Allocated"));
    let applied = clusters.patch_status("one", &manager, &allocated).await;
    let applied = json!(applied.unwrap());
    assert_eq!(condition(&applied, ENDPOINT_READY)["reason"], "Allocated");
    assert_eq!(types(&applied), types(&seen), "core's conditions stay");

    // Core writes after us.
    let pause = Patch::Merge(json!({ "spec": { "paused": true } }));
    let params = PatchParams::default();
    clusters.patch("one", &params, &pause).await.unwrap();
    let seen = bed
        .wait_cluster("one", "is paused", |cluster| {
            condition(cluster, "Paused")["status"] == "True"
        })
        .await;
    assert_eq!(
        condition(&seen, ENDPOINT_READY)["reason"],
        "Allocated",
        "{seen}"
    );

    // Applying no conditions removes ours alone.
    let mut nothing = ready("True", "Allocated");
    nothing["status"] = json!({});
    let nothing = Patch::Apply(nothing);
    let applied = clusters.patch_status("one", &manager, &nothing).await;
    let applied = json!(applied.unwrap());
    assert!(condition(&applied, ENDPOINT_READY).is_null(), "{applied}");
    assert!(condition(&applied, "Available").is_object(), "{applied}");
}

/// `kubectl apply` of one manifest as administrator.
pub(super) async fn kubectl(bed: &Bed, arguments: &[&str], manifest: &Value) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("manifest.json");
    std::fs::write(&file, manifest.to_string()).unwrap();
    let binary = tokio::task::spawn_blocking(|| Component::Kubectl.path());
    let mut command = Command::new(binary.await.unwrap().unwrap());
    command
        .env("KUBECONFIG", bed.management.plane.kubeconfig_path())
        .args(["--namespace", &bed.objects.namespace, "apply"])
        .args(arguments)
        .arg("--filename")
        .arg(&file);
    let output = run_bound(command).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_apply_drops_the_variable_and_server_side_apply_keeps_it() {
    let bed = Bed::start("kubectl").await;
    bed.class(Class::with_cluster_vip("kubectl")).await;
    let clusters = bed.objects.clusters(ApiVersion::V1Beta2);
    let manifest = |name: &str, region: Option<&str>| {
        let mut cluster = ApiVersion::V1Beta2.cluster(name, "kubectl");
        if let Some(region) = region {
            let variables = json!([{ "name": "region", "value": region }]);
            cluster["spec"]["topology"]["variables"] = variables;
        }
        cluster
    };
    let get = async |name: &str| json!(clusters.get(name).await.unwrap());
    let vip = "10.20.2.5";

    // Even an unchanged manifest drops the variable. The endpoint, which it does not name, stays.
    kubectl(&bed, &[], &manifest("client", Some("north"))).await;
    for region in ["north", "south"] {
        let applied = bed.apply_vip("client", vip).await;
        assert_eq!(variable(&applied, CLUSTER_VIP), vip);
        kubectl(&bed, &[], &manifest("client", Some(region))).await;
        let seen = get("client").await;
        assert_eq!(variable(&seen, "region"), region, "{seen}");
        assert_eq!(
            variable(&seen, CLUSTER_VIP),
            "",
            "dropped, then defaulted: {seen}"
        );
        assert_eq!(seen["spec"]["controlPlaneEndpoint"]["host"], vip, "{seen}");
    }

    // A manifest without variables leaves them alone.
    kubectl(&bed, &[], &manifest("silent", None)).await;
    bed.apply_vip("silent", vip).await;
    kubectl(&bed, &[], &manifest("silent", None)).await;
    assert_eq!(variable(&get("silent").await, CLUSTER_VIP), vip);

    let server_side = &["--server-side"];
    kubectl(&bed, server_side, &manifest("server", Some("north"))).await;
    bed.apply_vip("server", vip).await;
    kubectl(&bed, server_side, &manifest("server", Some("south"))).await;
    let seen = get("server").await;
    assert_eq!(variable(&seen, "region"), "south", "{seen}");
    assert_eq!(variable(&seen, CLUSTER_VIP), vip, "{seen}");
}
