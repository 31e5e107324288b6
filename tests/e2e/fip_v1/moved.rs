//! Who serves the API changes: another program leads, or fipd goes on on another machine.

use std::fs;

use fipd_tests::scenario::{config_of, write_kubeconfig};
use fipd_tests::testbed::{Fipd, FipdOptions, RESTRICTED_USER, wait_until};
use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::{DEADLINE, MANY, Rancher, client, is, refusal};

const APP: &str = "rancher-fip-manager";

#[tokio::test(flavor = "multi_thread")]
async fn defect_34_who_does_not_lead_says_so_and_the_client_asks_again() {
    let rancher = Rancher::start(MANY).await;
    let web = rancher.client("c-m-a", "p-a");
    let given = rancher.given(&web, "web", "net").await;
    let leases: Api<Lease> =
        Api::namespaced(rancher.scenario.site.rancher.client().await.unwrap(), APP);
    let hold = |holder: &'static str| {
        let (leases, now) = (&leases, MicroTime(k8s_openapi::jiff::Timestamp::now()));
        let spec = json!({ "spec": { "holderIdentity": holder, "renewTime": now } });
        async move {
            let by = PatchParams::default();
            let name = "rancher-fip-api-server-lock";
            leases.patch(name, &by, &Patch::Merge(&spec)).await.unwrap();
        }
    };
    hold("original").await;
    let nobody = "fipd does not lead in the management cluster, or has not read it yet; ask again";
    wait_until("another leads", DEADLINE, || async {
        match web.list().await? {
            (503, answer) if answer["message"] == nobody => Ok(()),
            (code, answer) => Err(format!("{code} {answer}")),
        }
    })
    .await
    .unwrap();
    assert_eq!(
        refusal(web.request("api", "net", "").await),
        is(503, nobody)
    );
    let ready = rancher.scenario.fipd.get("/readyz").await.unwrap();
    assert!(
        ready
            .body
            .contains("1 management clusters are not led by this fipd"),
        "{ready:?}"
    );
    hold("").await;
    let again = rancher.given(&web, "web", "net").await;
    assert_eq!(again["ipaddr"], given["ipaddr"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_amid_a_burst_it_goes_on_on_another_machine_with_its_store_file() {
    let mut rancher = Rancher::start(MANY).await;
    let web = rancher.client("c-m-a", "p-a");
    rancher.given(&web, "first", "net").await;
    let token = web.token().await.unwrap();
    let (names, before) = rancher.killed_amid_burst(&web, "web", 48).await;
    let heard = before.iter().filter(|one| matches!(one, Ok((200, _))));
    assert!(heard.count() < names.len(), "killed too late");

    // Another data directory, port and CA, and another name in the Leases, which the dead one still holds.
    let mut other = Fipd::prepare(FipdOptions::default()).await.unwrap();
    fs::create_dir_all(other.data_dir()).unwrap();
    for name in ["fipd.redb", "fipd.redb.high-water"] {
        let file = rancher.scenario.fipd.data_dir().join(name);
        fs::copy(file, other.data_dir().join(name)).unwrap();
    }
    let site = &rancher.scenario.site;
    let kubeconfig = site.rancher.kubeconfig_of(RESTRICTED_USER);
    write_kubeconfig(&other, "rancher", &kubeconfig).unwrap();
    let config = format!("{MANY}\n{}", config_of(site, &[], ""));
    other.write_config(&config).unwrap();
    other.restart().await.unwrap();

    let web = client(&other, "c-m-a", "p-a");
    rancher.ask_again(&web, &names, before).await;
    rancher.wait_objects(1 + names.len()).await;
    let said = other.cli(["lease", "list", "-o", "json"]).await.unwrap();
    let leases: Value = said.json().unwrap();
    let leases = leases["leases"].as_array().unwrap();
    assert_eq!(leases.len(), 1 + names.len(), "nothing is leaked");
    let body = json!({
        "clientSecret": web.secret, "cluster": web.cluster, "project": web.project,
    });
    let listed = web
        .send(
            Method::POST,
            "/v1/fip/list",
            Some(&token),
            &body.to_string(),
        )
        .await;
    assert_eq!(listed.unwrap().0, 200, "its key is in the store");
}
