//! Own pools as objects of the clusters that ask for them.

use fipd_crds::fipd_io::Pool;

use super::*;

struct Pools(Api<Pool>);

impl Pools {
    async fn of(bench: &Bench, cluster: &str) -> Self {
        Self(Api::all(bench.planes[cluster].client().await.unwrap()))
    }

    async fn wait(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        let what = format!("pool {name}: {what}");
        wait_object(&what, DEADLINE, (&self.0, name), test)
            .await
            .unwrap()
    }

    async fn ready(&self, name: &str) -> Value {
        self.wait(name, "is ready", |pool| reason(pool) == "Mirrored")
            .await
    }

    async fn gone(&self, name: &str) {
        wait_until(&format!("pool {name} is gone"), DEADLINE, || async {
            match self
                .0
                .get_opt(name)
                .await
                .map_err(|error| error.to_string())?
            {
                None => Ok(()),
                Some(pool) => Err(json!(pool).to_string()),
            }
        })
        .await
        .unwrap();
    }

    async fn merge(&self, name: &str, patch: Value) {
        self.0
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }
}

fn uid(pool: &Value) -> &str {
    pool["metadata"]["uid"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_own_pool_is_an_object_that_stays_the_same() {
    let mut bench = Bench::start(&["a"], "pools = [\"lab*\"]\ndefault-pool = \"lab\"").await;
    let pools = Pools::of(&bench, "a").await;
    // An object of another's is left alone, and nothing that is not asked for is mirrored.
    let theirs = json!({
        "apiVersion": "fipd.io/v1alpha1", "kind": "Pool", "metadata": { "name": "lab-theirs" },
        "spec": { "addresses": ["10.99.0.0/24"] },
    });
    bench.planes["a"].apply(&theirs.to_string()).await.unwrap();
    bench.pool("lab-theirs", "10.76.0.0/29", "10.76.0.1").await;
    bench.pool("office", "10.77.0.0/29", "10.77.0.1").await;
    bench.pool("lab_x", "10.78.0.0/29", "10.78.0.1").await;
    bench.pool("lab", "10.75.0.0/29", "10.75.0.1").await;
    let lab = pools.ready("lab").await;
    let first = uid(&lab).to_owned();
    assert_eq!(lab["spec"]["addresses"], json!(["10.75.0.0/29"]));
    assert_eq!(lab["spec"]["gateway"], "10.75.0.1");
    assert_eq!(
        (&lab["status"]["total"], &lab["status"]["free"]),
        (&json!(5), &json!(5))
    );

    let claims = bench.namespace("a", "one").await;
    claims
        .make("web", json!({ "poolRef": { "name": "lab" } }))
        .await;
    claims.address("web").await;
    pools
        .wait("lab", "counts", |pool| pool["status"]["used"] == 1)
        .await;

    // What others write is put back, in the time of an edit of the pool as well.
    pools
        .merge(
            "lab",
            json!({ "spec": { "addresses": ["10.1.0.0/24"], "exclusions": ["10.1.0.9"] } }),
        )
        .await;
    let right = |pool: &Value| {
        pool["spec"]["addresses"] == json!(["10.75.0.0/29"]) && pool["spec"]["exclusions"].is_null()
    };
    pools.wait("lab", "is put right", right).await;
    bench
        .fipd(["pool", "update", "lab", "--cidr", "10.75.0.0/28"])
        .await;
    pools
        .wait("lab", "is wider", |pool| pool["status"]["total"] == 13)
        .await;

    // It survives fipd and its store: others refer to it by its UID. It says what another load balancer allocates of it.
    let kube_vip = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "kubevip", "namespace": "kube-system" },
        "data": { "cidr-global": "10.75.0.8/30" },
    });
    bench.planes["a"]
        .apply(&kube_vip.to_string())
        .await
        .unwrap();
    bench.fipd.restart().await.unwrap();
    assert_eq!(uid(&pools.ready("lab").await), first);
    let shared = |pool: &Value| {
        let conditions = pool["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let message = conditions.find(|one| one["type"] == "SharedRange")?["message"].as_str()?;
        Some(message.contains("kube-system/kubevip"))
    };
    pools
        .wait("lab", "shares a range", |pool| shared(pool) == Some(true))
        .await;
    bench.fipd.kill9().unwrap();
    std::fs::remove_dir_all(bench.fipd.data_dir()).unwrap();
    bench.fipd.restart().await.unwrap();
    let unknown = pools
        .wait("lab", "has no pool", |pool| reason(pool) == "Unknown")
        .await;
    assert_eq!(uid(&unknown), first);
    bench.pool("lab", "10.75.0.0/28", "10.75.0.1").await;
    let again = pools
        .wait("lab", "is adopted", |pool| pool["status"]["used"] == 1)
        .await;
    assert_eq!(uid(&again), first);

    // Deleted by somebody, it is made again; a finalizer of others is respected.
    pools
        .merge(
            "lab",
            json!({ "metadata": { "finalizers": ["example.net/mine"] } }),
        )
        .await;
    pools
        .0
        .delete("lab", &DeleteParams::default())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(uid(&json!(pools.0.get("lab").await.unwrap())), first);
    pools
        .merge("lab", json!({ "metadata": { "finalizers": null } }))
        .await;
    let new = pools.wait("lab", "is made again", |pool| {
        uid(pool) != first && reason(pool) == "Mirrored"
    });
    new.await;

    // It goes with its pool.
    claims.delete("web").await;
    claims.gone("web").await;
    bench.fipd(["pool", "delete", "lab"]).await;
    pools.gone("lab").await;
    let rest = pools.0.list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = rest
        .into_iter()
        .map(|pool| (pool.metadata.name.unwrap(), pool.spec.addresses))
        .collect();
    assert_eq!(
        names,
        [("lab-theirs".to_owned(), vec!["10.99.0.0/24".to_owned()])]
    );
}
