//! `in-cluster-kinds = "leave"`: the stock provider serves the claims of Clusters.

use super::*;

/// fipd's own pool has the range of the stock provider's. Neither gives what the other gave to somebody.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_stock_provider_allocates_for_a_cluster_is_in_the_address_book() {
    let settings = "in-cluster-kinds = \"leave\"\npools = [\"left\"]";
    let bed = Bed::alone(Class::with_cluster_vip("left"), settings).await;
    let own = ["pool", "create", "left", "--cidr", "10.48.0.0/29"];
    bed.fipd.cli(own).await.unwrap().success().unwrap();
    bed.pool("left", CONTROL_PLANE, &["10.48.0.1-10.48.0.6"])
        .await;
    let fulfil = async |cluster: &str, address: &str| {
        bed.cluster(cluster).await;
        let claim = format!("vip-cp-{cluster}");
        bed.wait_claim(&claim, "is there", |_| true).await;
        let path = bed.path(&claim);
        bed.ipam.fulfil(&path, address).await.unwrap();
    };
    fulfil("left", "10.48.0.1").await;
    bed.wait_endpoint("left", "10.48.0.1").await;
    bed.wait_lease("10.48.0.1", CLUSTER, "left").await;
    let machine = bed.path("machine");
    let made = bed.ipam.fulfilled(&machine, (GLOBAL, "left"), "10.48.0.2");
    made.await.unwrap();
    bed.wait_lease("10.48.0.2", CLAIM, "machine").await;
    bed.ipam.claim("left/own", ("Pool", "left")).await.unwrap();
    assert_eq!(
        bed.ipam.wait_address("left/own").await.unwrap(),
        "10.48.0.3"
    );

    // The stock provider knows nothing of fipd's leases.
    fulfil("left-twice", "10.48.0.3").await;
    let seen = bed
        .wait("left-twice", "says who has its address", |one| {
            let said = condition(one, ENDPOINT_READY)["message"].as_str();
            said.is_some_and(|said| said.contains("10.48.0.3 is held by"))
        })
        .await;
    assert_eq!(endpoint(&seen), &Value::Null, "{seen}");
    bed.ipam.delete(CLAIM, "left/own").await.unwrap();
    bed.wait_endpoint("left-twice", "10.48.0.3").await;
    bed.wait_lease("10.48.0.3", CLUSTER, "left-twice").await;
}
