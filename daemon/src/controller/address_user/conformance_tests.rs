//! What every kind that uses an address must do, and do again after it died at any write.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use fipd_core::{
    Adopt, Adoption, Answer, ClusterId, Expectation, Holder, Lease, LeaseKey, LeaseState,
    NetworkId, Pool, PoolSpec, Release, ReleaseScope, Request, System, Text, Timestamp,
};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{AddressController, AddressHooks, inventory::AddressInventory};
use crate::{
    clock,
    clusters::{ClusterSession, adoption::Inventory, testing},
    controller::{
        client::Remote,
        conditions::CONFLICT,
        events::Events,
        meta::View,
        queue::Next,
        reconcile::{Controller, one},
        site::Site,
        store::{Key, Malformed, Observed},
        waiters::LedgerEvent,
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

    /// The field of the status with the address.
    const ADDRESS: &'static str;
}

/// When the daemon dies in a step.
#[derive(Clone, Copy, Debug)]
enum Death {
    Never,
    /// Before this write reaches the API server.
    Before(usize),
    /// After it did, and before the answer comes.
    After(usize),
}

/// An API server that knows one kind.
#[derive(Default)]
struct Server {
    objects: BTreeMap<Key, Value>,
    version: u64,
    /// How many writes are answered, and whether the one after them is carried out.
    dies: Option<(usize, bool)>,
    /// A write was not answered.
    dead: bool,
}

impl Server {
    fn answer(&mut self, method: &http::Method, path: &str, body: &Value) -> (u16, Value) {
        let parts: Vec<&str> = path.split('/').collect();
        let status = parts.last() == Some(&"status");
        let parts = &parts[..parts.len() - usize::from(status)];
        let [.., "namespaces", namespace, plural, name] = parts else {
            let items: Vec<_> = self.objects.values().cloned().collect();
            return (
                200,
                json!({ "metadata": { "resourceVersion": "1" }, "items": items }),
            );
        };
        if *plural == "events" || method == http::Method::POST {
            return (201, json!({}));
        }
        let key = Key::new(namespace, name);
        let missing = (404, json!("it is not there"));
        match *method {
            http::Method::GET => self
                .objects
                .get(&key)
                .map_or(missing, |one| (200, one.clone())),
            http::Method::PATCH => {
                match &mut self.dies {
                    Some((0, carried_out)) => {
                        if *carried_out {
                            self.patch(&key, body, status);
                        }
                        self.dead = true;
                        return (503, json!("it died"));
                    }
                    Some((left, _)) => *left -= 1,
                    None => {}
                }
                self.patch(&key, body, status)
            }
            _ => panic!("{method} {path}"),
        }
    }

    fn patch(&mut self, key: &Key, body: &Value, status: bool) -> (u16, Value) {
        let Some(object) = self.objects.get_mut(key) else {
            return (404, json!("it is not there"));
        };
        let before = object.clone();
        if let Some(ops) = body.as_array() {
            for op in ops.iter().filter(|op| op["op"] == "remove") {
                let path = op["path"].as_str().unwrap_or_default();
                let at = path
                    .rsplit('/')
                    .next()
                    .and_then(|at| at.parse::<usize>().ok());
                let finalizers = object["metadata"]["finalizers"].as_array_mut();
                finalizers
                    .expect("finalizers")
                    .remove(at.expect("an index"));
            }
        } else {
            let mut body = body.clone();
            let said = body["metadata"]["resourceVersion"].take();
            if !said.is_null() && said != before["metadata"]["resourceVersion"] {
                return (409, json!("it was changed"));
            }
            assert_eq!(body["metadata"]["uid"], before["metadata"]["uid"]);
            body["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
            assert_eq!(status, body.get("status").is_some(), "{body}");
            merge(object, &body);
        }
        if *object == before {
            return (200, before);
        }
        let specified = object["spec"] != before["spec"];
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if specified {
            let generation = before["metadata"]["generation"]
                .as_u64()
                .unwrap_or_default();
            object["metadata"]["generation"] = json!(generation + 1);
        }
        let now = object.clone();
        let meta = &now["metadata"];
        let held = meta["finalizers"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        if meta.get("deletionTimestamp").is_some() && !held {
            self.objects.remove(key);
        }
        (200, now)
    }
}

fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().expect("an object").remove(name);
        } else {
            merge(&mut object[name], value);
        }
    }
}

fn client(server: &Arc<Mutex<Server>>) -> Client {
    let server = Arc::clone(server);
    let serve = move |request: http::Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await.map(|body| body.to_bytes());
            let body = serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or_default();
            let answer = server.lock().answer(&head.method, head.uri.path(), &body);
            let (code, body) = match answer {
                (code @ 200..300, body) => (code, body),
                (code, why) => {
                    let reason = if code == 409 { "Conflict" } else { "" };
                    let text = json!({ "status": "Failure", "code": code, "message": why, "reason": reason });
                    (code, text)
                }
            };
            let answer = http::Response::builder().status(code);
            let answer = answer.body(Body::from(body.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.expect("an answer"))
        }
    };
    Client::new(tower::service_fn(serve), "default")
}

struct Bench<S: Subject> {
    _dir: tempfile::TempDir,
    ipam: Ipam,
    server: Arc<Mutex<Server>>,
    session: ClusterSession,
    controller: Arc<AddressController<S>>,
    pool: Arc<Pool>,
    /// Up to which revision the controller heard of the ledger.
    heard: u64,
    death: Death,
}

impl<S: Subject> Bench<S> {
    /// Two addresses, 10.0.0.5 and 10.0.0.6.
    async fn new(death: Death) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let server = Arc::<Mutex<Server>>::default();
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
        let controller = start(&session, &server);
        Self {
            _dir: dir,
            ipam,
            server,
            session,
            controller,
            pool,
            heard: 0,
            death,
        }
    }

    /// A new daemon, which knows nothing but the ledger and what it lists.
    fn restart(&mut self) {
        self.controller = start(&self.session, &self.server);
        self.heard = 0;
    }

    /// Works until nothing is left to do; once more after a restart, in which the daemon may have died midway.
    async fn settle(&mut self) {
        self.server.lock().dies = match self.death {
            Death::Never => None,
            Death::Before(writes) => Some((writes, false)),
            Death::After(writes) => Some((writes, true)),
        };
        self.work().await;
        {
            let mut server = self.server.lock();
            (server.dies, server.dead) = (None, false);
        }
        self.restart();
        self.work().await;
    }

    async fn work(&mut self) {
        for _ in 0..40 {
            let ran = self.round().await;
            if self.server.lock().dead || !ran {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Hears of changes and works on what they queue; whether there was anything to do.
    async fn round(&mut self) -> bool {
        let context = self.controller.context();
        let objects = self.server.lock().objects.clone();
        let malformed = context.objects.malformed();
        for key in context.objects.keys() {
            let stays = objects.contains_key(&key);
            if !stays && context.objects.put(&key, None).expect("memory") {
                context.queue.add(key);
            }
        }
        for (key, object) in objects {
            if malformed.iter().any(|(one, _)| *one == key) {
                continue;
            }
            let view = S::view(serde_json::from_value(object).expect("an object"));
            let seen = Observed::Parsed(Arc::new(view));
            if context.objects.put(&key, Some(seen)).expect("memory") {
                context.queue.add(key);
            }
        }
        let controller = &self.controller;
        let heard = self.heard;
        self.heard = self.ipam.read(|ledger| {
            match ledger.changes_since(heard) {
                Ok(changes) if heard > 0 => {
                    controller.affected(ledger, &LedgerEvent::Changes(&changes));
                }
                Ok(_) | Err(_) => controller.affected(ledger, &LedgerEvent::Everything),
            }
            ledger.revision()
        });
        context.end_rests();
        let mut ran = false;
        while let Ok(key) = context.queue.take() {
            ran = true;
            let next = one(Arc::clone(controller), key.clone()).await;
            let again = matches!(next, Next::Retry);
            context.queue.finish(key.clone(), Next::Done);
            if self.server.lock().dead {
                return true;
            }
            if again {
                context.queue.add(key);
                return true;
            }
        }
        ran
    }

    fn make(&self, name: &str) {
        let mut server = self.server.lock();
        server.version += 1;
        let mut object = S::object();
        let meta = json!({ "metadata": {
            "name": name, "namespace": "ns", "uid": format!("u-{name}"), "generation": 1,
            "resourceVersion": server.version.to_string(), "creationTimestamp": "2024-01-01T00:00:00Z",
        } });
        merge(&mut object, &meta);
        server.objects.insert(key(name), object);
    }

    /// Somebody wrote the object.
    fn edit(&self, name: &str, patch: &Value) {
        let mut server = self.server.lock();
        server.version += 1;
        let version = json!(server.version.to_string());
        let object = server.objects.get_mut(&key(name)).expect("an object");
        merge(object, patch);
        object["metadata"]["resourceVersion"] = version;
    }

    fn delete(&self, name: &str) {
        let at = json!({ "metadata": { "deletionTimestamp": "2024-01-02T00:00:00Z" } });
        self.edit(name, &at);
    }

    fn object(&self, name: &str) -> Value {
        let objects = &self.server.lock().objects;
        objects.get(&key(name)).cloned().unwrap_or_default()
    }

    fn condition(&self, name: &str, kind: &str) -> Option<String> {
        let object = self.object(name);
        let conditions = object["status"]["conditions"].as_array()?;
        let one = conditions.iter().find(|one| one["type"] == kind)?;
        one["status"].as_str().map(str::to_owned)
    }

    fn holder(&self, name: &str) -> Holder {
        let uid: Text = format!("u-{name}").into();
        self.controller.context.holder(&key(name), &uid)
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
    }

    /// It has none, and says so.
    fn waits(&self, name: &str) {
        let identity = self.holder(name).identity;
        let leases = self.ipam.read(|ledger| ledger.leases_of(&identity));
        assert!(leases.is_empty(), "{leases:?}");
        let object = self.object(name);
        assert_eq!(
            self.condition(name, "Ready").as_deref(),
            Some("False"),
            "{object}"
        );
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

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn start<S: Subject>(
    session: &ClusterSession,
    server: &Arc<Mutex<Server>>,
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
    }
    let before = bench.object("a");
    bench.make("c");
    bench.settle().await;
    bench.waits("c");
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
        let context = bench.controller.context();
        let seen = Observed::<S::View>::Malformed(Arc::new(malformed));
        assert!(context.objects.put(&key("a"), Some(seen)).expect("memory"));
        context.queue.add(key("a"));
        bench.work().await;
        assert_eq!(bench.lease(5).is_none(), deleted, "what was in force stays");
    }
    assert_eq!(bench.object("a"), Value::Null);
}

async fn contended<S: Subject>(death: Death) {
    let mut bench = Bench::<S>::new(death).await;
    bench.make("a");
    bench.settle().await;
    bench.make("d");
    let same = json!({ "status": bench.object("a")["status"] });
    bench.edit("d", &same);
    let inventory = AddressInventory(Arc::clone(&bench.controller));
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
    bench.waits("d");
    for name in ["a", "d"] {
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
    bench.ipam.expect(vec![Expectation {
        network: NetworkId::DEFAULT,
        cluster: "other".into(),
        system: System::ip_rule(),
    }]);
    bench.make("a");
    bench.settle().await;
    bench.waits("a");
    bench.adopted("name:other", System::ip_rule()).await;
    bench.settle().await;
    bench.has("a", 5);
    bench.release(5).await;
    bench.settle().await;
    bench.has("a", 5);
}
