//! The announcer's objects that the original made: taken over in place, and never an admin's.

use std::collections::BTreeMap;

use fipd_tests::scenario::{Scenario, config};
use fipd_tests::testbed::{ANNOUNCER_CRDS, wait_until};
use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use serde_json::{Value, json};

use super::ownership::{HOLDER, add_served, add_stock, prepare};
use super::{
    DEADLINE, annotations, create, delete, patch, wait_address, wait_announced, wait_gone,
    wait_service,
};

const NAMESPACE: &str = "rancher-fip-manager";
const PURELB_GROUP: &str = "purelb.io/service-group";

fn pool(name: &str, address: &str, service: &str) -> Value {
    json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": {
            "addresses": [format!("{address}/32")],
            "serviceAllocation": { "namespaces": ["apps"], "serviceSelectors": [{ "matchLabels": {
                "rancher.k8s.binbash.org/service": service,
                "rancher.k8s.binbash.org/servicenamespace": "apps",
            } }] },
        },
    })
}

fn advertisement(name: &str) -> Value {
    json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement",
        "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": { "ipAddressPools": [name], "interfaces": ["eth1"] },
    })
}

fn group(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "purelb.io/v1", "kind": "ServiceGroup",
        "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": { "local": { "v4pools": [
            { "subnet": "10.60.0.0/24", "pool": format!("{address}/32"), "aggregation": "default" },
        ] } },
    })
}

async fn add(scenario: &Scenario, objects: &[Value]) {
    let plane = &scenario.site.cluster("a").unwrap().plane;
    for object in objects {
        plane.apply(&object.to_string()).await.unwrap();
    }
}

/// UID of each object by name, once all but `others` are marked as ours.
async fn wait_ours(scenario: &Scenario, kind: &str, others: &[&str]) -> BTreeMap<String, String> {
    let client = scenario.client("a").await.unwrap();
    wait_until(&format!("{kind} are ours"), DEADLINE, || async {
        let path = format!("/apis/{kind}").replace("NS", NAMESPACE);
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let list: Value = client.request(request).await.map_err(|e| e.to_string())?;
        let metas: Vec<&Value> = list["items"].as_array().unwrap().iter().collect();
        let metas: Vec<&Value> = metas.iter().map(|one| &one["metadata"]).collect();
        let ours = |meta: &&Value| meta["labels"]["app.kubernetes.io/managed-by"] == "fipd";
        let other = |meta: &&Value| others.iter().any(|name| meta["name"] == *name);
        if metas.iter().all(|meta| ours(meta) != other(meta)) {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let uids = metas
                .iter()
                .map(|meta| (text(&meta["name"]), text(&meta["uid"])));
            Ok(uids.collect())
        } else {
            Err(json!(metas).to_string())
        }
    })
    .await
    .unwrap()
}

async fn uids(scenario: &Scenario, kind: &str) -> BTreeMap<String, String> {
    let client = scenario.client("a").await.unwrap();
    let path = format!("/apis/{kind}").replace("NS", NAMESPACE);
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let list: Value = client.request(request).await.unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    let metas = items.map(|one| &one["metadata"]);
    metas
        .map(|meta| (text(&meta["name"]), text(&meta["uid"])))
        .collect()
}

const POOLS: &str = "metallb.io/v1beta1/namespaces/NS/ipaddresspools";
const ADVERTISEMENTS: &str = "metallb.io/v1beta1/namespaces/NS/l2advertisements";
const GROUPS: &str = "purelb.io/v1/namespaces/NS/servicegroups";

/// A site with what the original leaves of some Services, fipd not started.
async fn migrating(announce: &str, served: &[(&str, &str)]) -> (Scenario, Api<Service>) {
    let settings =
        format!("class-less = true\ndefault-pool = \"net\"\nannounce = \"{announce}\"\n");
    let (scenario, a) = prepare(&settings).await;
    let cluster = scenario.site.cluster("a").unwrap();
    cluster.plane.install_crds(ANNOUNCER_CRDS).await.unwrap();
    cluster.add_namespace(NAMESPACE).await.unwrap();
    for (name, address) in served {
        let labels = json!({
            "rancher.k8s.binbash.org/service-0-namespace": "apps",
            "rancher.k8s.binbash.org/service-0-name": name,
        });
        add_stock(&scenario, &format!("fip-{name}"), address, labels).await;
        add_served(&a, name, address).await;
    }
    (scenario, a)
}

async fn taken_over(a: &Api<Service>, name: &str) -> Service {
    wait_service(a, name, "is taken over", |service| {
        !annotations(service)[HOLDER].is_null()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn metallb_pools_of_the_original_become_ours_in_place() {
    let served = [("web", "10.60.0.17"), ("api", "10.60.0.15")];
    let (mut scenario, a) = migrating("metallb", &served).await;
    let (web, api, db) = (
        "rancher-fip-apps-web",
        "ip4-10.60.0.15",
        "rancher-fip-apps-db",
    );
    let mut foreign = pool(db, "10.61.0.0", "db");
    foreign["spec"]["addresses"] = json!(["10.61.0.0/24"]);
    // One that a Service which is gone left for an address that the next one gets.
    let old = "rancher-fip-apps-old";
    add(
        &scenario,
        &[
            pool(web, "10.60.0.17", "web"),
            advertisement(web),
            pool(api, "10.60.0.15", "api"),
            advertisement(api),
            foreign,
            advertisement(db),
            pool(old, "10.60.0.10", "old"),
            advertisement(old),
        ],
    )
    .await;
    let before = [
        uids(&scenario, POOLS).await,
        uids(&scenario, ADVERTISEMENTS).await,
    ];
    scenario.fipd.restart().await.unwrap();

    for (name, address) in served {
        taken_over(&a, name).await;
        assert_eq!(wait_address(&a, name).await.to_string(), address);
    }
    let after = [
        wait_ours(&scenario, POOLS, &[db, old]).await,
        wait_ours(&scenario, ADVERTISEMENTS, &[db, old]).await,
    ];
    assert_eq!(
        after, before,
        "the same objects, never without one, never with two"
    );

    // A new Service, whose address an object of the original still has.
    create(&a, "new", "net").await;
    assert_eq!(wait_address(&a, "new").await.to_string(), "10.60.0.10");
    let new = "ip4-10.60.0.10";
    let client = scenario.client("a").await.unwrap();
    let all: &[&str] = &[new, api, db, web];
    wait_announced(&client, [all, all, &[]]).await;

    // A Service that ends takes its objects along, whatever their names.
    for name in ["web", "api"] {
        delete(&a, name).await;
        wait_gone(&a, name).await;
    }
    wait_announced(&client, [&[new, db], &[new, db], &[]]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purelb_group_of_the_original_becomes_ours_in_place() {
    let (mut scenario, a) = migrating("purelb", &[("web", "10.60.0.17")]).await;
    let (web, db) = ("rancher-fip-apps-web", "rancher-fip-apps-db");
    let annotation = json!({ "metadata": { "annotations": { PURELB_GROUP: web } } });
    patch(&a, "web", annotation).await;
    let mut foreign = group(db, "10.61.0.0");
    foreign["spec"]["local"]["v4pools"][0]["pool"] = json!("10.61.0.0/24");
    add(&scenario, &[group(web, "10.60.0.17"), foreign]).await;
    let before = uids(&scenario, GROUPS).await;
    scenario.fipd.restart().await.unwrap();

    let service = taken_over(&a, "web").await;
    assert_eq!(annotations(&service)[PURELB_GROUP], web);
    assert_eq!(wait_ours(&scenario, GROUPS, &[db]).await, before);
    create(&a, "new", "net").await;
    let client = scenario.client("a").await.unwrap();
    wait_announced(&client, [&[], &[], &["ip4-10.60.0.10", db, web]]).await;

    // MetalLB takes over from PureLB: everything of the one goes but an admin's.
    scenario.fipd.kill9().unwrap();
    let settings = "class-less = true\nannounce = \"metallb\"\n";
    let text = config(&scenario.site, settings);
    scenario.fipd.write_config(&text).unwrap();
    scenario.fipd.restart().await.unwrap();
    let both: &[&str] = &["ip4-10.60.0.10", "ip4-10.60.0.17"];
    wait_announced(&client, [both, both, &[db]]).await;
}
