//! An old backup is restored while the clusters hold newer addresses: none of them is given away.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use fipd_tests::scenario::{Scenario, assigned, create_services, wait_assigned};
use fipd_tests::testbed::{SiteOptions, wait_until};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::Value;

const POOL: &str = "a--public";
const DEADLINE: Duration = Duration::from_secs(180);

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n}")).collect()
}

async fn json(scenario: &Scenario, command: &[&str]) -> Value {
    let mut command = command.to_vec();
    command.extend(["-o", "json"]);
    let done = scenario.fipd.cli(command).await.unwrap();
    assert_eq!(done.code, 0, "{done:?}");
    serde_json::from_str(&done.stdout).unwrap()
}

/// The addresses that the address book has somebody for.
async fn leased(scenario: &Scenario) -> BTreeSet<IpAddr> {
    let list = json(scenario, &["lease", "list"]).await;
    let leases = list["leases"].as_array().unwrap().iter();
    leases
        .map(|lease| lease["address"].as_str().unwrap().parse().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_old_file_gives_no_newer_address_away() {
    let mut scenario = Scenario::start(&SiteOptions::of(&["a"])).await.unwrap();
    scenario
        .add_pool(POOL, "10.62.0.0/24", "10.62.0.1", "10.62.0.30")
        .await
        .unwrap();
    let api: Api<Service> = Api::default_namespaced(scenario.client("a").await.unwrap());
    create_services(&api, &names("old", 5), POOL).await.unwrap();
    wait_assigned(&api, 5, DEADLINE).await.unwrap();
    let events: Api<Event> = Api::default_namespaced(scenario.client("a").await.unwrap());
    let backup = scenario.fipd.data_dir().join("old-backup");
    let backup = backup.to_str().unwrap();
    json(&scenario, &["backup", backup]).await;
    create_services(&api, &names("newer", 5), POOL)
        .await
        .unwrap();
    let before = wait_assigned(&api, 10, DEADLINE).await.unwrap();
    scenario
        .fipd
        .terminate(Duration::from_secs(10))
        .await
        .unwrap();

    let data_dir = scenario.fipd.data_dir();
    let restore = ["restore", backup, "--data-dir", data_dir.to_str().unwrap()];
    let restored = json(&scenario, &restore).await;
    assert_eq!(restored["epoch"], 1);
    // They ask before anything is adopted.
    create_services(&api, &names("later", 5), POOL)
        .await
        .unwrap();
    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();

    let held: BTreeSet<IpAddr> = before.values().flatten().copied().collect();
    wait_until("the newer addresses are adopted", DEADLINE, || async {
        let networks = json(&scenario, &["network", "list"]).await;
        let waits = networks["networks"][0]["waiting_for"].clone();
        let leased = leased(&scenario).await;
        if leased == held && waits == Value::Array(Vec::new()) {
            Ok(())
        } else {
            Err(format!("{waits}; {leased:?}"))
        }
    })
    .await
    .unwrap();
    wait_until("the later ones say why they wait", DEADLINE, || async {
        let why = ListParams::default().fields("reason=RestoreHold");
        let said = events.list(&why).await.map_err(|error| error.to_string())?;
        match said.items.len() {
            5.. => Ok(()),
            some => Err(format!("{some} do")),
        }
    })
    .await
    .unwrap();
    assert_eq!(assigned(&api).await.unwrap(), before);
    assert_eq!(json(&scenario, &["hold", "show"]).await["held"], true);

    json(&scenario, &["hold", "lift", "--reason", "all is adopted"]).await;
    let after = wait_assigned(&api, 15, DEADLINE).await.unwrap();
    for (name, addresses) in &before {
        assert_eq!(&after[name], addresses, "{name} keeps its address");
    }
    let all: BTreeSet<IpAddr> = after.values().flatten().copied().collect();
    assert_eq!(all.len(), 15);
    let check = scenario.fipd.cli(["check"]).await.unwrap();
    assert_eq!(check.code, 0, "{check:?}");
}
