//! What every kind that uses an address must do, and do again after it died at any write.

use std::{sync::Arc, time::Duration};

use fipd_core::{
    Adopt, Adoption, Answer, ClusterId, Expectation, Holder, Lease, LeaseKey, LeaseState,
    NetworkId, Pool, PoolSpec, Release, ReleaseScope, Request, System, Text, Timestamp,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{AddressController, AddressHooks, inventory::AddressInventory};
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

    /// Settings of the cluster under which pool `net` serves its objects.
    fn configure(_session: &mut ClusterSession) {}

    /// A pool that the objects name `net`.
    fn pool(cluster: &ClusterId, addresses: &str) -> PoolSpec;

    fn controller(
        site: &Arc<Site>,
        remote: Remote,
        events: &Arc<Events>,
    ) -> Arc<AddressController<Self>>;

    /// An object that asks for an address of pool `net`; without metadata but for labels.
    fn object() -> Value;

    /// The edit by which an object asks for this address.
    fn naming(address: &str) -> Value;

    /// The field of the status with the address.
    const ADDRESS: &'static str;
}

struct Bench<S: Subject> {
    _dir: tempfile::TempDir,
    ipam: Ipam,
    server: Arc<Mutex<FakeApi>>,
    session: ClusterSession,
    daemon: Daemon<AddressController<S>>,
    pool: Arc<Pool>,
    death: Death,
    /// What the daemon said in Events before its restart: by UID, the reasons.
    said: Vec<(String, &'static str)>,
}

impl<S: Subject> Bench<S> {
    /// Two addresses, 10.0.0.5 and 10.0.0.6.
    async fn new(death: Death) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let server = Arc::<Mutex<FakeApi>>::default();
        let mut session = testing::session(client(&server), &ipam).await;
        testing::map_to(&session, &S::system(), NetworkId::DEFAULT);
        S::configure(&mut session);
        let create = Request::CreatePool {
            spec: S::pool(&session.id, "10.0.0.5-10.0.0.6"),
            actor: "test".into(),
        };
        let made = ipam.submit(create).await.expect("a pool");
        let Answer::Pool(pool) = made else {
            panic!("{made:?}");
        };
        let daemon = Daemon::new(start(&session, &server));
        Self {
            _dir: dir,
            ipam,
            server,
            session,
            daemon,
            pool,
            death,
            said: Vec::new(),
        }
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
        for (key, object) in objects.iter().filter(|_| S::FINALIZER_FIRST) {
            let identity = self.holder(&key.name).identity;
            let leases = self.ipam.read(|ledger| ledger.leases_of(&identity));
            let finalizers = &object["metadata"]["finalizers"];
            let marked = *finalizers == json!([S::FINALIZER]);
            let shown = !object["status"][S::ADDRESS].is_null();
            assert!(
                marked || shown || leases.is_empty(),
                "{leases:?} of {object}"
            );
        }
    }

    async fn work(&mut self) {
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

    /// Somebody wrote the object.
    fn edit(&self, name: &str, patch: &Value) {
        self.server.lock().edit(&key(name), patch);
    }

    fn delete(&self, name: &str) {
        let at = json!({ "metadata": { "deletionTimestamp": "2024-01-02T00:00:00Z" } });
        self.edit(name, &at);
    }

    fn object(&self, name: &str) -> Value {
        self.server.lock().object(&key(name))
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

    fn place(&self, last: u8) -> LeaseKey {
        LeaseKey {
            network: self.pool.spec.network,
            address: [10, 0, 0, last].into(),
        }
    }

    fn lease(&self, last: u8) -> Option<Arc<Lease>> {
        let place = self.place(last);
        self.ipam.read(|ledger| ledger.lease(place).cloned())
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
        let lease = self.lease(last).expect("a lease");
        let owner = lease.owner().expect("an owner");
        assert_eq!(
            (owner, lease.state),
            (&self.holder(name), LeaseState::Allocated)
        );
        let object = self.object(name);
        assert_eq!(
            object["status"][S::ADDRESS],
            format!("10.0.0.{last}"),
            "{object}"
        );
        let finalizers = &object["metadata"]["finalizers"];
        assert_eq!(*finalizers, json!([S::FINALIZER]), "{object}");
        assert_eq!(
            self.condition(name, "Ready").as_deref(),
            Some("True"),
            "{object}"
        );
        assert_eq!(self.next(name), Some(Next::Done));
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

    async fn release(&self, last: u8) {
        let request = Request::Release(Release {
            scope: ReleaseScope::Address(self.place(last)),
            actor: "test".into(),
            reason: "a test".into(),
        });
        self.submit(request).await;
    }
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
        contended::<S>(death).await;
        held::<S>(death).await;
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
        assert!(said == ["Allocated"] || said.is_empty() && death != Death::Never);
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

/// An edit that admission refuses, where it was not asked.
async fn edited<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::new(death).await;
    bench.make("a");
    bench.settle().await;
    let mut naming = S::naming("10.0.0.6");
    naming["metadata"] = json!({ "generation": 2 });
    bench.edit("a", &naming);
    let spec = bench.object("a")["spec"].clone();
    bench.settle().await;
    let lease = bench.lease(5).expect("a lease");
    assert_eq!(lease.owner(), Some(&bench.holder("a")));
    assert_eq!(bench.lease(6), None, "an edit takes no other address");
    let object = bench.object("a");
    assert_eq!(object["status"][S::ADDRESS], "10.0.0.5");
    let refused = bench.condition("a", "Ready").as_deref() == Some("False");
    assert!(refused || object["spec"] != spec, "{object}");
}

async fn contended<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::new(death).await;
    bench.make("a");
    bench.settle().await;
    bench.make("d");
    let same = json!({ "status": bench.object("a")["status"] });
    bench.edit("d", &same);
    let inventory = AddressInventory(Arc::clone(&bench.daemon.controller));
    for sighting in inventory.list().await.expect("a list") {
        for place in sighting.uses {
            bench
                .submit(Request::Adopt(Adopt {
                    key: place,
                    holder: sighting.holder.clone(),
                    tenant: sighting.tenant.clone(),
                    since: sighting.since,
                    actor: "test".into(),
                }))
                .await;
        }
    }
    bench.adopted(&bench.session.id.0, S::system()).await;
    bench.settle().await;
    bench.has("a", 5);
    bench.waits("d", CONFLICT, RECHECK_AFTER);
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

/// A network waits for a cluster, and an address for its release by an admin.
async fn held<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::new(death).await;
    bench.ipam.set_expectations(vec![Expectation {
        network: NetworkId::DEFAULT,
        cluster: "other".into(),
        system: System::ip_rule(),
    }]);
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
