//! Services of type LoadBalancer: from the address to its end, with nothing installed in the downstream clusters.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "service_lb/absent.rs"]
mod absent;
#[path = "service_lb/originals.rs"]
mod originals;
#[path = "service_lb/ownership.rs"]
mod ownership;
#[path = "service_lb/pools.rs"]
mod pools;

use std::net::IpAddr;
use std::time::Duration;

use fipd_crds::floating_ip::{FloatingIP, FloatingIPPool};
use fipd_tests::scenario::{Scenario, addresses, config, service, write_kubeconfig};
use fipd_tests::testbed::{ANNOUNCER_CRDS, Fault, RESTRICTED_USER, SiteOptions, wait_until};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
const FINALIZER: &str = "rancher.k8s.binbash.org/floatingip-cleanup";
const FLOATING_IP: &str = "rancher.k8s.binbash.org/floatingip";

/// The namespace of the project in the cluster called `name`, and its Services.
async fn project(scenario: &Scenario, name: &str) -> Api<Service> {
    scenario
        .site
        .cluster(name)
        .unwrap()
        .add_namespace("apps")
        .await
        .unwrap();
    Api::namespaced(scenario.client(name).await.unwrap(), "apps")
}

fn annotations(object: &impl ResourceExt) -> Value {
    json!(object.annotations())
}

/// Waits until the Service is as `test` wants it; the error shows it as it is.
async fn wait_service(
    api: &Api<Service>,
    name: &str,
    what: &str,
    test: impl Fn(&Service) -> bool,
) -> Service {
    wait_until(&format!("Service {name}: {what}"), DEADLINE, || async {
        let service = api.get(name).await.map_err(|error| error.to_string())?;
        if test(&service) {
            Ok(service)
        } else {
            Err(json!([service.metadata, service.status]).to_string())
        }
    })
    .await
    .unwrap()
}

async fn wait_address(api: &Api<Service>, name: &str) -> IpAddr {
    let service = wait_service(api, name, "has an address", |service| {
        !addresses(service).is_empty()
    })
    .await;
    addresses(&service)[0]
}

async fn wait_gone(api: &Api<Service>, name: &str) {
    wait_until(&format!("Service {name} is gone"), DEADLINE, || async {
        match api.get_opt(name).await.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(service) => Err(json!(service.metadata).to_string()),
        }
    })
    .await
    .unwrap();
}

/// The FloatingIPs of a cluster's namespace in Rancher, once `test` holds for them.
async fn wait_fips(
    rancher: &Client,
    namespace: &str,
    what: &str,
    test: impl Fn(&[FloatingIP]) -> bool,
) -> Vec<FloatingIP> {
    let api: Api<FloatingIP> = Api::namespaced(rancher.clone(), namespace);
    wait_until(&format!("FloatingIPs: {what}"), DEADLINE, || async {
        let list = api
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?
            .items;
        if test(&list) {
            Ok(list)
        } else {
            Err(json!(list).to_string())
        }
    })
    .await
    .unwrap()
}

fn shown(fip: &FloatingIP) -> &str {
    fip.status.as_ref().map_or("", |status| &status.ip_addr)
}

async fn wait_allocated(rancher: &Client, pool: &str, expected: Value) {
    wait_allocated_within(DEADLINE, rancher, pool, expected).await;
}

async fn wait_allocated_within(deadline: Duration, rancher: &Client, pool: &str, expected: Value) {
    let api: Api<FloatingIPPool> = Api::all(rancher.clone());
    wait_until(
        &format!("pool {pool} shows {expected}"),
        deadline,
        || async {
            let pool = api.get(pool).await.map_err(|error| error.to_string())?;
            let status = json!(pool.status.unwrap_or_default());
            let allocated = status.get("allocated").cloned().unwrap_or(json!({}));
            if allocated == expected {
                Ok(())
            } else {
                Err(status.to_string())
            }
        },
    )
    .await
    .unwrap();
}

async fn patch(api: &Api<Service>, name: &str, patch: Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
}

fn pool_annotation(pool: &str) -> Value {
    json!({ "metadata": { "annotations": { "rancher.k8s.binbash.org/static-network": pool } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_from_its_address_to_its_end() {
    let options = SiteOptions {
        controller_manager: true,
        ..SiteOptions::of(&["a", "b"])
    };
    let scenario = Scenario::start(&options).await.unwrap();
    scenario
        .add_pool("a--public", "10.60.0.0/24", "10.60.0.10", "10.60.0.20")
        .await
        .unwrap();
    scenario
        .add_pool("a--other", "10.61.0.0/24", "10.61.0.10", "10.61.0.20")
        .await
        .unwrap();
    let rancher = scenario.site.rancher.client().await.unwrap();
    let (a, b) = (project(&scenario, "a").await, project(&scenario, "b").await);

    // Both clusters draw from one pool.
    a.create(
        &PostParams::default(),
        &service("web", "a--public").unwrap(),
    )
    .await
    .unwrap();
    assert_eq!(wait_address(&a, "web").await.to_string(), "10.60.0.10");
    b.create(
        &PostParams::default(),
        &service("web", "a--public").unwrap(),
    )
    .await
    .unwrap();
    assert_eq!(wait_address(&b, "web").await.to_string(), "10.60.0.11");
    let web = a.get("web").await.unwrap();
    assert!(web.finalizers().contains(&FINALIZER.to_string()));
    assert_eq!(annotations(&web)[FLOATING_IP], "10.60.0.10");

    // Rancher shows it to the project.
    let fips = wait_fips(&rancher, "c-m-a", "one is allocated", |fips| {
        fips.len() == 1 && shown(&fips[0]) == "10.60.0.10"
    })
    .await;
    let first = &fips[0];
    assert!(first.finalizers().contains(&FINALIZER.to_string()));
    let status = json!(first.status.clone().unwrap());
    assert_eq!(status["state"], "Allocated");
    assert_eq!(
        status["assigned"],
        json!({ "clusterName": "c-m-a", "projectName": "p-a",
            "services": [{ "serviceNamespace": "apps", "serviceName": "web" }] })
    );
    assert_eq!(status["conditions"][0]["reason"], "IPAssigned");
    let both = json!({ "10.60.0.10": "p-a [Unassigned]", "10.60.0.11": "p-b [Unassigned]" });
    wait_allocated(&rancher, "a--public", both).await;

    // Deleted in Rancher by mistake: it comes back with the same address.
    let api: Api<FloatingIP> = Api::namespaced(rancher.clone(), "c-m-a");
    api.delete(&first.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    wait_fips(&rancher, "c-m-a", "it is back", |fips| {
        fips.len() == 1 && fips[0].uid() != first.uid() && shown(&fips[0]) == "10.60.0.10"
    })
    .await;

    // Another pool, another address; the former one is free.
    patch(&a, "web", pool_annotation("a--other")).await;
    wait_service(&a, "web", "has an address of the other pool", |service| {
        addresses(service)
            .iter()
            .map(ToString::to_string)
            .eq(["10.61.0.10"])
    })
    .await;
    wait_fips(&rancher, "c-m-a", "it moved", |fips| {
        fips.len() == 1 && shown(&fips[0]) == "10.61.0.10"
    })
    .await;
    wait_allocated(
        &rancher,
        "a--public",
        json!({ "10.60.0.11": "p-b [Unassigned]" }),
    )
    .await;

    // A certain address, then another one of the same pool.
    for wanted in ["10.61.0.15", "10.61.0.16"] {
        let annotation = json!({ "metadata": { "annotations": { "rancher.k8s.binbash.org/static-ip": wanted } } });
        patch(&a, "web", annotation).await;
        wait_service(&a, "web", "has the wanted address", |service| {
            addresses(service)
                .iter()
                .map(ToString::to_string)
                .eq([wanted])
        })
        .await;
    }
    wait_allocated(
        &rancher,
        "a--other",
        json!({ "10.61.0.16": "p-a [Unassigned]" }),
    )
    .await;

    // No load balancer any more: nothing of ours is left.
    let inward = json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null, "allocateLoadBalancerNodePorts": null } });
    patch(&a, "web", inward).await;
    let plain = wait_service(&a, "web", "is let go", |service| {
        service.finalizers().is_empty()
    })
    .await;
    assert!(addresses(&plain).is_empty());
    assert_eq!(annotations(&plain)[FLOATING_IP], Value::Null);
    wait_fips(&rancher, "c-m-a", "none is left", <[FloatingIP]>::is_empty).await;
    wait_allocated(&rancher, "a--other", json!({})).await;

    // And again one.
    patch(
        &a,
        "web",
        json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": "fipd.io/floating-ip" } }),
    )
    .await;
    assert_eq!(wait_address(&a, "web").await.to_string(), "10.61.0.16");

    // Deleted, in one cluster by itself, in the other with its namespace.
    a.delete("web", &DeleteParams::default()).await.unwrap();
    wait_gone(&a, "web").await;
    wait_fips(&rancher, "c-m-a", "none is left", <[FloatingIP]>::is_empty).await;
    wait_allocated(&rancher, "a--other", json!({})).await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> =
        Api::all(scenario.client("b").await.unwrap());
    namespaces
        .delete("apps", &DeleteParams::default())
        .await
        .unwrap();
    wait_gone(&b, "web").await;
    wait_fips(&rancher, "c-m-b", "none is left", <[FloatingIP]>::is_empty).await;
    wait_allocated(&rancher, "a--public", json!({})).await;
}

/// The reasons of all Events about the Service.
async fn reasons(services: &Api<Service>, name: &str) -> Result<Vec<String>, String> {
    let events: Api<Event> = Api::namespaced(services.clone().into_client(), "apps");
    let list = events.list(&ListParams::default()).await;
    let list = list.map_err(|error| error.to_string())?;
    let named = |event: &Event| {
        let regarding = event.regarding.as_ref();
        regarding.and_then(|object| object.name.as_deref()) == Some(name)
    };
    let about = list.items.into_iter().filter(named);
    Ok(about.filter_map(|event| event.reason).collect())
}

/// Waits until it was said `expected` times that nobody announces the Service, and a second for one too many.
async fn wait_warnings(services: &Api<Service>, name: &str, expected: usize) {
    let count = || async {
        let reasons = reasons(services, name).await?;
        Ok::<usize, String>(reasons.iter().filter(|one| *one == "NotAnnounced").count())
    };
    wait_until(
        &format!("{expected} warnings about {name}"),
        DEADLINE,
        || async {
            match count().await? {
                seen if seen == expected => Ok(()),
                seen => Err(seen.to_string()),
            }
        },
    )
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(count().await, Ok(expected), "Service {name}");
}

/// Waits for an Event about the Service.
async fn wait_event(services: &Api<Service>, name: &str, reason: &str) {
    wait_until(
        &format!("Event {reason} about {name}"),
        DEADLINE,
        || async {
            let reasons = reasons(services, name).await?;
            if reasons.iter().any(|one| one == reason) {
                Ok(())
            } else {
                Err(reasons.join(", "))
            }
        },
    )
    .await
    .unwrap();
}

async fn create(api: &Api<Service>, name: &str, pool: &str) {
    api.create(&PostParams::default(), &service(name, pool).unwrap())
        .await
        .unwrap();
}

async fn delete(api: &Api<Service>, name: &str) {
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

async fn texts(api: &Api<Service>, name: &str) -> Vec<String> {
    addresses(&api.get(name).await.unwrap())
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_serves_who_waits_longest() {
    let scenario = Scenario::start(&SiteOptions::of(&["a", "b"]).kept())
        .await
        .unwrap();
    scenario
        .add_pool("tiny", "10.60.0.0/24", "10.60.0.10", "10.60.0.10")
        .await
        .unwrap();
    let (a, b) = (project(&scenario, "a").await, project(&scenario, "b").await);
    create(&a, "first", "tiny").await;
    wait_address(&a, "first").await;
    // The queue goes by the second of creation.
    let second = |service: &Service| service.creation_timestamp().unwrap().0.as_second();
    let mut last = second(&a.get("first").await.unwrap());
    for (api, name) in [(&a, "second"), (&b, "third"), (&a, "fourth")] {
        wait_until("the next second", DEADLINE, || async {
            let now = k8s_openapi::jiff::Timestamp::now().as_second();
            if now > last {
                Ok(())
            } else {
                Err(now.to_string())
            }
        })
        .await
        .unwrap();
        create(api, name, "tiny").await;
        wait_event(api, name, "PoolExhausted").await;
        last = second(&api.get(name).await.unwrap());
    }
    // Who gives up waiting is passed over.
    delete(&a, "first").await;
    wait_address(&a, "second").await;
    assert!(texts(&b, "third").await.is_empty() && texts(&a, "fourth").await.is_empty());
    delete(&b, "third").await;
    wait_gone(&b, "third").await;
    delete(&a, "second").await;
    assert_eq!(wait_address(&a, "fourth").await.to_string(), "10.60.0.10");
}

fn dual(name: &str, pool: &str, policy: &str) -> Service {
    let mut service = service(name, pool).unwrap();
    let spec = service.spec.as_mut().unwrap();
    spec.ip_family_policy = Some(policy.into());
    spec.ip_families = Some(vec!["IPv6".into(), "IPv4".into()]);
    service
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_32_dual_stack_services_use_partner_pools() {
    let scenario = Scenario::start(&SiteOptions::of(&["a"]).kept())
        .await
        .unwrap();
    scenario
        .add_pool("four", "10.60.0.0/24", "10.60.0.10", "10.60.0.20")
        .await
        .unwrap();
    scenario
        .add_pool(
            "six",
            "2001:db8::/64",
            "2001:db8::10",
            "2001:db8::ffff:ffff:ffff:ffff",
        )
        .await
        .unwrap();
    let a = project(&scenario, "a").await;
    let rancher = scenario.site.rancher.client().await.unwrap();

    // Without a partner the first is content with one family, the second is not.
    a.create(
        &PostParams::default(),
        &dual("prefers", "four", "PreferDualStack"),
    )
    .await
    .unwrap();
    a.create(
        &PostParams::default(),
        &dual("requires", "four", "RequireDualStack"),
    )
    .await
    .unwrap();
    assert_eq!(wait_address(&a, "prefers").await.to_string(), "10.60.0.10");
    wait_event(&a, "requires", "PoolNotFound").await;
    assert!(texts(&a, "requires").await.is_empty());

    // With one, both have two, in the order of their families.
    let pools: Api<FloatingIPPool> = Api::all(rancher.clone());
    let partner = json!({ "metadata": { "annotations": { "fipd.io/partner-pool": "four" } } });
    pools
        .patch("six", &PatchParams::default(), &Patch::Merge(&partner))
        .await
        .unwrap();
    for name in ["prefers", "requires"] {
        let both = wait_service(&a, name, "has both", |service| {
            addresses(service).len() == 2
        })
        .await;
        assert!(
            addresses(&both)[0].is_ipv6() && addresses(&both)[1].is_ipv4(),
            "{:?}",
            addresses(&both)
        );
    }
    wait_fips(&rancher, "c-m-a", "four are allocated", |fips| {
        fips.len() == 4 && fips.iter().all(|fip| !shown(fip).is_empty())
    })
    .await;

    // Back to one: the other family and its FloatingIP go.
    let requires = a.get("requires").await.unwrap();
    let spec = requires.spec.unwrap();
    let single = json!({ "spec": {
        "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"], "clusterIPs": [spec.cluster_ips.unwrap()[0]],
    } });
    patch(&a, "requires", single).await;
    let one = wait_service(&a, "requires", "has one", |service| {
        addresses(service).len() == 1
    })
    .await;
    assert!(addresses(&one)[0].is_ipv6());
    wait_fips(&rancher, "c-m-a", "three are left", |fips| fips.len() == 3).await;
}

/// Names of the announcer's objects in the app namespace.
async fn announced(client: &Client, group: &str, version: &str, plural: &str) -> Vec<String> {
    let path = format!("/apis/{group}/{version}/namespaces/rancher-fip-manager/{plural}");
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let list: Value = client.request(request).await.unwrap();
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_string())
        .collect()
}

async fn wait_announced(client: &Client, expected: [&[&str]; 3]) {
    wait_until(
        &format!("announcer's objects {expected:?}"),
        DEADLINE,
        || async {
            let seen = [
                announced(client, "metallb.io", "v1beta1", "ipaddresspools").await,
                announced(client, "metallb.io", "v1beta1", "l2advertisements").await,
                announced(client, "purelb.io", "v1", "servicegroups").await,
            ];
            if seen
                == expected.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>())
            {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        },
    )
    .await
    .unwrap();
}

/// All with the rights of the manifests and no other.
#[tokio::test(flavor = "multi_thread")]
async fn announcers_get_what_they_need_and_lose_it_again() {
    let mut scenario = Scenario::prepare(&SiteOptions::of(&["a"])).await.unwrap();
    let cluster = scenario.site.cluster("a").unwrap();
    cluster.plane.install_crds(ANNOUNCER_CRDS).await.unwrap();
    let management = include_str!("../../packaging/rbac/rancher-fip-management.yaml");
    let downstream = include_str!("../../packaging/rbac/rancher-fip-downstream.yaml");
    scenario.site.rancher.apply(management).await.unwrap();
    let rancher = &scenario.site.rancher;
    rancher
        .bind_role("fipd-rancher-fip-management", None)
        .await
        .unwrap();
    cluster.plane.apply(downstream).await.unwrap();
    for role in ["fipd-rancher-fip-downstream", "fipd-rancher-fip-announce"] {
        cluster.plane.bind_role(role, None).await.unwrap();
    }
    write_kubeconfig(
        &scenario.fipd,
        "rancher",
        &scenario.site.rancher.kubeconfig_of(RESTRICTED_USER),
    )
    .unwrap();
    write_kubeconfig(
        &scenario.fipd,
        "a",
        &cluster.plane.kubeconfig_of(RESTRICTED_USER),
    )
    .unwrap();
    scenario
        .add_pool("net", "10.60.0.0/24", "10.60.0.10", "10.60.0.20")
        .await
        .unwrap();
    let (a, client) = (
        project(&scenario, "a").await,
        scenario.client("a").await.unwrap(),
    );
    create(&a, "web", "net").await;

    for (mode, warnings) in [
        ("kube-vip", 0),
        ("metallb", 0),
        ("purelb", 1),
        ("metallb", 1),
        ("none", 2),
        ("none", 2),
    ] {
        // Otherwise it could take the change over before it is killed.
        scenario.fipd.kill9().unwrap();
        let text = config(&scenario.site, &format!("announce = \"{mode}\"\n"));
        scenario.fipd.write_config(&text).unwrap();
        scenario.fipd.restart().await.unwrap();
        assert_eq!(wait_address(&a, "web").await.to_string(), "10.60.0.10");
        let marked = |key: &str, wanted: Value| {
            let key = key.to_string();
            move |service: &Service| annotations(service)[&key] == wanted
        };
        let kube_vip = if mode == "kube-vip" {
            json!("10.60.0.10")
        } else {
            Value::Null
        };
        let purelb = if mode == "purelb" {
            json!("ip4-10.60.0.10")
        } else {
            Value::Null
        };
        wait_service(
            &a,
            "web",
            mode,
            marked("kube-vip.io/loadbalancerIPs", kube_vip),
        )
        .await;
        wait_service(&a, "web", mode, marked("purelb.io/service-group", purelb)).await;
        let name: &[&str] = &["ip4-10.60.0.10"];
        let none: &[&str] = &[];
        match mode {
            "metallb" => wait_announced(&client, [name, name, none]).await,
            "purelb" => wait_announced(&client, [none, none, name]).await,
            _ => wait_announced(&client, [none, none, none]).await,
        }
        wait_warnings(&a, "web", warnings).await;
    }
    let rancher = scenario.site.rancher.client().await.unwrap();
    wait_fips(&rancher, "c-m-a", "one is allocated", |fips| {
        fips.len() == 1 && shown(&fips[0]) == "10.60.0.10"
    })
    .await;
    delete(&a, "web").await;
    wait_gone(&a, "web").await;
    wait_fips(&rancher, "c-m-a", "none is left", <[FloatingIP]>::is_empty).await;
    let refused = scenario
        .fipd
        .log()
        .unwrap()
        .lines()
        .filter(|line| line.contains("orbidden"))
        .count();
    assert_eq!(refused, 0, "{}", scenario.fipd.log().unwrap());

    // Without the right to the announcer's objects the address is given back all the same.
    let text = config(&scenario.site, "announce = \"purelb\"\n");
    scenario.fipd.write_config(&text).unwrap();
    scenario.fipd.restart().await.unwrap();
    create(&a, "left", "net").await;
    wait_announced(&client, [&[], &[], &["ip4-10.60.0.10"]]).await;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    bindings
        .delete("fipd-rancher-fip-announce", &DeleteParams::default())
        .await
        .unwrap();
    let plane = &scenario.site.cluster("a").unwrap().plane;
    let restricted = plane.client_of(RESTRICTED_USER).await.unwrap();
    wait_until("the right is gone", DEADLINE, || async {
        // fipd may list them all the same, for the ranges of other load balancers.
        let group =
            "/apis/purelb.io/v1/namespaces/rancher-fip-manager/servicegroups/ip4-10.60.0.10";
        let request = http::Request::get(group).body(Vec::new());
        match restricted.request_text(request.unwrap()).await {
            Ok(_) => Err("not yet"),
            Err(_) => Ok(()),
        }
    })
    .await
    .unwrap();
    delete(&a, "left").await;
    wait_gone(&a, "left").await;
    wait_event(&a, "left", "AnnouncementLeft").await;
    wait_allocated(&rancher, "net", json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_14_neither_fipd_nor_rancher_need_to_be_there_all_the_time() {
    let options = SiteOptions {
        proxied: true,
        ..SiteOptions::of(&["a"])
    };
    let mut scenario = Scenario::start(&options).await.unwrap();
    scenario
        .add_pool("net", "10.60.0.0/24", "10.60.0.10", "10.60.0.20")
        .await
        .unwrap();
    let a = project(&scenario, "a").await;
    let rancher = scenario.site.rancher.client().await.unwrap();
    for name in ["one", "two"] {
        create(&a, name, "net").await;
        wait_address(&a, name).await;
    }
    wait_fips(&rancher, "c-m-a", "two are allocated", |fips| {
        fips.len() == 2 && fips.iter().all(|fip| !shown(fip).is_empty())
    })
    .await;

    // fipd is away: one Service goes, another comes.
    scenario.fipd.kill9().unwrap();
    delete(&a, "one").await;
    create(&a, "three", "net").await;
    scenario.fipd.restart().await.unwrap();
    wait_gone(&a, "one").await;
    wait_address(&a, "three").await;
    wait_fips(&rancher, "c-m-a", "two are allocated", |fips| {
        fips.len() == 2 && fips.iter().all(|fip| !shown(fip).is_empty())
    })
    .await;

    // Rancher is away: Services come and go all the same.
    scenario
        .site
        .rancher_proxy
        .as_ref()
        .unwrap()
        .set(Fault::Cut);
    create(&a, "four", "net").await;
    let fourth = wait_address(&a, "four").await;
    delete(&a, "two").await;
    wait_gone(&a, "two").await;
    create(&a, "five", "net").await;
    wait_address(&a, "five").await;
    delete(&a, "five").await;
    wait_gone(&a, "five").await;
    // And fipd starts while Rancher is away.
    scenario.fipd.restart().await.unwrap();
    create(&a, "six", "net").await;
    wait_address(&a, "six").await;
    assert_eq!(texts(&a, "four").await, [fourth.to_string()]);

    scenario
        .site
        .rancher_proxy
        .as_ref()
        .unwrap()
        .set(Fault::Pass);
    let held: Vec<String> = {
        let mut held = Vec::new();
        for name in ["three", "four", "six"] {
            held.extend(texts(&a, name).await);
        }
        held.sort();
        held
    };
    wait_fips(
        &rancher,
        "c-m-a",
        "they are those of the Services",
        |fips| {
            let mut shown: Vec<String> = fips.iter().map(|fip| shown(fip).to_string()).collect();
            shown.sort();
            shown == held
        },
    )
    .await;
}
