//! The controller of Clusters over an API server in memory.

use std::time::Duration;

use fipd_core::{
    Answer, Holder, LeaseKey, NetworkId, PoolId, PoolSpec, ReleaseScope, Request, System,
    testing::{allocate, create_pool, holder, pool_spec, want},
};
use fipd_crds::cluster_api::{Cluster, IPAddress, IPAddressClaim};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

use super::*;
use crate::{
    clock,
    clusters::{adoption, testing},
    controller::{
        address_user::{
            AddressUser as _,
            settle::{AddressAsker, AddressPlan, AddressPolicy, settle},
        },
        client::Remote,
        events::Events,
        fake_api_tests::{FakeApi, client, merge},
        site::Site,
        store::Observed,
    },
    host::probe::Prober,
    ipam::Ipam,
    systems::cluster_api::{
        claim::{
            IpClaims,
            observe::{AddressView, IpClaimView},
            paused,
        },
        names::{
            CLAIM, CLUSTER, CLUSTER_CLASS, CONTROL_PLANE, INGRESS, INGRESS_ENABLED, INGRESS_VIP,
            PAUSED, ROLE,
        },
        pool::{growth::PoolUsers, own_network_name},
        settings::InClusterKinds,
        vip::{half_ready::AT_MOST, leave::release_or_pass, plan::ENDPOINT_DIFFERS},
    },
    validation::mirror::MirrorOf,
};

/// The roles of a Cluster's addresses.
const BOTH: &str = "control-plane,ingress";

struct Bench {
    _dir: tempfile::TempDir,
    server: Arc<Mutex<FakeApi>>,
    vips: Arc<VipController>,
}

fn key() -> Key {
    Key::new("ns", "c")
}

impl Bench {
    /// A Cluster without ingress, with these fields beside, as the controller knows it.
    async fn new(fields: &Value) -> Self {
        Self::under(ClusterApiSettings::default(), fields).await
    }

    /// The same, where another provider serves the pools of the in-cluster provider.
    async fn left(fields: &Value) -> Self {
        let settings = ClusterApiSettings {
            in_cluster_kinds: InClusterKinds::Leave,
            ..ClusterApiSettings::default()
        };
        Self::under(settings, fields).await
    }

    async fn under(settings: ClusterApiSettings, fields: &Value) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let server = Arc::<Mutex<FakeApi>>::default();
        server.lock().makes = Some("ipaddressclaims");
        let mut session = testing::session(client(&server), &ipam).await;
        *session.settings.of_mut() = settings;
        let site = Arc::new(Site::new(session.clone(), System::cluster_api()));
        let quiet = || std::future::ready(());
        let events = Events::start(session.recorder.clone(), site.cancel(), quiet);
        let (events, remote) = (Arc::new(events), Remote::new(client(&server)));
        let prober = Prober::beside("/nonexistent/fipd.sock".as_ref());
        let pools = vec![(GLOBAL_POOL, Objects::new())];
        let user = IpClaims::new(pools, &PoolUsers::default(), &prober);
        let (of_claims, objects) = (Arc::clone(&site), Objects::new());
        let context = Context::new(
            CLAIM,
            of_claims,
            remote.clone(),
            Arc::clone(&events),
            objects,
        );
        let claims = IpClaimController::new(context, user);
        let clusters = Arc::clone(&claims.user.clusters);
        let context = Context::new(CLUSTER, site, remote, events, clusters);
        let vips = VipController::new(context, &claims, &VipCounts::default());
        let mut cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": { "annotations": { INGRESS_ENABLED: "false" } },
            "spec": { "topology": { "classRef": { "name": "rke2" } } },
        });
        merge(&mut cluster, fields);
        server.lock().make(&key(), cluster);
        let bench = Self {
            _dir: dir,
            server,
            vips,
        };
        bench.know();
        bench.know_pool(CONTROL_PLANE);
        bench
    }

    /// The controller knows the Cluster as it is.
    fn know(&self) {
        let known: Cluster = serde_json::from_value(self.cluster()).expect("a Cluster");
        let objects = &self.vips.context.objects;
        objects.set(&key(), CapiClusterView::of(known));
    }

    /// As the API server has it.
    fn cluster(&self) -> Value {
        self.server.lock().object(&key())
    }

    /// The controller knows a claim of the namespace.
    fn claim(&self, name: &str, fields: &Value) {
        let mut claim = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim",
            "metadata": { "name": name, "namespace": "ns", "uid": format!("u-{name}") },
            "spec": { "clusterName": "c", "poolRef": pool() },
        });
        merge(&mut claim, fields);
        let claim: IPAddressClaim = serde_json::from_value(claim).expect("a claim");
        let claims = &self.vips.claims.context.objects;
        claims.set(&Key::new("ns", name), IpClaimView::of(claim));
    }

    /// The controller knows a pool that gives the class addresses for these roles.
    fn know_pool(&self, roles: &str) {
        let pool = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "GlobalInClusterIPPool",
            "metadata": { "name": "net", "labels": { CLUSTER_CLASS: "rke2" }, "annotations": { ROLE: roles } },
            "spec": { "addresses": ["10.0.0.0/24"], "prefix": 24 },
        });
        let pool = serde_json::from_value(pool).expect("a pool");
        let mut stores = self.vips.claims.user.pools.iter();
        let store = stores.find(|(kind, _)| kind.kind == GLOBAL_POOL.kind);
        let (_, pools) = store.expect("such pools are known");
        pools.set(&Key::new("", "net"), InClusterView::global_addresses(pool));
    }

    /// The pool does not fit its schema any more.
    fn spoil_pool(&self, annotations: &Value) {
        let malformed = Malformed {
            meta: Meta::default(),
            annotations: serde_json::from_value(annotations.clone()).expect("annotations"),
            error: "no pool".into(),
        };
        let mut stores = self.vips.claims.user.pools.iter();
        let store = stores.find(|(kind, _)| kind.kind == GLOBAL_POOL.kind);
        let (_, pools) = store.expect("such pools are known");
        let malformed = Observed::Malformed(Arc::new(malformed));
        let put = pools.put(&Key::new("", "net"), Some(malformed));
        put.expect("there is room");
    }

    /// The Cluster has a claim of this name, and nobody has said anything of it.
    fn own_claim(&self, name: &str) {
        let owner = json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c", "uid": "u-c",
        }]);
        self.claim(name, &json!({ "metadata": { "ownerReferences": owner } }));
    }

    /// The Cluster has this address by a claim of this name.
    fn fulfil(&self, name: &str, address: &str) {
        self.own_claim(name);
        let claim = json!([{
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim",
            "name": name, "uid": format!("u-{name}"),
        }]);
        let object = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
            "metadata": { "name": name, "namespace": "ns", "uid": "a", "ownerReferences": claim },
            "spec": { "claimRef": { "name": name }, "poolRef": pool(), "address": address, "prefix": 24 },
        });
        let object: IPAddress = serde_json::from_value(object).expect("an IPAddress");
        let addresses = &self.vips.claims.user.addresses;
        addresses.set(&Key::new("ns", name), AddressView::of(object));
    }

    /// A pool of fipd's own in the network of the Cluster.
    async fn own_pool(&self) {
        let site = &self.vips.context.site;
        testing::map_to(&site.session, &site.system, NetworkId::DEFAULT);
        let pool = PoolSpec::own("own", vec!["10.0.0.0/24".parse().expect("addresses")]);
        let made = site.ipam.submit(create_pool(pool)).await;
        made.expect("a pool");
    }

    /// A claim that is of no Cluster gets the address.
    async fn take(&self, last: u8) -> (Holder, LeaseKey) {
        let (claims, site) = (&self.vips.claims.context, &self.vips.context.site);
        let holder = claims.holder(&Key::new("ns", "own"), &"u".into());
        let asker = AddressAsker {
            holder: holder.clone(),
            created: clock::now(),
            actor: site.actor(),
        };
        let place = LeaseKey {
            network: NetworkId::DEFAULT,
            address: [10, 0, 0, last].into(),
        };
        let taken = site.ipam.submit(asker.adopt(place.into(), None)).await;
        taken.expect("it is free");
        (holder, place)
    }

    async fn release(&self, holder: Holder) {
        let scope = ReleaseScope::Holder(holder);
        let released = self.vips.context.site.release(scope, "test").await;
        released.expect("no failure");
    }

    /// The kind of who holds the address, and how many contend for it.
    fn users(&self, last: u8) -> Option<(String, usize)> {
        let place = LeaseKey {
            network: NetworkId::DEFAULT,
            address: [10, 0, 0, last].into(),
        };
        let lease = |ledger: &Ledger| ledger.lease_around(place).cloned();
        let lease = self.vips.context.read(lease)?;
        let kind = lease.owner()?.identity.kind.to_string();
        Some((kind, lease.contenders.len()))
    }

    /// Looks out for pools that are newer than an adoption at this growth; returns once it does.
    async fn look_out(&self, adopted: u64) -> JoinSet<()> {
        let ipam = &self.vips.context.site.ipam;
        let before = ipam.read(Ledger::revision);
        let (mut revisions, mut tasks) = (ipam.revisions(), JoinSet::new());
        self.vips.keep_looking_out(adopted, &mut tasks);
        let looks = revisions.wait_for(|revision| *revision > before).await;
        drop(looks.expect("it looks"));
        tasks
    }

    /// Works on the Cluster once, as the controller knows it.
    async fn work(&self) -> Reconciled {
        let known = self.vips.context.objects.get(&key());
        self.vips.reconcile(&key(), known).await
    }
}

fn pool() -> Value {
    json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": "GlobalInClusterIPPool", "name": "net" })
}

fn host(cluster: &Value) -> &Value {
    &cluster["spec"]["controlPlaneEndpoint"]["host"]
}

/// A claim of the original, which the API server does not let fipd own.
#[tokio::test]
async fn an_old_claim_that_refuses_its_owner_holds_up_no_endpoint() {
    let bench = Bench::new(&json!({})).await;
    bench.fulfil("vip-cp-c", "10.0.0.15");
    let name = "vip-ingress-c";
    let label = json!({ "metadata": { "labels": { ROLE: INGRESS }, "resourceVersion": "6" } });
    bench.claim(name, &label);
    let changed = json!({ "metadata": { "uid": format!("u-{name}"), "resourceVersion": "7" } });
    let claim = Key::new("ns", name);
    bench.server.lock().made.insert(claim, changed);
    bench
        .work()
        .await
        .expect("a claim on a pool that does not serve it is not owned");
    bench.know_pool(BOTH);
    let done = bench.work().await;
    assert!(done.is_err(), "it is tried again");
    assert_eq!(host(&bench.cluster()), "10.0.0.15");
}

/// E-11: whoever may make claims in the namespace may name any owner in them.
#[tokio::test]
async fn the_address_of_a_claim_on_a_pool_that_does_not_serve_the_cluster_is_not_written() {
    let with_ingress = json!({ "metadata": { "annotations": { INGRESS_ENABLED: "true" } } });
    let bench = Bench::new(&with_ingress).await;
    bench.fulfil("vip-cp-c", "10.0.0.15");
    bench.fulfil("vip-ingress-c", "10.0.0.101");
    let shown = || bench.cluster()["metadata"]["annotations"][INGRESS_VIP].clone();
    bench.work().await.expect("no failure");
    assert_eq!(host(&bench.cluster()), "10.0.0.15");
    assert_eq!(shown(), Value::Null);
    let says = |field: &str| -> Vec<Value> {
        let cluster = bench.cluster();
        let all = cluster["status"]["conditions"].as_array();
        let all = all.expect("conditions").iter();
        all.map(|one| one[field].clone()).collect()
    };
    let reasons = says("reason");
    assert!(reasons.contains(&json!("ClaimTaken")), "{reasons:?}");
    bench.know_pool(BOTH);
    bench.work().await.expect("no failure");
    assert_eq!(shown(), "10.0.0.101");
    // What the Cluster shows stays, whatever becomes of the pool.
    bench.know_pool(CONTROL_PLANE);
    bench.work().await.expect("no failure");
    assert_eq!(says("status"), ["True", "True"]);
}

/// The watch is behind, and so is the controller.
#[tokio::test]
async fn an_endpoint_that_somebody_just_wrote_is_not_overwritten() {
    let bench = Bench::new(&json!({})).await;
    bench.fulfil("vip-cp-c", "10.0.0.15");
    let by_hand =
        json!({ "spec": { "controlPlaneEndpoint": { "host": "10.0.0.9", "port": 6443 } } });
    bench.server.lock().edit(&key(), &by_hand);
    let next = bench.work().await.expect("no failure");
    assert!(matches!(next, Next::After(_)), "{next:?}");
    assert_eq!(host(&bench.cluster()), "10.0.0.9");
    // It knows the Cluster as it is by now.
    bench.work().await.expect("no failure");
    let cluster = bench.cluster();
    assert_eq!(host(&cluster), "10.0.0.9");
    let said = &cluster["status"]["conditions"][0];
    assert_eq!(said["reason"], ENDPOINT_DIFFERS, "{said}");
}

#[tokio::test]
async fn both_addresses_are_written_at_once_where_they_come_together() {
    let with_ingress = json!({ "metadata": { "annotations": { INGRESS_ENABLED: "true" } } });
    for comes in [true, false] {
        let bench = Bench::new(&with_ingress).await;
        bench.know_pool(BOTH);
        bench.fulfil("vip-cp-c", "10.0.0.15");
        bench.own_claim("vip-ingress-c");
        let next = bench.work().await.expect("no failure");
        assert_eq!(next, Next::After(AT_MOST));
        assert_eq!(host(&bench.cluster()), &Value::Null);
        if comes {
            bench.fulfil("vip-ingress-c", "10.0.0.101");
        } else {
            tokio::time::sleep(AT_MOST).await;
        }
        bench.work().await.expect("no failure");
        let cluster = bench.cluster();
        assert_eq!(host(&cluster), "10.0.0.15");
        let shown = &cluster["metadata"]["annotations"][INGRESS_VIP];
        let wanted = if comes {
            json!("10.0.0.101")
        } else {
            Value::Null
        };
        assert_eq!(*shown, wanted, "an ingress that is late holds up nothing");
    }
}

/// Each write makes another version of the Cluster.
#[tokio::test]
async fn what_fipd_writes_itself_is_no_conflict() {
    let blocks = json!(["10.96.0.0/12", "fd00:96::/112"]);
    let networks =
        json!({ "spec": { "clusterNetwork": { "services": { "cidrBlocks": blocks } } } });
    let bench = Bench::new(&networks).await;
    bench.fulfil("vip-cp-c", "10.0.0.15");
    bench.fulfil("vip-second-cp-c", "fd00::15");
    assert_eq!(bench.work().await.expect("no failure"), Next::Done);
    let cluster = bench.cluster();
    assert_eq!(host(&cluster), "10.0.0.15");
    let annotations = &cluster["metadata"]["annotations"];
    assert_eq!(annotations["fipd.io/second-control-plane-vip"], "fd00::15");
    // The conditions came last.
    let lost =
        json!({ "metadata": { "annotations": { "fipd.io/second-control-plane-vip": null } } });
    bench.server.lock().edit(&key(), &lost);
    bench.know();
    assert_eq!(bench.work().await.expect("no failure"), Next::Done);
    let annotations = bench.cluster()["metadata"]["annotations"].clone();
    assert_eq!(annotations["fipd.io/second-control-plane-vip"], "fd00::15");
}

#[tokio::test]
async fn no_address_is_released_while_it_is_written() {
    const SOON: Duration = Duration::from_millis(50);
    let bench = Bench::new(&json!({})).await;
    bench.fulfil("vip-cp-c", "10.0.0.15");
    let claims = &bench.vips.claims;
    let name = Key::new("ns", "vip-cp-c");
    let claim = claims.context.objects.get(&name).expect("a claim");
    let writes = claims.user.writing.lock(&key()).await;
    let released = timeout(SOON, release_or_pass(claims, &name, &claim)).await;
    assert!(released.is_err(), "it waits");
    // Nor is one written that is being released.
    assert!(timeout(SOON, bench.work()).await.is_err(), "it waits");
    assert_eq!(host(&bench.cluster()), &Value::Null);
    drop(writes);
    bench.work().await.expect("no failure");
    assert_eq!(host(&bench.cluster()), "10.0.0.15");
}

/// While it is being deleted its machines still use the address. Later its claims may be gone before the look is over.
#[tokio::test]
async fn the_endpoint_of_a_cluster_that_goes_is_taken_in_at_the_first_look_alone() {
    let bench = Bench::new(&json!({
        "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "controlPlaneEndpoint": { "host": "10.0.0.9", "port": 6443 } },
    }))
    .await;
    bench.own_pool().await;
    let (site, network) = (&bench.vips.context.site, NetworkId::DEFAULT);
    let uses = || {
        let cluster = bench.vips.context.objects.get(&key()).expect("it is known");
        bench.vips.uses(&key(), &cluster, &[]).len()
    };
    assert_eq!(uses(), 1);
    let marked = adoption::mark(&site.session, &site.system, network).await;
    marked.expect("a mark");
    assert_eq!(uses(), 0);
    let living = json!({ "metadata": { "deletionTimestamp": null } });
    bench.server.lock().edit(&key(), &living);
    bench.know();
    assert_eq!(uses(), 1);
}

#[tokio::test]
async fn a_paused_pool_keeps_what_it_gave_also_while_it_is_malformed() {
    let bench = Bench::new(&json!({})).await;
    bench.fulfil("vip-cp-c", "10.0.0.15");
    let claims = &bench.vips.claims;
    let name = Key::new("ns", "vip-cp-c");
    let claim = claims.context.objects.get(&name).expect("a claim");
    for (annotations, expected) in [
        (json!({}), None),
        (json!({ PAUSED: "" }), Some("PoolPaused")),
    ] {
        bench.spoil_pool(&annotations);
        let kept = paused::keeps(claims, &name, &claim)
            .await
            .expect("no failure");
        assert_eq!(kept.map(|why| why.reason), expected, "{annotations}");
    }
}

/// As `clusterctl move` makes them: the Cluster first, which is paused.
#[tokio::test]
async fn what_a_paused_cluster_shows_is_kept_for_it_until_its_claim_comes() {
    let bench = Bench::new(&json!({
        "spec": { "paused": true, "controlPlaneEndpoint": { "host": "10.0.0.9", "port": 6443 } },
    }))
    .await;
    let site = &bench.vips.context.site;
    testing::map_to(&site.session, &site.system, NetworkId::DEFAULT);
    let mirror = MirrorOf {
        cluster: &site.id,
        cluster_name: &site.name,
        object: "net",
        uid: "u-net",
    };
    let pool = PoolSpec {
        origin: mirror.origin(System::cluster_api()),
        name: mirror.pool_name(&site.system),
        ..PoolSpec::own("net", vec!["10.0.0.0/24".parse().expect("addresses")])
    };
    let submit = async |request| site.ipam.submit(request).await.expect("it is granted");
    submit(create_pool(pool)).await;
    let users = || bench.users(9).expect("somebody has it");
    for _ in 0..2 {
        bench.work().await.expect("no failure");
        assert_eq!(users(), ("Cluster".to_owned(), 0));
    }
    bench.fulfil("vip-cp-c", "10.0.0.9");
    let (claims, name) = (&bench.vips.claims, Key::new("ns", "vip-cp-c"));
    let claim = claims.context.objects.get(&name).expect("a claim");
    let asker = claims.asker(&name, &claim.meta);
    let plan = || {
        claims.context.read(|ledger| {
            let wish = claims
                .user
                .wish(ledger, &claims.context.site, &name, &claim);
            settle(ledger, AddressPolicy::of::<IpClaims>(), &asker, &wish)
        })
    };
    // While the Cluster is paused, and after that.
    let AddressPlan::Ask(_) = plan() else {
        panic!("the claim has nothing yet");
    };
    let kept = claims.keep_recorded(&name, &claim).await;
    kept.expect("no failure");
    assert_eq!(users(), ("IPAddressClaim".to_owned(), 0));
    assert!(matches!(plan(), AddressPlan::Show(_)), "{:?}", plan());
    // The Cluster leaves it to its claim.
    bench.work().await.expect("no failure");
    assert_eq!(users(), ("IPAddressClaim".to_owned(), 0));
}

/// Its provider chose the endpoint, and fipd gives it nothing.
#[tokio::test]
async fn what_a_cluster_shows_that_gets_no_addresses_is_kept_for_it() {
    let endpoint =
        |host: &str| json!({ "spec": { "controlPlaneEndpoint": { "host": host, "port": 6443 } } });
    let mut plain = endpoint("10.0.0.9");
    plain["spec"]["topology"] = Value::Null;
    let off = ClusterApiSettings {
        vips: false,
        ..ClusterApiSettings::default()
    };
    for (settings, fields) in [
        (ClusterApiSettings::default(), &plain),
        (off, &endpoint("10.0.0.9")),
    ] {
        let bench = Bench::under(settings, fields).await;
        bench.own_pool().await;
        let known = || bench.vips.context.objects.get(&key()).expect("a Cluster");
        assert_eq!(bench.vips.uses(&key(), &known(), &[]).len(), 1);
        bench.work().await.expect("no failure");
        assert_eq!(bench.users(9), Some(("Cluster".to_owned(), 0)));
        assert_eq!(bench.vips.uses(&key(), &known(), &[]).len(), 1);
        // Nothing was built by it yet.
        bench.server.lock().edit(&key(), &endpoint("10.0.0.10"));
        bench.know();
        bench.work().await.expect("no failure");
        assert_eq!(bench.users(9), None);
        assert_eq!(bench.users(10), Some(("Cluster".to_owned(), 0)));
    }
}

/// Somebody made a claim, and wrote what it got into the Cluster.
#[tokio::test]
async fn a_cluster_without_a_class_leaves_its_address_to_the_claim_that_has_it() {
    let bench = Bench::new(&json!({ "spec": {
        "topology": null, "controlPlaneEndpoint": { "host": "10.0.0.9", "port": 6443 },
    } }))
    .await;
    bench.own_pool().await;
    let (holder, place) = bench.take(9).await;
    bench.work().await.expect("no failure");
    assert_eq!(bench.users(9), Some(("IPAddressClaim".to_owned(), 0)));
    let known = bench.vips.context.objects.get(&key()).expect("a Cluster");
    assert!(bench.vips.uses(&key(), &known, &[]).is_empty());
    // The claim goes, and the Cluster is looked at again.
    bench.release(holder).await;
    let change = Change {
        leases: [place.into()].into_iter().collect(),
        ..Change::default()
    };
    let (event, waiters) = ([Arc::new(change)], &bench.vips.context.waiters);
    let event = LedgerEvent::Changes(&event);
    let woken = (bench.vips.context).read(|ledger| waiters.affected_keys(ledger, &event));
    assert_eq!(woken, BTreeSet::from([key()]));
    bench.work().await.expect("no failure");
    assert_eq!(bench.users(9), Some(("Cluster".to_owned(), 0)));
}

#[tokio::test]
async fn a_second_address_that_another_has_is_not_well_given() {
    let blocks = json!(["fd00:96::/112", "10.96.0.0/12"]);
    let bench = Bench::new(&json!({
        "metadata": { "annotations": { "fipd.io/second-control-plane-vip": "10.0.0.9" } },
        "spec": {
            "clusterNetwork": { "services": { "cidrBlocks": blocks } },
            "controlPlaneEndpoint": { "host": "fd00::9", "port": 6443 },
        },
    }))
    .await;
    bench.own_pool().await;
    let (holder, _) = bench.take(9).await;
    let said = || {
        let cluster = bench.cluster();
        let all = cluster["status"]["conditions"].as_array();
        let mut all = all.expect("conditions").iter();
        let second = all.find(|one| one["type"] == SECOND_ENDPOINT_READY);
        second.expect("the second one")["status"].clone()
    };
    bench.work().await.expect("no failure");
    assert_eq!(bench.users(9), Some(("IPAddressClaim".to_owned(), 1)));
    assert_eq!(said(), "False");
    bench.release(holder).await;
    bench.work().await.expect("no failure");
    assert_eq!(said(), "True");
}

/// Whether anything is built by the Cluster or not.
#[tokio::test]
async fn a_cluster_contends_for_nothing_that_it_does_not_show() {
    let built = json!({ "initialization": { "infrastructureProvisioned": true } });
    for status in [json!({}), built] {
        let endpoint = |host: &str| json!({ "spec": { "controlPlaneEndpoint": { "host": host, "port": 6443 } } });
        let mut fields = endpoint("10.0.0.9");
        fields["status"] = status;
        let bench = Bench::new(&fields).await;
        bench.own_pool().await;
        let (holder, _) = bench.take(9).await;
        let claim = |contenders| Some(("IPAddressClaim".to_owned(), contenders));
        for _ in 0..2 {
            bench.work().await.expect("no failure");
            assert_eq!(bench.users(9), claim(1));
        }
        bench.server.lock().edit(&key(), &endpoint("10.0.0.10"));
        bench.know();
        bench.work().await.expect("no failure");
        assert_eq!(bench.users(9), claim(0));
        bench.release(holder).await;
        assert_eq!(bench.users(9), None);
    }
}

/// Whoever makes the pool.
#[tokio::test]
async fn a_new_pool_gives_nothing_before_what_clusters_show_is_kept() {
    let endpoint = json!({ "controlPlaneEndpoint": { "host": "10.0.0.8", "port": 6443 } });
    let bench = Bench::new(&json!({ "spec": endpoint })).await;
    let site = &bench.vips.context.site;
    testing::map_to(&site.session, &site.system, NetworkId::DEFAULT);
    bench.vips.context.objects.complete();
    let pool = async |name: &str, addresses: &str| {
        let made = site
            .ipam
            .submit(create_pool(pool_spec(name, &[addresses])))
            .await;
        let Ok(Answer::Pool(pool)) = made else {
            panic!("{made:?}");
        };
        pool.id
    };
    let ask = async |owner: u32, pool: PoolId| {
        let holder = holder(format!("fipd/Host/lab/h{owner}"), "1");
        let request = Request::Allocate(allocate(holder, [want(pool, None)]));
        site.ipam.submit(request).await
    };
    let mut tasks = bench.look_out(0).await;
    let new = pool("new", "10.0.0.8-10.0.0.9").await;
    let given = async {
        while ask(1, new).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    let given = timeout(Duration::from_secs(10), given).await;
    given.expect("it does not wait for ever");
    ask(2, new)
        .await
        .expect_err("the other is that of the Cluster");
    assert_eq!(bench.users(8), Some(("Cluster".to_owned(), 0)));
    // Once nobody looks, new pools wait no longer.
    tasks.shutdown().await;
    let later = pool("later", "10.0.1.8-10.0.1.9").await;
    ask(3, later).await.expect("an address");
}

/// The first adoption reads a list of all Clusters.
#[tokio::test]
async fn only_what_pools_gained_since_the_first_adoption_is_taken_in_again() {
    let endpoint = json!({ "controlPlaneEndpoint": { "host": "10.0.0.8", "port": 6443 } });
    let bench = Bench::new(&json!({ "spec": endpoint })).await;
    bench.vips.context.objects.complete();
    bench.own_pool().await;
    let adopted = *bench.vips.context.site.ipam.growth().borrow();
    let mut tasks = bench.look_out(adopted).await;
    assert_eq!(bench.users(8), None, "the adoption took it in");
    tasks.shutdown().await;
    let _tasks = bench.look_out(0).await;
    assert_eq!(bench.users(8), Some(("Cluster".to_owned(), 0)));
}

/// `in-cluster-kinds = "leave"`: nobody else tells the address book what the other provider allocates.
#[tokio::test]
async fn what_another_provider_allocates_is_reserved_before_the_cluster_shows_it() {
    let cluster = || Some(("Cluster".to_owned(), 0));
    let with_ingress = json!({ "metadata": { "annotations": { INGRESS_ENABLED: "true" } } });
    let bench = Bench::left(&with_ingress).await;
    bench.know_pool(BOTH);
    bench.own_pool().await;
    bench.fulfil("vip-cp-c", "10.0.0.15");
    // It is reserved before the Cluster shows it.
    let pools = bench.vips.pools();
    let known = bench.vips.context.objects.get(&key()).expect("a Cluster");
    let reserved = bench.vips.reserve_allocated((&key(), &known), &pools).await;
    reserved.expect("no failure");
    assert_eq!(bench.users(15), cluster());
    bench.fulfil("vip-ingress-c", "10.0.0.101");
    for _ in 0..2 {
        bench.work().await.expect("no failure");
        assert_eq!(host(&bench.cluster()), "10.0.0.15");
        assert_eq!(bench.users(15), cluster());
        assert_eq!(bench.users(101), cluster());
    }
    // What a claim has is not what the endpoint was before, shown or not.
    let hidden = json!({ "metadata": { "annotations": { INGRESS_VIP: null } } });
    bench.server.lock().edit(&key(), &hidden);
    bench.know();
    let known = bench.vips.context.objects.get(&key()).expect("a Cluster");
    let kept = bench.vips.release_unshown(&key(), &known).await;
    kept.expect("no failure");
    assert_eq!(bench.users(101), cluster());
    // The list that adoption reads has both, and says nothing else of them.
    bench.work().await.expect("no failure");
    let known = bench.vips.context.objects.get(&key()).expect("a Cluster");
    assert_eq!(bench.vips.uses(&key(), &known, &pools).len(), 2);
}

/// fipd gives the Cluster nothing, and the other provider does.
#[tokio::test]
async fn what_another_provider_allocates_is_reserved_for_a_cluster_that_fipd_does_not_serve() {
    let left = ClusterApiSettings {
        in_cluster_kinds: InClusterKinds::Leave,
        ..ClusterApiSettings::default()
    };
    let off = ClusterApiSettings {
        vips: false,
        ..left.clone()
    };
    let paused = json!({ "spec": { "paused": true } });
    let plain = json!({ "spec": { "topology": null } });
    for (settings, fields) in [(off, json!({})), (left.clone(), paused), (left, plain)] {
        let bench = Bench::under(settings, &fields).await;
        bench.own_pool().await;
        bench.fulfil("vip-cp-c", "10.0.0.15");
        let known = bench.vips.context.objects.get(&key()).expect("a Cluster");
        let pools = bench.vips.pools();
        let uses = || bench.vips.uses(&key(), &known, &pools).len();
        assert_eq!(uses(), 1, "adoption takes it in");
        for _ in 0..2 {
            bench.work().await.expect("no failure");
            assert_eq!(bench.users(15), Some(("Cluster".to_owned(), 0)), "{fields}");
        }
    }
}

#[tokio::test]
async fn what_another_provider_allocates_of_a_malformed_pool_is_reserved_as_well() {
    let bench = Bench::left(&json!({})).await;
    bench.own_pool().await;
    bench.spoil_pool(&json!({}));
    bench.fulfil("vip-cp-c", "10.0.0.15");
    bench.work().await.expect("no failure");
    assert_eq!(bench.users(15), Some(("Cluster".to_owned(), 0)));
}

/// Another provider serves the pools of the namespace, of which the address book has none.
#[tokio::test]
async fn an_endpoint_of_no_pool_of_the_class_is_kept_in_the_network_of_its_namespace() {
    let settings = ClusterApiSettings {
        in_cluster_kinds: InClusterKinds::Leave,
        network_per_namespace: true,
        ..ClusterApiSettings::default()
    };
    let endpoint = json!({ "controlPlaneEndpoint": { "host": "10.0.0.9", "port": 6443 } });
    let bench = Bench::under(settings.clone(), &json!({ "spec": endpoint })).await;
    let site = &bench.vips.context.site;
    let name = own_network_name(&settings, site, "ns").expect("a network of its own");
    let network = testing::new_network(&site.ipam, &name).await;
    let pool = PoolSpec {
        network,
        ..PoolSpec::own("own", vec!["10.0.0.0/24".parse().expect("addresses")])
    };
    let made = site.ipam.submit(create_pool(pool)).await;
    made.expect("a pool");
    bench.work().await.expect("no failure");
    let address = [10, 0, 0, 9].into();
    let place = LeaseKey { network, address };
    let lease = bench
        .vips
        .context
        .read(|ledger| ledger.lease_around(place).cloned());
    let lease = lease.expect("it is kept");
    let owner = lease.owner().expect("an owner");
    assert_eq!(*owner.identity.kind, *CLUSTER.kind);
}

#[tokio::test]
async fn what_another_provider_allocates_twice_is_not_written() {
    let bench = Bench::left(&json!({})).await;
    bench.know_pool(BOTH);
    bench.own_pool().await;
    let (holder, _) = bench.take(15).await;
    bench.fulfil("vip-cp-c", "10.0.0.15");
    bench.work().await.expect("no failure");
    let cluster = bench.cluster();
    assert_eq!(host(&cluster), &Value::Null);
    let said = &cluster["status"]["conditions"][0];
    assert_eq!(said["reason"], "ClaimPending", "{said}");
    let message = said["message"].as_str().expect("a message");
    assert!(message.contains("10.0.0.15 is held by"), "{message}");
    assert_eq!(bench.users(15), Some(("IPAddressClaim".to_owned(), 1)));
    // It is the next one.
    bench.release(holder).await;
    assert_eq!(bench.users(15), Some(("Cluster".to_owned(), 0)));
    bench.work().await.expect("no failure");
    assert_eq!(host(&bench.cluster()), "10.0.0.15");
}
