//! Where the addresses of Services come from, and what happens where two want one.

use fipd_crds::floating_ip::FloatingIPPool;
use fipd_tests::scenario::{Scenario, addresses, config, service};
use fipd_tests::testbed::{SiteOptions, wait_until};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{
    DEADLINE, FINALIZER, create, delete, patch, project, reasons, texts, wait_address, wait_event,
    wait_gone, wait_service,
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
    let mut scenario = Scenario::start(&SiteOptions::of(&["a"]).kept())
        .await
        .unwrap();
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
    let mut scenario = Scenario::prepare(&SiteOptions::of(&["a", "b"]).kept())
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

/// Takes the address out of the status and waits until it is there again.
async fn comes_back(api: &Api<Service>, name: &str, address: &str) {
    let nothing = json!({ "status": { "loadBalancer": { "ingress": null } } });
    let nothing = Patch::Merge(&nothing);
    api.patch_status(name, &PatchParams::default(), &nothing)
        .await
        .unwrap();
    assert_eq!(wait_address(api, name).await.to_string(), address);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_served_on_while_its_wish_cannot_be_met() {
    let mut scenario = Scenario::start(&SiteOptions::of(&["a"]).kept())
        .await
        .unwrap();
    let pool = ["net", "10.60.0.0/24", "10.60.0.10", "10.60.0.20"];
    let add = async |scenario: &Scenario| {
        let [name, subnet, start, end] = pool;
        scenario.add_pool(name, subnet, start, end).await.unwrap();
    };
    add(&scenario).await;
    let a = project(&scenario, "a").await;
    create(&a, "web", "net").await;
    assert_eq!(wait_address(&a, "web").await.to_string(), "10.60.0.10");

    // The annotation is bad, or names what cannot be given.
    for (address, reason) in [
        ("10.60.0.300", "Invalid"),
        ("10.99.0.1", "AddressNotAssignable"),
    ] {
        patch(&a, "web", static_ip(json!(address))).await;
        wait_event(&a, "web", reason).await;
        comes_back(&a, "web", "10.60.0.10").await;
    }
    patch(&a, "web", static_ip(Value::Null)).await;

    // The pool is gone; then the Service is made anew while fipd is away.
    let pools: Api<FloatingIPPool> = Api::all(scenario.site.rancher.client().await.unwrap());
    pools.delete("net", &DeleteParams::default()).await.unwrap();
    wait_until("the pool is closed", DEADLINE, || async {
        let shown = scenario.fipd.cli(["pool", "show", "net", "-o", "json"]);
        let shown = shown.await.and_then(|shown| shown.json());
        let shown = shown.map_err(|error| error.to_string())?;
        match shown["closed"] == json!(true) {
            true => Ok(()),
            false => Err(shown.to_string()),
        }
    })
    .await
    .unwrap();
    comes_back(&a, "web", "10.60.0.10").await;
    wait_event(&a, "web", "PoolNotFound").await;
    scenario.fipd.kill9().unwrap();
    patch(&a, "web", json!({ "metadata": { "finalizers": null } })).await;
    delete(&a, "web").await;
    wait_gone(&a, "web").await;
    create(&a, "web", "net").await;
    let uid = a.get("web").await.unwrap().uid().unwrap();
    scenario.fipd.restart().await.unwrap();
    assert_eq!(wait_address(&a, "web").await.to_string(), "10.60.0.10");
    let web = a.get("web").await.unwrap();
    assert!(web.finalizers().contains(&FINALIZER.to_string()));
    let listed = scenario.fipd.cli(["lease", "list", "-o", "json"]).await;
    let listed = listed.unwrap().stdout;
    assert!(listed.contains(&uid), "the new instance holds: {listed}");

    // An admin takes the address for another while the annotation is bad.
    add(&scenario).await;
    patch(&a, "web", static_ip(json!("10.60.0.300"))).await;
    wait_until("it is said of both instances", DEADLINE, || async {
        let reasons = reasons(&a, "web").await?;
        match reasons.iter().filter(|one| *one == "Invalid").count() {
            2 => Ok(()),
            _ => Err(reasons.join(", ")),
        }
    })
    .await
    .unwrap();
    let released = scenario.fipd.cli(["lease", "release", "10.60.0.10"]).await;
    released.unwrap().success().unwrap();
    create(&a, "next", "net").await;
    assert_eq!(wait_address(&a, "next").await.to_string(), "10.60.0.10");
    wait_service(&a, "web", "hides it", |web| addresses(web).is_empty()).await;
}
