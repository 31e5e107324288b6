//! The promise as a whole: no address twice, none lost, whatever dies.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]
#![expect(clippy::panic, reason = "in a test a panic is the verdict")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use fipd_crds::floating_ip::v1beta2::FloatingIP;
use fipd_tests::scenario::{
    Scenario, addresses, assigned, create_services, service, wait_assigned, write_kubeconfig,
};
use fipd_tests::testbed::{ControlPlane, ControlPlaneOptions, Fault, SiteOptions, wait_until};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use serde_json::{Value, json};

const POOL: &str = "a--public";
const DEADLINE: Duration = Duration::from_secs(180);

type Assigned = BTreeMap<String, Vec<IpAddr>>;

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n:04}")).collect()
}

/// All addresses of both, each of them there once.
fn all_distinct(one: &Assigned, other: &Assigned) -> BTreeSet<IpAddr> {
    let mut seen = BTreeMap::new();
    for (name, list) in one
        .iter()
        .map(|x| ("a", x))
        .chain(other.iter().map(|x| ("b", x)))
        .map(|(cluster, (name, list))| (format!("{cluster}/{name}"), list))
    {
        assert_eq!(list.len(), 1, "{name} has {list:?}");
        let before = seen.insert(list[0], name.clone());
        assert_eq!(before, None, "{} is held by {name} as well", list[0]);
    }
    seen.into_keys().collect()
}

/// What a malformed object comes to.
enum Fate {
    /// The API server does not take it; its reason.
    Refused(&'static str),
    /// Its own condition says what is wrong.
    Condition(&'static str),
    /// Nothing serves its kind: it stays as it is.
    Left,
}

/// Malformed objects in Rancher, at least one of each kind that its schema lets through.
fn malformed() -> Vec<(Value, Fate)> {
    let project = json!({ "rancher.k8s.binbash.org/project-name": "p-a" });
    let fip = |name: &str| json!({ "name": name, "namespace": "c-m-a", "labels": project });
    vec![
        (
            json!({ "kind": "FloatingIPPool", "metadata": { "name": "no-config" }, "spec": {} }),
            Fate::Condition("ipConfig"),
        ),
        (
            json!({ "kind": "FloatingIPPool", "metadata": { "name": "reversed" }, "spec": { "ipConfig": {
                "family": "IPv4", "subnet": "10.99.0.0/24",
                "pool": { "start": "10.99.0.9", "end": "10.99.0.2", "exclude": ["10.98.0.1"] } } } }),
            Fate::Condition("10.99.0.9"),
        ),
        (
            json!({ "kind": "FloatingIP", "metadata": { "name": "no-project", "namespace": "c-m-a" },
                "spec": { "floatingIPPool": POOL } }),
            Fate::Condition("project-name"),
        ),
        (
            json!({ "kind": "FloatingIP", "metadata": fip("no-pool"), "spec": { "floatingIPPool": "nowhere" } }),
            Fate::Condition("nowhere"),
        ),
        (
            json!({ "kind": "FloatingIP", "metadata": fip("no-address"),
                "spec": { "floatingIPPool": POOL, "ipAddr": "10.60.0.256" } }),
            Fate::Refused("spec.ipAddr"),
        ),
        (
            json!({ "kind": "FloatingIPProjectQuota", "metadata": { "name": "p-a" },
                "spec": { "floatingIPQuota": { "a--public": -3 } } }),
            Fate::Left,
        ),
    ]
}

async fn add_malformed(scenario: &Scenario) {
    for (mut object, fate) in malformed() {
        object["apiVersion"] = json!("rancher.k8s.binbash.org/v1beta2");
        let name = &object["metadata"]["name"];
        match (scenario.site.rancher.apply(&object.to_string()).await, fate) {
            (Ok(()), Fate::Condition(_) | Fate::Left) => {}
            (Err(refused), Fate::Refused(why)) => {
                let refused = format!("{refused:#}");
                assert!(refused.contains(why), "{name}: {refused}");
            }
            (result, _) => panic!("{name}: {result:?}"),
        }
    }
    for name in ["a", "b"] {
        let api: Api<Service> = Api::default_namespaced(scenario.client(name).await.unwrap());
        let mut broken = service("malformed", POOL).unwrap();
        let annotations = broken.metadata.annotations.as_mut().unwrap();
        annotations.insert(
            "rancher.k8s.binbash.org/static-ip".into(),
            "10.60.0.300".into(),
        );
        api.create(&PostParams::default(), &broken).await.unwrap();
    }
}

/// The malformed objects are still there as they were written, and each says what is wrong with it.
async fn check_malformed(scenario: &Scenario) {
    let rancher = scenario.site.rancher.client().await.unwrap();
    for (object, fate) in malformed() {
        let kind = object["kind"].as_str().unwrap();
        let kind = GroupVersionKind::gvk("rancher.k8s.binbash.org", "v1beta2", kind);
        let kind = ApiResource::from_gvk(&kind);
        let name = object["metadata"]["name"].as_str().unwrap();
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(rancher.clone(), namespace, &kind),
            None => Api::all_with(rancher.clone(), &kind),
        };
        let why = match fate {
            Fate::Refused(_) => continue,
            Fate::Condition(why) => Some(why),
            Fate::Left => None,
        };
        let seen = wait_until(&format!("{name} says {why:?}"), DEADLINE, || async {
            let seen = api.get(name).await.map_err(|error| error.to_string())?;
            let conditions = seen.data["status"]["conditions"].to_string();
            match why {
                Some(why) if !conditions.contains(why) => Err(conditions),
                Some(_) | None => Ok(seen),
            }
        })
        .await
        .unwrap();
        assert_eq!(seen.data["spec"], object["spec"], "{name}");
        assert_eq!(seen.metadata.deletion_timestamp, None, "{name}");
    }
    for name in ["a", "b"] {
        let client = scenario.client(name).await.unwrap();
        let services: Api<Service> = Api::default_namespaced(client.clone());
        assert_eq!(
            addresses(&services.get("malformed").await.unwrap()),
            [] as [IpAddr; 0]
        );
        let events: Api<Event> = Api::default_namespaced(client);
        let about = ListParams::default().fields("reason=Invalid");
        let about = events.list(&about).await.unwrap().items;
        let notes: Vec<String> = about.into_iter().filter_map(|event| event.note).collect();
        assert!(
            notes.iter().any(|note| note.contains("10.60.0.300")),
            "{name}: {notes:?}"
        );
    }
}

/// How many Services of both have an address.
async fn served(apis: [&Api<Service>; 2]) -> anyhow::Result<usize> {
    Ok(assigned(apis[0]).await?.len() + assigned(apis[1]).await?.len())
}

/// Kills fipd as soon as `count` Services have an address; some still wait for theirs when it is dead.
async fn kill_when(scenario: &mut Scenario, apis: [&Api<Service>; 2], count: usize) {
    wait_until(
        &format!("{count} of both have an address"),
        DEADLINE,
        || async {
            let seen = served(apis).await.unwrap_or(0);
            if seen >= count {
                Ok(())
            } else {
                Err(format!("{seen}"))
            }
        },
    )
    .await
    .unwrap();
    scenario.fipd.kill9().unwrap();
    let midway = served(apis).await.unwrap();
    assert!(
        (1..1000).contains(&midway),
        "killed with {midway} of 1000 served"
    );
    scenario.fipd.restart().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_services_in_two_clusters_share_one_pool_while_things_die() {
    let mut scenario = Scenario::start(&SiteOptions::of(&["a", "b"]))
        .await
        .unwrap();
    scenario
        .add_pool(POOL, "10.60.0.0/16", "10.60.0.1", "10.60.3.232")
        .await
        .unwrap();
    add_malformed(&scenario).await;
    let a: Api<Service> = Api::default_namespaced(scenario.client("a").await.unwrap());
    let b: Api<Service> = Api::default_namespaced(scenario.client("b").await.unwrap());

    let creating = |prefix: &str, count: usize| {
        let (a, b, names) = (a.clone(), b.clone(), names(prefix, count));
        tokio::spawn(async move {
            futures::future::try_join(
                create_services(&a, &names, POOL),
                create_services(&b, &names, POOL),
            )
            .await
        })
    };
    let early = creating("early", 350);
    kill_when(&mut scenario, [&a, &b], 150).await;
    kill_when(&mut scenario, [&a, &b], 350).await;
    early.await.unwrap().unwrap();
    scenario
        .site
        .cluster_mut("b")
        .unwrap()
        .plane
        .restart_api()
        .await
        .unwrap();
    // These come only now, so that the third kill is midway as well.
    let late = creating("late", 150);
    kill_when(&mut scenario, [&a, &b], 700).await;
    late.await.unwrap().unwrap();

    let left = wait_assigned(&a, 500, DEADLINE).await.unwrap();
    let right = wait_assigned(&b, 500, DEADLINE).await.unwrap();
    let all = all_distinct(&left, &right);
    assert_eq!(all.len(), 1000);
    assert_eq!(all.first().unwrap().to_string(), "10.60.0.1");
    assert_eq!(all.last().unwrap().to_string(), "10.60.3.232");

    let fips: Api<FloatingIP> = Api::all(scenario.site.rancher.client().await.unwrap());
    let objects = wait_until(
        "every Service has its FloatingIP object",
        DEADLINE,
        || async {
            let list = fips
                .list(&ListParams::default())
                .await
                .map_err(|e| e.to_string())?;
            let held: Vec<IpAddr> = (list.items.iter())
                .filter_map(|fip| fip.status.as_ref()?.ip_addr.parse().ok())
                .collect();
            if held.len() >= 1000 {
                Ok(held)
            } else {
                Err(format!("{} have an address", held.len()))
            }
        },
    )
    .await
    .unwrap();
    assert_eq!(objects.len(), 1000);
    assert_eq!(objects.into_iter().collect::<BTreeSet<_>>(), all);

    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    assert_eq!(assigned(&a).await.unwrap(), left);
    assert_eq!(assigned(&b).await.unwrap(), right);
    let check = scenario.fipd.cli(["check"]).await.unwrap();
    assert_eq!(check.code, 0, "{check:?}");
    check_malformed(&scenario).await;
}

async fn ten_services(scenario: &Scenario) -> [(Api<Service>, Assigned); 2] {
    old_services(scenario, 10).await
}

/// A pool, and `count` Services with an address in each cluster.
async fn old_services(scenario: &Scenario, count: usize) -> [(Api<Service>, Assigned); 2] {
    scenario
        .add_pool(POOL, "10.61.0.0/24", "10.61.0.1", "10.61.0.100")
        .await
        .unwrap();
    let mut both = Vec::new();
    for name in ["a", "b"] {
        let api: Api<Service> = Api::default_namespaced(scenario.client(name).await.unwrap());
        create_services(&api, &names("old", count), POOL)
            .await
            .unwrap();
        let seen = wait_assigned(&api, count, DEADLINE).await.unwrap();
        both.push((api, seen));
    }
    both.try_into().unwrap()
}

fn lose_store(scenario: &Scenario) {
    let mut removed = 0;
    for entry in std::fs::read_dir(scenario.fipd.data_dir()).unwrap() {
        let path = entry.unwrap().path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if let Some("redb" | "high-water") = extension {
            std::fs::remove_file(path).unwrap();
            removed += 1;
        }
    }
    assert_eq!(removed, 2, "the store and its record");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_store_is_rebuilt_from_what_the_clusters_hold() {
    let mut scenario = Scenario::start(&SiteOptions::of(&["a", "b"]))
        .await
        .unwrap();
    let [(a, left), (b, right)] = ten_services(&scenario).await;
    scenario
        .fipd
        .terminate(Duration::from_secs(10))
        .await
        .unwrap();
    lose_store(&scenario);
    scenario.fipd.restart().await.unwrap();

    create_services(&a, &names("new", 10), POOL).await.unwrap();
    let after = wait_assigned(&a, 20, DEADLINE).await.unwrap();
    let other = assigned(&b).await.unwrap();
    assert_eq!(other, right);
    for (name, list) in &left {
        assert_eq!(after[name], *list, "{name} keeps its address");
    }
    assert_eq!(all_distinct(&after, &other).len(), 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_store_waits_for_the_cluster_that_is_down_and_says_so() {
    let mut options = SiteOptions::of(&["a", "b"]);
    options.proxied = true;
    let mut scenario = Scenario::start(&options).await.unwrap();
    let [(a, left), (b, right)] = ten_services(&scenario).await;
    scenario
        .fipd
        .terminate(Duration::from_secs(10))
        .await
        .unwrap();
    lose_store(&scenario);
    let proxy = |scenario: &Scenario, fault| {
        scenario
            .site
            .cluster("b")
            .unwrap()
            .proxy
            .as_ref()
            .unwrap()
            .set(fault);
    };
    proxy(&scenario, Fault::BlackHole);
    scenario.fipd.restart().await.unwrap();

    a.create(&PostParams::default(), &service("new", POOL).unwrap())
        .await
        .unwrap();
    wait_until("fipd says for whom it waits", DEADLINE, || async {
        let leases = scenario
            .fipd
            .cli(["lease", "list", "-o", "json"])
            .await
            .unwrap();
        let text = leases.stdout;
        let adopted = left
            .values()
            .flatten()
            .all(|ip| text.contains(&format!("\"{ip}\"")));
        let shown = scenario
            .fipd
            .cli(["network", "list", "-o", "json"])
            .await
            .unwrap();
        let says = shown.stdout.contains("\"b\"");
        if adopted && says {
            Ok(())
        } else {
            Err(format!("adopted {adopted}; {}", shown.stdout))
        }
    })
    .await
    .unwrap();
    let held = a.get("new").await.unwrap();
    assert_eq!(
        addresses(&held),
        Vec::<IpAddr>::new(),
        "given although b was never listed"
    );

    proxy(&scenario, Fault::Pass);
    let after = wait_assigned(&a, 11, DEADLINE).await.unwrap();
    let other = assigned(&b).await.unwrap();
    assert_eq!(other, right);
    for (name, list) in &left {
        assert_eq!(after[name], *list);
    }
    assert_eq!(all_distinct(&after, &other).len(), 21);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_repointed_to_an_empty_cluster_releases_nothing() {
    let scenario = Scenario::start(&SiteOptions::of(&["a", "b"]))
        .await
        .unwrap();
    // As many as may go without an admin's word: it is not the limit that keeps them.
    let [(a, left), (_, right)] = old_services(&scenario, 5).await;
    let foundation = scenario.site.rancher.foundation().clone();
    let empty = ControlPlane::start_on(foundation, "empty", ControlPlaneOptions::default());
    let empty = empty.await.unwrap();
    write_kubeconfig(&scenario.fipd, "a", empty.kubeconfig_yaml()).unwrap();

    wait_until("the other identity is noticed", DEADLINE, || async {
        let shown = show(&scenario, "a").await;
        if shown["state"] == "identity-conflict" {
            Ok(())
        } else {
            Err(shown.to_string())
        }
    })
    .await
    .unwrap();
    // Longer than two complete lists need to be apart.
    tokio::time::sleep(Duration::from_secs(80)).await;
    let shown = show(&scenario, "a").await;
    let why = shown["last_error"].as_str().unwrap_or_default();
    assert!(
        shown["state"] == "identity-conflict" && why.contains("nothing is released"),
        "{shown}"
    );
    assert_eq!(shown["held_back"], json!([]), "{shown}");
    let listed = scenario.fipd.cli(["lease", "list", "-o", "json"]).await;
    let leases = listed.unwrap().stdout;
    for ip in left.values().chain(right.values()).flatten() {
        assert!(leases.contains(&format!("\"{ip}\"")), "{ip} was released");
    }

    let kubeconfig = scenario.site.cluster("a").unwrap().kubeconfig();
    write_kubeconfig(&scenario.fipd, "a", kubeconfig).unwrap();
    create_services(&a, &names("new", 1), POOL).await.unwrap();
    let after = wait_assigned(&a, 6, DEADLINE).await.unwrap();
    assert_eq!(all_distinct(&after, &right).len(), 11);
}

/// A cluster as `fipd clusters show` has it.
async fn show(scenario: &Scenario, name: &str) -> Value {
    let arguments = ["clusters", "show", name, "-o", "json"];
    let shown = scenario.fipd.cli(arguments).await.unwrap();
    serde_json::from_str(&shown.stdout).unwrap()
}
