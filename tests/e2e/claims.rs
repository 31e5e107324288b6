//! Claims of users of any cluster, answered from the ledger.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fipd_crds::fipd_io::AddressClaim;
use fipd_tests::say::progress;
use fipd_tests::testbed::{
    Baseline, ControlPlane, ControlPlaneOptions, Fault, FaultProxy, Fipd, FipdOptions, ForAllTests,
    RESTRICTED_USER, wait_object, wait_until,
};
use futures::{StreamExt, stream};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::MappedMutexGuard;

const DEADLINE: Duration = Duration::from_secs(60);
const ROLE: &str = include_str!("../../packaging/rbac/claims.yaml");

#[path = "claims/pools.rs"]
mod pools;
#[path = "claims/sources.rs"]
mod sources;

static GROUND: ForAllTests<Ground> = ForAllTests::new();

/// The clusters `a` and `b` with two namespaces each, and what they had when they were new.
struct Ground {
    planes: BTreeMap<String, ControlPlane>,
    before: Vec<Baseline>,
}

/// Some of them are served by fipd, which has no more rights in them than the role gives.
struct Bench {
    // Dropped in this order: fipd ends before another test has the clusters.
    fipd: Fipd,
    config: String,
    planes: MappedMutexGuard<'static, BTreeMap<String, ControlPlane>>,
}

fn definitions() -> String {
    let texts = fipd_crds::MANIFESTS.iter();
    let own = texts.filter(|(name, _)| name.starts_with("fipd.io_"));
    own.map(|(_, text)| format!("---\n{text}")).collect()
}

fn rights() -> String {
    let binding = |role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": role },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": RESTRICTED_USER }],
        })
        .to_string()
    };
    let namespace = |name: &str| {
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }).to_string()
    };
    [
        ROLE.into(),
        binding("fipd-claims"),
        binding("fipd-claims-pool-objects"),
        namespace("one"),
        namespace("two"),
    ]
    .join("\n---\n")
}

impl Ground {
    async fn start() -> anyhow::Result<Self> {
        let options = ControlPlaneOptions::default();
        let all = ControlPlane::start_many(&["a", "b"], &options).await?;
        let (mut planes, mut before) = (BTreeMap::new(), Vec::new());
        for plane in all {
            plane.install_crds(&definitions()).await?;
            plane.apply(&rights()).await?;
            before.push(plane.baseline().await?);
            planes.insert(plane.name().to_owned(), plane);
        }
        Ok(Self { planes, before })
    }

    async fn clean(&self) -> anyhow::Result<()> {
        for (plane, before) in self.planes.values().zip(&self.before) {
            plane.return_to(before).await?;
        }
        Ok(())
    }
}

impl Bench {
    async fn start(names: &[&str], settings: &str) -> Self {
        let mut ground = GROUND.take(Ground::start).await.unwrap();
        let cleaned = ground.clean().await;
        if let Err(error) = cleaned {
            progress(format_args!("the servers are started anew: {error:#}"));
            *ground = Ground::start().await.unwrap();
        }
        let planes = MappedMutexGuard::map(ground, |ground| &mut ground.planes);
        let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
        let mut config = String::new();
        for name in names {
            let kubeconfig = planes[*name].kubeconfig_of(RESTRICTED_USER);
            fipd.write_file(&format!("{name}.kubeconfig"), &kubeconfig)
                .unwrap();
            config.push_str(&format!(
                "[[cluster]]\nname = \"{name}\"\nkubeconfig = \"{name}.kubeconfig\"\nsystems = [\"claims\"]\n\
                 [cluster.claims]\n{settings}\n"
            ));
        }
        fipd.write_config(&config).unwrap();
        fipd.restart().await.unwrap();
        fipd.wait_ready(DEADLINE).await.unwrap();
        Self {
            fipd,
            config,
            planes,
        }
    }

    /// Other settings in the configuration of all clusters, while fipd runs.
    fn set(&mut self, from: &str, to: &str) {
        self.config = self.config.replace(from, to);
        self.fipd.write_config(&self.config).unwrap();
    }

    async fn fipd<const N: usize>(&self, arguments: [&str; N]) -> String {
        self.fipd.cli(arguments).await.unwrap().success().unwrap()
    }

    async fn pool(&self, name: &str, cidr: &str, gateway: &str) {
        self.fipd(["pool", "create", name, "--cidr", cidr, "--gateway", gateway])
            .await;
    }

    /// The pool `lab` in a network of its own.
    async fn blue_pool(&self) {
        self.fipd(["network", "create", "blue"]).await;
        let cidr = "10.73.0.0/24";
        self.fipd(["pool", "create", "lab", "--cidr", cidr, "--network", "blue"])
            .await;
    }

    async fn namespace(&self, cluster: &str, namespace: &str) -> Claims {
        let client = self.planes[cluster].client().await.unwrap();
        Claims(Api::namespaced(client, namespace))
    }

    async fn limit(&self, tenant: &str, limit: &str) {
        let quota = [
            "quota", "set", "--pool", "lab", "--tenant", tenant, "--limit", limit,
        ];
        self.fipd(quota).await;
    }

    /// Who is charged for each address.
    async fn tenants(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let leases = self.leases().await.into_iter();
        leases
            .map(|lease| (text(&lease["address"]), text(&lease["tenant"])))
            .collect()
    }

    /// Waits until one of the clusters is in use and so.
    async fn until_cluster(&self, what: &str, so: impl Fn(&Value) -> bool) {
        let so = &so;
        let found = wait_until(what, DEADLINE, || async move {
            let listed = self.fipd(["clusters", "list", "-o", "json"]).await;
            let listed: Value = serde_json::from_str(&listed).unwrap();
            let mut clusters = listed["clusters"].as_array().unwrap().iter();
            let found = clusters.any(|one| one["state"] == "ready" && so(one));
            found.then_some(()).ok_or(listed.to_string())
        });
        found.await.unwrap();
    }

    /// All leases as fipd lists them.
    async fn leases(&self) -> Vec<Value> {
        let listed = self
            .fipd
            .cli(["lease", "list", "-o", "json"])
            .await
            .unwrap()
            .json()
            .unwrap();
        let leases = listed["leases"].as_array().or(listed.as_array());
        leases.unwrap().clone()
    }
}

/// The claims of a namespace.
#[derive(Clone)]
struct Claims(Api<AddressClaim>);

impl Claims {
    async fn make(&self, name: &str, spec: Value) {
        let claim: AddressClaim = serde_json::from_value(json!({
            "apiVersion": "fipd.io/v1alpha1", "kind": "AddressClaim", "metadata": { "name": name }, "spec": spec,
        }))
        .unwrap();
        self.0.create(&PostParams::default(), &claim).await.unwrap();
    }

    async fn wait(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        let what = format!("claim {name}: {what}");
        wait_object(&what, DEADLINE, (&self.0, name), test)
            .await
            .unwrap()
    }

    async fn address(&self, name: &str) -> String {
        let claim = self.wait(name, "has an address", |claim| reason(claim) == "Allocated");
        claim.await["status"]["address"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    async fn reason(&self, name: &str, wanted: &str) -> Value {
        let what = format!("says {wanted}");
        self.wait(name, &what, |claim| reason(claim) == wanted)
            .await
    }

    async fn patch_status(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.0
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn delete(&self, name: &str) {
        self.0.delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn gone(&self, name: &str) {
        wait_until(&format!("claim {name} is gone"), DEADLINE, || async {
            match self
                .0
                .get_opt(name)
                .await
                .map_err(|error| error.to_string())?
            {
                None => Ok(()),
                Some(claim) => Err(json!(claim).to_string()),
            }
        })
        .await
        .unwrap();
    }

    /// The address of each claim; `None` while one has none.
    async fn addresses(&self) -> BTreeMap<String, Option<String>> {
        let claims = self.0.list(&ListParams::default()).await.unwrap();
        let address = |claim: AddressClaim| {
            let address = claim.status.unwrap_or_default().address;
            let name = claim.metadata.name.unwrap();
            (name, (!address.is_empty()).then_some(address))
        };
        claims.into_iter().map(address).collect()
    }

    /// The addresses once all claims have one.
    async fn all(&self, count: usize) -> BTreeMap<String, String> {
        wait_until(
            &format!("{count} claims are served"),
            DEADLINE * 2,
            || async {
                let addresses = self.addresses().await;
                let served: BTreeMap<String, String> = addresses
                    .into_iter()
                    .filter_map(|(name, address)| Some((name, address?)))
                    .collect();
                if served.len() == count {
                    Ok(served)
                } else {
                    Err(format!("{} are served", served.len()))
                }
            },
        )
        .await
        .unwrap()
    }
}

fn reason(claim: &Value) -> &str {
    condition(claim, "Ready")["reason"].as_str().unwrap_or("")
}

fn condition<'a>(claim: &'a Value, kind: &str) -> &'a Value {
    let conditions = claim["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let one = conditions.find(|one| one["type"] == kind);
    one.unwrap_or(&Value::Null)
}

fn distinct(addresses: &BTreeMap<String, String>) -> bool {
    addresses.values().collect::<BTreeSet<_>>().len() == addresses.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_gets_an_address_and_gives_it_back() {
    let bench = Bench::start(&["a"], "pools = [\"lab*\"]\ndefault-pool = \"lab\"").await;
    let (one, two) = (
        bench.namespace("a", "one").await,
        bench.namespace("a", "two").await,
    );
    // First the claim, then its pool.
    one.make("any", json!({})).await;
    one.reason("any", "PoolNotFound").await;
    bench.pool("lab", "10.70.0.0/29", "10.70.0.1").await;
    bench.pool("office", "10.71.0.0/29", "10.71.0.1").await;
    assert_eq!(one.address("any").await, "10.70.0.2");
    let any = one.wait("any", "is whole", |_| true).await;
    let status = &any["status"];
    assert_eq!(
        (
            &status["prefixLength"],
            &status["gateway"],
            &status["pool"],
            &status["network"]
        ),
        (
            &json!(29),
            &json!("10.70.0.1"),
            &json!("lab"),
            &json!("default")
        )
    );
    assert_eq!(any["metadata"]["finalizers"], json!(["fipd.io/address"]));
    let leases = bench.leases().await;
    assert_eq!(leases[0]["tenant"], "a/one", "{leases:?}");

    // A named address, a taken one, and a pool that the cluster may not use.
    one.make(
        "named",
        json!({ "poolRef": { "name": "lab" }, "address": "10.70.0.5" }),
    )
    .await;
    assert_eq!(one.address("named").await, "10.70.0.5");
    two.make("same", json!({ "address": "10.70.0.5" })).await;
    two.reason("same", "AddressTaken").await;
    two.make("secret", json!({ "poolRef": { "name": "office" } }))
        .await;
    two.reason("secret", "PoolNotFound").await;
    two.make("outside", json!({ "address": "10.99.0.5" })).await;
    two.reason("outside", "AddressNotAssignable").await;

    // What is written by hand is put back, and nothing is written without need.
    one.patch_status("any", json!({ "address": "10.70.0.6", "pool": "mine" }))
        .await;
    let back = one.wait("any", "is put right", |claim| {
        claim["status"]["address"] == "10.70.0.2" && claim["status"]["pool"] == "lab"
    });
    let version = back.await["metadata"]["resourceVersion"].clone();

    // A taken address goes to who named it, and a full pool serves the next as soon as one goes.
    one.delete("named").await;
    one.gone("named").await;
    assert_eq!(two.address("same").await, "10.70.0.5");
    for name in ["third", "fourth", "fifth"] {
        two.make(name, json!({})).await;
        two.address(name).await;
    }
    two.make("last", json!({})).await;
    let full = two.reason("last", "PoolExhausted").await;
    assert_eq!(full["status"]["address"], Value::Null);
    two.delete("third").await;
    two.gone("third").await;
    two.address("last").await;
    let now = one.wait("any", "is as before", |_| true).await;
    assert_eq!(now["metadata"]["resourceVersion"], version);
    let held = bench.leases().await;
    assert_eq!(held.len(), 5, "{held:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_holds_and_a_finalizer_comes_back() {
    let bench = Bench::start(&["a"], "pools = [\"lab\"]\ndefault-pool = \"lab\"").await;
    bench.pool("lab", "10.74.0.0/29", "10.74.0.1").await;
    bench.limit("a/one", "1").await;
    let claims = bench.namespace("a", "one").await;
    claims.make("first", json!({})).await;
    let address = claims.address("first").await;
    claims.make("second", json!({})).await;
    let refused = claims.reason("second", "QuotaExceeded").await;
    assert_eq!(refused["status"]["address"], Value::Null);
    bench.limit("a/one", "2").await;
    claims.address("second").await;

    // Stripped by hand: the claim keeps its address, and gives it back when it goes.
    let strip = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let params = PatchParams::default();
    claims.0.patch("first", &params, &strip).await.unwrap();
    claims
        .wait("first", "is protected again", |claim| {
            claim["metadata"]["finalizers"] == json!(["fipd.io/address"])
        })
        .await;
    assert_eq!(claims.address("first").await, address);
    claims.delete("first").await;
    claims.gone("first").await;
    let left = bench.leases().await;
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_never_share_an_address_nor_a_trouble() {
    let mut bench = Bench::start(&["a", "b"], "pools = [\"*\"]\ndefault-pool = \"lab\"").await;
    bench.pool("lab", "10.72.0.0/24", "10.72.0.1").await;
    let (a, b) = (
        bench.namespace("a", "one").await,
        bench.namespace("b", "one").await,
    );
    for number in 0..20 {
        let name = format!("claim-{number}");
        futures::future::join(a.make(&name, json!({})), b.make(&name, json!({}))).await;
    }
    let mut all = a.all(20).await;
    for (name, address) in b.all(20).await {
        all.insert(format!("b-{name}"), address);
    }
    assert_eq!(all.len(), 40);
    assert!(distinct(&all), "{all:?}");

    // A cluster that swallows everything it is sent delays nobody.
    let proxy: FaultProxy = bench.planes["b"].fault_proxy().unwrap();
    bench
        .fipd
        .write_file("b.kubeconfig", proxy.kubeconfig_yaml())
        .unwrap();
    bench.fipd.restart().await.unwrap();
    b.make("through", json!({})).await;
    b.address("through").await;
    proxy.set(Fault::BlackHole);
    b.make("waits", json!({})).await;
    let begun = std::time::Instant::now();
    a.make("quick", json!({})).await;
    let quick = a.address("quick").await;
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert!(!all.values().any(|address| *address == quick));
    proxy.set(Fault::Pass);
    b.address("waits").await;
}

/// Two hundred claims, three kills, a lost store.
#[tokio::test(flavor = "multi_thread")]
async fn claims_outlive_kills_and_a_lost_store() {
    let mut bench = Bench::start(&["a"], "pools = [\"*\"]\ndefault-pool = \"lab\"").await;
    bench.blue_pool().await;
    let claims = bench.namespace("a", "one").await;
    let makers = {
        let claims = claims.clone();
        tokio::spawn(async move {
            let makes = stream::iter(0..200).map(|number| {
                let claims = claims.clone();
                async move { claims.make(&format!("claim-{number:03}"), json!({})).await }
            });
            makes.buffer_unordered(4).collect::<Vec<()>>().await;
        })
    };
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        bench.fipd.restart().await.unwrap();
    }
    makers.await.unwrap();
    let before = claims.all(200).await;
    assert!(distinct(&before), "{before:?}");
    assert_eq!(bench.leases().await.len(), 200);

    // One goes while nobody looks.
    bench.fipd.kill9().unwrap();
    claims.delete("claim-000").await;
    bench.fipd.restart().await.unwrap();
    claims.gone("claim-000").await;

    // The store is lost, and meanwhile one claim was made to show the address of another.
    bench.fipd.kill9().unwrap();
    std::fs::remove_dir_all(bench.fipd.data_dir()).unwrap();
    let taken = before["claim-002"].clone();
    let shown = claims
        .wait("claim-002", "shows its network", |_| true)
        .await;
    assert_eq!(shown["status"]["network"], "blue");
    claims
        .patch_status("claim-001", json!({ "address": taken }))
        .await;
    bench.fipd.restart().await.unwrap();
    bench.blue_pool().await;
    claims.make("new", json!({})).await;
    let new = claims.address("new").await;
    let contended = |claim: &Value| {
        let conditions = claim["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "AddressConflict")
    };
    claims
        .wait("claim-001", "knows of the clash", contended)
        .await;
    claims
        .wait("claim-002", "knows of the clash", contended)
        .await;
    let after = claims.addresses().await;
    for (name, address) in &before {
        if !["claim-000", "claim-001"].contains(&name.as_str()) {
            assert_eq!(after[name].as_ref(), Some(address), "{name}");
            assert_ne!(*address, new, "{name}");
        }
    }
    assert_eq!(
        bench.leases().await.len(),
        199,
        "198 claims with addresses of their own, and the new one"
    );
}

/// The cluster goes by another name, so that its claims are of other tenants.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_follows_its_tenant_as_far_as_that_has_room() {
    let settings = "pools = [\"lab*\"]\ndefault-pool = \"lab\"";
    let mut bench = Bench::start(&["a"], settings).await;
    bench.planes["a"].grant_identity().await.unwrap();
    bench.pool("lab", "10.70.0.0/29", "10.70.0.1").await;
    bench.limit("b/one", "1").await;
    let (one, two) = (
        bench.namespace("a", "one").await,
        bench.namespace("a", "two").await,
    );
    one.make("first", json!({})).await;
    let first = one.address("first").await;
    one.make("second", json!({})).await;
    let second = one.address("second").await;
    two.make("other", json!({})).await;
    let other = two.address("other").await;
    let before = BTreeMap::from([
        (first.clone(), "a/one".to_owned()),
        (second.clone(), "a/one".to_owned()),
        (other.clone(), "a/two".to_owned()),
    ]);
    assert_eq!(bench.tenants().await, before);

    let proves_itself = |cluster: &Value| cluster["troubles"].get("identity").is_none();
    bench
        .until_cluster("is told from its clones", proves_itself)
        .await;

    bench.set("name = \"a\"", "name = \"b\"");
    let stays_charged = |claim: &Value| condition(claim, "TenantCharged")["status"] == "False";
    let stays = wait_until("one of two is charged", DEADLINE, || async {
        let claims = one.0.list(&ListParams::default()).await;
        let claims = claims.map_err(|error| error.to_string())?;
        let stay = claims.items.into_iter().map(|claim| json!(claim));
        let stay: Vec<Value> = stay.filter(|claim| stays_charged(claim)).collect();
        match stay.as_slice() {
            [one] if bench.tenants().await[&other] == "b/two" => Ok(one.clone()),
            _ => Err(format!("{:?}", bench.tenants().await)),
        }
    });
    let stays = stays.await.unwrap();
    let why = condition(&stays, "TenantCharged")["message"].to_string();
    assert!(
        why.contains("stays charged") && why.contains("quota exceeded"),
        "{why}"
    );
    assert_eq!(reason(&stays), "Allocated", "it keeps its address");
    let now = bench.tenants().await;
    let mut of_one = [now[&first].as_str(), now[&second].as_str()];
    of_one.sort_unstable();
    assert_eq!(of_one, ["a/one", "b/one"]);

    // There is room now.
    bench.limit("b/one", "2").await;
    for (name, address) in [("first", &first), ("second", &second)] {
        let follows = |claim: &Value| !stays_charged(claim) && reason(claim) == "Allocated";
        let claim = one.wait(name, "has followed", follows).await;
        assert_eq!(claim["status"]["address"], **address);
    }
    let after = BTreeMap::from([
        (first, "b/one".to_owned()),
        (second, "b/one".to_owned()),
        (other, "b/two".to_owned()),
    ]);
    assert_eq!(bench.tenants().await, after);
}
