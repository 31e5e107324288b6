//! Which pool an address comes from, and what happens while there is none: rows 73 and 74.

use super::*;

/// Rows 73 and 74.
#[tokio::test(flavor = "multi_thread")]
async fn e_3_rows_73_and_74_without_any_pool_the_cluster_says_so_and_is_served_once_there_is_one() {
    let bed = Bed::start(Class::with_cluster_vip("unpooled")).await;
    // Of another class, of another role, and without any label.
    let labels =
        |class: &str, role: &str| json!({ "labels": { CLUSTER_CLASS: class, ROLE: role } });
    let other = labels("unpooled-other", CONTROL_PLANE);
    bed.pool_with("unpooled-other", other, &["10.41.1.1"]).await;
    let storage = labels("unpooled", "storage");
    bed.pool_with("unpooled-role", storage, &["10.41.2.1"])
        .await;
    bed.pool_with("unpooled-plain", json!({}), &["10.41.3.1"])
        .await;
    bed.cluster("unpooled").await;
    let said = bed
        .wait_says("unpooled", ENDPOINT_READY, "False", "PoolNotFound")
        .await;
    let expected = "no matching ip pool for class \"unpooled\"";
    assert!(said.contains(expected), "74: {said}");
    let told = bed
        .ipam
        .wait_event(CLUSTER, "unpooled", "PoolNotFound")
        .await
        .unwrap();
    assert!(told.contains(expected), "{told}");
    assert_eq!(bed.claims().await, [""; 0]);
    bed.pool("unpooled-new", CONTROL_PLANE, &["10.41.4.1"])
        .await;
    bed.wait_endpoint("unpooled", "10.41.4.1").await;
    bed.wait_says("unpooled", ENDPOINT_READY, "True", "AddressAllocated")
        .await;
}

/// E-1: labels hold no lists, so the annotation of the same key does.
#[tokio::test(flavor = "multi_thread")]
async fn e_1_one_pool_serves_several_classes_and_both_roles() {
    let bed = Bed::start(Class::with_cluster_vip("listed")).await;
    let metadata = json!({
        "labels": { CLUSTER_CLASS: "true", ROLE: "true" },
        "annotations": { CLUSTER_CLASS: "another, listed", ROLE: "control-plane,ingress" },
    });
    bed.pool_with("listed", metadata, &["10.42.0.15-10.42.0.16"])
        .await;
    bed.cluster("listed").await;
    let seen = bed
        .wait("listed", "has both addresses", |one| {
            endpoint(one)["host"].is_string()
                && one["metadata"]["annotations"][INGRESS_VIP].is_string()
        })
        .await;
    assert_ne!(
        endpoint(&seen)["host"],
        seen["metadata"]["annotations"][INGRESS_VIP]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn e_14_a_full_pool_is_passed_over() {
    let bed = Bed::start(Class::without_endpoint("full")).await;
    bed.pool("full-a", CONTROL_PLANE, &["10.43.1.1"]).await;
    bed.pool("full-b", CONTROL_PLANE, &["10.43.2.1"]).await;
    bed.plain_claim("taker", "full-a").await;
    bed.ipam.wait_address("full/taker").await.unwrap();
    bed.cluster("full").await;
    bed.wait_endpoint("full", "10.43.2.1").await;
    let claim = bed.claim("vip-cp-full").await.unwrap();
    assert_eq!(claim["spec"]["poolRef"]["name"], "full-b");
}

/// A pool of the Cluster's namespace comes before those of all, unless an annotation says otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn e_23_the_pool_of_the_namespace_comes_first_and_a_priority_before_that() {
    let bed = Bed::start(Class::without_endpoint("near")).await;
    let labels = json!({ CLUSTER_CLASS: "near", ROLE: CONTROL_PLANE });
    bed.pool("a-far", CONTROL_PLANE, &["10.44.1.1"]).await;
    let near = json!({
        "metadata": { "labels": labels }, "spec": { "addresses": ["10.44.2.1"], "prefix": 24 },
    });
    bed.ipam
        .make("InClusterIPPool", "near/z-near", near)
        .await
        .unwrap();
    bed.cluster("near").await;
    bed.wait_endpoint("near", "10.44.2.1").await;
    let claim = bed.claim("vip-cp-near").await.unwrap();
    assert_eq!(claim["spec"]["poolRef"]["kind"], "InClusterIPPool");
    let metadata = json!({ "labels": labels, "annotations": { "fipd.io/priority": "5" } });
    bed.pool_with("z-first", metadata, &["10.44.3.1"]).await;
    bed.cluster("near-two").await;
    bed.wait_endpoint("near-two", "10.44.3.1").await;
}

/// A claim that waits on a full pool moves to a pool that is made.
#[tokio::test(flavor = "multi_thread")]
async fn e_14_a_claim_that_waits_moves_to_a_new_pool() {
    let bed = Bed::start(Class::without_endpoint("moved")).await;
    bed.pool("moved-a", CONTROL_PLANE, &["10.45.1.1"]).await;
    bed.plain_claim("taker", "moved-a").await;
    bed.ipam.wait_address("moved/taker").await.unwrap();
    bed.cluster("moved").await;
    bed.ipam
        .wait_reason(CLAIM, "moved/vip-cp-moved", "PoolExhausted")
        .await
        .unwrap();
    let said = bed
        .wait_says("moved", ENDPOINT_READY, "False", "ClaimPending")
        .await;
    assert!(!said.is_empty());
    bed.pool("moved-b", CONTROL_PLANE, &["10.45.2.1"]).await;
    bed.wait_endpoint("moved", "10.45.2.1").await;
    let claim = bed.claim("vip-cp-moved").await.unwrap();
    assert_eq!(claim["spec"]["poolRef"]["name"], "moved-b");
    assert_eq!(
        bed.ipam
            .get(ADDRESS, "moved/vip-cp-moved")
            .await
            .unwrap()
            .unwrap()["spec"]["address"],
        "10.45.2.1"
    );
}

/// With a watch filter, Clusters and pools that have its label are served and no others; the claims have it too.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_filter_picks_clusters_and_not_pools() {
    const FILTER: &str = "cluster.x-k8s.io/watch-filter";
    let class = Class::without_endpoint("filtered");
    let bed = Bed::alone(class, "watch-filter = \"ours\"").await;
    // The stock provider reads every pool, whatever its labels.
    bed.pool("filtered", CONTROL_PLANE, &["10.47.1.1"]).await;
    bed.cluster("unfiltered").await;
    let labels = json!({ "metadata": { "labels": { FILTER: "ours" } } });
    bed.cluster_with("filtered", labels).await;
    bed.wait_endpoint("filtered", "10.47.1.1").await;
    assert_eq!(bed.claims().await, ["vip-cp-filtered"]);
}
