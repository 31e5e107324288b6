//! The address of the control plane: rows 67 to 76.

use super::*;

/// fipd hears of a change by its watch; nothing shows when it has.
const SEEN: Duration = Duration::from_millis(300);

/// Rows 68, 70 and 72.
#[tokio::test(flavor = "multi_thread")]
async fn rows_68_70_and_72_a_cluster_gets_its_endpoint_and_its_variable_by_a_claim_of_its_own() {
    let bed = Bed::start(Class::with_cluster_vip("legacy")).await;
    bed.pool("legacy", CONTROL_PLANE, &["10.21.0.15-10.21.0.19"])
        .await;
    bed.annotate_pool("legacy", PAUSED, json!("")).await;
    let made = bed.cluster("legacy").await;
    let claim = bed.wait_claim("vip-cp-legacy", "is there", |_| true).await;
    let meta = &claim["metadata"];
    assert_eq!(meta["labels"][ROLE], CONTROL_PLANE, "68: {claim}");
    assert_eq!(meta["labels"]["cluster.x-k8s.io/cluster-name"], "legacy");
    let spec = json!({
        "clusterName": "legacy",
        "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": GLOBAL, "name": "legacy" },
    });
    assert_eq!(claim["spec"], spec);
    let owner = json!([{
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": CLUSTER, "name": "legacy",
        "uid": made["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(meta["ownerReferences"], owner);
    bed.wait_says("legacy", ENDPOINT_READY, "False", "ClaimPending")
        .await;
    let (infrastructure, name) = bed.infrastructure("legacy").await;
    let rendered = json!(infrastructure.get(&name).await.unwrap());
    assert_eq!(
        rendered["spec"]["controlPlaneEndpoint"]["host"],
        Value::Null,
        "{rendered}"
    );
    let seen = json!(bed.clusters().get("legacy").await.unwrap());
    assert_eq!(endpoint(&seen), &Value::Null, "68: {seen}");
    assert_eq!(variable(&seen, CLUSTER_VIP), "");
    // It refers to an IPAddress that is not there, which is an answer to nobody.
    let refers = json!({ "status": { "addressRef": { "name": "vip-cp-legacy" } } });
    let claims = bed.core.claims(ApiVersion::V1Beta2);
    let params = PatchParams::default();
    let refers = Patch::Merge(&refers);
    let patched = claims.patch_status("vip-cp-legacy", &params, &refers);
    patched.await.unwrap();
    tokio::time::sleep(SEEN).await;
    let seen = json!(bed.clusters().get("legacy").await.unwrap());
    assert_eq!(endpoint(&seen), &Value::Null, "72: {seen}");
    let said = condition(&seen, ENDPOINT_READY);
    assert_eq!(said["reason"], "ClaimPending", "72: {said}");

    bed.annotate_pool("legacy", PAUSED, Value::Null).await;
    let seen = bed.wait_endpoint("legacy", "10.21.0.15").await;
    assert_eq!(endpoint(&seen)["port"], 6443);
    assert_eq!(variable(&seen, CLUSTER_VIP), "10.21.0.15", "70: {seen}");
    bed.wait_says("legacy", ENDPOINT_READY, "True", "AddressAllocated")
        .await;
    bed.ipam
        .wait_event(CLUSTER, "legacy", "AddressAllocated")
        .await
        .unwrap();
    bed.wait_rendered("legacy", "has the address", |one| {
        one["spec"]["controlPlaneEndpoint"] == json!({ "host": "10.21.0.15", "port": 6443 })
    })
    .await;
    bed.wait("legacy", "is provisioned", |one| {
        one["status"]["phase"] == "Provisioned"
    })
    .await;
    bed.wait_lease("10.21.0.15", CLAIM, "vip-cp-legacy").await;

    // The claim and its address go with the Cluster.
    bed.ipam.delete(CLUSTER, "legacy/legacy").await.unwrap();
    bed.ipam.wait_gone(CLUSTER, "legacy/legacy").await.unwrap();
    bed.ipam
        .wait_gone(CLAIM, "legacy/vip-cp-legacy")
        .await
        .unwrap();
    bed.ipam
        .wait_gone(ADDRESS, "legacy/vip-cp-legacy")
        .await
        .unwrap();
    bed.wait_lease("10.21.0.15", "", "").await;
}

/// Row 69: a class without the variable.
#[tokio::test(flavor = "multi_thread")]
async fn row_69_without_the_variable_only_the_endpoint_is_written() {
    let bed = Bed::start(Class::without_endpoint("direct")).await;
    bed.pool("direct", CONTROL_PLANE, &["10.22.0.15"]).await;
    let region = json!([{ "name": "region", "value": "north" }]);
    bed.cluster_with(
        "direct",
        json!({ "spec": { "topology": { "variables": region } } }),
    )
    .await;
    let seen = bed.wait_endpoint("direct", "10.22.0.15").await;
    assert_eq!(endpoint(&seen)["port"], 6443);
    assert_eq!(seen["spec"]["topology"]["variables"], region, "69");
    bed.wait("direct", "is provisioned", |one| {
        one["status"]["phase"] == "Provisioned"
    })
    .await;
    // Whoever expects the variable learns how to declare it.
    let said = bed
        .wait_says("direct", ENDPOINT_READY, "True", "AddressAllocated")
        .await;
    assert!(said.contains("clusterVip"), "{said}");
}

/// Row 71. An endpoint may have a port and no host yet.
#[tokio::test(flavor = "multi_thread")]
async fn row_71_a_port_that_is_given_stays() {
    let bed = Bed::start(Class::without_endpoint("port")).await;
    bed.pool("port", CONTROL_PLANE, &["10.23.0.15"]).await;
    let given = json!({ "spec": { "controlPlaneEndpoint": { "port": 7443 } } });
    bed.cluster_with("port", given).await;
    let seen = bed.wait_endpoint("port", "10.23.0.15").await;
    assert_eq!(endpoint(&seen)["port"], 7443, "71: {seen}");
}

/// Row 67, under core's webhooks. Its end is in `absence`.
#[tokio::test(flavor = "multi_thread")]
async fn e_5_row_67_an_endpoint_given_by_hand_is_kept_and_reserved_and_not_claimed() {
    let bed = Bed::start(Class::with_cluster_vip("given")).await;
    bed.pool("given", CONTROL_PLANE, &["10.24.0.20-10.24.0.21"])
        .await;
    let host =
        |host: &str| json!({ "spec": { "controlPlaneEndpoint": { "host": host, "port": 8443 } } });
    bed.cluster_with("given", host("10.24.0.20")).await;
    bed.cluster_with("given-name", host("api.example.com"))
        .await;
    bed.cluster_with("given-elsewhere", host("192.0.2.7")).await;
    for (name, host) in [
        ("given", "10.24.0.20"),
        ("given-name", "api.example.com"),
        ("given-elsewhere", "192.0.2.7"),
    ] {
        bed.wait_says(name, ENDPOINT_READY, "True", "EndpointGiven")
            .await;
        let seen = bed.wait_endpoint(name, host).await;
        assert_eq!(endpoint(&seen)["port"], 8443);
        // A name is no address that patches could use.
        let vip = if name == "given-name" { "" } else { host };
        let what = format!("has the variable {vip:?}");
        bed.wait(name, &what, |one| variable(one, CLUSTER_VIP) == vip)
            .await;
    }
    bed.wait_lease("10.24.0.20", CLUSTER, "given").await;
    assert_eq!(bed.claims().await, [""; 0], "no address is burnt");
    // Nobody else gets it.
    bed.plain_claim("other", "given").await;
    assert_eq!(
        bed.ipam.wait_address("given/other").await.unwrap(),
        "10.24.0.21"
    );
    // An endpoint that no pool has is reserved before a pool that is new, or wider, gives it to a claim that waits.
    bed.plain_claim("early", "given-later").await;
    bed.pool("given-later", CONTROL_PLANE, &["192.0.2.7-192.0.2.8"])
        .await;
    let address = async |claim| bed.ipam.wait_address(claim).await.unwrap();
    assert_eq!(address("given/early").await, "192.0.2.8");
    bed.cluster_with("given-beyond", host("192.0.2.9")).await;
    bed.wait_says("given-beyond", ENDPOINT_READY, "True", "EndpointGiven")
        .await;
    bed.plain_claim("late", "given-later").await;
    let exhausted = bed.ipam.wait_event(CLAIM, "given/late", "PoolExhausted");
    exhausted.await.unwrap();
    let wider = json!({ "spec": { "addresses": ["192.0.2.7-192.0.2.10"] } });
    let edited = bed.ipam.merge(GLOBAL, "given-later", wider);
    edited.await.unwrap();
    assert_eq!(address("given/late").await, "192.0.2.10");
    for (address, cluster) in [
        ("192.0.2.7", "given-elsewhere"),
        ("192.0.2.9", "given-beyond"),
    ] {
        bed.wait_lease(address, CLUSTER, cluster).await;
    }
}

/// E-12 and row 76: the class is in another namespace.
#[tokio::test(flavor = "multi_thread")]
async fn e_12_row_76_the_class_may_be_in_another_namespace() {
    let bed = Bed::start(Class::without_endpoint("tenants")).await;
    let plane = &bed.management.plane;
    let classes = ClusterApiObjects::of(plane, "classes").await.unwrap();
    classes
        .make_class(&Class::with_cluster_vip("shared"))
        .await
        .unwrap();
    let metadata = json!({ "labels": { CLUSTER_CLASS: "shared", ROLE: CONTROL_PLANE } });
    bed.pool_with("shared", metadata, &["10.25.0.15"]).await;
    let class = json!({ "name": "shared", "namespace": "classes" });
    bed.cluster_with(
        "tenant",
        json!({ "spec": { "topology": { "classRef": class } } }),
    )
    .await;
    let seen = bed.wait_endpoint("tenant", "10.25.0.15").await;
    bed.wait("tenant", "has the variable", |one| {
        variable(one, CLUSTER_VIP) == "10.25.0.15"
    })
    .await;
    assert_eq!(seen["spec"]["topology"]["classRef"], class);
    bed.wait_rendered("tenant", "has the address", |one| {
        one["spec"]["controlPlaneEndpoint"]["host"] == "10.25.0.15"
    })
    .await;
}

/// E-15: no topology. The annotation names the class that pools are labelled with.
#[tokio::test(flavor = "multi_thread")]
async fn e_15_a_cluster_without_a_topology_names_the_class_of_its_pools() {
    let bed = Bed::start(Class::without_endpoint("plain")).await;
    bed.pool("plain", CONTROL_PLANE, &["10.26.0.15-10.26.0.16"])
        .await;
    bed.pool("plain-ingress", INGRESS, &["10.26.0.25"]).await;
    let infrastructure = json!({
        "apiVersion": StandIn::Cluster.api_version(), "kind": StandIn::Cluster.kind(),
        "metadata": { "name": "plain", "labels": { "cluster.x-k8s.io/cluster-name": "plain" } }, "spec": {},
    });
    let stand_ins = bed.core.stand_ins(StandIn::Cluster);
    bed.core.create(&stand_ins, infrastructure).await.unwrap();
    let cluster = |name: &str, annotations: Value| {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": CLUSTER,
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": StandIn::Cluster.kind(), "name": "plain",
            } },
        })
    };
    let clusters = bed.clusters();
    let unnamed = cluster("plain-unnamed", json!({}));
    bed.core.create(&clusters, unnamed).await.unwrap();
    let named = cluster("plain", json!({ CLUSTER_CLASS: "plain" }));
    bed.core.create(&clusters, named).await.unwrap();
    let seen = bed.wait_endpoint("plain", "10.26.0.15").await;
    assert_eq!(seen["spec"]["topology"], Value::Null, "{seen}");
    bed.wait("plain", "is provisioned", |one| {
        one["status"]["phase"] == "Provisioned"
    })
    .await;
    bed.wait("plain", "has an ingress", |one| {
        one["metadata"]["annotations"][INGRESS_VIP] == "10.26.0.25"
    })
    .await;
    let unnamed = json!(clusters.get("plain-unnamed").await.unwrap());
    assert_eq!(endpoint(&unnamed), &Value::Null, "it names no class");
    assert_eq!(condition(&unnamed, ENDPOINT_READY), &Value::Null);
}

/// Row 80 and E-9. What is not done shows once a Cluster that came later is served.
#[tokio::test(flavor = "multi_thread")]
async fn e_9_row_80_nothing_is_claimed_for_a_cluster_that_is_paused_or_deleted() {
    let bed = Bed::start(Class::without_endpoint("paused")).await;
    bed.cluster_with("by-field", json!({ "spec": { "paused": true } }))
        .await;
    let annotated = json!({ "metadata": { "annotations": { PAUSED: "" } } });
    bed.cluster_with("by-annotation", annotated).await;
    let held = json!({ "metadata": { "finalizers": [HELD] } });
    bed.cluster_with("deleted", held).await;
    bed.wait_says("deleted", ENDPOINT_READY, "False", "PoolNotFound")
        .await;
    bed.ipam.delete(CLUSTER, "paused/deleted").await.unwrap();
    bed.pool("paused", CONTROL_PLANE, &["10.27.0.15-10.27.0.19"])
        .await;
    bed.cluster("running").await;
    bed.wait_endpoint("running", "10.27.0.15").await;
    assert_eq!(bed.claims().await, ["vip-cp-running"]);
    // What it shows is nobody else's all the same.
    let given = json!({ "spec": {
        "paused": true, "controlPlaneEndpoint": { "host": "10.27.0.18", "port": 6443 },
    } });
    bed.cluster_with("given-paused", given).await;
    bed.wait_lease("10.27.0.18", CLUSTER, "given-paused").await;
    for name in ["by-field", "by-annotation"] {
        let seen = json!(bed.clusters().get(name).await.unwrap());
        assert_eq!(endpoint(&seen), &Value::Null, "{seen}");
        assert_eq!(condition(&seen, ENDPOINT_READY), &Value::Null, "{seen}");
    }
    let unpaused =
        json!({ "spec": { "paused": false }, "metadata": { "annotations": { PAUSED: null } } });
    for (name, host) in [("by-field", "10.27.0.16"), ("by-annotation", "10.27.0.17")] {
        bed.edit(name, unpaused.clone()).await;
        bed.wait_endpoint(name, host).await;
    }
    bed.edit("deleted", json!({ "metadata": { "finalizers": null } }))
        .await;
}
