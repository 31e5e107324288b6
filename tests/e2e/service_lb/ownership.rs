//! Which Services are fipd's: by class or without one, taken over from the original, replaced by others.

use std::time::{Duration, Instant};

use fipd_tests::scenario::{Scenario, addresses, config, service};
use fipd_tests::testbed::SiteOptions;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{
    FINALIZER, FLOATING_IP, annotations, create, delete, patch, project, shown, texts,
    wait_address, wait_allocated, wait_allocated_within, wait_event, wait_fips, wait_gone,
    wait_service,
};

pub const HOLDER: &str = "fipd.io/holder";

/// A site with one cluster and one pool, fipd prepared and not started.
pub async fn prepare(settings: &str) -> (Scenario, Api<Service>) {
    prepare_site(&SiteOptions::of(&["a"]).kept(), settings).await
}

pub async fn prepare_site(options: &SiteOptions, settings: &str) -> (Scenario, Api<Service>) {
    let mut scenario = Scenario::prepare(options).await.unwrap();
    scenario
        .add_pool("net", "10.60.0.0/24", "10.60.0.10", "10.60.0.20")
        .await
        .unwrap();
    scenario
        .fipd
        .write_config(&config(&scenario.site, settings))
        .unwrap();
    let a = project(&scenario, "a").await;
    (scenario, a)
}

/// A Service of another class, or of none.
async fn create_of_class(api: &Api<Service>, name: &str, class: Option<&str>) {
    let mut object = service(name, "net").unwrap();
    object.spec.as_mut().unwrap().load_balancer_class = class.map(str::to_owned);
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn show(api: &Api<Service>, name: &str, address: &str) {
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
}

async fn wish_for(api: &Api<Service>, name: &str, address: &str) {
    let wanted =
        json!({ "metadata": { "annotations": { "rancher.k8s.binbash.org/static-ip": address } } });
    patch(api, name, wanted).await;
    wait_service(api, name, &format!("has {address}"), |service| {
        addresses(service)
            .iter()
            .map(ToString::to_string)
            .eq([address])
    })
    .await;
}

/// Makes the Service one of another type without anything of ours, as `kubectl replace` with a manifest does.
async fn replace(api: &Api<Service>, name: &str) {
    let before = api.get(name).await.unwrap();
    let plain: Service = serde_json::from_value(json!({
        "metadata": { "name": name, "resourceVersion": before.resource_version() },
        "spec": {
            "type": "ClusterIP", "clusterIP": before.spec.unwrap().cluster_ip,
            "ports": [{ "port": 80, "protocol": "TCP" }],
        },
    }))
    .unwrap();
    api.replace(name, &PostParams::default(), &plain)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn class_less_services_are_taken_if_so_configured_and_stay() {
    let (mut scenario, a) = prepare("class-less = true\n").await;
    create_of_class(&a, "others", None).await;
    show(&a, "others", "192.0.2.1").await;
    create_of_class(&a, "foreign", Some("example.com/other")).await;
    scenario.fipd.restart().await.unwrap();
    create_of_class(&a, "plain", None).await;
    assert_eq!(wait_address(&a, "plain").await.to_string(), "10.60.0.10");
    let others = a.get("others").await.unwrap();
    assert!(others.finalizers().is_empty(), "another served it");
    assert_eq!(texts(&a, "others").await, ["192.0.2.1"]);
    assert!(texts(&a, "foreign").await.is_empty());

    // Switched off: no address goes, no further Service is taken.
    scenario
        .fipd
        .write_config(&config(&scenario.site, ""))
        .unwrap();
    scenario.fipd.restart().await.unwrap();
    create_of_class(&a, "late", None).await;
    create(&a, "classy", "net").await;
    assert_eq!(wait_address(&a, "classy").await.to_string(), "10.60.0.11");
    assert!(texts(&a, "late").await.is_empty());
    let plain = a.get("plain").await.unwrap();
    assert!(plain.finalizers().contains(&FINALIZER.to_string()));
    assert_eq!(texts(&a, "plain").await, ["10.60.0.10"]);
    // It is served on, to its end.
    wish_for(&a, "plain", "10.60.0.15").await;
    // Another's finalizer keeps the deleted Service: it shows and claims no address that somebody else may get.
    let kept = json!({ "metadata": { "finalizers": ["example.com/kept", FINALIZER] } });
    patch(&a, "plain", kept).await;
    delete(&a, "plain").await;
    let ended = wait_service(&a, "plain", "is let go", |service| {
        service.finalizers() == ["example.com/kept"]
    })
    .await;
    assert!(addresses(&ended).is_empty());
    assert_eq!(annotations(&ended)[FLOATING_IP], Value::Null);
    wish_for(&a, "classy", "10.60.0.15").await;
    patch(&a, "plain", json!({ "metadata": { "finalizers": null } })).await;
    wait_gone(&a, "plain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_replaced_without_our_marks_gives_its_address_back() {
    let (mut scenario, a) = prepare("").await;
    scenario.fipd.restart().await.unwrap();
    for (name, address) in [("one", "10.60.0.10"), ("two", "10.60.0.11")] {
        create(&a, name, "net").await;
        assert_eq!(wait_address(&a, name).await.to_string(), address);
    }
    replace(&a, "one").await;
    wait_allocated(
        &scenario.site.rancher.client().await.unwrap(),
        "net",
        json!({ "10.60.0.11": "p-a [Unassigned]" }),
    )
    .await;
    // While fipd is away another object of the name takes its place.
    scenario.fipd.kill9().unwrap();
    replace(&a, "two").await;
    delete(&a, "two").await;
    wait_gone(&a, "two").await;
    let plain: Service = serde_json::from_value(json!({
        "metadata": { "name": "two" },
        "spec": { "ports": [{ "port": 80, "protocol": "TCP" }] },
    }))
    .unwrap();
    a.create(&PostParams::default(), &plain).await.unwrap();
    scenario.fipd.restart().await.unwrap();
    // That is an absence like any other: two lists a minute apart.
    let (start, minute) = (Instant::now(), Duration::from_secs(60));
    let rancher = scenario.site.rancher.client().await.unwrap();
    wait_allocated_within(2 * minute, &rancher, "net", json!({})).await;
    assert!(start.elapsed() >= minute, "{:?}", start.elapsed());
    wait_fips(&rancher, "c-m-a", "none is left", <[_]>::is_empty).await;
}

/// A FloatingIP as the original leaves it.
pub fn stock(name: &str, labels: &Value) -> Value {
    let mut all = json!({
        "rancher.k8s.binbash.org/project-name": "p-a",
        "rancher.k8s.binbash.org/cluster-name": "c-m-a",
    });
    let labels = labels.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(labels);
    json!({
        "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIP",
        "metadata": {
            "name": name, "namespace": "c-m-a", "labels": all, "finalizers": [FINALIZER],
        },
        "spec": { "floatingIPPool": "net" },
    })
}

pub async fn add_stock(scenario: &Scenario, name: &str, address: &str, labels: Value) {
    add_object(scenario, stock(name, &labels), address).await;
}

/// A FloatingIP that has its address.
pub async fn add_object(scenario: &Scenario, mut object: Value, address: &str) {
    let text = |path: &str| object.pointer(path).unwrap().as_str().unwrap().to_owned();
    let (name, namespace) = (text("/metadata/name"), text("/metadata/namespace"));
    object["spec"]["ipAddr"] = json!(address);
    let rancher = &scenario.site.rancher;
    rancher.apply(&object.to_string()).await.unwrap();
    let fips: Api<fipd_crds::floating_ip::FloatingIP> =
        Api::namespaced(rancher.client().await.unwrap(), &namespace);
    let status = json!({ "status": { "ipAddr": address, "state": "Allocated" } });
    fips.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
}

/// A Service as the original leaves it.
pub async fn add_served(api: &Api<Service>, name: &str, address: &str) {
    let mut object = service(name, "net").unwrap();
    object.spec.as_mut().unwrap().load_balancer_class = None;
    let meta = &mut object.metadata;
    meta.finalizers = Some(vec![FINALIZER.into()]);
    meta.annotations = Some([(FLOATING_IP.into(), address.into())].into());
    let label = |key: &str, value: &str| (format!("rancher.k8s.binbash.org/{key}"), value.into());
    meta.labels = Some([label("service", name), label("servicenamespace", "apps")].into());
    api.create(&PostParams::default(), &object).await.unwrap();
    show(api, name, address).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_original_served_keeps_its_address_and_its_floating_ip() {
    let settings = "class-less = true\ndefault-pool = \"net\"\n";
    let (mut scenario, a) = prepare(settings).await;
    let service = |slot: &str, name: &str| {
        json!({
            format!("rancher.k8s.binbash.org/service-{slot}namespace"): "apps",
            format!("rancher.k8s.binbash.org/service-{slot}name"): name,
        })
    };
    add_stock(&scenario, "fip-aaaaa", "10.60.0.17", service("0-", "web")).await;
    add_stock(&scenario, "fip-bbbbb", "10.60.0.15", service("", "old")).await;
    add_stock(&scenario, "fip-ccccc", "10.60.0.13", service("3-", "later")).await;
    let mut both = service("0-", "left");
    let right = service("1-", "right");
    both.as_object_mut()
        .unwrap()
        .extend(right.as_object().unwrap().clone());
    add_stock(&scenario, "fip-ddddd", "10.60.0.12", both).await;
    for (name, address) in [("web", "10.60.0.17"), ("old", "10.60.0.15")] {
        add_served(&a, name, address).await;
    }
    for name in ["left", "right"] {
        add_served(&a, name, "10.60.0.12").await;
    }
    scenario.fipd.restart().await.unwrap();

    for (name, address) in [("web", "10.60.0.17"), ("old", "10.60.0.15")] {
        let taken = wait_service(&a, name, "is taken over", |service| {
            !annotations(service)[HOLDER].is_null()
        })
        .await;
        assert_eq!(addresses(&taken)[0].to_string(), address);
        assert_eq!(annotations(&taken)[FLOATING_IP], address);
    }
    // One that shows no address yet gets that of its FloatingIP.
    create(&a, "later", "net").await;
    assert_eq!(wait_address(&a, "later").await.to_string(), "10.60.0.13");
    // A shared address is left as it is.
    wait_event(&a, "left", "AddressShared").await;
    assert_eq!(texts(&a, "left").await, ["10.60.0.12"]);

    let rancher = scenario.site.rancher.client().await.unwrap();
    let fips = wait_fips(&rancher, "c-m-a", "three have a holder", |fips| {
        let held = fips
            .iter()
            .filter(|fip| !annotations(*fip)[HOLDER].is_null());
        held.count() == 3
    })
    .await;
    let names: Vec<String> = fips.iter().map(ResourceExt::name_any).collect();
    assert_eq!(
        names,
        ["fip-aaaaa", "fip-bbbbb", "fip-ccccc", "fip-ddddd"],
        "no second one"
    );
    assert_eq!(shown(&fips[0]), "10.60.0.17");
    let p = "p-a [Unassigned]";
    let all = json!({ "10.60.0.12": p, "10.60.0.13": p, "10.60.0.15": p, "10.60.0.17": p });
    wait_allocated(&rancher, "net", all.clone()).await;

    // Its Service ends: the address stays with the project, by the FloatingIP that was there before.
    delete(&a, "web").await;
    wait_gone(&a, "web").await;
    let kept = wait_fips(&rancher, "c-m-a", "the first has no Service", |fips| {
        let assigned = fips[0].status.as_ref().map(|status| &status.assigned);
        assigned == Some(&None)
    })
    .await;
    assert_eq!(kept.len(), 4);
    assert_eq!(shown(&kept[0]), "10.60.0.17");
    assert_eq!(annotations(&kept[0])[HOLDER], Value::Null);
    let labels = json!({ "rancher.k8s.binbash.org/project-name": "p-a" });
    assert_eq!(json!(kept[0].labels()), labels);
    wait_allocated(&rancher, "net", all).await;
}

/// The project `p-h` of a Harvester cluster, for its guests.
pub async fn add_guests(scenario: &Scenario) {
    let objects = json!([
        { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "c-m-h" } },
        {
            "apiVersion": "management.cattle.io/v3", "kind": "Project",
            "metadata": { "name": "p-h", "namespace": "c-m-h" },
            "spec": { "clusterName": "c-m-h", "displayName": "Guests" },
        },
    ]);
    for object in objects.as_array().unwrap() {
        let rancher = &scenario.site.rancher;
        rancher.apply(&object.to_string()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_floating_ip_is_shown_in_the_namespace_of_its_project() {
    let (mut scenario, a) = prepare("").await;
    add_guests(&scenario).await;
    let settings = config(&scenario.site, "").replace("\"p-a\"", "\"p-h\"");
    scenario.fipd.write_config(&settings).unwrap();
    scenario.fipd.restart().await.unwrap();
    create(&a, "web", "net").await;
    assert_eq!(wait_address(&a, "web").await.to_string(), "10.60.0.10");
    let rancher = scenario.site.rancher.client().await.unwrap();
    let fips = wait_fips(&rancher, "c-m-h", "one is allocated", |fips| {
        fips.len() == 1 && shown(&fips[0]) == "10.60.0.10"
    })
    .await;
    assert_eq!(
        fips[0].labels()["rancher.k8s.binbash.org/cluster-name"],
        "c-m-a"
    );
    wait_fips(&rancher, "c-m-a", "none is there", <[_]>::is_empty).await;
    delete(&a, "web").await;
    wait_gone(&a, "web").await;
    wait_fips(&rancher, "c-m-h", "none is left", <[_]>::is_empty).await;
    wait_allocated(&rancher, "net", json!({})).await;
}
