//! Pool and NamespacedPool objects of others, as sources of pools.

use super::*;

/// A pool object of a cluster's own.
async fn apply(bench: &Bench, kind: &str, meta: Value, spec: Value) {
    let object = json!({
        "apiVersion": "fipd.io/v1alpha1", "kind": kind, "metadata": meta, "spec": spec,
    });
    bench.planes["a"].apply(&object.to_string()).await.unwrap();
}

async fn wait(bench: &Bench, path: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
    let client = bench.planes["a"].client().await.unwrap();
    wait_until(&format!("{path}: {what}"), DEADLINE, || async {
        let request = http::Request::get(format!("/apis/fipd.io/v1alpha1/{path}"));
        let request = request.body(Vec::new()).unwrap();
        let object: Result<Value, _> = client.request(request).await;
        let object = object.unwrap_or_else(|error| json!({ "gone": error.to_string() }));
        if test(&object) {
            Ok(object)
        } else {
            Err(object.to_string())
        }
    })
    .await
    .unwrap()
}

fn says(object: &Value, wanted: &str, part: &str) -> bool {
    let message = &object["status"]["conditions"][0]["message"];
    reason(object) == wanted && message.as_str().is_some_and(|text| text.contains(part))
}

fn mirrored(pool: &Value) -> bool {
    reason(pool) == "Mirrored" && pool["metadata"]["finalizers"].is_array()
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_of_a_cluster_and_of_a_namespace() {
    let mut bench = Bench::start(&["a"], "pool-objects = true").await;
    let (one, two) = (
        bench.namespace("a", "one").await,
        bench.namespace("a", "two").await,
    );
    let spec = |cidr: &str| json!({ "addresses": [cidr], "gateway": "10.80.0.1" });
    apply(
        &bench,
        "Pool",
        json!({ "name": "site" }),
        spec("10.80.0.0/29"),
    )
    .await;
    let own = json!({ "name": "mine", "namespace": "one" });
    let addresses = json!({ "addresses": ["10.81.0.0/29"], "network": "theirs" });
    apply(&bench, "NamespacedPool", own, addresses).await;
    wait(&bench, "pools/site", "is taken", |pool| {
        reason(pool) == "Mirrored"
    })
    .await;
    let mine = |pool: &Value| says(pool, "Mirrored", "is ignored") && pool["status"]["total"] == 6;
    wait(
        &bench,
        "namespaces/one/namespacedpools/mine",
        "is taken",
        mine,
    )
    .await;

    for (claims, name) in [(&one, "a"), (&two, "b"), (&two, "c")] {
        claims
            .make(name, json!({ "poolRef": { "name": "site" } }))
            .await;
        claims.address(name).await;
    }
    let mine = json!({ "poolRef": { "kind": "NamespacedPool", "name": "mine" } });
    one.make("mine", mine.clone()).await;
    assert_eq!(one.address("mine").await, "10.81.0.1");
    two.make("mine", mine).await;
    two.reason("mine", "PoolNotFound").await;
    wait(&bench, "pools/site", "counts", |pool| {
        pool["status"]["used"] == 3
    })
    .await;

    // What cannot be taken as written changes nothing.
    let wrong = json!({ "addresses": ["10.80.0.0/29"], "prefixLength": 64 });
    apply(&bench, "Pool", json!({ "name": "site" }), wrong).await;
    wait(&bench, "pools/site", "is refused", |pool| {
        says(pool, "Refused", "prefix")
    })
    .await;
    apply(
        &bench,
        "Pool",
        json!({ "name": "site" }),
        json!({ "addresses": ["10.80.0.4/30"] }),
    )
    .await;
    let small = |pool: &Value| says(pool, "Refused", "10.80.0.2") && pool["status"]["total"] == 5;
    wait(&bench, "pools/site", "is too small", small).await;
    one.make("d", json!({ "poolRef": { "name": "site" } }))
        .await;
    assert_eq!(one.address("d").await, "10.80.0.5");
    apply(
        &bench,
        "Pool",
        json!({ "name": "site" }),
        spec("10.80.0.0/28"),
    )
    .await;
    wait(&bench, "pools/site", "is wider", |pool| {
        pool["status"]["total"] == 13
    })
    .await;

    // Switched off, objects are let go and pools are closed; leases stay. Switched on again, all is as before.
    bench.set("pool-objects = true", "pool-objects = false");
    for path in ["pools/site", "namespaces/one/namespacedpools/mine"] {
        let off = |pool: &Value| {
            says(pool, "Off", "pool-objects is off") && pool["metadata"]["finalizers"].is_null()
        };
        wait(&bench, path, "is let go", off).await;
    }
    one.make("closed", json!({ "poolRef": { "name": "site" } }))
        .await;
    one.reason("closed", "PoolNotFound").await;
    assert_eq!(one.address("d").await, "10.80.0.5");
    bench.set("pool-objects = false", "pool-objects = true");
    wait(
        &bench,
        "namespaces/one/namespacedpools/mine",
        "is back",
        mirrored,
    )
    .await;
    wait(&bench, "pools/site", "is back", mirrored).await;
    one.address("closed").await;
    one.delete("closed").await;
    one.gone("closed").await;

    // It goes when nobody holds an address of it, and says who does.
    let client = bench.planes["a"].client().await.unwrap();
    let pools: Api<fipd_crds::fipd_io::Pool> = Api::all(client);
    pools
        .delete("site", &DeleteParams::default())
        .await
        .unwrap();
    wait(&bench, "pools/site", "is in use", |pool| {
        says(pool, "InUse", "AddressClaim/two/b")
    })
    .await;
    two.make("late", json!({ "poolRef": { "name": "site" } }))
        .await;
    two.reason("late", "PoolNotFound").await;
    for (claims, name) in [(&one, "a"), (&two, "b"), (&two, "c"), (&one, "d")] {
        claims.delete(name).await;
    }
    wait(&bench, "pools/site", "is gone", |pool| {
        !pool["gone"].is_null()
    })
    .await;
    let left = bench.fipd(["pool", "list"]).await;
    assert!(
        !left.contains("claims/a/site") && left.contains("claims/a/one/mine"),
        "{left}"
    );
}
