//! Moves of a claim between two clusters, in the steps of clusterctl, with a daemon that dies at each of its writes.

use std::sync::Arc;

use fipd_core::{
    ClusterId, Identity, Lease, LeaseState, Ledger, NetworkId, PoolId, Request, System,
    testing::key as place,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    IpClaimController, IpClaims,
    confirmed::confirm,
    observe::{AddressView, IpClaimView},
    probe::checked_pool,
};
use crate::{
    clock,
    clusters::{ClusterSession, testing},
    controller::{
        address_user::{AddressUser as _, conformance_tests::Subject as _},
        client::Remote,
        events::Events,
        fake_api_tests::{Daemon, Death, FakeApi, client, merge},
        meta::Meta,
        queue::Next,
        reconcile::Controller as _,
        site::Site,
        store::{Key, Observed},
    },
    ipam::Ipam,
    systems::cluster_api::{
        names::{DELETE_FOR_MOVE, GRACE_ENDS, PROTECT_ADDRESS, RELEASE_ADDRESS},
        settings::{ClusterApiSettings, InClusterKinds},
        vip::CapiClusterView,
    },
};

const COOLS: u32 = 60;

/// What a Cluster is to the claims that name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Absent,
    Paused,
    Running,
}

/// One of the two clusters.
struct Side {
    server: Arc<Mutex<FakeApi>>,
    session: ClusterSession,
    daemon: Daemon<IpClaimController>,
    owner: Owner,
    pool: PoolId,
}

impl Side {
    async fn new(id: &'static str, ipam: &Ipam) -> Self {
        let server = Arc::<Mutex<FakeApi>>::default();
        server.lock().makes = IpClaims::MAKES;
        let mut session = testing::unregistered(client(&server), ipam).await;
        (session.id, session.name) = (ClusterId(id.into()), id.into());
        testing::map_to(&session, &System::cluster_api(), NetworkId::DEFAULT);
        let mut spec = IpClaims::pool(&session.id, "net", "10.0.0.5-10.0.0.6");
        spec.name = format!("cluster-api/{id}/net").into();
        spec.quarantine = COOLS;
        let actor = "test".into();
        let made = ipam.submit(Request::CreatePool { spec, actor }).await;
        let Ok(fipd_core::Answer::Pool(pool)) = made else {
            panic!("{made:?}");
        };
        let record = testing::record(id);
        let known = ipam.submit(Request::RecordCluster { record });
        known.await.expect("a cluster");
        let owner = Owner::Absent;
        Self {
            daemon: Daemon::new(start(&session, &server, owner)),
            server,
            session,
            owner,
            pool: pool.id,
        }
    }

    /// A new daemon, which knows nothing but the ledger and what it lists.
    fn restart(&mut self) {
        self.daemon = Daemon::new(start(&self.session, &self.server, self.owner));
    }

    async fn work(&mut self, ipam: &Ipam) {
        IpClaims::observe(&self.daemon.controller, &self.server.lock());
        let view = |object: &Value| {
            let claim = serde_json::from_value(object.clone()).expect("a claim");
            Observed::Parsed(Arc::new(IpClaims::view(claim)))
        };
        self.daemon.work(ipam, &self.server, view).await;
    }

    fn set_owner(&mut self, owner: Owner) {
        self.owner = owner;
        tell(&self.daemon.controller, owner);
        self.daemon.controller.context().queue_all();
    }

    fn identity(&self) -> Identity {
        self.daemon.controller.context().identity(&key())
    }

    fn claim(&self) -> Value {
        self.server.lock().object(&key())
    }

    /// The IPAddress of the claim.
    fn shows(&self) -> Option<Value> {
        self.server.lock().made.get(&key()).cloned()
    }
}

fn start(
    session: &ClusterSession,
    server: &Arc<Mutex<FakeApi>>,
    owner: Owner,
) -> Arc<IpClaimController> {
    let site = Arc::new(Site::new(session.clone(), System::cluster_api()));
    let quiet = || std::future::ready(());
    let events = Events::start(session.recorder.clone(), site.cancel(), quiet);
    let claims = IpClaims::controller(&site, Remote::new(client(server)), &Arc::new(events));
    tell(&claims, owner);
    claims
}

fn tell(claims: &IpClaimController, owner: Owner) {
    let (clusters, one) = (&claims.user.clusters, Key::new("ns", "one"));
    clusters.complete();
    match owner {
        Owner::Absent => clusters.remove(&one),
        Owner::Paused | Owner::Running => clusters.set(
            &one,
            CapiClusterView {
                paused: owner == Owner::Paused,
                meta: Meta {
                    uid: "u-one".into(),
                    ..Meta::default()
                },
                ..CapiClusterView::default()
            },
        ),
    }
}

fn key() -> Key {
    Key::new("ns", "a")
}

/// A site with two clusters, each with a pool of the same addresses.
struct Bench {
    _dir: tempfile::TempDir,
    ipam: Ipam,
    here: Side,
    there: Side,
    death: Death,
    /// Whether the claim names its Cluster.
    named: bool,
}

impl Bench {
    /// The claim has 10.0.0.5 of the first cluster.
    async fn new(death: Death, named: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let mut bench = Self {
            here: Side::new("here", &ipam).await,
            there: Side::new("there", &ipam).await,
            _dir: dir,
            ipam,
            death: Death::Never,
            named,
        };
        bench.here.set_owner(Owner::Running);
        let mut claim = IpClaims::object();
        if named {
            claim["spec"]["clusterName"] = json!("one");
        }
        bench.here.server.lock().make(&key(), claim);
        bench.settle().await;
        bench.held_by(&bench.here);
        bench.death = death;
        bench
    }

    /// Works until nothing is left to do in either cluster; once more after a restart, in which the daemon may have died midway.
    async fn settle(&mut self) {
        let death = self.death;
        for last in [false, true] {
            let death = if last { Death::Never } else { death };
            for side in [&mut self.here, &mut self.there] {
                side.server.lock().die(death);
                if last {
                    side.restart();
                }
            }
            self.work().await;
            self.lease();
        }
    }

    async fn work(&mut self) {
        for _ in 0..4 {
            for side in [&mut self.here, &mut self.there] {
                side.work(&self.ipam).await;
                if side.server.lock().is_dead() {
                    return;
                }
            }
        }
    }

    /// The lease of the address: it is free at no moment, and no other is given to the claim.
    fn lease(&self) -> Arc<Lease> {
        let lease = |last: u8| {
            let place = place([10, 0, 0, last]);
            self.ipam.read(|ledger| ledger.lease(place).cloned())
        };
        assert_eq!(lease(6), None, "the claim has its address");
        lease(5).expect("somebody has it all the time")
    }

    /// The IPAddress of the claim in the first cluster, as one of another claim.
    fn brought(&self, claim: &Key) -> Value {
        let mut shows = self.here.shows().expect("an IPAddress");
        let name = &*claim.name;
        let other = json!({
            "metadata": { "name": name, "uid": "m-old" }, "spec": { "claimRef": { "name": name } },
        });
        merge(&mut shows, &other);
        shows
    }

    fn held_by(&self, side: &Side) {
        let lease = self.lease();
        assert_eq!(lease.state, LeaseState::Allocated, "{lease:?}");
        let owner = lease.owner().map(|owner| &owner.identity);
        assert_eq!(owner, Some(&side.identity()), "{lease:?}");
    }

    /// Somebody copies the claim to the other cluster, as far as it is kept there.
    async fn copy(&mut self) {
        let paused = if self.named {
            Owner::Paused
        } else {
            Owner::Absent
        };
        if self.named {
            self.here.set_owner(Owner::Paused);
        }
        self.settle().await;
        self.there.set_owner(paused);
        let claim = self.here.claim();
        assert_eq!(claim["status"]["addressRef"]["name"], "a", "{claim}");
        let copy = json!({
            "apiVersion": claim["apiVersion"], "kind": claim["kind"], "spec": claim["spec"],
            "metadata": { "finalizers": claim["metadata"]["finalizers"] },
        });
        self.there.server.lock().make(&key(), copy);
        let new = clock::rfc3339(clock::now());
        let meta = json!({ "metadata": { "uid": "v-a", "creationTimestamp": new } });
        self.there.server.lock().edit(&key(), &meta);
        self.settle().await;
        assert_eq!(self.there.shows(), None, "it is yet to come");
        self.held_by(&self.here);

        let mut shows = self.here.shows().expect("an IPAddress");
        shows["metadata"]["uid"] = json!("n-a");
        shows["metadata"]["ownerReferences"][0]["uid"] = json!("v-a");
        self.there.server.lock().made.insert(key(), shows);
        self.settle().await;
        self.held_by(&self.here);
        let lease = self.lease();
        let contenders = lease.contenders.iter().map(|one| &one.holder.identity);
        assert_eq!(contenders.collect::<Vec<_>>(), [&self.there.identity()]);
        assert_eq!(self.there.claim()["status"]["addressRef"], Value::Null);
    }

    /// clusterctl deletes the claim in the first cluster. `stays`: not its IPAddress, as of a pool that is of no namespace.
    async fn delete(&mut self, stays: bool, seen: bool) {
        if !stays {
            self.here.server.lock().made.remove(&key());
            self.settle().await;
        }
        if !self.here.server.lock().objects.contains_key(&key()) {
            return;
        }
        let mark = json!({ "metadata": {
            "annotations": { DELETE_FOR_MOVE: "" }, "deletionTimestamp": "2024-01-02T00:00:00Z",
        } });
        self.here.server.lock().edit(&key(), &mark);
        if seen {
            self.settle().await;
        }
        self.here.server.lock().objects.remove(&key());
        self.here.set_owner(Owner::Absent);
        self.settle().await;
    }
}

async fn moves(death: Death, named: bool, stays: bool, seen: bool) {
    let mut bench = Bench::new(death, named).await;
    let since = bench.lease().since;
    bench.copy().await;
    bench.delete(stays, seen).await;
    bench.held_by(&bench.there);
    let lease = bench.lease();
    assert_eq!((lease.since, lease.pool), (since, Some(bench.there.pool)));
    assert_eq!(lease.owner().map(|owner| &*owner.instance), Some("v-a"));
    assert_eq!(lease.contenders, [], "nothing is left in the first cluster");
    assert_eq!(bench.here.shows(), None);

    bench.there.set_owner(Owner::Running);
    bench.settle().await;
    let (claim, shows) = (bench.there.claim(), bench.there.shows());
    assert_eq!(claim["status"]["addressRef"]["name"], "a", "{claim}");
    let shows = shows.expect("an IPAddress");
    let meta = &shows["metadata"];
    assert_eq!(
        (&meta["uid"], &shows["spec"]["address"]),
        (&json!("n-a"), &json!("10.0.0.5"))
    );
    assert_eq!(meta["finalizers"], json!([PROTECT_ADDRESS]));
    assert_eq!(meta["annotations"].get(GRACE_ENDS), None, "{shows}");
    bench.held_by(&bench.there);

    let gone = "2024-01-03T00:00:00Z";
    bench.there.server.lock().delete(&key(), gone);
    bench.settle().await;
    assert_eq!(bench.there.claim(), Value::Null);
    assert_eq!(bench.lease().state, LeaseState::Quarantined);
}

#[tokio::test]
async fn a_claim_that_moves_keeps_its_address_wherever_the_daemon_dies() {
    let mut deaths = vec![Death::Never];
    for writes in 0..3 {
        deaths.extend([Death::Before(writes), Death::After(writes)]);
    }
    for death in deaths {
        for (named, stays, seen) in [
            (true, false, true),
            (true, true, true),
            (true, true, false),
            (true, false, false),
            (false, true, true),
        ] {
            println!("{death:?}, named {named}, stays {stays}, seen {seen}");
            moves(death, named, stays, seen).await;
        }
    }
}

#[tokio::test]
async fn a_move_that_is_given_up_leaves_the_address_where_it_was() {
    let mut bench = Bench::new(Death::Never, true).await;
    bench.copy().await;
    bench.there.set_owner(Owner::Absent);
    let gone = "2024-01-03T00:00:00Z";
    bench.there.server.lock().delete(&key(), gone);
    bench.settle().await;
    assert_eq!(
        (bench.there.claim(), bench.there.shows()),
        (Value::Null, None)
    );
    bench.here.set_owner(Owner::Running);
    bench.settle().await;
    bench.held_by(&bench.here);
    assert_eq!(bench.lease().contenders, []);
    let shows = bench.here.shows().expect("an IPAddress");
    assert_eq!(shows["spec"]["address"], "10.0.0.5");
}

/// Nobody knows yet where it went.
#[tokio::test]
async fn what_is_deleted_by_a_move_keeps_its_lease_until_another_cluster_shows_it() {
    let mut bench = Bench::new(Death::Never, true).await;
    let mark = json!({ "metadata": {
        "annotations": { DELETE_FOR_MOVE: "" }, "deletionTimestamp": "2024-01-02T00:00:00Z",
    } });
    bench.here.server.lock().edit(&key(), &mark);
    bench.settle().await;
    bench.held_by(&bench.here);
    let claim = bench.here.claim();
    assert_eq!(claim["metadata"]["finalizers"], json!([RELEASE_ADDRESS]));
    let said = bench.here.daemon.controller.context().events.said();
    assert_eq!(said, [("u-a".to_owned(), "KeptForMove")]);

    // It is no move after all.
    let edit = json!({ "metadata": { "annotations": null } });
    bench.here.server.lock().edit(&key(), &edit);
    bench.settle().await;
    assert_eq!(bench.here.claim(), Value::Null);
    assert_eq!(bench.lease().state, LeaseState::Quarantined);
}

#[tokio::test]
async fn a_claim_that_only_looks_like_a_copy_is_served() {
    let bench = Bench::new(Death::Never, false).await;
    let mut spec = IpClaims::pool(&bench.there.session.id, "other", "10.0.1.5-10.0.1.6");
    spec.name = "cluster-api/there/other".into();
    let actor = "test".into();
    let made = bench.ipam.submit(Request::CreatePool { spec, actor }).await;
    made.expect("a pool");
    let claims = &bench.there.daemon.controller;
    let (new, old) = (clock::rfc3339(clock::now()), "2024-01-01T00:00:00Z");
    for (pool, cluster, created, waits) in [
        ("net", "", &*new, true),
        ("net", "", old, false),
        ("other", "", &*new, false),
        ("net", "one", &*new, true),
    ] {
        let mut claim = IpClaims::object();
        let fields = json!({
            "metadata": {
                "name": "a", "namespace": "ns", "uid": "v-a", "creationTimestamp": created,
                "finalizers": [RELEASE_ADDRESS],
            },
            "spec": { "clusterName": cluster, "poolRef": { "name": pool } },
        });
        merge(&mut claim, &fields);
        let claim = IpClaims::view(serde_json::from_value(claim).expect("a claim"));
        let site = &claims.context.site;
        let wish = bench
            .ipam
            .read(|ledger| claims.user.wish(ledger, site, &key(), &claim));
        match wish {
            Ok(wish) => assert!(!waits && wish.recorded.is_none(), "{pool} {created}"),
            Err(why) => assert!(waits && why.reason == "WaitingForMove", "{why:?}"),
        }
    }
}

/// The pause of its Cluster ends when everything is copied, and the watch of Clusters may be faster than that of IPAddresses.
#[tokio::test]
async fn a_claim_of_a_running_cluster_takes_what_was_copied_and_waits_for_nothing_else() {
    for copied in [true, false] {
        let mut bench = Bench::new(Death::Never, true).await;
        bench.there.set_owner(Owner::Running);
        let (side, shows) = (&bench.there, bench.brought(&key()));
        let mut claim = IpClaims::object();
        let meta = json!({
            "uid": "v-a", "finalizers": [RELEASE_ADDRESS],
            "creationTimestamp": clock::rfc3339(clock::now()),
            "ownerReferences": [{
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "one", "uid": "u-one",
            }],
        });
        merge(
            &mut claim,
            &json!({ "spec": { "clusterName": "one" }, "metadata": meta }),
        );
        side.server.lock().make(&key(), claim);
        side.server
            .lock()
            .edit(&key(), &json!({ "metadata": meta }));
        if copied {
            side.server.lock().made.insert(key(), shows);
        }
        let claims = &side.daemon.controller;
        let claim = IpClaims::view(serde_json::from_value(side.claim()).expect("a claim"));
        let done = claims.reconcile(&key(), Some(Arc::new(claim))).await;
        done.expect("no failure");
        let identity = side.identity();
        let (leases, contends) = bench.ipam.read(|ledger| {
            let contends = !ledger.contentions_of(&identity).is_empty();
            (ledger.leases_of(&identity), contends)
        });
        let has: Vec<_> = leases.iter().map(|lease| lease.key).collect();
        let other = (!copied).then(|| place([10, 0, 0, 6]));
        assert_eq!((has, contends), (other.into_iter().collect(), copied));
    }
}

/// A pause keeps addresses; a claim that has none may go.
#[tokio::test]
async fn a_claim_without_an_address_goes_although_its_cluster_is_paused() {
    let mut bench = Bench::new(Death::Never, true).await;
    bench.here.set_owner(Owner::Paused);
    let without = Key::new("ns", "b");
    let mut claim = IpClaims::object();
    let meta = json!({ "finalizers": [RELEASE_ADDRESS] });
    merge(
        &mut claim,
        &json!({ "spec": { "clusterName": "one" }, "metadata": meta }),
    );
    bench.here.server.lock().make(&without, claim);
    bench.settle().await;
    let gone = "2024-01-03T00:00:00Z";
    for claim in [&without, &key()] {
        bench.here.server.lock().delete(claim, gone);
    }
    bench.settle().await;
    let server = bench.here.server.lock();
    assert_eq!(server.object(&without), Value::Null);
    assert_eq!(
        server.object(&key())["metadata"]["finalizers"],
        json!([RELEASE_ADDRESS])
    );
    drop(server);
    bench.held_by(&bench.here);
}

/// What the watch shows late is of an earlier claim of the name, and its address is another's by now.
#[tokio::test]
async fn a_claim_that_is_made_again_gets_an_address_although_the_watch_is_behind() {
    let bench = Bench::new(Death::Never, false).await;
    let (side, again) = (&bench.here, Key::new("ns", "b"));
    let stale = bench.brought(&again);
    let stale = AddressView::of(serde_json::from_value(stale).expect("an IPAddress"));
    let claims = &side.daemon.controller;
    claims.user.addresses.set(&again, stale);
    side.server.lock().make(&again, IpClaims::object());
    let claim = side.server.lock().object(&again);
    let claim = IpClaims::view(serde_json::from_value(claim).expect("a claim"));
    let done = claims.reconcile(&again, Some(Arc::new(claim))).await;
    done.expect("no failure");
    let shows = side.server.lock().made.get(&again).cloned();
    let shows = shows.expect("an IPAddress");
    assert_eq!(shows["spec"]["address"], "10.0.0.6", "{shows}");
    let identity = claims.context.identity(&again);
    let contends = bench
        .ipam
        .read(|ledger| !ledger.contentions_of(&identity).is_empty());
    assert!(!contends, "it waits for nobody");
}

/// The answer that it was made may have come to nobody, and the watch may begin again after the claim has gone; or it shows the one
/// of an earlier claim of the name, which cools.
#[tokio::test]
async fn an_ipaddress_that_no_watch_has_shown_goes_with_its_claim() {
    for cools in [false, true] {
        let bench = Bench::new(Death::Never, false).await;
        let side = &bench.here;
        let claims = &side.daemon.controller;
        claims.user.addresses.remove(&key());
        if cools {
            let mut earlier = bench.brought(&key());
            let annotations = json!({ GRACE_ENDS: clock::rfc3339(clock::now()) });
            let meta =
                json!({ "annotations": annotations, "ownerReferences": null, "finalizers": null });
            merge(&mut earlier, &json!({ "metadata": meta }));
            let view = AddressView::of(serde_json::from_value(earlier).expect("an IPAddress"));
            assert!(view.grace_ends.is_some(), "{view:?}");
            claims.user.addresses.set(&key(), view);
        }
        side.server.lock().delete(&key(), "2024-01-03T00:00:00Z");
        let claim = IpClaims::view(serde_json::from_value(side.claim()).expect("a claim"));
        let meta = claim.meta.clone();
        let done = claims.release(&key(), &meta, Some(Arc::new(claim))).await;
        done.expect("no failure");
        assert_eq!(side.claim(), Value::Null);
        assert_eq!(bench.lease().state, LeaseState::Quarantined);
        let shows = side.shows().expect("it stays for the grace of the pool");
        assert_eq!(shows["metadata"]["finalizers"], json!([]), "{shows}");
        assert!(shows["metadata"]["annotations"][GRACE_ENDS].is_string());
    }
}

/// Somebody makes a claim of the name: fipd writes its finalizer while the ledger decides.
#[tokio::test]
async fn a_claim_that_got_its_finalizer_here_waits_for_no_copy() {
    let mut bench = Bench::new(Death::Never, false).await;
    bench.there.server.lock().make(&key(), IpClaims::object());
    let now = json!({ "metadata": { "creationTimestamp": clock::rfc3339(clock::now()) } });
    bench.there.server.lock().edit(&key(), &now);
    let view = |side: &Side| IpClaims::view(serde_json::from_value(side.claim()).expect("a claim"));
    let claim = view(&bench.there);
    let claims = &bench.there.daemon.controller;
    let marked = claims.mark(&key(), &claim, None).await;
    let marked = marked.expect("no failure").expect("it is written");
    assert!(marked.meta.has_finalizer(RELEASE_ADDRESS));
    let wish = |side: &Side| {
        let claims = &side.daemon.controller;
        let site = &claims.context.site;
        let wished = |ledger: &Ledger| claims.user.wish(ledger, site, &key(), &view(side));
        claims.context.read(wished).map(|wish| wish.pool.id)
    };
    assert_eq!(wish(&bench.there).ok(), Some(bench.there.pool));
    // Who comes later cannot tell.
    bench.there.restart();
    let why = wish(&bench.there).expect_err("it may be a copy");
    assert_eq!(why.reason, "WaitingForMove");
}

/// Another provider has the pool by now, which neither deletes it nor makes one of its name beside it.
#[tokio::test]
async fn what_is_in_its_grace_goes_although_another_provider_has_its_pool() {
    for claimed in [false, true] {
        let mut bench = Bench::new(Death::Never, false).await;
        let side = &mut bench.here;
        side.server.lock().delete(&key(), "2024-01-03T00:00:00Z");
        let claim = IpClaims::view(serde_json::from_value(side.claim()).expect("a claim"));
        let (claims, meta) = (&side.daemon.controller, claim.meta.clone());
        let dying = Some(Arc::new(claim.clone()));
        let done = claims.release(&key(), &meta, dying).await;
        done.expect("no failure");
        *side.session.settings.of_mut() = ClusterApiSettings {
            in_cluster_kinds: InClusterKinds::Leave,
            ..ClusterApiSettings::default()
        };
        let mut shows = side.shows().expect("it stays for the grace of the pool");
        if !claimed {
            shows["metadata"]["annotations"][GRACE_ENDS] = json!("2024-01-03T00:00:00Z");
            side.server.lock().made.insert(key(), shows);
        }
        side.restart();
        let claims = &side.daemon.controller;
        let known = side.shows().expect("an IPAddress");
        let known = AddressView::of(serde_json::from_value(known).expect("an IPAddress"));
        claims.user.addresses.set(&key(), known);
        let mut new = IpClaims::object();
        new["metadata"] = json!({ "name": "a", "namespace": "ns" });
        let new = serde_json::from_value(new).expect("a claim");
        assert!(claims.context.queue.is_idle());
        assert_eq!(IpClaims::view_of(claims, new), None);
        assert!(!claims.context.queue.is_idle(), "its name is needed");
        let theirs = IpClaimView {
            served: false,
            ..claim
        };
        let claim = claimed.then(|| Arc::new(theirs));
        let next = claims.reconcile(&key(), claim).await;
        assert_eq!(next.expect("no failure"), Next::Done);
        assert_eq!(side.shows(), None);
    }
}

/// A claim waits for the checks of others only where it is to get an address that nobody has used.
#[tokio::test]
async fn a_claim_that_has_or_brings_an_address_waits_for_no_check() {
    let bench = Bench::new(Death::Never, false).await;
    let (side, other) = (&bench.here, Key::new("ns", "b"));
    let claims = &side.daemon.controller;
    let view = |claim| IpClaims::view(serde_json::from_value(claim).expect("a claim"));
    let has = view(side.claim());
    assert!(checked_pool(claims, &key(), &has).is_none());
    side.server.lock().make(&other, IpClaims::object());
    let claim = side.server.lock().object(&other);
    let new = view(claim.clone());
    let pool = checked_pool(claims, &other, &new).expect("a pool");
    assert_eq!(pool.id, side.pool);

    let shows = bench.brought(&other);
    let known = AddressView::of(serde_json::from_value(shows.clone()).expect("an IPAddress"));
    claims.user.addresses.set(&other, known);
    side.server.lock().made.insert(other.clone(), shows);
    confirm(claims, &other, &new).await.expect("no failure");
    assert!(checked_pool(claims, &other, &new).is_none());

    let mut nowhere = claim;
    merge(
        &mut nowhere,
        &json!({ "spec": { "poolRef": { "name": "none" } } }),
    );
    let why = view(nowhere);
    assert!(checked_pool(claims, &Key::new("ns", "c"), &why).is_none());
}
