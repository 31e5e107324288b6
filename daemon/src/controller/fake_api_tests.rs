//! An API server of one kind, in memory, under which a daemon dies.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    queue::Next,
    reconcile::{Controller, one},
    store::{Key, Observed},
    waiters::LedgerEvent,
};
use crate::ipam::Ipam;

/// When the daemon dies in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    Never,
    /// Before this write reaches the API server.
    Before(usize),
    /// After it did, and before the answer comes.
    After(usize),
}

/// An API server that knows one kind, and perhaps one that the daemon makes objects of.
#[derive(Default)]
pub struct FakeApi {
    pub objects: BTreeMap<Key, Value>,
    /// Objects of the other kind.
    pub made: BTreeMap<Key, Value>,
    /// How paths name it.
    pub makes: Option<&'static str>,
    /// It is of another cluster than that of the session.
    pub is_other: bool,
    version: u64,
    /// How many writes are answered, and whether the one after them is carried out.
    dies: Option<(usize, bool)>,
    /// A write was not answered.
    dead: bool,
}

impl FakeApi {
    /// From now on.
    pub fn die(&mut self, death: Death) {
        self.dead = false;
        self.dies = match death {
            Death::Never => None,
            Death::Before(writes) => Some((writes, false)),
            Death::After(writes) => Some((writes, true)),
        };
    }

    /// A write was not answered.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    pub fn object(&self, key: &Key) -> Value {
        self.objects.get(key).cloned().unwrap_or_default()
    }

    pub fn make(&mut self, key: &Key, mut object: Value) {
        self.version += 1;
        let meta = json!({ "metadata": {
            "name": &*key.name, "uid": format!("u-{}", key.name), "generation": 1,
            "resourceVersion": self.version.to_string(), "creationTimestamp": "2024-01-01T00:00:00Z",
        } });
        merge(&mut object, &meta);
        if !key.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(&*key.namespace);
        }
        self.objects.insert(key.clone(), object);
    }

    /// Somebody writes the object.
    pub fn edit(&mut self, key: &Key, patch: &Value) {
        self.version += 1;
        let version = json!(self.version.to_string());
        let object = self.objects.get_mut(key).expect("an object");
        merge(object, patch);
        object["metadata"]["resourceVersion"] = version;
    }

    /// Somebody deletes it.
    pub fn delete(&mut self, key: &Key, at: &str) {
        let object = self.objects.get(key).expect("an object");
        let finalizers = object["metadata"]["finalizers"].as_array();
        if finalizers.is_none_or(Vec::is_empty) {
            self.objects.remove(key);
            return;
        }
        self.edit(key, &json!({ "metadata": { "deletionTimestamp": at } }));
    }

    fn answer(&mut self, method: &http::Method, path: &str, body: &Value) -> (u16, Value) {
        let parts: Vec<&str> = path.split('/').collect();
        let status = parts.last() == Some(&"status");
        let parts = &parts[..parts.len() - usize::from(status)];
        let is_made = self.makes.is_some_and(|plural| parts.contains(&plural));
        if !is_made && method == http::Method::POST || parts.contains(&"events") {
            return (201, json!({}));
        }
        if parts.get(..4) == Some(&["", "api", "v1", "namespaces"]) {
            let uid = if self.is_other { "Y" } else { "X" };
            return (200, json!({ "metadata": { "uid": uid } }));
        }
        // `/apis/GROUP/VERSION/...`
        let key = match parts.get(4..).unwrap_or_default() {
            ["namespaces", namespace, _] if method == http::Method::POST => Key::new(
                namespace,
                body["metadata"]["name"].as_str().unwrap_or_default(),
            ),
            ["namespaces", namespace, _, name] => Key::new(namespace, name),
            [_, name] => Key::new("", name),
            _ => {
                let items: Vec<_> = self.objects.values().cloned().collect();
                let meta = json!({ "resourceVersion": "1" });
                return (200, json!({ "metadata": meta, "items": items }));
            }
        };
        if *method == http::Method::GET {
            let missing = (404, json!("it is not there"));
            let found = self.of(is_made).get(&key);
            return found.map_or(missing, |one| (200, one.clone()));
        }
        let write = |server: &mut Self| match *method {
            http::Method::PATCH => server.patch((is_made, &key), body, status),
            http::Method::POST => server.post(&key, body),
            http::Method::DELETE => server.remove(&key, body),
            _ => panic!("{method} {path}"),
        };
        match &mut self.dies {
            Some((0, carried_out)) => {
                if *carried_out {
                    write(self);
                }
                self.dead = true;
                return (503, json!("it died"));
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        write(self)
    }

    fn of(&mut self, is_made: bool) -> &mut BTreeMap<Key, Value> {
        match is_made {
            true => &mut self.made,
            false => &mut self.objects,
        }
    }

    /// Makes an object of the other kind.
    fn post(&mut self, key: &Key, body: &Value) -> (u16, Value) {
        if self.made.contains_key(key) {
            return (409, json!("it is there"));
        }
        self.version += 1;
        let mut object = body.clone();
        object["metadata"]["uid"] = json!(format!("m-{}", self.version));
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.made.insert(key.clone(), object.clone());
        (201, object)
    }

    /// Deletes an object of the other kind; one with finalizers only from then on has to go.
    fn remove(&mut self, key: &Key, body: &Value) -> (u16, Value) {
        let Some(object) = self.made.get_mut(key) else {
            return (404, json!("it is not there"));
        };
        let meta = &mut object["metadata"];
        assert_eq!(body["preconditions"]["uid"], meta["uid"]);
        let finalizers = meta["finalizers"].as_array();
        if finalizers.is_none_or(Vec::is_empty) {
            self.made.remove(key);
            return (200, json!({}));
        }
        self.version += 1;
        meta["deletionTimestamp"] = json!("2024-01-03T00:00:00Z");
        meta["resourceVersion"] = json!(self.version.to_string());
        (200, object.clone())
    }

    fn patch(&mut self, (is_made, key): (bool, &Key), body: &Value, status: bool) -> (u16, Value) {
        let objects = match is_made {
            true => &mut self.made,
            false => &mut self.objects,
        };
        let Some(object) = objects.get_mut(key) else {
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
            self.of(is_made).remove(key);
        }
        (200, now)
    }
}

/// RFC 7386.
pub fn merge(object: &mut Value, patch: &Value) {
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

pub fn client(server: &Arc<Mutex<FakeApi>>) -> Client {
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

/// A daemon over the API server: a controller, up to which revision it heard of the ledger, and when it looks at each object
/// again.
pub struct Daemon<C> {
    pub controller: Arc<C>,
    pub heard: u64,
    pub next: BTreeMap<Key, Next>,
}

impl<C: Controller> Daemon<C> {
    /// One that knows nothing but the ledger and what it lists.
    pub fn new(controller: Arc<C>) -> Self {
        Self {
            controller,
            heard: 0,
            next: BTreeMap::new(),
        }
    }

    /// Works until nothing is left to do, or it dies.
    pub async fn work(
        &mut self,
        ipam: &Ipam,
        server: &Mutex<FakeApi>,
        view: impl Fn(&Value) -> Observed<C::View>,
    ) {
        for _ in 0..40 {
            let ran = self.round(ipam, server, &view).await;
            if server.lock().is_dead() || !ran {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Hears of changes and works on what they queue; whether there was anything to do.
    async fn round(
        &mut self,
        ipam: &Ipam,
        server: &Mutex<FakeApi>,
        view: impl Fn(&Value) -> Observed<C::View>,
    ) -> bool {
        let context = self.controller.context();
        let objects = server.lock().objects.clone();
        for key in context.objects.keys() {
            let stays = objects.contains_key(&key);
            if !stays && context.objects.put(&key, None).expect("memory") {
                context.queue.add(key);
            }
        }
        for (key, object) in objects {
            let seen = Some(view(&object));
            if context.objects.put(&key, seen).expect("memory") {
                context.queue.add(key);
            }
        }
        self.heard = ipam.read(|ledger| {
            match ledger.changes_page(self.heard, usize::MAX) {
                Ok(changes) if self.heard > 0 => {
                    self.controller
                        .affected(ledger, &LedgerEvent::Changes(&changes));
                }
                Ok(_) | Err(_) => self.controller.affected(ledger, &LedgerEvent::Everything),
            }
            ledger.revision()
        });
        context.end_rests();
        let mut ran = false;
        while let Ok(key) = context.queue.take() {
            ran = true;
            let next = one(Arc::clone(&self.controller), key.clone()).await;
            context.queue.finish(key.clone(), Next::Done);
            self.next.insert(key.clone(), next);
            if server.lock().is_dead() {
                return true;
            }
            if next == Next::Retry {
                context.queue.add(key);
                return true;
            }
        }
        ran
    }
}
