//! An earlier fipd's store, configuration and roles under this one.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use fipd_tests::scenario::{Scenario, create_services, wait_assigned, write_kubeconfig};
use fipd_tests::testbed::{RESTRICTED_USER, SiteOptions, wait_until};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams};
use serde_json::Value;

/// The roles of that fipd, as `packaging/rbac` had them.
const MANAGEMENT: &str = include_str!("upgrade/rancher-fip-management.yaml");
const DOWNSTREAM: &str = include_str!("upgrade/rancher-fip-downstream.yaml");
const DEADLINE: Duration = Duration::from_secs(90);
const POOL: &str = "a--public";

async fn json(scenario: &Scenario, command: &[&str]) -> Value {
    let mut command = command.to_vec();
    command.extend(["-o", "json"]);
    scenario.fipd.cli(command).await.unwrap().json().unwrap()
}

/// The addresses that the address book has somebody for.
async fn leased(scenario: &Scenario) -> BTreeSet<String> {
    let list = json(scenario, &["lease", "list"]).await;
    let leases = list["leases"].as_array().unwrap().iter();
    leases
        .map(|lease| lease["address"].as_str().unwrap().to_owned())
        .collect()
}

/// A site whose clusters grant fipd what the earlier roles say and no more, and that fipd's store.
async fn earlier() -> Scenario {
    let scenario = Scenario::prepare(&SiteOptions::of(&["a"])).await.unwrap();
    let rancher = &scenario.site.rancher;
    let plane = &scenario.site.cluster("a").unwrap().plane;
    rancher.apply(MANAGEMENT).await.unwrap();
    let role = "fipd-rancher-fip-management";
    rancher.bind_role(role, None).await.unwrap();
    plane.apply(DOWNSTREAM).await.unwrap();
    let role = "fipd-rancher-fip-downstream";
    plane.bind_role(role, None).await.unwrap();
    for (name, plane) in [("rancher", rancher), ("a", plane)] {
        let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
        write_kubeconfig(&scenario.fipd, name, &kubeconfig).unwrap();
    }
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("../daemon/tests/fixtures");
    fs::create_dir_all(scenario.fipd.data_dir()).unwrap();
    let there = scenario.fipd.data_dir().join("fipd.redb");
    fs::copy(store.join("store-v1-full.redb"), there).unwrap();
    scenario
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_store_and_earlier_roles_go_on_under_this_fipd() {
    let mut scenario = earlier().await;
    scenario
        .add_pool(POOL, "10.77.0.0/24", "10.77.0.1", "10.77.0.30")
        .await
        .unwrap();
    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    let kept = leased(&scenario).await;
    for address in [
        "10.60.0.1",
        "10.60.0.2",
        "10.60.0.4",
        "10.60.0.6",
        "fd00:60::7",
        "192.0.2.7",
    ] {
        assert!(kept.contains(address), "{address}: {kept:?}");
    }
    let people = json(&scenario, &["user", "list"]).await.to_string();
    assert!(people.contains("\"ann\""), "{people}");
    let tokens = json(&scenario, &["token", "list"]).await.to_string();
    assert!(tokens.contains("token-17") && tokens.contains("token-18"));
    // The earlier fipd had restored it a moment before.
    let held = json(&scenario, &["hold", "show"]).await;
    assert_eq!(held["held"], true, "{held}");
    json(&scenario, &["hold", "lift", "--reason", "a test"]).await;
    // What this fipd looks at beyond those roles holds neither the adoption nor an address back.
    let api: Api<Service> = Api::default_namespaced(scenario.client("a").await.unwrap());
    create_services(&api, &["web".to_owned()], POOL)
        .await
        .unwrap();
    let given = wait_assigned(&api, 1, DEADLINE).await.unwrap();
    let address = given["web"][0].to_string();
    assert!(!kept.contains(&address) && address.starts_with("10.77.0."));
    assert_eq!(leased(&scenario).await.len(), kept.len() + 1);
    // The finalizer lets go.
    api.delete("web", &DeleteParams::default()).await.unwrap();
    wait_until("the Service is gone", DEADLINE, || async {
        match api.get_opt("web").await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("still there".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
    .unwrap();
    // With what was written since, it starts again.
    scenario.fipd.kill9().unwrap();
    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    assert!(leased(&scenario).await.is_superset(&kept));
    let checked = scenario.fipd.cli(["check"]).await.unwrap();
    assert!(!checked.stdout.contains("damage"), "{checked:?}");
}
