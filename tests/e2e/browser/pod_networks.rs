//! What the admin of pod networks sees: subnets, the addresses of pods, and the way from one to another.

use fipd_tests::flat_network::{FlatObjects, IP, PodCluster, SUBNET, SUBNETS};
use fipd_tests::testbed::{ControlPlaneOptions, Fipd};
use serde_json::json;

use super::guests::wait_shown;
use super::pages::{checked_browser, look};
use super::{initial_admin, no_complaints, sign_in};

/// A pod with two addresses, one that names a subnet that is not there, and one whose annotations make no sense.
async fn site() -> (PodCluster, Fipd) {
    let cluster = PodCluster::with("pods", ControlPlaneOptions::default());
    let cluster = cluster.await.unwrap();
    cluster.make_namespace("shop").await.unwrap();
    let mut fipd = cluster.prepare_admin().await.unwrap();
    fipd.restart().await.unwrap();
    let objects = cluster.objects().await.unwrap();
    for (name, cidr, partner) in [
        ("blue", "10.70.0.0/24", "blue6"),
        ("blue6", "fd00:70::/64", ""),
    ] {
        let rest = json!({ "partner": partner });
        objects.subnet(name, cidr, rest).await.unwrap();
        let path = format!("{SUBNETS}/{name}");
        objects.wait_phase(SUBNET, &path, "Active").await.unwrap();
    }
    pod(&objects, "web", "blue", "true").await;
    pod(&objects, "early", "green", "false").await;
    pod(&objects, "odd", "blue", "perhaps").await;
    objects.wait_address("shop/web").await.unwrap();
    objects
        .wait_phase(IP, "shop/early", "Failed")
        .await
        .unwrap();
    (cluster, fipd)
}

async fn pod(objects: &FlatObjects, name: &str, subnet: &str, dual: &str) {
    let metadata = json!({ "annotations": { "fipd.io/dual-stack": dual } });
    let path = format!("shop/{name}");
    objects.pod(&path, subnet, "auto", metadata).await.unwrap();
}

#[tokio::test]
async fn subnets_and_pods_are_shown_and_lead_to_each_other() {
    let (_cluster, fipd) = site().await;
    let browser = checked_browser().await;
    let mut wrong = Vec::new();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    let at = |path: &str| format!("{}{path}", fipd.url());
    wait_shown(&browser, &at("/ui/clusters"), &["Pod networks"]).await;
    browser
        .follow("main a[href='/ui/flat-network']")
        .await
        .unwrap();
    assert_eq!(browser.title().await.unwrap(), "Pod networks – fipd");
    let parts = [
        "10.70.0.0/24",
        "10.70.0.1",
        "fd00:70::1",
        "there is no usable FlatNetworkSubnet",
        "it must be true or false",
    ];
    wait_shown(&browser, &at("/ui/flat-network"), &parts).await;
    no_complaints(&browser).await;
    look(&browser, "pod-networks", &mut wrong).await;
    // From an address to its lease, and back.
    let lease = "#live-pods a[href$='/addresses/fd00:70::1']";
    browser.follow(lease).await.unwrap();
    assert_eq!(browser.title().await.unwrap(), "fd00:70::1 – fipd");
    look(&browser, "pod-networks-lease", &mut wrong).await;
    let rows = "main .parties a[href^='/ui/flat-network/pods?filter=web']";
    browser.follow(rows).await.unwrap();
    let rows = browser.text("#live-system-list tbody").await.unwrap();
    assert!(
        rows.contains("fd00:70::1") && !rows.contains("10.70.0.1"),
        "{rows}"
    );
    // To its subnet, and from that to its pool.
    let subnet = "main a[href='/ui/flat-network/subnets?filter=blue6']";
    browser.follow(subnet).await.unwrap();
    let pool = "#live-system-list a[href^='/ui/pools/']";
    browser.follow(pool).await.unwrap();
    let title = browser.title().await.unwrap();
    assert!(title.starts_with("Pool flat-network/pods/"), "{title}");
    no_complaints(&browser).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
