//! The address of the ingress: rows 77 to 79.

use super::*;

fn annotation(cluster: &Value) -> &Value {
    &cluster["metadata"]["annotations"][INGRESS_VIP]
}

fn label(cluster: &Value) -> &Value {
    &cluster["metadata"]["labels"][INGRESS_VIP]
}

/// Row 77. The Cluster begins without annotations, which core's topology controller can then drop.
#[tokio::test(flavor = "multi_thread")]
async fn row_77_the_ingress_gets_its_address_as_annotation_and_label() {
    let bed = Bed::start(Class::with_cluster_vip("front")).await;
    bed.pool("front", CONTROL_PLANE, &["10.31.0.15"]).await;
    bed.pool("front-ingress", INGRESS, &["10.31.0.101-10.31.0.102"])
        .await;
    bed.cluster("front").await;
    bed.wait_rendered("front", "has both addresses", |one| {
        one["spec"]["controlPlaneEndpoint"]["host"] == "10.31.0.15"
            && one["spec"]["ingressVip"] == "10.31.0.101"
    })
    .await;
    let seen = bed
        .wait("front", "has annotation and label", |one| {
            annotation(one) == "10.31.0.101" && label(one) == "10.31.0.101"
        })
        .await;
    assert_eq!(endpoint(&seen)["host"], "10.31.0.15");
    bed.wait_says("front", INGRESS_READY, "True", "AddressAllocated")
        .await;
    let claim = bed.claim("vip-ingress-front").await.unwrap();
    assert_eq!(claim["metadata"]["labels"][ROLE], INGRESS);
    assert_eq!(claim["spec"]["poolRef"]["name"], "front-ingress");
    assert_eq!(claim["spec"]["clusterName"], "front");

    // As core's merge patch, which says `annotations: null`.
    bed.edit("front", json!({ "metadata": { "annotations": null } }))
        .await;
    bed.wait("front", "has its annotation again", |one| {
        annotation(one) == "10.31.0.101"
    })
    .await;
    bed.edit(
        "front",
        json!({ "metadata": { "labels": { INGRESS_VIP: "10.9.9.9" } } }),
    )
    .await;
    bed.wait("front", "has its label again", |one| {
        label(one) == "10.31.0.101"
    })
    .await;
}

/// Each write of an address has Cluster API render anew: both are written in one apply where they come together. How long the API
/// server takes for an IPAddress is not for fipd to say, so not every Cluster need have it.
#[tokio::test(flavor = "multi_thread")]
async fn both_addresses_are_written_in_one_apply() {
    const ALL: usize = 8;
    let bed = Bed::start(Class::with_cluster_vip("pair")).await;
    bed.pool("pair", CONTROL_PLANE, &["10.59.0.15-10.59.0.29"])
        .await;
    bed.pool("pair-ingress", INGRESS, &["10.59.0.101-10.59.0.129"])
        .await;
    let mut managers = Vec::new();
    for number in 0..ALL {
        let name = format!("pair-{number}");
        bed.cluster(&name).await;
        let cluster = bed
            .wait(&name, "has both addresses", |one| {
                endpoint(one)["host"].is_string() && annotation(one).is_string()
            })
            .await;
        let fields = cluster["metadata"]["managedFields"].as_array().unwrap();
        let fields = fields.iter().filter(|one| one["subresource"].is_null());
        let ours = fields.filter_map(|one| one["manager"].as_str());
        let ours = ours.filter(|one| one.starts_with("fipd-cluster-"));
        managers.push(ours.map(str::to_owned).collect::<Vec<_>>());
    }
    let in_one = managers.iter().filter(|all| **all == ["fipd-cluster-vip"]);
    assert!(in_one.count() > ALL / 2, "{managers:?}");
}

/// Row 78 and E-2.
#[tokio::test(flavor = "multi_thread")]
async fn e_2_row_78_an_ipv6_ingress_is_no_label_and_holds_up_nothing() {
    let bed = Bed::start(Class::with_cluster_vip("six")).await;
    bed.pool("six", CONTROL_PLANE, &["10.32.0.15"]).await;
    bed.pool("six-ingress", INGRESS, &["fd00:32::7"]).await;
    bed.cluster("six").await;
    bed.wait_endpoint("six", "10.32.0.15").await;
    let seen = bed
        .wait("six", "has the annotation", |one| {
            annotation(one) == "fd00:32::7"
        })
        .await;
    assert_eq!(label(&seen), &Value::Null, "{seen}");
    bed.wait_says("six", INGRESS_READY, "True", "AddressAllocated")
        .await;
    bed.wait_rendered("six", "has both addresses", |one| {
        one["spec"]["controlPlaneEndpoint"]["host"] == "10.32.0.15"
            && one["spec"]["ingressVip"] == "fd00:32::7"
    })
    .await;
}

/// Row 79 and E-3.
#[tokio::test(flavor = "multi_thread")]
async fn e_3_row_79_without_a_pool_for_the_ingress_the_control_plane_is_served() {
    let bed = Bed::start(Class::with_cluster_vip("no-ingress")).await;
    bed.pool("no-ingress", CONTROL_PLANE, &["10.33.0.15"]).await;
    bed.cluster("no-ingress").await;
    bed.wait_endpoint("no-ingress", "10.33.0.15").await;
    bed.wait_says("no-ingress", ENDPOINT_READY, "True", "AddressAllocated")
        .await;
    let said = bed
        .wait_says("no-ingress", INGRESS_READY, "False", "PoolNotFound")
        .await;
    assert!(
        said.contains("no matching ip pool") && said.contains("role \"ingress\""),
        "{said}"
    );
    let told = bed
        .ipam
        .wait_event(CLUSTER, "no-ingress", "PoolNotFound")
        .await
        .unwrap();
    assert!(told.contains("no matching ip pool"), "{told}");
    bed.wait("no-ingress", "is provisioned", |one| {
        one["status"]["phase"] == "Provisioned"
    })
    .await;
    // E-4: with an endpoint already there, a pool that comes later is used.
    bed.pool("no-ingress-later", INGRESS, &["10.33.0.101"])
        .await;
    bed.wait("no-ingress", "has the annotation", |one| {
        annotation(one) == "10.33.0.101"
    })
    .await;
    bed.wait_says("no-ingress", INGRESS_READY, "True", "AddressAllocated")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_that_is_given_stays_and_one_that_is_declined_is_not_claimed() {
    let bed = Bed::start(Class::without_endpoint("declined")).await;
    bed.pool("declined", CONTROL_PLANE, &["10.34.0.15-10.34.0.19"])
        .await;
    bed.pool("declined-ingress", INGRESS, &["10.34.0.101-10.34.0.109"])
        .await;
    let annotated =
        |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
    bed.cluster_with("declined", annotated(INGRESS_ENABLED, "false"))
        .await;
    bed.cluster_with("given-ingress", annotated(INGRESS_VIP, "10.34.0.101"))
        .await;
    bed.wait_says("given-ingress", INGRESS_READY, "True", "AddressGiven")
        .await;
    bed.wait_lease("10.34.0.101", CLUSTER, "given-ingress")
        .await;
    for name in ["declined", "given-ingress"] {
        bed.wait_says(name, ENDPOINT_READY, "True", "AddressAllocated")
            .await;
    }
    let mut claims = bed.claims().await;
    claims.sort();
    assert_eq!(claims, ["vip-cp-declined", "vip-cp-given-ingress"]);
    let seen = json!(bed.clusters().get("declined").await.unwrap());
    assert_eq!(condition(&seen, INGRESS_READY), &Value::Null);
    // Accepted after all. What the other Cluster has is not given twice.
    bed.edit(
        "declined",
        json!({ "metadata": { "annotations": { INGRESS_ENABLED: null } } }),
    )
    .await;
    bed.wait("declined", "has the annotation", |one| {
        annotation(one) == "10.34.0.102"
    })
    .await;
}
