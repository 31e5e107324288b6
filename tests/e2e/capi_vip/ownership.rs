//! What fipd writes into a Cluster beside what others have there.

use super::*;

/// Row 81 and E-8.
#[tokio::test(flavor = "multi_thread")]
async fn e_8_row_81_a_variable_that_somebody_removes_is_restored_and_the_others_stay() {
    let bed = Bed::start(Class::with_cluster_vip("variables")).await;
    bed.pool("variables", CONTROL_PLANE, &["10.61.0.15"]).await;
    let replaced = |region: &str| {
        let variables = json!([{ "name": "region", "value": region }]);
        json!({ "spec": { "topology": { "variables": variables } } })
    };
    bed.cluster_with("variables", replaced("north")).await;
    bed.wait_endpoint("variables", "10.61.0.15").await;
    for region in ["south", "west"] {
        bed.edit("variables", replaced(region)).await;
        let seen = bed
            .wait("variables", "has its variable again", |one| {
                variable(one, CLUSTER_VIP) == "10.61.0.15" && variable(one, "region") == region
            })
            .await;
        assert_eq!(endpoint(&seen)["host"], "10.61.0.15");
    }
    bed.wait_rendered("variables", "has the address", |one| {
        one["spec"]["controlPlaneEndpoint"]["host"] == "10.61.0.15"
    })
    .await;
    // Another value is somebody's mistake as well.
    let wrong = json!([{ "name": CLUSTER_VIP, "value": "10.9.9.9" }, { "name": "region", "value": "west" }]);
    bed.edit(
        "variables",
        json!({ "spec": { "topology": { "variables": wrong } } }),
    )
    .await;
    bed.wait("variables", "has the right value again", |one| {
        variable(one, CLUSTER_VIP) == "10.61.0.15" && variable(one, "region") == "west"
    })
    .await;
}

/// A Cluster that is older than its class, whose variables core then writes as a whole list.
#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_comes_after_its_cluster_is_used() {
    let bed = Bed::start(Class::without_endpoint("early")).await;
    let metadata = json!({ "labels": { CLUSTER_CLASS: "late", ROLE: CONTROL_PLANE } });
    bed.pool_with("early", metadata, &["10.62.0.15"]).await;
    let class = json!({ "spec": { "topology": { "classRef": { "name": "late" } } } });
    bed.cluster_with("early", class).await;
    bed.core
        .make_class(&Class::with_cluster_vip("late"))
        .await
        .unwrap();
    bed.wait("early", "has endpoint and variable", |one| {
        endpoint(one)["host"] == "10.62.0.15" && variable(one, CLUSTER_VIP) == "10.62.0.15"
    })
    .await;
    bed.wait_rendered("early", "has the address", |one| {
        one["spec"]["controlPlaneEndpoint"]["host"] == "10.62.0.15"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_others_and_of_core_survive_ours() {
    const CHECKED: &str = "example.com/Checked";
    let bed = Bed::start(Class::without_endpoint("checked")).await;
    bed.cluster("checked").await;
    bed.wait_says("checked", ENDPOINT_READY, "False", "PoolNotFound")
        .await;
    bed.wait("checked", "has core's conditions", |one| {
        condition(one, "Available").is_object()
    })
    .await;
    let checked = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": CLUSTER, "metadata": { "name": "checked" },
        "status": { "conditions": [{
            "type": CHECKED, "status": "True", "reason": "Checked", "message": "by hand",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] },
    });
    let clusters = bed.clusters();
    let apply = (PatchParams::apply("somebody"), Patch::Apply(&checked));
    clusters
        .patch_status("checked", &apply.0, &apply.1)
        .await
        .unwrap();
    let foreign = json!(clusters.get("checked").await.unwrap());
    let foreign = condition(&foreign, CHECKED).clone();

    bed.pool("checked", CONTROL_PLANE, &["10.63.0.15"]).await;
    bed.wait_says("checked", ENDPOINT_READY, "True", "AddressAllocated")
        .await;
    let seen = bed
        .wait("checked", "is provisioned", |one| {
            condition(one, "ControlPlaneInitialized")["status"] == "True"
        })
        .await;
    assert_eq!(condition(&seen, CHECKED), &foreign, "{seen}");
    assert!(condition(&seen, "Available").is_object(), "{seen}");
    assert_eq!(
        condition(&seen, ENDPOINT_READY)["status"],
        "True",
        "core keeps ours: {seen}"
    );
    // One of ours goes, and nothing else.
    bed.edit(
        "checked",
        json!({ "metadata": { "annotations": { INGRESS_ENABLED: "false" } } }),
    )
    .await;
    let seen = bed
        .wait("checked", "says nothing of an ingress", |one| {
            condition(one, INGRESS_READY).is_null()
        })
        .await;
    assert_eq!(condition(&seen, CHECKED), &foreign, "{seen}");
    assert!(condition(&seen, "Available").is_object(), "{seen}");
    assert_eq!(condition(&seen, ENDPOINT_READY)["status"], "True", "{seen}");
}
