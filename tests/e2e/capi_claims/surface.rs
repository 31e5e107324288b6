//! What an admin sees: command, REST, page, series and alerts of the system.

use fipd_tests::alerts::{alerts, holding};
use fipd_tests::testbed::{Method, UnixConnection};

use super::*;

const HOOK: &str =
    "/hooks/management/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclustercreate/fipd-vip";
/// The hook is wanted, and nobody says where fipd is reached.
const SETTINGS: &str = "hook-patience = \"2s\"\n[cluster.cluster-api.hook]";

/// A Cluster without a ClusterClass that names a class for its pools.
fn cluster(class: &str) -> Value {
    let class = json!({ "vip.capi.gorizond.io/cluster-class": class });
    let network = json!({ "serviceDomain": "cluster.local" });
    json!({ "metadata": { "annotations": class }, "spec": { "clusterNetwork": network } })
}

/// A pool of one address for control planes of a class.
async fn pool_of_class(bed: &Bed, path: &str, class: &str, address: &str) {
    let labels = json!({
        "vip.capi.gorizond.io/cluster-class": class, "vip.capi.gorizond.io/role": "control-plane",
    });
    let spec = json!({ "addresses": [address], "prefix": 24 });
    let pool = json!({ "metadata": { "labels": labels }, "spec": spec });
    bed.objects.make(POOL, path, pool).await.unwrap();
}

/// Waits until a list has a row of this name that passes a test.
async fn list_row(bed: &Bed, list: &str, name: &str, test: impl Fn(&Value) -> bool) -> Value {
    wait_until(&format!("{name} in {list}"), DEADLINE, || async {
        let listed = bed.fipd.cli(["cluster-api", list, "-o", "json"]).await;
        let listed = listed.unwrap().json().unwrap();
        let rows = listed[list].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name);
        row.filter(|row| test(row))
            .cloned()
            .ok_or(listed.to_string())
    })
    .await
    .unwrap()
}

async fn series(bed: &Bed) -> String {
    bed.fipd.get("/metrics").await.unwrap().body
}

/// Waits until an alert fires, by its expression alone.
async fn fires(bed: &Bed, alert: &str, before: &str) -> Vec<String> {
    let expression = &alerts(alert).unwrap()[alert];
    wait_until(&format!("{alert} fires"), DEADLINE, || async {
        let now = series(bed).await;
        match holding(expression, before, &now).unwrap() {
            none if none.is_empty() => Err(format!("{expression}: {now}")),
            some => Ok(some),
        }
    })
    .await
    .unwrap()
}

/// What the hook answers to a Cluster of that age.
async fn hook_answer(bed: &Bed) -> Value {
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": { "name": "c", "namespace": "one", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "topology": { "classRef": { "name": "rke2" } } },
    });
    let request = json!({
        "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1",
        "kind": "BeforeClusterCreateRequest", "cluster": cluster,
    });
    asked(bed, &request).await
}

async fn asked(bed: &Bed, request: &Value) -> Value {
    let socket = bed.fipd.socket();
    let mut connection = UnixConnection::open(&socket).await.unwrap();
    let reply = connection.call(Method::POST, HOOK, Some(request)).await;
    serde_json::from_str(&reply.unwrap().body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_claims_and_pools_are_listed_with_what_they_lack() {
    let bed = Bed::alone("").await.unwrap();
    pool_of_class(&bed, "one/planes", "rke2", "10.40.0.10").await;
    let make = async |path: &str, class: &str| {
        let made = bed.objects.make("Cluster", path, cluster(class)).await;
        made.unwrap();
    };
    make("one/served", "rke2").await;
    // It has no pool for an ingress, and waits for that alone.
    let row = list_row(&bed, "clusters", "served", |row| {
        row["control_plane"] == "10.40.0.10" && row["reason"] == "PoolNotFound"
    });
    let row = row.await;
    for (field, value) in [
        ("cluster", json!("management")),
        ("namespace", json!("one")),
        ("api_version", json!("cluster.x-k8s.io/v1beta2")),
        ("endpoint", json!("10.40.0.10:6443")),
        ("control_plane_network", json!(0)),
        ("claims", json!(["vip-cp-served"])),
        ("mode", json!("annotation")),
        ("state", json!("waiting")),
        ("alarm", Value::Null),
        ("ingress", Value::Null),
    ] {
        assert_eq!(row[field], value, "{field}: {row}");
    }
    let message = row["message"].as_str().unwrap();
    assert!(message.contains("label an InClusterIPPool"), "{message}");
    let off = json!("false");
    let annotate = bed.objects.annotate(
        "Cluster",
        "one/served",
        "vip.capi.gorizond.io/ingress-enabled",
        off,
    );
    annotate.await.unwrap();
    let served = |row: &Value| row["state"] == "served" && row["waiting"] == false;
    list_row(&bed, "clusters", "served", served).await;
    // Another finds the pool full; one that names no class is left alone, and one that is paused is not looked at.
    make("one/late", "rke2").await;
    let waits = |row: &Value| row["reason"] == "ClaimPending" && row["control_plane"].is_null();
    list_row(&bed, "clusters", "late", waits).await;
    let claim = list_row(&bed, "claims", "vip-cp-late", |row| {
        row["reason"] == "PoolExhausted"
    });
    let claim = claim.await;
    assert_eq!(
        (&claim["of"], &claim["waiting"]),
        (&json!("late"), &json!(true))
    );
    let plain = lifecycle::cluster();
    bed.objects
        .make("Cluster", "one/plain", plain)
        .await
        .unwrap();
    let alone = |row: &Value| row["state"] == "left-alone" && row["reason"] == "NoClass";
    list_row(&bed, "clusters", "plain", alone).await;
    let mut paused = cluster("rke2");
    paused["spec"]["paused"] = json!(true);
    bed.objects
        .make("Cluster", "one/paused", paused)
        .await
        .unwrap();
    list_row(&bed, "clusters", "paused", |row| row["state"] == "paused").await;
    let pool = list_row(&bed, "pools", "planes", |row| row["free"] == 0).await;
    assert_eq!(pool["serves"], json!(["rke2 control-plane"]), "{pool}");
    let claim = list_row(&bed, "claims", "vip-cp-served", |row| {
        row["ready"] == "True"
    })
    .await;
    assert_eq!(claim["pool_id"], pool["pool_id"], "{claim} {pool}");
    assert_eq!(claim["address_network"], 0, "{claim}");

    let page = bed
        .fipd
        .get("/api/v1/cluster-api/clusters?limit=1")
        .await
        .unwrap();
    let page: Value = serde_json::from_str(&page.body).unwrap();
    assert_eq!(page["clusters"].as_array().unwrap().len(), 1, "{page}");
    assert!(page["next"].is_string(), "{page}");
    let document = bed.fipd.get("/api/v1/openapi.json").await.unwrap();
    let document: Value = serde_json::from_str(&document.body).unwrap();
    let get = &document["paths"]["/api/v1/cluster-api/clusters"]["get"];
    let schema = &get["responses"]["200"]["content"]["application/json"]["schema"];
    let fields = &schema["properties"]["clusters"]["items"]["properties"];
    assert!(fields["control_plane"].is_object(), "{schema}");
    let table = bed.fipd.cli(["cluster-api", "clusters"]).await.unwrap();
    let table = table.success().unwrap();
    assert!(
        table.contains("CONTROL PLANE") && table.contains("10.40.0.10"),
        "{table}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_alert_of_the_system_fires_by_what_it_is_about() {
    let mut bed = Bed::prepare(SETTINGS).await.unwrap();
    let lease = |holder: &str, seconds: u32, renewed: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "7bb7acb4.ipam.cluster.x-k8s.io", "namespace": "capi-ipam-in-cluster-system" },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed },
        })
    };
    let held = lease("stock", 3600, "2126-01-01T00:00:00.000000Z").to_string();
    bed.plane.0.apply(&held).await.unwrap();
    bed.restart().await.unwrap();
    let mut fired = vec!["FipdClusterApiLeasesNotHeld"];
    fires(&bed, "FipdClusterApiLeasesNotHeld", "").await;
    let free = lease("", 1, "2026-01-01T00:00:00.000000Z").to_string();
    bed.plane.0.apply(&free).await.unwrap();

    pool_of_class(&bed, "one/planes", "rke2", "10.41.0.10").await;
    let make = bed.objects.make("Cluster", "one/c", cluster("rke2"));
    make.await.unwrap();
    let quiet = |row: &Value| row["ready"] == "True";
    list_row(&bed, "claims", "vip-cp-c", quiet).await;
    let served = |row: &Value| row["endpoint"] == "10.41.0.10:6443";
    list_row(&bed, "clusters", "c", served).await;
    let calm = series(&bed).await;
    for (alert, expression) in alerts("FipdClusterApi").unwrap() {
        let holds = holding(&expression, &calm, &calm).unwrap();
        let trouble = alert == "FipdClusterApiHookNotInForce";
        assert!(trouble || holds.is_empty(), "{alert}: {holds:?}");
    }

    bed.claim("one/more", (POOL, "planes")).await.unwrap();
    let other = json!({ "spec": { "controlPlaneEndpoint": { "host": "10.41.0.99" } } });
    bed.objects.merge("Cluster", "one/c", other).await.unwrap();
    assert_ne!(hook_answer(&bed).await["retryAfterSeconds"], 0);
    wait_until("the hook gives up", DEADLINE, || async {
        let answer = hook_answer(&bed).await;
        let gave_up = answer["retryAfterSeconds"] == 0;
        gave_up.then_some(()).ok_or(answer)
    })
    .await
    .unwrap();
    assert_eq!(asked(&bed, &json!({})).await["status"], "Failure");
    for (alert, part) in [
        ("FipdClusterApiPoolExhausted", "phase=\"waiting\""),
        ("FipdClusterApiClaimWaiting", "reason=\"PoolExhausted\""),
        ("FipdClusterApiEndpointDiffers", "name=\"c\""),
        ("FipdClusterApiHookFailing", "result=\"failure\""),
        ("FipdClusterApiCreationHeld", "result=\"wait\""),
        ("FipdClusterApiHookGaveUp", "result=\"gave-up\""),
        ("FipdClusterApiHookNotInForce", "part=\"runtime-hook\""),
    ] {
        let samples = fires(&bed, alert, &calm).await;
        assert!(samples[0].contains(part), "{alert}: {samples:?}");
        fired.push(alert);
    }
    let all = alerts("FipdClusterApi").unwrap();
    assert!(
        all.keys().all(|one| fired.contains(&one.as_str())),
        "{all:?}"
    );
    // What has gone wrong is said, and the alarm of a drift is none of waiting.
    let row = list_row(&bed, "clusters", "c", |row| {
        row["reason"] == "EndpointDiffers"
    })
    .await;
    assert!(row["alarm"].is_string() && row["message"] != "", "{row}");
    // An IPAddress of a claim that is gone, in a pool with a grace.
    let grace =
        json!({ "addresses": ["10.42.0.10"], "prefix": 24, "addressReuseGracePeriodSeconds": 600 });
    bed.objects.pool("one/slow", grace).await.unwrap();
    bed.claim("one/brief", (POOL, "slow")).await.unwrap();
    bed.address("one/brief").await.unwrap();
    bed.objects.delete(CLAIM, "one/brief").await.unwrap();
    wait_until("the address is in its grace", DEADLINE, || async {
        let now = series(&bed).await;
        let found = now.contains("fipd_cluster_api_addresses_in_grace 1");
        found.then_some(()).ok_or(now)
    })
    .await
    .unwrap();
}
