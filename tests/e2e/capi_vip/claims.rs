//! Claims that are somebody else's, or that somebody removes.

use super::*;

/// A claim that was there before has the name that the claim of the Cluster would get.
async fn taken(name: &str, pool: (&str, &str), range: &str) {
    let bed = Bed::start(Class::without_endpoint(name)).await;
    bed.pool(name, CONTROL_PLANE, &[range]).await;
    let (claim, path) = (format!("vip-cp-{name}"), format!("{name}/vip-cp-{name}"));
    bed.ipam.claim(&path, pool).await.unwrap();
    let foreign = bed.claim(&claim).await.unwrap();
    if pool.0 == GLOBAL {
        bed.ipam.wait_address(&path).await.unwrap();
    }
    bed.cluster(name).await;
    let said = bed
        .wait_says(name, ENDPOINT_READY, "False", "ClaimTaken")
        .await;
    assert!(said.contains(&claim), "{said}");
    bed.ipam
        .wait_event(CLUSTER, name, "ClaimTaken")
        .await
        .unwrap();
    let seen = json!(bed.clusters().get(name).await.unwrap());
    assert_eq!(endpoint(&seen), &Value::Null, "{seen}");
    let still = bed.claim(&claim).await.unwrap();
    assert_eq!(still["metadata"]["uid"], foreign["metadata"]["uid"]);
    assert_eq!(still["metadata"]["ownerReferences"], Value::Null);
    // Once it is gone the Cluster gets a claim of its own.
    bed.ipam.delete(CLAIM, &path).await.unwrap();
    bed.wait(name, "has an endpoint", |one| {
        endpoint(one)["host"].is_string()
    })
    .await;
    let own = bed.claim(&claim).await.unwrap();
    assert_ne!(own["metadata"]["uid"], foreign["metadata"]["uid"]);
    assert_eq!(own["metadata"]["ownerReferences"][0]["name"], name);
}

#[tokio::test(flavor = "multi_thread")]
async fn e_11_a_claim_of_somebody_else_is_not_used() {
    taken("taken", (GLOBAL, "taken"), "10.51.0.15-10.51.0.19").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e_11_nor_is_one_on_a_pool_of_another_provider() {
    taken("foreign", ("FooPool", "foreign"), "10.57.0.15-10.57.0.19").await;
}

/// Of two Clusters of one name in two namespaces each has its own claim.
#[tokio::test(flavor = "multi_thread")]
async fn clusters_of_one_name_in_two_namespaces_have_an_address_each() {
    let bed = Bed::start(Class::without_endpoint("twin")).await;
    let plane = &bed.management.plane;
    let other = ClusterApiObjects::of(plane, "twin-two").await.unwrap();
    other
        .make_class(&Class::without_endpoint("twin"))
        .await
        .unwrap();
    bed.pool("twin", CONTROL_PLANE, &["10.52.0.15-10.52.0.19"])
        .await;
    bed.cluster("twin").await;
    bed.wait_endpoint("twin", "10.52.0.15").await;
    let clusters = other.clusters(ApiVersion::V1Beta2);
    let cluster = ApiVersion::V1Beta2.cluster("twin", "twin");
    other.create(&clusters, cluster).await.unwrap();
    let has = |one: &Value| endpoint(one)["host"] == "10.52.0.16";
    bed.explained(wait_object("the other's endpoint", PROMPT, (&clusters, "twin"), has).await);
}

/// The endpoint of a Cluster is in its certificates: it stays whatever happens to the claim, also when fipd writes anew
/// what it has in the Cluster.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_outlives_its_claim() {
    let bed = Bed::start(Class::with_cluster_vip("orphan")).await;
    bed.pool("orphan", CONTROL_PLANE, &["10.53.0.15-10.53.0.19"])
        .await;
    bed.pool("orphan-ingress", INGRESS, &["10.53.0.101"]).await;
    bed.cluster("orphan").await;
    bed.wait_endpoint("orphan", "10.53.0.15").await;
    bed.wait_says("orphan", INGRESS_READY, "True", "AddressAllocated")
        .await;
    bed.ipam
        .delete(CLAIM, "orphan/vip-cp-orphan")
        .await
        .unwrap();
    bed.ipam
        .wait_gone(CLAIM, "orphan/vip-cp-orphan")
        .await
        .unwrap();
    // Its address is reserved for the Cluster itself from then on.
    bed.wait_lease("10.53.0.15", CLUSTER, "orphan").await;
    bed.edit(
        "orphan",
        json!({ "metadata": { "annotations": { INGRESS_VIP: null } } }),
    )
    .await;
    let seen = bed
        .wait("orphan", "has its annotation again", |one| {
            one["metadata"]["annotations"][INGRESS_VIP] == "10.53.0.101"
        })
        .await;
    let stays = json!({ "host": "10.53.0.15", "port": 6443 });
    assert_eq!(endpoint(&seen), &stays, "{seen}");
    assert_eq!(variable(&seen, CLUSTER_VIP), "10.53.0.15", "{seen}");
    // E-8 without a claim, as after `kubectl apply` of a manifest with other variables.
    let other = json!([{ "name": "region", "value": "north" }]);
    let dropped = json!({ "spec": { "topology": { "variables": other } } });
    bed.edit("orphan", dropped).await;
    let seen = bed
        .wait("orphan", "has its variable again", |one| {
            variable(one, CLUSTER_VIP) == "10.53.0.15" && variable(one, "region") == "north"
        })
        .await;
    assert_eq!(endpoint(&seen), &stays, "{seen}");
    let annotations = &seen["metadata"]["annotations"];
    assert_eq!(annotations[INGRESS_VIP], "10.53.0.101", "{seen}");
}

/// The same of the ingress, whose address is in records and in the load balancers of the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_outlives_its_claim() {
    let bed = Bed::start(Class::with_cluster_vip("front-orphan")).await;
    bed.pool("front-orphan", CONTROL_PLANE, &["10.56.0.15"])
        .await;
    bed.pool(
        "front-orphan-ingress",
        INGRESS,
        &["10.56.0.101-10.56.0.109"],
    )
    .await;
    bed.cluster("front-orphan").await;
    bed.wait_endpoint("front-orphan", "10.56.0.15").await;
    // Until then Cluster API may remove the annotation with a patch of a Cluster that it read before: fipd writes it again, but only
    // while there is a claim.
    bed.wait("front-orphan", "is provisioned with both", |one| {
        let has_ingress = one["metadata"]["annotations"][INGRESS_VIP] == "10.56.0.101";
        one["status"]["phase"] == "Provisioned" && has_ingress
    })
    .await;
    bed.wait_says("front-orphan", INGRESS_READY, "True", "AddressAllocated")
        .await;
    bed.ipam
        .delete(CLAIM, "front-orphan/vip-ingress-front-orphan")
        .await
        .unwrap();
    bed.wait_lease("10.56.0.101", CLUSTER, "front-orphan").await;
    // fipd writes anew what it has in the Cluster.
    let none = json!([{ "name": "region", "value": "north" }]);
    bed.edit(
        "front-orphan",
        json!({ "spec": { "topology": { "variables": none } } }),
    )
    .await;
    let seen = bed
        .wait("front-orphan", "has its variable again", |one| {
            variable(one, CLUSTER_VIP) == "10.56.0.15"
        })
        .await;
    assert_eq!(
        seen["metadata"]["annotations"][INGRESS_VIP], "10.56.0.101",
        "{seen}"
    );
}

/// The same with the last address of a pool for which another claim waits.
#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_an_endpoint_is_given_to_nobody_else_when_its_claim_is_deleted() {
    let bed = Bed::start(Class::without_endpoint("wanted")).await;
    bed.pool("wanted", CONTROL_PLANE, &["10.54.0.15"]).await;
    bed.cluster("wanted").await;
    bed.wait_endpoint("wanted", "10.54.0.15").await;
    bed.plain_claim("hungry", "wanted").await;
    bed.ipam
        .wait_reason(CLAIM, "wanted/hungry", "PoolExhausted")
        .await
        .unwrap();
    bed.ipam
        .delete(CLAIM, "wanted/vip-cp-wanted")
        .await
        .unwrap();
    bed.ipam
        .wait_gone(CLAIM, "wanted/vip-cp-wanted")
        .await
        .unwrap();
    bed.wait_lease("10.54.0.15", CLUSTER, "wanted").await;
    assert_eq!(bed.ipam.get(ADDRESS, "wanted/hungry").await.unwrap(), None);
}

/// Somebody changes the host of a Cluster that has a claim: that is reported and not undone, and the port stays.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_changed_later_stays_as_it_was_changed() {
    let bed = Bed::start(Class::without_endpoint("changed")).await;
    bed.pool("changed", CONTROL_PLANE, &["10.55.0.15-10.55.0.19"])
        .await;
    bed.pool("changed-ingress", INGRESS, &["10.55.0.101"]).await;
    bed.cluster("changed").await;
    bed.wait_endpoint("changed", "10.55.0.15").await;
    bed.wait_says("changed", INGRESS_READY, "True", "AddressAllocated")
        .await;
    bed.edit(
        "changed",
        json!({ "spec": { "controlPlaneEndpoint": { "host": "10.55.0.18" } } }),
    )
    .await;
    let said = bed
        .wait_says("changed", ENDPOINT_READY, "False", "EndpointDiffers")
        .await;
    assert!(
        said.contains("10.55.0.18") && said.contains("10.55.0.15"),
        "{said}"
    );
    bed.wait_lease("10.55.0.18", CLUSTER, "changed").await;
    bed.edit(
        "changed",
        json!({ "metadata": { "annotations": { INGRESS_VIP: null } } }),
    )
    .await;
    let seen = bed
        .wait("changed", "has its annotation again", |one| {
            one["metadata"]["annotations"][INGRESS_VIP] == "10.55.0.101"
        })
        .await;
    assert_eq!(
        endpoint(&seen),
        &json!({ "host": "10.55.0.18", "port": 6443 }),
        "{seen}"
    );
}
