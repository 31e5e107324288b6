//! What every kind that uses an address must do, and do again after it died at any write.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::{
    Adopt, Adoption, Answer, ClusterId, Expectation, Holder, Lease, LeaseKey, LeaseState,
    NetworkId, Pool, PoolSpec, Release, ReleaseScope, Request, System, Text, Timestamp,
    testing as ledger,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{AddressController, AddressHooks, Edits, inventory::AddressInventory};
use crate::{
    clock,
    clusters::{ClusterSession, adoption::Inventory, testing},
    controller::{
        client::Remote,
        conditions::CONFLICT,
        confirm_absence::RECHECK_AFTER,
        context::Context,
        events::Events,
        fake_api_tests::{Daemon, Death, FakeApi, client},
        meta::View,
        queue::Next,
        reconcile::Controller,
        site::Site,
        store::{Key, MALFORMED, Malformed, Observed},
        waiters::RECHECK_HELD_AFTER,
    },
    ipam::Ipam,
};

/// A kind under test: how its objects and pools look.
pub trait Subject: AddressHooks {
    fn system() -> System;

    /// Settings of the cluster under which the pools `net` and `far` serve its objects.
    fn configure(_session: &mut ClusterSession) {}

    /// A pool that the objects call so.
    fn pool(cluster: &ClusterId, name: &str, addresses: &str) -> PoolSpec;

    fn controller(
        site: &Arc<Site>,
        remote: Remote,
        events: &Arc<Events>,
    ) -> Arc<AddressController<Self>>;

    /// An object that asks for an address of pool `net`; without metadata but for labels.
    fn object() -> Value;

    /// The edit by which an object asks for this address.
    fn naming(address: &str) -> Value;

    /// The edit by which an object asks for an address of this pool.
    fn redirecting(pool: &str) -> Value;

    /// An object as its original left it with this address; `None`: it has none, or left a status as fipd does.
    fn original(_address: &str) -> Option<Value> {
        None
    }

    /// The field of the status with the address; by default all that shows it.
    const ADDRESS: &'static str;
    /// How paths name the kind that shows the addresses of the objects; `None`: their status does.
    const MAKES: Option<&'static str> = None;

    /// The address that an object shows.
    fn address(_: &FakeApi, object: &Value) -> Value {
        object["status"][Self::ADDRESS].clone()
    }

    /// One object comes to show the address of another.
    fn copy_address(server: &mut FakeApi, from: &Key, to: &Key) {
        let status = server.object(from)["status"].clone();
        server.edit(to, &json!({ "status": status }));
    }

    /// The daemon hears of the objects that it makes.
    fn observe(_: &AddressController<Self>, _: &FakeApi) {}

    /// Whether an Event says that an object gets its address.
    const SAYS_ALLOCATED: bool = true;
    /// Why an object waits that names a pool that there is not.
    const UNKNOWN_POOL: &'static str = "PoolNotFound";
}

struct Bench<S: Subject> {
    _dir: tempfile::TempDir,
    ipam: Ipam,
    server: Arc<Mutex<FakeApi>>,
    session: ClusterSession,
    daemon: Daemon<AddressController<S>>,
    pool: Arc<Pool>,
    death: Death,
    /// Objects may have leases that they did not ask for.
    taken_over: bool,
    /// What the daemon said in Events before its restart: by UID, the reasons.
    said: Vec<(String, &'static str)>,
}

impl<S: Subject> Bench<S> {
    /// Two addresses, 10.0.0.5 and 10.0.0.6.
    async fn new(death: Death) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let server = Arc::<Mutex<FakeApi>>::default();
        server.lock().makes = S::MAKES;
        let mut session = testing::session(client(&server), &ipam).await;
        testing::map_to(&session, &S::system(), NetworkId::DEFAULT);
        S::configure(&mut session);
        let spec = S::pool(&session.id, "net", "10.0.0.5-10.0.0.6");
        let pool = create_pool(&ipam, spec).await;
        let daemon = Daemon::new(start(&session, &server));
        Self {
            _dir: dir,
            ipam,
            server,
            session,
            daemon,
            pool,
            death,
            taken_over: false,
            said: Vec::new(),
        }
    }

    /// `a` and `b` have both addresses.
    async fn full(death: Death) -> Self {
        let mut bench = Self::new(death).await;
        for (name, last) in [("a", 5), ("b", 6)] {
            bench.make(name);
            bench.settle().await;
            bench.has(name, last);
        }
        bench
    }

    /// A new daemon, which knows nothing but the ledger and what it lists.
    fn restart(&mut self) {
        self.daemon = Daemon::new(start(&self.session, &self.server));
    }

    /// Works until nothing is left to do; once more after a restart, in which the daemon may have died midway.
    async fn settle(&mut self) {
        self.server.lock().die(self.death);
        self.work().await;
        self.protected();
        self.said = self.context().events.said();
        self.server.lock().die(Death::Never);
        self.restart();
        self.work().await;
    }

    /// Wherever the daemon died: an object that asked for its lease has the finalizer already, where that comes first. One that
    /// showed the address before got the lease without asking.
    fn protected(&self) {
        let objects = self.server.lock().objects.clone();
        for (key, object) in objects
            .iter()
            .filter(|_| S::FINALIZER_FIRST && !self.taken_over)
        {
            let identity = self.holder(&key.name).identity;
            let leases = self.ipam.read(|ledger| ledger.leases_of(&identity));
            let finalizers = &object["metadata"]["finalizers"];
            let marked = *finalizers == json!([S::FINALIZER]);
            let shown = !S::address(&self.server.lock(), object).is_null();
            assert!(
                marked || shown || leases.is_empty(),
                "{leases:?} of {object}"
            );
        }
    }

    async fn work(&mut self) {
        S::observe(&self.daemon.controller, &self.server.lock());
        let malformed = self.daemon.controller.context().objects.malformed();
        let view = |object: &Value| {
            let key = key(object["metadata"]["name"].as_str().unwrap_or_default());
            match malformed.iter().find(|(one, _)| *one == key) {
                Some((_, malformed)) => Observed::Malformed(Arc::clone(malformed)),
                None => {
                    let object = serde_json::from_value(object.clone()).expect("an object");
                    Observed::Parsed(Arc::new(S::view(object)))
                }
            }
        };
        self.daemon.work(&self.ipam, &self.server, view).await;
    }

    fn context(&self) -> &Context<S::View> {
        self.daemon.controller.context()
    }

    fn make(&self, name: &str) {
        self.server.lock().make(&key(name), S::object());
    }

    /// An object that is as old as this day.
    fn make_at(&self, name: &str, day: &str) {
        self.make(name);
        let created = format!("{day}T00:00:00Z");
        let created = json!({ "metadata": { "creationTimestamp": created } });
        self.edit(name, &created);
    }

    /// Somebody wrote the object.
    fn edit(&self, name: &str, patch: &Value) {
        self.server.lock().edit(&key(name), patch);
    }

    /// A pool that gives nothing: nobody chose its network or that of another pool, which may mean the same addresses.
    async fn make_doubtful(&self, name: &str, addresses: &str) -> Arc<Pool> {
        let by_default = |spec: PoolSpec| PoolSpec {
            network_by_default: true,
            ..spec
        };
        let twin = PoolSpec {
            network: testing::new_network(&self.ipam, "other").await,
            ..ledger::pool_spec("twin", &[addresses])
        };
        create_pool(&self.ipam, by_default(twin)).await;
        let spec = S::pool(&self.session.id, name, addresses);
        create_pool(&self.ipam, by_default(spec)).await
    }

    fn delete(&self, name: &str) {
        let at = json!({ "metadata": { "deletionTimestamp": "2024-01-02T00:00:00Z" } });
        self.edit(name, &at);
    }

    fn object(&self, name: &str) -> Value {
        self.server.lock().object(&key(name))
    }

    fn address(&self, object: &Value) -> Value {
        S::address(&self.server.lock(), object)
    }

    fn condition(&self, name: &str, kind: &str) -> Option<String> {
        let object = self.object(name);
        let conditions = object["status"]["conditions"].as_array()?;
        let one = conditions.iter().find(|one| one["type"] == kind)?;
        one["status"].as_str().map(str::to_owned)
    }

    fn holder(&self, name: &str) -> Holder {
        let uid: Text = format!("u-{name}").into();
        self.daemon.controller.context.holder(&key(name), &uid)
    }

    /// Somebody asks for something else of the object. The API server counts that where it is in the specification.
    fn ask(&self, name: &str, mut patch: Value) {
        if !patch["spec"].is_null() {
            let generation = self.object(name)["metadata"]["generation"].as_u64();
            patch["metadata"]["generation"] = json!(generation.unwrap_or_default() + 1);
        }
        self.edit(name, &patch);
    }

    /// Whether such an edit is followed.
    fn follows() -> bool {
        matches!(S::EDITS, Edits::Followed)
    }

    fn place(&self, last: u8) -> LeaseKey {
        self.place_of([10, 0, 0, last])
    }

    fn place_of(&self, address: [u8; 4]) -> LeaseKey {
        LeaseKey {
            network: self.pool.spec.network,
            address: address.into(),
        }
    }

    fn lease(&self, last: u8) -> Option<Arc<Lease>> {
        self.lease_of([10, 0, 0, last])
    }

    fn lease_of(&self, address: [u8; 4]) -> Option<Arc<Lease>> {
        let place = self.place_of(address);
        self.ipam.read(|ledger| ledger.lease(place).cloned())
    }

    /// How many wait for an address of the pool.
    fn queued(&self, pool: &Pool) -> usize {
        self.ipam.read(|ledger| ledger.waiter_count(pool.id))
    }

    /// What the object holds.
    fn leases(&self, name: &str) -> Vec<LeaseKey> {
        let identity = self.holder(name).identity;
        let leases = self.ipam.read(|ledger| ledger.leases_of(&identity));
        leases.iter().map(|lease| lease.key).collect()
    }

    /// The daemon said this of the object since its restart: each reason in one Event.
    fn told(&self, name: &str, reasons: &[&str]) {
        assert_eq!(reasons_of(self.context().events.said(), name), reasons);
    }

    /// When the daemon looks at the object again.
    fn next(&self, name: &str) -> Option<Next> {
        self.daemon.next.get(&key(name)).copied()
    }

    /// The object has the address: by the ledger, by its status, and with the finalizer.
    fn has(&self, name: &str, last: u8) {
        self.has_address(name, [10, 0, 0, last]);
    }

    fn has_address(&self, name: &str, address: [u8; 4]) {
        let lease = self.lease_of(address).expect("a lease");
        let owner = lease.owner().expect("an owner");
        assert_eq!(
            (owner, lease.state),
            (&self.holder(name), LeaseState::Allocated)
        );
        assert_eq!(self.leases(name), [lease.key], "it has nothing else");
        let object = self.object(name);
        let shown = lease.key.address.to_string();
        assert_eq!(self.address(&object), shown, "{object}");
        let finalizers = &object["metadata"]["finalizers"];
        assert_eq!(*finalizers, json!([S::FINALIZER]), "{object}");
        assert_eq!(
            self.condition(name, "Ready").as_deref(),
            Some("True"),
            "{object}"
        );
        assert_eq!(self.next(name), Some(Next::Done));
    }

    /// It has this address in place of the one that it asks for, and says why in one Event.
    fn stays(&self, name: &str, last: u8, reason: &str) {
        assert_eq!(self.leases(name), [self.place(last)]);
        let object = self.object(name);
        let shown = format!("10.0.0.{last}");
        assert_eq!(self.address(&object), shown, "{object}");
        let conditions = object["status"]["conditions"].as_array().expect("some");
        let ready = conditions.iter().find(|one| one["type"] == "Ready");
        let ready = ready.expect("a condition");
        assert_eq!(ready["status"], "False", "{object}");
        if Self::follows() {
            let message = ready["message"].as_str().unwrap_or_default();
            assert!(message.contains(&format!("{shown} stays")), "{message}");
            assert_eq!(ready["reason"], reason, "{object}");
            self.told(name, &[reason]);
        }
    }

    /// It has none, says so in one Event with this reason, and is looked at again after this time.
    fn waits(&self, name: &str, reason: &str, again: Duration) {
        let identity = self.holder(name).identity;
        let leases = self.ipam.read(|ledger| ledger.leases_of(&identity));
        assert!(leases.is_empty(), "{leases:?}");
        let object = self.object(name);
        assert_eq!(
            self.condition(name, "Ready").as_deref(),
            Some("False"),
            "{object}"
        );
        self.told(name, &[reason]);
        assert_eq!(self.next(name), Some(Next::After(again)));
    }

    async fn submit(&self, request: Request) {
        self.ipam.submit(request).await.expect("an answer");
    }

    /// The network waits for a cluster.
    fn expect_other(&self) {
        self.ipam.set_expectations(vec![Expectation {
            network: NetworkId::DEFAULT,
            cluster: "other".into(),
            system: System::ip_rule(),
        }]);
    }

    /// The network has seen all of a system's addresses.
    async fn adopted(&self, cluster: &str, system: System) {
        let marker = Adoption {
            network: self.pool.spec.network,
            cluster: cluster.into(),
            system,
            at: Timestamp(1),
            skipped: true,
        };
        let actor = "test".into();
        self.submit(Request::MarkAdopted { marker, actor }).await;
    }

    /// Takes in what all objects show, before anything else.
    async fn adopt_all(&self) {
        let inventory = AddressInventory(Arc::clone(&self.daemon.controller));
        for sighting in inventory.list().await.expect("a list") {
            for used in sighting.uses {
                let adopt = Adopt {
                    length: used.explicit_length(),
                    key: used.key,
                    holder: sighting.holder.clone(),
                    tenant: sighting.tenant.clone(),
                    since: sighting.since,
                    actor: "test".into(),
                };
                self.submit(Request::Adopt(adopt)).await;
            }
        }
        self.adopted(&self.session.id.0, S::system()).await;
    }

    async fn release(&self, last: u8) {
        let request = Request::Release(Release {
            scope: ReleaseScope::Address(self.place(last)),
            actor: "test".into(),
            reason: "a test".into(),
        });
        self.submit(request).await;
    }
}

async fn create_pool(ipam: &Ipam, spec: PoolSpec) -> Arc<Pool> {
    let actor = "test".into();
    let made = ipam.submit(Request::CreatePool { spec, actor }).await;
    let Ok(Answer::Pool(pool)) = made else {
        panic!("{made:?}");
    };
    pool
}

/// The reasons of what was said of the object.
fn reasons_of(said: Vec<(String, &'static str)>, name: &str) -> Vec<&'static str> {
    let uid = format!("u-{name}");
    let said = said.into_iter().filter(|(of, _)| *of == uid);
    said.map(|(_, reason)| reason).collect()
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn start<S: Subject>(
    session: &ClusterSession,
    server: &Arc<Mutex<FakeApi>>,
) -> Arc<AddressController<S>> {
    let site = Arc::new(Site::new(session.clone(), S::system()));
    let quiet = || std::future::ready(());
    let events = Events::start(session.recorder.clone(), site.cancel(), quiet);
    S::controller(&site, Remote::new(client(server)), &Arc::new(events))
}

/// Runs everything, without and with the death of the daemon at each write.
pub async fn conforms<S: Subject>() {
    let mut deaths = vec![Death::Never];
    for writes in 0..3 {
        deaths.extend([Death::Before(writes), Death::After(writes)]);
    }
    for death in deaths {
        allocated_waiting_and_released::<S>(death).await;
        malformed::<S>(death).await;
        edited::<S>(death).await;
        edited_in_vain::<S>(death).await;
        redirected::<S>(death).await;
        doubted::<S>(death).await;
        undone::<S>().await;
        marked_beside::<S>().await;
        unprotected::<S>(death).await;
        contended::<S>(death).await;
        contender_edited::<S>(death).await;
        taken_over::<S>(death).await;
        held::<S>(death).await;
        held_in_a_queue::<S>(death).await;
        another_queue::<S>(death).await;
    }
}

async fn allocated_waiting_and_released<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::new(death).await;
    for (name, last) in [("a", 5), ("b", 6)] {
        bench.make(name);
        bench.settle().await;
        bench.has(name, last);
        // In one of its lives, unless it died between status and Event.
        let mut said = reasons_of(bench.said.clone(), name);
        said.extend(reasons_of(bench.context().events.said(), name));
        let lost = !S::SAYS_ALLOCATED || death != Death::Never;
        assert!(S::SAYS_ALLOCATED && said == ["Allocated"] || lost && said.is_empty());
    }
    let before = bench.object("a");
    bench.make("c");
    bench.settle().await;
    bench.waits("c", "PoolExhausted", RECHECK_AFTER);
    assert_eq!(bench.object("a"), before, "nothing is written without need");
    bench.delete("a");
    bench.settle().await;
    assert_eq!(bench.object("a"), Value::Null);
    bench.has("c", 5);
    bench.has("b", 6);

    // Another instance of the name, while the lease of the one before is still there.
    let again = json!({ "metadata": { "uid": "u-other" }, "status": null });
    bench.edit("c", &again);
    bench.settle().await;
    let lease = bench.lease(5).expect("a lease");
    assert_eq!(lease.owner().map(|owner| &*owner.instance), Some("u-other"));
    let stale = ReleaseScope::Holder(bench.holder("c"));
    let release = Release {
        scope: stale,
        actor: "test".into(),
        reason: "a test".into(),
    };
    bench.submit(Request::Release(release)).await;
    assert!(bench.lease(5).is_some(), "it is another's");
}

async fn malformed<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::new(death).await;
    bench.make("a");
    bench.settle().await;
    bench.has("a", 5);
    for deleted in [false, true] {
        if deleted {
            bench.delete("a");
        }
        let object = bench.object("a");
        let view = S::view(serde_json::from_value(object).expect("an object"));
        let malformed = Malformed {
            meta: view.meta(),
            annotations: BTreeMap::new(),
            error: "no object".into(),
        };
        // The daemon dies before it hears of it.
        bench.restart();
        let context = bench.daemon.controller.context();
        let seen = Observed::<S::View>::Malformed(Arc::new(malformed));
        assert!(context.objects.put(&key("a"), Some(seen)).expect("memory"));
        context.queue.add(key("a"));
        bench.work().await;
        assert_eq!(bench.lease(5).is_none(), deleted, "what was in force stays");
        if !deleted {
            bench.told("a", &[MALFORMED]);
            assert_eq!(bench.next("a"), Some(Next::Done));
        }
    }
    assert_eq!(bench.object("a"), Value::Null);
}

/// An edit that asks for a free address: it is followed, or refused as admission does where it is asked.
async fn edited<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::new(death).await;
    bench.make("a");
    bench.settle().await;
    bench.ask("a", S::naming("10.0.0.6"));
    let spec = bench.object("a")["spec"].clone();
    bench.settle().await;
    if Bench::<S>::follows() {
        bench.has("a", 6);
        assert_eq!(bench.object("a")["spec"], spec);
        assert_eq!(bench.lease(5), None, "it is given back");
        return;
    }
    let lease = bench.lease(5).expect("a lease");
    assert_eq!(lease.owner(), Some(&bench.holder("a")));
    assert_eq!(bench.lease(6), None, "an edit takes no other address");
    let object = bench.object("a");
    assert_eq!(bench.address(&object), "10.0.0.5");
    // What is no part of the specification counts only before the object has an address.
    let specified = !S::naming("10.0.0.6")["spec"].is_null();
    let refused = bench.condition("a", "Ready").as_deref() == Some("False");
    assert!(refused || !specified || object["spec"] != spec, "{object}");
}

/// The address is somebody else's: the object keeps what it has, and gets the other once that is free.
async fn edited_in_vain<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::new(death).await;
    for name in ["a", "b"] {
        bench.make(name);
        bench.settle().await;
    }
    bench.ask("a", S::naming("10.0.0.6"));
    let spec = bench.object("a")["spec"].clone();
    bench.settle().await;
    bench.has("b", 6);
    if Bench::<S>::follows() {
        bench.stays("a", 5, "AddressTaken");
        assert_eq!(bench.object("a")["spec"], spec, "the wish stays");
        assert_eq!(bench.next("a"), Some(Next::After(RECHECK_AFTER)));
    }
    bench.delete("b");
    bench.settle().await;
    let (now, other) = if Bench::<S>::follows() {
        (6, 5)
    } else {
        (5, 6)
    };
    assert_eq!(bench.leases("a"), [bench.place(now)]);
    assert_eq!(bench.lease(other), None);
    if Bench::<S>::follows() {
        bench.has("a", 6);
    }
}

/// An edit that asks for an address of another pool: one that there is not, one that is full, one with room.
async fn redirected<S: Subject>(death: Death) {
    const FAR: [u8; 4] = [10, 0, 1, 5];
    let mut bench = Bench::<S>::full(death).await;
    bench.ask("a", S::redirecting("far"));
    bench.settle().await;
    bench.stays("a", 5, S::UNKNOWN_POOL);
    let spec = S::pool(&bench.session.id, "far", "10.0.1.5");
    create_pool(&bench.ipam, spec).await;
    bench.settle().await;
    if !Bench::<S>::follows() {
        assert_eq!(bench.leases("a"), [bench.place(5)]);
        assert_eq!(bench.lease_of(FAR), None, "an edit takes no other address");
        return;
    }
    bench.has_address("a", FAR);
    assert_eq!(bench.lease(5), None, "it is given back");
    bench.ask("b", S::redirecting("far"));
    bench.settle().await;
    bench.stays("b", 6, "PoolExhausted");
    bench.delete("a");
    bench.settle().await;
    bench.has_address("b", FAR);
    assert_eq!(bench.lease(6), None, "it is given back");
    bench.ask("b", S::redirecting("net"));
    bench.settle().await;
    bench.has("b", 5);
    assert_eq!(bench.lease_of(FAR), None, "it is given back");
}

/// A pool is not full that gives nothing before somebody says which networks are two: an object hears so whichever way it asks.
async fn doubted<S: Subject>(death: Death) {
    const AMBIGUOUS: &str = "NetworkAmbiguous";
    let mut bench = Bench::<S>::new(death).await;
    bench.make("a");
    bench.settle().await;
    bench.has("a", 5);
    let far = bench.make_doubtful("far", "10.0.1.5").await;
    bench.make("b");
    bench.ask("b", S::redirecting("far"));
    bench.settle().await;
    bench.waits("b", AMBIGUOUS, RECHECK_AFTER);
    if Bench::<S>::follows() {
        bench.ask("a", S::redirecting("far"));
        bench.settle().await;
        bench.stays("a", 5, AMBIGUOUS);
    }
    let controller = &bench.daemon.controller;
    let shown = controller.shown(&bench.lease(5).expect("a lease"));
    let wants = [ledger::want(far.id, None)];
    let request = Request::Allocate(ledger::allocate(bench.holder("a"), wants));
    let charged = controller.charge(shown, request).await.expect("an answer");
    let uncharged = charged.expect("its lease").uncharged.expect("a reason");
    assert_eq!(uncharged.reason, AMBIGUOUS);
}

/// The daemon dies with both addresses, and the edit is undone before it is back.
async fn undone<S: Subject>() {
    let mut bench = Bench::<S>::new(Death::Never).await;
    if !Bench::<S>::follows() {
        return;
    }
    bench.make("a");
    bench.settle().await;
    bench.ask("a", S::naming("10.0.0.6"));
    bench.server.lock().die(Death::Before(0));
    bench.work().await;
    assert_eq!(bench.leases("a"), [bench.place(5), bench.place(6)]);
    bench.ask("a", S::naming("10.0.0.5"));
    bench.settle().await;
    bench.has("a", 5);
    assert_eq!(bench.lease(6), None);
}

/// The write of the finalizer does not wait for the ledger, so it is the first one. An object that waits for an address has none.
async fn marked_beside<S: Subject>() {
    let mut bench = Bench::<S>::new(Death::Never).await;
    if !S::FINALIZER_BESIDE {
        return;
    }
    bench.make("a");
    bench.server.lock().die(Death::Before(1));
    bench.work().await;
    let object = bench.object("a");
    let finalizers = &object["metadata"]["finalizers"];
    assert_eq!(*finalizers, json!([S::FINALIZER]), "{object}");
    assert!(bench.server.lock().made.is_empty(), "nothing shows it");
    assert_eq!(bench.leases("a"), [bench.place(5)]);
    bench.restart();
    for (name, last) in [("a", 5), ("b", 6)] {
        if last == 6 {
            bench.make(name);
        }
        bench.settle().await;
        bench.has(name, last);
    }
    bench.make("c");
    bench.settle().await;
    bench.waits("c", "PoolExhausted", RECHECK_AFTER);
    let object = bench.object("c");
    assert_eq!(object["metadata"]["finalizers"], Value::Null, "{object}");
}

/// The finalizer of another program keeps it, and that may wait for what fipd made for it.
async fn unprotected<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::new(death).await;
    bench.make("a");
    bench.settle().await;
    bench.has("a", 5);
    let others = json!({ "metadata": { "finalizers": ["example.org/other"] } });
    bench.edit("a", &others);
    bench.delete("a");
    bench.settle().await;
    assert_eq!(bench.leases("a"), []);
    assert!(bench.server.lock().made.is_empty(), "nothing shows it");
    let object = bench.object("a");
    let finalizers = &object["metadata"]["finalizers"];
    assert_eq!(*finalizers, others["metadata"]["finalizers"], "{object}");
}

/// Object `a` has 10.0.0.5, and `d` shows it as well.
async fn contending<S: Subject>(death: Death) -> Bench<S> {
    let mut bench = Bench::<S>::new(death).await;
    bench.make("a");
    bench.settle().await;
    bench.make("d");
    S::copy_address(&mut bench.server.lock(), &key("a"), &key("d"));
    S::observe(&bench.daemon.controller, &bench.server.lock());
    bench.adopt_all().await;
    bench.settle().await;
    bench.has("a", 5);
    bench.waits("d", CONFLICT, RECHECK_AFTER);
    bench
}

/// Objects that the original left: two with one address, one that has none yet and is older.
async fn taken_over<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::new(death).await;
    let Some(object) = S::original("10.0.0.5") else {
        return;
    };
    bench.make("0");
    for name in ["a", "d"] {
        bench.server.lock().make(&key(name), object.clone());
    }
    bench.adopt_all().await;
    bench.taken_over = true;
    bench.settle().await;
    bench.has("0", 6);
    bench.has("a", 5);
    bench.waits("d", CONFLICT, RECHECK_AFTER);
    bench.delete("a");
    bench.settle().await;
    bench.has("d", 5);
}

async fn contended<S: Subject>(death: Death) {
    let mut bench = contending::<S>(death).await;
    for name in ["a", "d"] {
        bench.told(name, &[CONFLICT]);
        assert_eq!(
            bench.condition(name, CONFLICT).as_deref(),
            Some("True"),
            "{name}"
        );
    }
    bench.make("e");
    bench.settle().await;
    bench.has("e", 6);
    bench.delete("a");
    bench.settle().await;
    bench.has("d", 5);
    assert_eq!(bench.condition("d", CONFLICT), None);
}

/// The one that has not got the address asks for another.
async fn contender_edited<S: Subject>(death: Death) {
    if !Bench::<S>::follows() {
        return;
    }
    let mut bench = contending::<S>(death).await;
    bench.ask("d", S::naming("10.0.0.6"));
    bench.settle().await;
    bench.has("d", 6);
    bench.has("a", 5);
    let lease = bench.lease(5).expect("a lease");
    assert_eq!(lease.contenders, [], "the conflict is over");
    assert_eq!(bench.condition("a", CONFLICT), None);
}

/// A network waits for a cluster, and an address for its release by an admin.
async fn held<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::new(death).await;
    bench.expect_other();
    bench.make("a");
    bench.settle().await;
    bench.waits("a", "WaitingForAdoption", RECHECK_HELD_AFTER);
    bench.adopted("name:other", System::ip_rule()).await;
    bench.settle().await;
    bench.has("a", 5);
    bench.release(5).await;
    bench.settle().await;
    bench.has("a", 5);
}

/// `d` waited for an address before `c` did. An address is released while the network waits for a cluster.
async fn held_in_a_queue<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::full(death).await;
    for (name, created) in [("c", "2024-01-03"), ("d", "2024-01-02")] {
        bench.make_at(name, created);
        bench.settle().await;
        bench.waits(name, "PoolExhausted", RECHECK_AFTER);
    }
    bench.expect_other();
    bench.delete("a");
    bench.work().await;
    for name in ["c", "d"] {
        bench.daemon.controller.context.queue.add(key(name));
    }
    bench.settle().await;
    bench.waits("c", "WaitingForAdoption", RECHECK_HELD_AFTER);
    bench.adopted("name:other", System::ip_rule()).await;
    bench.settle().await;
    bench.has("d", 5);
    assert_eq!(bench.leases("c"), []);
}

/// `c` waits for an address of a pool, then for one of another: it is nobody's turn that holds up who waits behind it.
async fn another_queue<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::full(death).await;
    let spec = S::pool(&bench.session.id, "far", "10.0.1.5");
    let far = create_pool(&bench.ipam, spec).await;
    bench.make("0");
    bench.ask("0", S::redirecting("far"));
    bench.settle().await;
    bench.has_address("0", [10, 0, 1, 5]);
    for (name, created) in [("c", "2024-01-02"), ("d", "2024-01-03")] {
        bench.make_at(name, created);
        bench.settle().await;
    }
    bench.ask("c", S::redirecting("far"));
    bench.settle().await;
    bench.waits("c", "PoolExhausted", RECHECK_AFTER);
    assert_eq!((bench.queued(&bench.pool), bench.queued(&far)), (1, 1));
    bench.delete("a");
    bench.settle().await;
    bench.has("d", 5);
    // One that somebody else's finalizer keeps waits for nothing once it is being deleted.
    bench.make("e");
    let kept = json!({ "metadata": { "finalizers": ["example.com/kept"] } });
    bench.edit("e", &kept);
    bench.settle().await;
    assert_eq!(bench.queued(&bench.pool), 1);
    bench.delete("e");
    bench.settle().await;
    assert_eq!(bench.queued(&bench.pool), 0);
}
