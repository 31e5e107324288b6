//! Pools and FloatingIPs of a Rancher management cluster.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "floating_ip/networks.rs"]
mod networks;

use std::collections::BTreeSet;
use std::time::Duration;

use fipd_crds::floating_ip::{FloatingIP, FloatingIPPool};
use fipd_tests::scenario::Scenario;
use fipd_tests::testbed::{SiteOptions, wait_object, wait_until};
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "c-m-a";
const PROJECT: &str = "rancher.k8s.binbash.org/project-name";

struct Rancher {
    scenario: Scenario,
    pools: Api<FloatingIPPool>,
    fips: Api<FloatingIP>,
}

impl Rancher {
    async fn start() -> Self {
        let scenario = Scenario::start(&SiteOptions::of(&["a"]).kept())
            .await
            .unwrap();
        let client: Client = scenario.site.rancher.client().await.unwrap();
        let (pools, fips) = (Api::all(client.clone()), Api::namespaced(client, NAMESPACE));
        Self {
            scenario,
            pools,
            fips,
        }
    }

    async fn apply(&self, kind: &str, mut object: Value) {
        object["apiVersion"] = json!("rancher.k8s.binbash.org/v1beta2");
        object["kind"] = json!(kind);
        self.scenario
            .site
            .rancher
            .apply(&object.to_string())
            .await
            .unwrap();
    }

    async fn pool(&self, name: &str, subnet: &str, start: &str, end: &str, exclude: &[&str]) {
        let config =
            json!({ "subnet": subnet, "pool": { "start": start, "end": end, "exclude": exclude } });
        self.apply(
            "FloatingIPPool",
            json!({ "metadata": { "name": name }, "spec": { "ipConfig": config } }),
        )
        .await;
    }

    /// A FloatingIP of project `p-a`, used by the cluster.
    async fn fip(&self, name: &str, pool: &str, address: &str) {
        let labels = json!({ PROJECT: "p-a", "rancher.k8s.binbash.org/cluster-name": NAMESPACE });
        let mut spec = json!({ "floatingIPPool": pool });
        if !address.is_empty() {
            spec["ipAddr"] = json!(address);
        }
        let meta = json!({ "name": name, "namespace": NAMESPACE, "labels": labels });
        self.apply("FloatingIP", json!({ "metadata": meta, "spec": spec }))
            .await;
    }

    async fn patch_fip(&self, name: &str, patch: Value) {
        self.fips
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    async fn delete_fip(&self, name: &str) {
        self.fips
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        wait_until(&format!("FloatingIP {name} is gone"), DEADLINE, || async {
            match self
                .fips
                .get_opt(name)
                .await
                .map_err(|error| error.to_string())?
            {
                None => Ok(()),
                Some(fip) => Err(json!(fip).to_string()),
            }
        })
        .await
        .unwrap();
    }

    async fn wait_fip(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        let what = format!("FloatingIP {name}: {what}");
        wait_object(&what, DEADLINE, (&self.fips, name), test)
            .await
            .unwrap()
    }

    async fn wait_address(&self, name: &str, address: &str) -> Value {
        let fip = self
            .wait_fip(name, &format!("has {address}"), |fip| {
                fip["status"]["ipAddr"] == *address
            })
            .await;
        assert_eq!(fip["status"]["state"], "Allocated");
        fip
    }

    /// The status of the pool without conditions.
    async fn wait_pool(&self, name: &str, expected: Value) {
        wait_until(
            &format!("pool {name} shows {expected}"),
            DEADLINE,
            || async {
                let pool = self
                    .pools
                    .get(name)
                    .await
                    .map_err(|error| error.to_string())?;
                let mut status = json!(pool.status.unwrap_or_default());
                status.as_object_mut().unwrap().remove("conditions");
                if status == expected {
                    Ok(())
                } else {
                    Err(status.to_string())
                }
            },
        )
        .await
        .unwrap();
    }

    async fn wait_condition(&self, pool: &str, kind: &str, status: &str, part: &str) {
        wait_until(
            &format!("pool {pool}: condition {kind} {status} {part:?}"),
            DEADLINE,
            || async {
                let pool = self
                    .pools
                    .get(pool)
                    .await
                    .map_err(|error| error.to_string())?;
                let conditions = pool.status.unwrap_or_default().conditions;
                let found = conditions.iter().any(|one| {
                    one.type_ == kind && one.status == status && one.message.contains(part)
                });
                if found {
                    Ok(())
                } else {
                    Err(json!(conditions).to_string())
                }
            },
        )
        .await
        .unwrap();
    }
}

fn reason(fip: &Value) -> &str {
    fip["status"]["conditions"][0]["reason"]
        .as_str()
        .unwrap_or("")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_shows_exactly_what_is_used() {
    let rancher = Rancher::start().await;
    let quota = json!({ "metadata": { "name": "p-a" }, "spec": { "displayName": "Shop", "floatingIPQuota": { "net": 9 } } });
    rancher.apply("FloatingIPProjectQuota", quota).await;
    rancher
        .pool(
            "net",
            "10.60.0.0/24",
            "10.60.0.10",
            "10.60.0.13",
            &["10.60.0.11"],
        )
        .await;
    let excluded = json!({ "10.60.0.11": "excluded" });
    rancher
        .wait_pool(
            "net",
            json!({ "allocated": excluded, "used": 1, "available": 3 }),
        )
        .await;
    for name in ["one", "two", "three"] {
        rancher.fip(name, "net", "").await;
        rancher
            .wait_fip(name, "has an address", |fip| {
                fip["status"]["state"] == "Allocated"
            })
            .await;
    }
    // As the originals' programs write it: a zero is left out.
    let full = json!({
        "10.60.0.10": "p-a [Shop]", "10.60.0.11": "excluded", "10.60.0.12": "p-a [Shop]", "10.60.0.13": "p-a [Shop]",
    });
    rancher
        .wait_pool("net", json!({ "allocated": full, "used": 4 }))
        .await;
    rancher.wait_condition("net", "Ready", "True", "").await;
    let metrics = rancher.scenario.fipd.get("/metrics").await.unwrap().body;
    let pool = r#"{fippool="net",subnet="10.60.0.0/24",target_cluster="",target_network=""}"#;
    for series in [
        format!("rancherfipmanager_ippool_capacity{pool} 4"),
        format!("rancherfipmanager_ippool_available{pool} 0"),
        format!("rancherfipmanager_ippool_used{pool} 4"),
        r#"rancherfipmanager_floatingipprojectquota{project_id="p-a",fippool="net",type="hard"} 9"#
            .to_owned(),
        r#"rancherfipmanager_floatingipprojectquota{project_id="p-a",fippool="net",type="used"} 3"#
            .to_owned(),
        r#"rancherfipmanager_floatingips{fippool="net",ip="10.60.0.10",status="assigned",project_id="p-a""#
            .to_owned(),
        r#"fipd_reconcile_total{system="rancher-fip",controller="floatingip",result="success"}"#
            .to_owned(),
    ] {
        assert!(metrics.contains(&series), "{series} is not in\n{metrics}");
    }

    // A mistake changes nothing and is named.
    let wrong = |pool: Value| json!({ "spec": { "ipConfig": { "pool": pool } } });
    let merge = |patch: Value| {
        let pools = rancher.pools.clone();
        async move {
            pools
                .patch("net", &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .unwrap()
        }
    };
    merge(wrong(json!({ "end": "10.61.0.20" }))).await;
    rancher
        .wait_condition("net", "Ready", "False", "spec.ipConfig.pool.end")
        .await;
    rancher.delete_fip("two").await;
    rancher.fip("four", "net", "").await;
    rancher.wait_address("four", "10.60.0.12").await;

    // An edit that leaves an address in use outside is not applied, as the admission webhook refuses it where it is asked.
    merge(wrong(json!({ "end": "10.60.0.12" }))).await;
    rancher
        .wait_condition("net", "Ready", "False", "10.60.0.13")
        .await;
    rancher
        .wait_pool("net", json!({ "allocated": full, "used": 4 }))
        .await;
    rancher.delete_fip("three").await;
    rancher.wait_condition("net", "Ready", "True", "").await;
    let rest =
        json!({ "10.60.0.10": "p-a [Shop]", "10.60.0.11": "excluded", "10.60.0.12": "p-a [Shop]" });
    rancher
        .wait_pool("net", json!({ "allocated": rest, "used": 3 }))
        .await;

    // A pool that is deleted first does not keep its FloatingIPs from going.
    rancher
        .pools
        .delete("net", &DeleteParams::default())
        .await
        .unwrap();
    rancher.delete_fip("one").await;
    rancher.delete_fip("four").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_error_of_a_floating_ip_is_final() {
    let rancher = Rancher::start().await;
    // First the object, then its pool.
    rancher.fip("early", "net", "").await;
    let early = rancher
        .wait_fip("early", "waits", |fip| fip["status"]["state"] == "Error")
        .await;
    assert_eq!(reason(&early), "AllocationFailed");
    rancher
        .pool("net", "10.60.0.0/24", "10.60.0.10", "10.60.0.11", &[])
        .await;
    let early = rancher.wait_address("early", "10.60.0.10").await;
    assert_eq!(
        (reason(&early), early["spec"]["ipAddr"].as_str()),
        ("IPAssigned", Some("10.60.0.10"))
    );
    assert_eq!(
        early["metadata"]["finalizers"],
        json!(["rancher.k8s.binbash.org/floatingip-cleanup"])
    );

    // A taken address becomes free.
    rancher.fip("same", "net", "10.60.0.10").await;
    rancher
        .wait_fip("same", "waits", |fip| reason(fip) == "AllocationFailed")
        .await;
    rancher.delete_fip("early").await;
    rancher.wait_address("same", "10.60.0.10").await;

    // A full pool is wider.
    rancher.fip("second", "net", "").await;
    rancher.wait_address("second", "10.60.0.11").await;
    rancher.fip("third", "net", "").await;
    rancher
        .wait_fip("third", "waits", |fip| reason(fip) == "AllocationFailed")
        .await;
    rancher
        .pool("net", "10.60.0.0/24", "10.60.0.10", "10.60.0.12", &[])
        .await;
    rancher.wait_address("third", "10.60.0.12").await;

    // Without project nobody can be charged.
    rancher
        .pool(
            "six",
            "2001:db8::/64",
            "2001:db8::10",
            "2001:db8::ffff:ffff:ffff:ffff",
            &[],
        )
        .await;
    let meta = json!({ "name": "nobody", "namespace": NAMESPACE });
    let spec = json!({ "floatingIPPool": "six", "ipAddr": "2001:DB8:0:0::11" });
    rancher
        .apply("FloatingIP", json!({ "metadata": meta, "spec": spec }))
        .await;
    let nobody = rancher
        .wait_fip("nobody", "waits", |fip| reason(fip) == "AllocationFailed")
        .await;
    assert!(
        nobody["status"]["conditions"][0]["message"]
            .as_str()
            .unwrap()
            .contains(PROJECT)
    );
    rancher
        .patch_fip(
            "nobody",
            json!({ "metadata": { "labels": { PROJECT: "p-a" } } }),
        )
        .await;
    let kept = rancher.wait_address("nobody", "2001:db8::11").await;
    assert_eq!(
        (reason(&kept), &kept["status"]["assigned"]),
        ("IPUnassigned", &Value::Null)
    );
    let one = json!({ "2001:db8::11": "p-a [Unassigned]" });
    rancher
        .wait_pool(
            "six",
            json!({ "allocated": one, "used": 1, "available": i64::MAX }),
        )
        .await;

    // Given to a cluster and taken from it by labels of both generations.
    let labels = json!({
        "rancher.k8s.binbash.org/cluster-name": NAMESPACE,
        "rancher.k8s.binbash.org/service-namespace": "shop", "rancher.k8s.binbash.org/service-name": "web",
        "rancher.k8s.binbash.org/service-3-namespace": "shop", "rancher.k8s.binbash.org/service-3-name": "api",
    });
    rancher
        .patch_fip("nobody", json!({ "metadata": { "labels": labels } }))
        .await;
    let assigned = rancher
        .wait_fip("nobody", "is assigned", |fip| reason(fip) == "IPAssigned")
        .await;
    assert_eq!(
        assigned["status"]["assigned"]["services"],
        json!([
            { "serviceNamespace": "shop", "serviceName": "web" }, { "serviceNamespace": "shop", "serviceName": "api" },
        ])
    );
    let conditions = assigned["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1, "one entry per type");
}

/// Writes an annotation to both for as long as it is polled: their versions are never the ones that were read.
async fn keep_writing(rancher: &Rancher, pool: &str, names: &[String]) {
    let params = PatchParams::default();
    for round in 0.. {
        let note = json!({ "metadata": { "annotations": { "round": format!("{round}") } } });
        let patch = Patch::Merge(&note);
        rancher.pools.patch(pool, &params, &patch).await.unwrap();
        // What is in the status of a pool is nobody's source.
        let emptied = json!({ "status": { "allocated": null, "used": 0 } });
        let patch = Patch::Merge(&emptied);
        let written = rancher.pools.patch_status(pool, &params, &patch).await;
        written.unwrap();
        for name in names.iter().skip(round % 4).step_by(4) {
            let note = json!({ "metadata": { "annotations": { "round": format!("{round}") } } });
            // It may not be there yet.
            let _ = rancher
                .fips
                .patch(name, &params, &Patch::Merge(&note))
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_01_02_addresses_stay_apart_while_everything_is_written_all_the_time() {
    let rancher = Rancher::start().await;
    rancher
        .pool("net", "10.60.0.0/24", "10.60.0.1", "10.60.0.32", &[])
        .await;
    let names: Vec<String> = (0..32).map(|number| format!("fip-{number}")).collect();
    let asking = async {
        for name in &names {
            rancher.fip(name, "net", "").await;
        }
        let mut addresses = BTreeSet::new();
        for name in &names {
            let fip = rancher
                .wait_fip(name, "has an address", |fip| {
                    fip["status"]["state"] == "Allocated"
                })
                .await;
            let address = fip["status"]["ipAddr"].as_str().unwrap().to_owned();
            assert_eq!(fip["spec"]["ipAddr"], *address);
            addresses.insert(address);
        }
        // None was given twice, and no retry took a second one: the pool had exactly as many.
        assert_eq!(addresses.len(), names.len());
    };
    tokio::select! {
        () = keep_writing(&rancher, "net", &names) => {}
        () = asking => {}
    }
    wait_until("the pool shows all of them", DEADLINE, || async {
        let pool = rancher.pools.get("net").await;
        let status = json!(pool.map_err(|error| error.to_string())?.status);
        let allocated = status["allocated"].as_object().map_or(0, |all| all.len());
        let exact = allocated == 32 && status["used"] == 32 && status["available"].is_null();
        exact.then_some(()).ok_or_else(|| status.to_string())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_10_12_36_an_odd_pool_is_told_and_holds_nobody_up() {
    let rancher = Rancher::start().await;
    // The schema of the originals lets it through, and it ended three of their programs.
    let empty = json!({ "metadata": { "name": "empty" }, "spec": {} });
    rancher.apply("FloatingIPPool", empty).await;
    // Nobody counts its addresses one by one.
    rancher
        .pool(
            "six",
            "2001:db8::/64",
            "2001:db8::1",
            "2001:db8::ffff:ffff:ffff:ffff",
            &["2001:DB8::0002"],
        )
        .await;
    rancher
        .pool("one", "10.60.0.0/24", "10.60.0.10", "10.60.0.12", &[])
        .await;
    rancher
        .pool("two", "10.60.0.0/24", "10.60.0.12", "10.60.0.14", &[])
        .await;
    rancher
        .wait_condition("empty", "Ready", "False", "spec.ipConfig")
        .await;
    rancher.fip("waits", "empty", "").await;
    rancher.fip("first", "six", "").await;
    rancher.wait_address("first", "2001:db8::1").await;
    rancher.fip("second", "six", "").await;
    rancher.wait_address("second", "2001:db8::3").await;
    rancher.fip("shared", "one", "10.60.0.12").await;
    rancher.wait_address("shared", "10.60.0.12").await;
    rancher.fip("other", "two", "").await;
    rancher.wait_address("other", "10.60.0.13").await;
    let waits = rancher
        .wait_fip("waits", "is told", |fip| fip["status"]["state"] == "Error")
        .await;
    assert_eq!(reason(&waits), "AllocationFailed");

    let quota = json!({ "metadata": { "name": "p-b" }, "spec": { "displayName": "B", "floatingIPQuota": { "nowhere": 3 } } });
    rancher.apply("FloatingIPProjectQuota", quota).await;
    let client = rancher.scenario.site.rancher.client().await.unwrap();
    let events: Api<Event> = Api::all(client);
    wait_until("Events tell of pool and quota", DEADLINE, || async {
        let events = events.list(&ListParams::default()).await;
        let events = events.map_err(|error| error.to_string())?.items;
        let about = |kind: &str, part: &str| {
            events.iter().any(|event| {
                let regarding = event.regarding.as_ref();
                let note = event.note.as_deref().unwrap_or_default();
                regarding.is_some_and(|one| one.kind.as_deref() == Some(kind))
                    && note.contains(part)
            })
        };
        let told = [
            about("FloatingIPPool", "spec.ipConfig"),
            about("FloatingIPProjectQuota", "nowhere"),
        ];
        (told == [true, true])
            .then_some(())
            .ok_or_else(|| format!("{told:?}"))
    })
    .await
    .unwrap();
    let pool = json!({ "spec": { "ipConfig": { "subnet": "10.70.0.0/24", "pool": { "start": "10.70.0.5", "end": "10.70.0.9" } } } });
    let params = PatchParams::default();
    let patch = Patch::Merge(&pool);
    rancher.pools.patch("empty", &params, &patch).await.unwrap();
    rancher.wait_address("waits", "10.70.0.5").await;
}
