//! Clusters of IPv6 alone and of both families: E-14 and E-15.

use fipd_tests::testbed::cluster_api::SECOND_CLUSTER_VIP;

use super::*;

const SECOND_CONTROL_PLANE_VIP: &str = "fipd.io/second-control-plane-vip";
const SECOND_INGRESS_VIP: &str = "fipd.io/second-ingress-vip";
const SECOND_ENDPOINT_READY: &str = "fipd.io/SecondEndpointReady";
const SECOND_INGRESS_READY: &str = "fipd.io/SecondIngressReady";

const FOUR: &str = "10.96.0.0/12";
const SIX: &str = "fd00:96::/112";

/// The networks of a Cluster.
fn services(blocks: &[&str]) -> Value {
    json!({ "spec": { "clusterNetwork": { "services": { "cidrBlocks": blocks } } } })
}

fn annotation<'a>(cluster: &'a Value, name: &str) -> &'a Value {
    &cluster["metadata"]["annotations"][name]
}

/// A pool of IPv4 comes first by its name, and its Clusters wait for one of IPv6 all the same.
#[tokio::test(flavor = "multi_thread")]
async fn e_14_a_cluster_of_ipv6_gets_addresses_of_ipv6_alone() {
    let bed = Bed::start(Class::with_cluster_vip("only-six")).await;
    bed.pool("a-four", CONTROL_PLANE, &["10.61.0.15"]).await;
    bed.pool("a-four-ingress", INGRESS, &["10.61.0.101"]).await;
    bed.cluster_with("only-six", services(&[SIX])).await;
    for kind in [ENDPOINT_READY, INGRESS_READY] {
        let said = bed.wait_says("only-six", kind, "False", "PoolNotFound");
        let said = said.await;
        assert!(
            said.contains("no matching ip pool for class \"only-six\"")
                && said.contains("of family IPv6; pool a-four"),
            "{said}"
        );
    }
    assert_eq!(bed.claims().await, [""; 0]);
    bed.pool("b-six", CONTROL_PLANE, &["fd00:61::15"]).await;
    bed.pool("b-six-ingress", INGRESS, &["fd00:61::101"]).await;
    let seen = bed.wait_endpoint("only-six", "fd00:61::15").await;
    assert_eq!(endpoint(&seen)["port"], 6443);
    bed.wait("only-six", "has variable and annotation", |one| {
        variable(one, CLUSTER_VIP) == "fd00:61::15"
            && annotation(one, INGRESS_VIP) == "fd00:61::101"
    })
    .await;
    bed.wait_rendered("only-six", "has both addresses", |one| {
        one["spec"]["controlPlaneEndpoint"]["host"] == "fd00:61::15"
            && one["spec"]["ingressVip"] == "fd00:61::101"
    })
    .await;
    let seen = bed
        .wait("only-six", "says that it has both", |one| {
            [ENDPOINT_READY, INGRESS_READY]
                .iter()
                .all(|kind| condition(one, kind)["status"] == "True")
        })
        .await;
    assert_eq!(condition(&seen, SECOND_ENDPOINT_READY), &Value::Null);
    let mut claims = bed.claims().await;
    claims.sort();
    assert_eq!(claims, ["vip-cp-only-six", "vip-ingress-only-six"]);
}

/// The endpoint is of the family of the first CIDR block, whatever pools come first.
#[tokio::test(flavor = "multi_thread")]
async fn e_15_a_dual_stack_cluster_gets_an_address_of_each_family() {
    let bed = Bed::start(Class::with_both_vips("dual")).await;
    bed.pool("dual-a", CONTROL_PLANE, &["10.62.0.15"]).await;
    bed.pool("dual-b", CONTROL_PLANE, &["fd00:62::15"]).await;
    bed.pool("dual-a-ingress", INGRESS, &["10.62.0.101"]).await;
    bed.pool("dual-b-ingress", INGRESS, &["fd00:62::101"]).await;
    bed.cluster_with("dual", services(&[SIX, FOUR])).await;
    let shows_all = |one: &Value| {
        endpoint(one)["host"] == "fd00:62::15"
            && variable(one, CLUSTER_VIP) == "fd00:62::15"
            && annotation(one, INGRESS_VIP) == "fd00:62::101"
            && annotation(one, SECOND_CONTROL_PLANE_VIP) == "10.62.0.15"
            && variable(one, SECOND_CLUSTER_VIP) == "10.62.0.15"
            && annotation(one, SECOND_INGRESS_VIP) == "10.62.0.101"
    };
    bed.wait("dual", "has all addresses", shows_all).await;
    let kinds = [
        ENDPOINT_READY,
        INGRESS_READY,
        SECOND_ENDPOINT_READY,
        SECOND_INGRESS_READY,
    ];
    for kind in kinds {
        bed.wait_says("dual", kind, "True", "AddressAllocated")
            .await;
    }
    for (claim, role, pool, address) in [
        ("vip-cp-dual", CONTROL_PLANE, "dual-b", "fd00:62::15"),
        ("vip-second-cp-dual", CONTROL_PLANE, "dual-a", "10.62.0.15"),
        (
            "vip-ingress-dual",
            INGRESS,
            "dual-b-ingress",
            "fd00:62::101",
        ),
        (
            "vip-second-ingress-dual",
            INGRESS,
            "dual-a-ingress",
            "10.62.0.101",
        ),
    ] {
        let seen = bed.claim(claim).await.unwrap();
        assert_eq!(seen["metadata"]["labels"][ROLE], role, "{seen}");
        assert_eq!(seen["spec"]["poolRef"]["name"], pool, "{seen}");
        bed.wait_lease(address, CLAIM, claim).await;
    }
    // Whoever drops them finds them again.
    let none = json!({ "metadata": { "annotations": {
        SECOND_CONTROL_PLANE_VIP: null, SECOND_INGRESS_VIP: null,
    } } });
    bed.edit("dual", none).await;
    bed.wait("dual", "has all addresses again", shows_all).await;
    // An address stays that of the Cluster that shows it when its claim is deleted.
    let claim = "dual/vip-second-cp-dual";
    bed.ipam.delete(CLAIM, claim).await.unwrap();
    bed.wait_lease("10.62.0.15", CLUSTER, "dual").await;
    bed.wait_says("dual", SECOND_ENDPOINT_READY, "True", "AddressGiven")
        .await;

    bed.ipam.delete(CLUSTER, "dual/dual").await.unwrap();
    bed.ipam.wait_gone(CLUSTER, "dual/dual").await.unwrap();
    for address in ["fd00:62::15", "10.62.0.101", "fd00:62::101"] {
        bed.wait_lease(address, "", "").await;
    }
}

/// The second family holds up nothing, and is served once there is a pool of it.
#[tokio::test(flavor = "multi_thread")]
async fn e_15_the_second_family_never_holds_up_the_first() {
    let bed = Bed::start(Class::with_cluster_vip("half")).await;
    bed.pool("half", CONTROL_PLANE, &["10.63.0.15"]).await;
    bed.pool("half-ingress", INGRESS, &["10.63.0.101"]).await;
    bed.cluster_with("half", services(&[FOUR, SIX])).await;
    let seen = bed.wait_endpoint("half", "10.63.0.15").await;
    assert_eq!(annotation(&seen, SECOND_CONTROL_PLANE_VIP), &Value::Null);
    bed.wait("half", "is provisioned", |one| {
        one["status"]["phase"] == "Provisioned"
    })
    .await;
    let said = bed
        .wait_says("half", SECOND_ENDPOINT_READY, "False", "PoolNotFound")
        .await;
    assert!(
        said.contains("of family IPv6; pool half is of IPv4"),
        "{said}"
    );
    bed.wait_says("half", ENDPOINT_READY, "True", "AddressAllocated")
        .await;
    bed.wait_says("half", INGRESS_READY, "True", "AddressAllocated")
        .await;
    bed.pool("half-six", CONTROL_PLANE, &["fd00:63::15"]).await;
    let seen = bed
        .wait("half", "has its second address", |one| {
            annotation(one, SECOND_CONTROL_PLANE_VIP) == "fd00:63::15"
        })
        .await;
    assert_eq!(endpoint(&seen)["host"], "10.63.0.15");
    bed.wait_says("half", SECOND_INGRESS_READY, "False", "PoolNotFound")
        .await;
}
