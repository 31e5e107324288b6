//! What the admin of a Rancher sees of it: its guest clusters, and what its projects hold.

use std::time::Duration;

use fipd_tests::scenario::{Scenario, config_of};
use fipd_tests::testbed::{Browser, SiteOptions, wait_until};
use serde_json::{Value, json};

use super::pages::{checked_browser, look};
use super::{initial_admin, no_complaints, sign_in};

const GROUP: &str = "rancher.k8s.binbash.org";
const DEADLINE: Duration = Duration::from_secs(60);

/// A Rancher with two guests, of which one has no pool, and with a project that has nearly used up its quota.
async fn site() -> Scenario {
    let mut scenario = Scenario::prepare(&SiteOptions::of(&["shop", "lab"]))
        .await
        .unwrap();
    let site = &scenario.site;
    let apply = async |kind: &str, meta: Value, spec: Value| {
        let object = json!({
            "apiVersion": format!("{GROUP}/v1beta2"), "kind": kind, "metadata": meta, "spec": spec,
        });
        site.rancher.apply(&object.to_string()).await.unwrap();
    };
    let range = json!({ "start": "10.60.0.10", "end": "10.60.0.20" });
    let pool = json!({
        "ipConfig": { "family": "IPv4", "subnet": "10.60.0.0/24", "pool": range },
        "targetCluster": "shop", "targetNetwork": "vlan-1", "targetNetworkInterface": "eth1",
    });
    let default = json!({ "rancher-fip-default-network": "true" });
    let meta = json!({ "name": "shop--vlan-1", "annotations": default });
    apply("FloatingIPPool", meta, pool).await;
    let quota =
        json!({ "displayName": "Web shop", "floatingIPQuota": { "shop--vlan-1": 4, "gone": 2 } });
    let meta = json!({ "name": "p-shop" });
    apply("FloatingIPProjectQuota", meta, quota).await;
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "c-m-shop" } });
    site.rancher.apply(&namespace.to_string()).await.unwrap();
    for name in ["web", "api", "spare"] {
        let mut labels = json!({ format!("{GROUP}/project-name"): "p-shop" });
        if name != "spare" {
            labels[format!("{GROUP}/cluster-name")] = json!("c-m-shop");
        }
        let meta = json!({ "name": name, "namespace": "c-m-shop", "labels": labels });
        let spec = json!({ "floatingIPPool": "shop--vlan-1" });
        apply("FloatingIP", meta, spec).await;
    }
    let config =
        config_of(site, &[], "") + "[cluster.rancher-fip.cluster-manager]\nenabled = true\n";
    let advertise = format!("[api]\nadvertise = \"{}\"\n", scenario.fipd.url());
    scenario.fipd.write_config(&(config + &advertise)).unwrap();
    scenario.fipd.restart().await.unwrap();
    scenario
}

/// Opens a page until it shows all of these.
async fn wait_shown(browser: &Browser, url: &str, parts: &[&str]) {
    wait_until(&format!("{url} shows {parts:?}"), DEADLINE, || async {
        let open = browser.open(url).await;
        open.map_err(|error| error.to_string())?;
        let page = browser.text("main").await;
        let page = page.map_err(|error| error.to_string())?;
        let all = parts.iter().all(|part| page.contains(part));
        all.then_some(()).ok_or(page)
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn guests_and_projects_are_shown_with_what_they_lack() {
    let scenario = site().await;
    let fipd = &scenario.fipd;
    let browser = checked_browser().await;
    sign_in(&browser, fipd, &initial_admin(fipd)).await;
    let guests = format!("{}/ui/guests", fipd.url());
    let parts = ["shop", "Ready", "p-shop", "shop--vlan-1", "lab"];
    let mut wrong = Vec::new();
    wait_shown(&browser, &guests, &parts).await;
    no_complaints(&browser).await;
    look(&browser, "guests-of-a-site", &mut wrong).await;
    let tenants = format!("{}/ui/tenants", fipd.url());
    wait_shown(&browser, &tenants, &["p-shop", "shop--vlan-1"]).await;
    look(&browser, "tenants-of-a-site", &mut wrong).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let row = browser.text("#live-tenants tbody").await.unwrap();
    assert!(row.contains('3') && row.contains('4'), "{row}");
}
