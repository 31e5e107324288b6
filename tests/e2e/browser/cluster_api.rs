//! What the admin of a management cluster of Cluster API sees: its Clusters, claims and pools, and the way from one to another.

use fipd_tests::cluster_api::IpamObjects;
use fipd_tests::scenario::write_kubeconfig;
use fipd_tests::testbed::cluster_api::{Versions, install_definitions};
use fipd_tests::testbed::{ControlPlane, ControlPlaneOptions, Fipd, FipdOptions};
use serde_json::json;

use super::guests::wait_shown;
use super::pages::{checked_browser, look};
use super::{initial_admin, no_complaints, sign_in};

const CLASS: &str = "vip.capi.gorizond.io/cluster-class";

/// A Cluster that has its endpoint, another that waits for the same pool, and a claim that waits for a pool that is not there.
async fn site() -> (ControlPlane, Fipd) {
    let plane = ControlPlane::start("management", ControlPlaneOptions::default());
    let plane = plane.await.unwrap();
    install_definitions(&plane, Versions::OnlyV1Beta2)
        .await
        .unwrap();
    plane.install_fipd_crds().await.unwrap();
    let objects = IpamObjects {
        client: plane.client().await.unwrap(),
        version: "v1beta2",
    };
    let labels = json!({ CLASS: "rke2", "vip.capi.gorizond.io/role": "control-plane" });
    let spec = json!({ "addresses": ["10.44.0.10"], "prefix": 24 });
    let pool = json!({ "metadata": { "labels": labels }, "spec": spec });
    let pool = objects.make("GlobalInClusterIPPool", "planes", pool);
    pool.await.unwrap();
    let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    write_kubeconfig(&fipd, "management", plane.kubeconfig_yaml()).unwrap();
    let config = "[[cluster]]\nname = \"management\"\nkubeconfig = \"management.kubeconfig\"\nsystems = [\"cluster-api\"]\n";
    fipd.write_config(config).unwrap();
    fipd.restart().await.unwrap();
    for name in ["first", "second"] {
        let annotations = json!({ CLASS: "rke2", "vip.capi.gorizond.io/ingress-enabled": "false" });
        let network = json!({ "serviceDomain": "cluster.local" });
        let cluster = json!({
            "metadata": { "annotations": annotations }, "spec": { "clusterNetwork": network },
        });
        let path = format!("default/{name}");
        objects.make("Cluster", &path, cluster).await.unwrap();
        let claim = format!("default/vip-cp-{name}");
        match name {
            "first" => drop(objects.wait_address(&claim).await.unwrap()),
            _ => drop(
                objects
                    .wait_reason("IPAddressClaim", &claim, "PoolExhausted")
                    .await
                    .unwrap(),
            ),
        }
    }
    let lost = objects.claim("default/lost", ("InClusterIPPool", "nowhere"));
    lost.await.unwrap();
    (plane, fipd)
}

#[tokio::test]
async fn clusters_claims_and_pools_are_shown_and_lead_to_each_other() {
    let (_plane, fipd) = site().await;
    let browser = checked_browser().await;
    let mut wrong = Vec::new();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    let at = |path: &str| format!("{}{path}", fipd.url());
    let clusters = at("/ui/clusters");
    wait_shown(&browser, &clusters, &["Cluster API"]).await;
    browser
        .follow("main a[href='/ui/cluster-api']")
        .await
        .unwrap();
    assert_eq!(browser.title().await.unwrap(), "Cluster API – fipd");
    let page = at("/ui/cluster-api");
    let parts = [
        "first",
        "10.44.0.10:6443",
        "lost",
        "there is no InClusterIPPool",
    ];
    wait_shown(&browser, &page, &parts).await;
    let first = browser.text("#live-claims tbody tr").await.unwrap();
    assert!(
        !first.contains("vip-cp-first"),
        "those that wait come first: {first}"
    );
    no_complaints(&browser).await;
    look(&browser, "cluster-api", &mut wrong).await;
    // From the claim to its lease, and back.
    let lease = "#live-claims a[href$='/addresses/10.44.0.10']";
    browser.follow(lease).await.unwrap();
    assert_eq!(browser.title().await.unwrap(), "10.44.0.10 – fipd");
    look(&browser, "cluster-api-lease", &mut wrong).await;
    let claim = "main .parties a[href='/ui/cluster-api/claims?filter=vip-cp-first']";
    browser.follow(claim).await.unwrap();
    let rows = browser.text("#live-system-list tbody").await.unwrap();
    assert!(
        rows.contains("vip-cp-first") && !rows.contains("lost"),
        "{rows}"
    );
    look(&browser, "cluster-api-claims", &mut wrong).await;
    // To its Cluster, and from that to its pool.
    let cluster = "main a[href='/ui/cluster-api/clusters?filter=first']";
    browser.follow(cluster).await.unwrap();
    let rows = browser.text("#live-system-list tbody").await.unwrap();
    assert!(rows.contains("10.44.0.10:6443"), "{rows}");
    look(&browser, "cluster-api-clusters", &mut wrong).await;
    browser.open(&at("/ui/cluster-api/pools")).await.unwrap();
    browser
        .follow("#live-system-list a[href^='/ui/pools/']")
        .await
        .unwrap();
    let title = browser.title().await.unwrap();
    assert!(title.starts_with("Pool cluster-api/"), "{title}");
    no_complaints(&browser).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
