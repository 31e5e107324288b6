//! Where the addresses of Services come from, and what happens where two want one.

use fipd_crds::floating_ip::FloatingIPPool;
use fipd_tests::scenario::{Scenario, config, service};
use fipd_tests::testbed::SiteOptions;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{
    create, delete, patch, project, texts, wait_address, wait_event, wait_gone, wait_service,
};

/// A Service that names no pool.
async fn create_without_pool(api: &Api<Service>, name: &str) {
    let mut object = service(name, "").unwrap();
    object.metadata.annotations = None;
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn static_ip(address: Value) -> Value {
    json!({ "metadata": { "annotations": { "rancher.k8s.binbash.org/static-ip": address } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_pool_is_the_marked_one_or_that_of_the_config() {
    let mut scenario = Scenario::start(&SiteOptions::of(&["a"])).await.unwrap();
    let a = project(&scenario, "a").await;
    let pools: Api<FloatingIPPool> = Api::all(scenario.site.rancher.client().await.unwrap());
    let change = |name: &'static str, change: Value| {
        let pools = pools.clone();
        async move {
            let change = Patch::Merge(&change);
            pools
                .patch(name, &PatchParams::default(), &change)
                .await
                .unwrap();
        }
    };
    for (name, net) in [("one", 61), ("two", 62)] {
        let address = |last: &str| format!("10.{net}.0.{last}");
        scenario
            .add_pool(name, &address("0/24"), &address("10"), &address("20"))
            .await
            .unwrap();
        change(name, json!({ "spec": { "targetCluster": "a" } })).await;
    }
    create_without_pool(&a, "first").await;
    wait_event(&a, "first", "PoolNotFound").await;
    let mark = json!({ "metadata": { "annotations": { "rancher-fip-default-network": "true" } } });
    change("two", mark).await;
    assert_eq!(wait_address(&a, "first").await.to_string(), "10.62.0.10");

    let settings = config(&scenario.site, "default-pool = \"one\"\n");
    scenario.fipd.write_config(&settings).unwrap();
    scenario.fipd.restart().await.unwrap();
    create_without_pool(&a, "second").await;
    assert_eq!(wait_address(&a, "second").await.to_string(), "10.61.0.10");
    assert_eq!(texts(&a, "first").await, ["10.62.0.10"], "it stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_conflict_nor_a_bad_annotation_moves_an_address() {
    let mut scenario = Scenario::prepare(&SiteOptions::of(&["a", "b"]))
        .await
        .unwrap();
    scenario
        .add_pool("tiny", "10.60.0.0/24", "10.60.0.10", "10.60.0.10")
        .await
        .unwrap();
    let (a, b) = (project(&scenario, "a").await, project(&scenario, "b").await);
    // Both clusters use one address before fipd comes.
    let ingress = json!([{ "ip": "10.60.0.10" }]);
    for api in [&a, &b] {
        create(api, "twin", "tiny").await;
        let status = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        api.patch_status("twin", &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }
    scenario.fipd.restart().await.unwrap();
    for api in [&a, &b] {
        wait_event(api, "twin", "AddressConflict").await;
        assert_eq!(texts(api, "twin").await, ["10.60.0.10"]);
    }
    // The one that has it goes; the other has it for itself.
    let has = |service: Service| service.metadata.finalizers.is_some();
    let (first, a, b) = if has(a.get("twin").await.unwrap()) {
        (a.clone(), b, a)
    } else {
        (b.clone(), a, b)
    };
    delete(&first, "twin").await;
    wait_gone(&first, "twin").await;
    wait_service(&a, "twin", "is marked", |service| {
        service.metadata.finalizers.is_some()
    })
    .await;

    create(&b, "waiter", "tiny").await;
    wait_event(&b, "waiter", "PoolExhausted").await;
    for (address, reason) in [
        ("10.60.0.300", "Invalid"),
        ("10.99.0.1", "AddressNotAssignable"),
    ] {
        patch(&a, "twin", static_ip(json!(address))).await;
        wait_event(&a, "twin", reason).await;
        assert_eq!(texts(&a, "twin").await, ["10.60.0.10"], "{reason}");
        assert!(texts(&b, "waiter").await.is_empty(), "{reason}");
    }
    patch(&a, "twin", static_ip(Value::Null)).await;
    delete(&a, "twin").await;
    wait_gone(&a, "twin").await;
    assert_eq!(wait_address(&b, "waiter").await.to_string(), "10.60.0.10");
}
