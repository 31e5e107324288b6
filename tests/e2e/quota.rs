//! Quotas of Rancher projects, and the addresses that projects keep.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fipd_crds::floating_ip::{FloatingIP, FloatingIPPool, FloatingIPProjectQuota};
use fipd_tests::scenario::{Scenario, config, create_services, wait_assigned, write_kubeconfig};
use fipd_tests::testbed::{RESTRICTED_USER, SiteOptions, wait_object, wait_until};
use futures::future::join_all;
use k8s_openapi::api::{core::v1::Service, events::v1::Event};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
/// A cluster that was not seen before is gone after two looks, a minute apart.
const TWO_LOOKS: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "c-m-a";
const GROUP: &str = "rancher.k8s.binbash.org";
const ROLE: &str = include_str!("../../packaging/rbac/rancher-fip-management.yaml");

/// A Rancher cluster whose pools require quotas, and fipd, which has no more rights in it than the role gives.
struct Rancher {
    scenario: Scenario,
    fips: Api<FloatingIP>,
    quotas: Api<FloatingIPProjectQuota>,
    pools: Api<FloatingIPPool>,
}

impl Rancher {
    async fn start() -> Self {
        let mut scenario = Scenario::prepare(&SiteOptions::of(&[]).kept())
            .await
            .unwrap();
        let plane = &scenario.site.rancher;
        plane.apply(ROLE).await.unwrap();
        plane
            .bind_role("fipd-rancher-fip-management", None)
            .await
            .unwrap();
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        plane.apply(&namespace.to_string()).await.unwrap();
        let cluster = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
            "metadata": { "name": NAMESPACE }, "spec": { "displayName": "dc" },
        });
        plane.apply(&cluster.to_string()).await.unwrap();
        let client = plane.client().await.unwrap();
        let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
        write_kubeconfig(&scenario.fipd, "rancher", &kubeconfig).unwrap();
        let config = "[[cluster]]\nname = \"rancher\"\nkubeconfig = \"rancher.kubeconfig\"\nsystems = [\"rancher-fip\"]\n";
        scenario.fipd.write_config(config).unwrap();
        scenario.fipd.restart().await.unwrap();
        scenario.fipd.wait_ready(DEADLINE).await.unwrap();
        Self {
            scenario,
            fips: Api::namespaced(client.clone(), NAMESPACE),
            quotas: Api::all(client.clone()),
            pools: Api::all(client),
        }
    }

    async fn apply(&self, version: &str, kind: &str, mut object: Value) {
        object["apiVersion"] = json!(format!("{GROUP}/{version}"));
        object["kind"] = json!(kind);
        let rancher = &self.scenario.site.rancher;
        rancher.apply(&object.to_string()).await.unwrap();
    }

    /// A pool on `10.66.<third>.0/24` for the cluster `dc`.
    async fn pool(&self, name: &str, third: u8, annotations: Value) {
        let (start, end) = (format!("10.66.{third}.10"), format!("10.66.{third}.200"));
        let config = json!({
            "family": "IPv4", "subnet": format!("10.66.{third}.0/24"), "pool": { "start": start, "end": end },
        });
        let spec = json!({
            "ipConfig": config, "targetCluster": "dc", "targetNetwork": format!("net-{third}"),
        });
        let meta = json!({ "name": name, "annotations": annotations });
        let object = json!({ "metadata": meta, "spec": spec });
        self.apply("v1beta2", "FloatingIPPool", object).await;
    }

    async fn quota(&self, project: &str, limits: Value) {
        let spec = json!({ "displayName": "Shop", "floatingIPQuota": limits });
        let object = json!({ "metadata": { "name": project }, "spec": spec });
        self.apply("v1beta2", "FloatingIPProjectQuota", object)
            .await;
    }

    /// A FloatingIP of the project that the cluster uses for the Service `ns/web`.
    async fn fip(&self, name: &str, project: &str, pool: &str) {
        let labels = json!({
            format!("{GROUP}/project-name"): project, format!("{GROUP}/cluster-name"): NAMESPACE,
            format!("{GROUP}/service-name"): "web", format!("{GROUP}/service-namespace"): "ns",
            format!("{GROUP}/service-3-name"): "web", format!("{GROUP}/service-3-namespace"): "ns",
            format!("{GROUP}/floatingip-group"): "g",
        });
        let meta = json!({ "name": name, "namespace": NAMESPACE, "labels": labels });
        let object = json!({ "metadata": meta, "spec": { "floatingIPPool": pool } });
        self.apply("v1beta2", "FloatingIP", object).await;
    }

    async fn labels(&self, name: &str, labels: Value) {
        let patch = json!({ "metadata": { "labels": labels } });
        let params = PatchParams::default();
        let patch = Patch::Merge(&patch);
        self.fips.patch(name, &params, &patch).await.unwrap();
    }

    async fn unassign(&self, name: &str) {
        self.labels(name, json!({ format!("{GROUP}/cluster-name"): null }))
            .await;
    }

    async fn wait_fip(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        self.wait_fip_for(DEADLINE, name, what, test).await
    }

    async fn wait_fip_for(
        &self,
        deadline: Duration,
        name: &str,
        what: &str,
        test: impl Fn(&Value) -> bool,
    ) -> Value {
        let what = format!("FloatingIP {name} {what}");
        wait_object(&what, deadline, (&self.fips, name), test)
            .await
            .unwrap()
    }

    async fn wait_address(&self, name: &str) -> String {
        let allocated = |fip: &Value| fip["status"]["state"] == "Allocated";
        let fip = self.wait_fip(name, "has an address", allocated).await;
        fip["status"]["ipAddr"].as_str().unwrap().to_owned()
    }

    async fn wait_refused(&self, name: &str) {
        let refused = |fip: &Value| {
            let says = fip["status"]["conditions"][0]["message"].as_str();
            fip["status"]["state"] == "Error"
                && says.is_some_and(|text| text.contains("quota exceeded"))
        };
        self.wait_fip(name, "is refused", refused).await;
    }

    async fn wait_no_fip(&self, name: &str) {
        wait_until(&format!("FloatingIP {name} is gone"), DEADLINE, || async {
            let fip = self.fips.get_opt(name).await;
            match fip.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(fip) => Err(json!(fip).to_string()),
            }
        })
        .await
        .unwrap();
    }

    async fn wait_quota(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        let what = format!("quota {name} {what}");
        wait_object(&what, DEADLINE, (&self.quotas, name), test)
            .await
            .unwrap()
    }

    /// Waits until the quota shows exactly this.
    async fn wait_fips(&self, name: &str, fips: Value) {
        let what = format!("shows {fips}");
        self.wait_quota(name, &what, |quota| quota["status"]["fips"] == fips)
            .await;
    }

    async fn wait_condition(&self, name: &str, kind: &str, status: &str, part: &str) {
        let says = |one: &Value| {
            let message = one["message"].as_str().unwrap_or_default();
            one["type"] == kind && one["status"] == status && message.contains(part)
        };
        self.wait_quota(name, &format!("says {kind} {status} {part:?}"), |quota| {
            let conditions = quota["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(says))
        })
        .await;
    }

    async fn merge_quota(&self, name: &str, patch: Value) {
        let params = PatchParams::default();
        let patch = Patch::Merge(&patch);
        self.quotas.patch(name, &params, &patch).await.unwrap();
    }

    /// Names of the FloatingIPs by the state of their status.
    async fn states(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut states: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for fip in self.fips.list(&ListParams::default()).await.unwrap() {
            let state = fip.status.map(|status| status.state).unwrap_or_default();
            states
                .entry(state)
                .or_default()
                .insert(fip.metadata.name.unwrap());
        }
        states
    }

    async fn fipd<const N: usize>(&self, arguments: [&str; N]) -> Value {
        let output = self.scenario.fipd.cli(arguments).await.unwrap();
        output.json().unwrap()
    }
}

fn count(states: &BTreeMap<String, BTreeSet<String>>, state: &str) -> usize {
    states.get(state).map_or(0, BTreeSet::len)
}

/// `Error` is not final, a quota or pool may come later, the limit is kept by many at once, a raised quota wakes who waits.
#[tokio::test(flavor = "multi_thread")]
async fn defect_03_04_08_15_a_project_gets_what_its_quota_allows_and_waits_for_more() {
    let rancher = Rancher::start().await;
    rancher.pool("dc--net-1", 1, json!({})).await;
    rancher.fip("early", "p-a", "dc--net-1").await;
    rancher.wait_refused("early").await;

    // The older version of the API, as older sites have it.
    let spec = json!({ "displayName": "Shop", "floatingIPQuota": { "dc--net-1": 10, "later": 1 } });
    let quota = json!({ "metadata": { "name": "p-a" }, "spec": spec });
    rancher
        .apply("v1beta1", "FloatingIPProjectQuota", quota)
        .await;
    let first = rancher.wait_address("early").await;
    rancher
        .wait_condition("p-a", "Ready", "False", "spec.floatingIPQuota[\"later\"]")
        .await;
    let one =
        json!({ "dc--net-1": { "family": "IPv4", "used": 1, "allocated": { &first: NAMESPACE } } });
    rancher.wait_fips("p-a", one).await;

    // Sixty-four at once.
    let names: Vec<String> = (0..64).map(|n| format!("fip-{n}")).collect();
    join_all(
        names
            .iter()
            .map(|name| rancher.fip(name, "p-a", "dc--net-1")),
    )
    .await;
    wait_until("all are decided", DEADLINE, || async {
        let states = rancher.states().await;
        let decided = (count(&states, "Allocated"), count(&states, "Error"));
        if decided == (10, 55) {
            Ok(())
        } else {
            Err(format!("{decided:?}"))
        }
    })
    .await
    .unwrap();
    let full = |quota: &Value| quota["status"]["fips"]["dc--net-1"]["used"] == 10;
    let quota = rancher.wait_quota("p-a", "is used up", full).await;
    let listed = quota["status"]["fips"]["dc--net-1"]["allocated"]
        .as_object()
        .unwrap();
    let fips = rancher.fips.list(&ListParams::default()).await.unwrap();
    let given = fips.iter().filter_map(|fip| fip.status.as_ref());
    let given: BTreeSet<String> = given
        .map(|status| status.ip_addr.clone())
        .filter(|ip| !ip.is_empty())
        .collect();
    assert_eq!(listed.keys().cloned().collect::<BTreeSet<_>>(), given);

    // More at once, fewer keeps what is there.
    rancher
        .quota("p-a", json!({ "dc--net-1": 12, "later": 1 }))
        .await;
    wait_until("two more have one", DEADLINE, || async {
        let allocated = count(&rancher.states().await, "Allocated");
        if allocated == 12 {
            Ok(())
        } else {
            Err(allocated.to_string())
        }
    })
    .await
    .unwrap();
    rancher
        .quota("p-a", json!({ "dc--net-1": 5, "later": 1 }))
        .await;
    rancher
        .wait_condition("p-a", "OverLimit", "True", "12 of 5 in dc--net-1")
        .await;
    assert_eq!(count(&rancher.states().await, "Allocated"), 12);

    // What cannot be taken changes nothing.
    rancher
        .merge_quota(
            "p-a",
            json!({ "spec": { "floatingIPQuota": { "dc--net-1": 99, "later": -1 } } }),
        )
        .await;
    rancher
        .wait_condition("p-a", "Ready", "False", "-1 is not allowed")
        .await;
    let rows = rancher.fipd(["quota", "list", "-o", "json"]).await;
    assert!(rows.to_string().contains("\"limit\":5"), "{rows}");

    // A pool that comes later, called by its cluster and network.
    let limits = json!({ "dc--net-1": 12, "dc--net-2": 1, "later": null });
    rancher
        .merge_quota("p-a", json!({ "spec": { "floatingIPQuota": limits } }))
        .await;
    rancher.fip("two", "p-a", "real-name").await;
    rancher.pool("real-name", 2, json!({})).await;
    rancher.wait_address("two").await;
    rancher.wait_condition("p-a", "Ready", "True", "").await;
    rancher
        .wait_quota("p-a", "shows both", |quota| {
            quota["status"]["fips"]["dc--net-2"]["used"] == 1
        })
        .await;

    // Its end is the end of the project's addresses.
    rancher
        .quotas
        .delete("p-a", &DeleteParams::default())
        .await
        .unwrap();
    wait_until("the quota is gone", DEADLINE, || async {
        let quota = rancher.quotas.get_opt("p-a").await;
        match quota.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(quota) => Err(json!(quota).to_string()),
        }
    })
    .await
    .unwrap();
    assert!(rancher.states().await.is_empty());
    let rows = rancher.fipd(["quota", "list", "-o", "json"]).await;
    assert!(!rows.to_string().contains("p-a"), "{rows}");
}

/// A pool that is deleted first keeps nothing from being deleted.
#[tokio::test(flavor = "multi_thread")]
async fn defect_09_11_19_unassigned_addresses_are_kept_and_returned_and_nothing_keeps_them_undeletable()
 {
    let mut rancher = Rancher::start().await;
    rancher.quota("p-a", json!({ "kept": 5, "short": 5 })).await;
    rancher.quota("p-b", json!({ "kept": 1 })).await;
    rancher.pool("kept", 1, json!({})).await;
    rancher
        .pool("short", 2, json!({ "fipd.io/return-after": "12s" }))
        .await;
    for (name, pool) in [
        ("one", "kept"),
        ("used", "short"),
        ("spare", "short"),
        ("moved", "kept"),
    ] {
        rancher.fip(name, "p-a", pool).await;
        rancher.wait_address(name).await;
    }
    rancher.unassign("one").await;
    rancher.unassign("spare").await;
    let began = std::time::Instant::now();
    rancher
        .wait_quota("p-a", "shows who is unassigned", |quota| {
            let kept = &quota["status"]["fips"]["kept"];
            kept["used"] == 2 && kept["allocated"].to_string().contains("Unassigned")
        })
        .await;

    // Its time goes on while fipd is down.
    rancher.scenario.fipd.restart().await.unwrap();
    rancher.scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    rancher.wait_no_fip("spare").await;
    assert!(
        began.elapsed() >= Duration::from_secs(11),
        "{:?}",
        began.elapsed()
    );
    rancher.wait_address("one").await;
    rancher.wait_address("used").await;

    // Another project is charged.
    rancher
        .labels("moved", json!({ format!("{GROUP}/project-name"): "p-b" }))
        .await;
    let used = |name: &'static str, number: u64| {
        move |quota: &Value| quota["status"]["fips"][name]["used"] == number
    };
    rancher.wait_quota("p-b", "has one", used("kept", 1)).await;
    rancher
        .wait_quota("p-a", "has one less", used("kept", 1))
        .await;
    rancher
        .labels("one", json!({ format!("{GROUP}/project-name"): "p-b" }))
        .await;
    rancher
        .wait_fip("one", "says why not", |fip| {
            let conditions = fip["status"]["conditions"].as_array().unwrap();
            let says = |one: &Value| {
                one["type"] == "ProjectCharged" && one.to_string().contains("quota exceeded")
            };
            fip["status"]["state"] == "Allocated" && conditions.iter().any(says)
        })
        .await;
    rancher.quota("p-b", json!({ "kept": 2 })).await;
    rancher.wait_quota("p-b", "has two", used("kept", 2)).await;

    rancher
        .pools
        .delete("kept", &DeleteParams::default())
        .await
        .unwrap();
    rancher
        .fips
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    rancher.wait_no_fip("one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_18_a_cluster_deleted_while_fipd_is_down_leaves_its_addresses_to_the_project() {
    let mut rancher = Rancher::start().await;
    rancher.quota("p-a", json!({ "net": 5 })).await;
    rancher.pool("net", 1, json!({})).await;
    rancher.fip("one", "p-a", "net").await;
    let address = rancher.wait_address("one").await;
    rancher.scenario.fipd.kill9().unwrap();
    let client = rancher.scenario.site.rancher.client().await.unwrap();
    let clusters: Api<fipd_crds::management::Cluster> = Api::all(client);
    clusters
        .delete(NAMESPACE, &DeleteParams::default())
        .await
        .unwrap();
    rancher.scenario.fipd.restart().await.unwrap();
    rancher.scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    let fip = json!(rancher.fips.get("one").await.unwrap());
    let cluster = format!("{GROUP}/cluster-name");
    assert_eq!(
        fip["metadata"]["labels"][cluster], NAMESPACE,
        "one look is not enough"
    );
    let fip = rancher
        .wait_fip_for(TWO_LOOKS, "one", "is unassigned", |fip| {
            fip["status"]["assigned"].is_null()
        })
        .await;
    let labels = json!({ format!("{GROUP}/project-name"): "p-a" });
    assert_eq!(
        fip["metadata"]["labels"], labels,
        "both generations are gone"
    );
    assert_eq!(fip["status"]["ipAddr"], *address);
    let kept =
        json!({ "net": { "family": "IPv4", "used": 1, "allocated": { address: "Unassigned" } } });
    rancher.wait_fips("p-a", kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_project_keeps_its_addresses_until_its_quota_goes_too() {
    let rancher = Rancher::start().await;
    let project = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "Project",
        "metadata": { "name": "p-a", "namespace": NAMESPACE }, "spec": { "clusterName": NAMESPACE },
    });
    let plane = &rancher.scenario.site.rancher;
    plane.apply(&project.to_string()).await.unwrap();
    rancher.quota("p-a", json!({ "net": 2 })).await;
    rancher.quota("p-b", json!({ "net": 200 })).await;
    rancher.pool("net", 1, json!({})).await;
    let mut addresses = BTreeSet::new();
    for name in ["used", "spare"] {
        rancher.fip(name, "p-a", "net").await;
        addresses.insert(rancher.wait_address(name).await);
    }
    let spare = rancher.wait_address("spare").await;
    rancher.unassign("spare").await;
    let client = plane.client().await.unwrap();
    let projects: Api<fipd_crds::management::Project> = Api::namespaced(client, NAMESPACE);
    let params = DeleteParams::default();
    projects.delete("p-a", &params).await.unwrap();
    rancher.fip("other", "p-b", "net").await;
    let other = rancher.wait_address("other").await;
    assert!(!addresses.contains(&other), "{other} is the project's");
    let two = |quota: &Value| quota["status"]["fips"]["net"]["used"] == 2;
    rancher.wait_quota("p-a", "shows both", two).await;

    rancher.quotas.delete("p-a", &params).await.unwrap();
    for name in ["used", "spare"] {
        rancher.wait_no_fip(name).await;
    }
    wait_until("the quota is gone", DEADLINE, || async {
        match rancher.quotas.get_opt("p-a").await.unwrap() {
            None => Ok(()),
            Some(quota) => Err(json!(quota).to_string()),
        }
    })
    .await
    .unwrap();
    // What nobody used is free; a Service of the cluster keeps the other.
    rancher.fip("next", "p-b", "net").await;
    assert_eq!(rancher.wait_address("next").await, spare);
    rancher.fip("last", "p-b", "net").await;
    assert!(!addresses.contains(&rancher.wait_address("last").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_15_a_service_without_a_quota_waits_for_one() {
    let mut scenario = Scenario::prepare(&SiteOptions::of(&["a"]).kept())
        .await
        .unwrap();
    let config = config(&scenario.site, "").replace("quotas = \"optional\"\n", "");
    scenario.fipd.write_config(&config).unwrap();
    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    scenario
        .add_pool("net", "10.66.1.0/24", "10.66.1.10", "10.66.1.20")
        .await
        .unwrap();
    let client = scenario.client("a").await.unwrap();
    let services: Api<Service> = Api::default_namespaced(client.clone());
    create_services(&services, &["web".into()], "net")
        .await
        .unwrap();
    let events: Api<Event> = Api::default_namespaced(client);
    wait_until("the Service is refused", DEADLINE, || async {
        let events = events.list(&ListParams::default()).await;
        let events = events.map_err(|error| error.to_string())?;
        let refused = |event: &Event| {
            let note = event.note.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some("QuotaExceeded") && note.contains("quota exceeded")
        };
        if events.iter().any(refused) {
            Ok(())
        } else {
            Err(format!("{} Events", events.items.len()))
        }
    })
    .await
    .unwrap();
    let rancher = &scenario.site.rancher;
    let quota = json!({
        "apiVersion": format!("{GROUP}/v1beta2"), "kind": "FloatingIPProjectQuota", "metadata": { "name": "p-a" },
        "spec": { "displayName": "Shop", "floatingIPQuota": { "net": 1 } },
    });
    rancher.apply(&quota.to_string()).await.unwrap();
    let given = wait_assigned(&services, 1, Duration::from_secs(20))
        .await
        .unwrap();
    let address = given["web"][0].to_string();
    let shown = json!({ "family": "IPv4", "used": 1, "allocated": { address: NAMESPACE } });
    let quotas: Api<FloatingIPProjectQuota> = Api::all(rancher.client().await.unwrap());
    wait_until("the quota shows the cluster", DEADLINE, || async {
        let quota = quotas.get("p-a").await.map_err(|error| error.to_string())?;
        let fips = json!(quota.status.unwrap_or_default().fips);
        if fips["net"] == shown {
            Ok(())
        } else {
            Err(fips.to_string())
        }
    })
    .await
    .unwrap();
}
