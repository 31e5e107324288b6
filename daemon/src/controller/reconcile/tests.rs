use std::collections::BTreeMap;

use fipd_core::{System, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::core::PartialObjectMeta;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::{
    clock,
    clusters::testing,
    controller::{
        ReconcileError,
        client::{Remote, testing::canned},
        events::Events,
        kind::{Kind, LEASE, SECRET},
        site::Site,
        store::Objects,
    },
    ipam::Ipam,
};

#[derive(Debug, PartialEq)]
struct Thing(Meta);

impl View for Thing {
    fn meta(&self) -> Meta {
        self.0.clone()
    }
}

/// Notes what it is asked for.
struct Notes {
    context: Context<Thing>,
    asked: Mutex<Vec<String>>,
}

impl Controller for Notes {
    type View = Thing;

    const METRIC: &'static str = "thing";
    const WORKERS: usize = 1;

    fn context(&self) -> &Context<Thing> {
        &self.context
    }

    async fn reconcile(&self, key: &Key, thing: Option<Arc<Thing>>) -> Reconciled {
        let there = thing.is_some();
        self.asked
            .lock()
            .push(format!("reconcile {} {there}", key.name));
        Ok(Next::Done)
    }

    async fn release(&self, key: &Key, meta: &Meta, thing: Option<Arc<Thing>>) -> Reconciled {
        let (uid, there) = (&meta.uid, thing.is_some());
        self.asked
            .lock()
            .push(format!("release {} {uid} {there}", key.name));
        Err(ReconcileError::ChangedHands)
    }
}

async fn unused(
    _: http::Request<kube::client::Body>,
) -> Result<http::Response<kube::client::Body>, std::convert::Infallible> {
    std::future::pending().await
}

async fn site(client: kube::Client) -> (Arc<Site>, Arc<Events>, impl Sized) {
    let dir = tempfile::tempdir().expect("a directory");
    let (ipam, writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
    let session = testing::session(client, &ipam).await;
    let site = Arc::new(Site::new(session, System::claims()));
    let quiet = || std::future::ready(());
    let events = Events::start(site.session.recorder.clone(), site.cancel(), quiet);
    (site, Arc::new(events), (dir, writer))
}

#[tokio::test]
async fn objects_that_are_deleted_are_released_and_malformed_ones_stay() {
    let client = kube::Client::new(tower::service_fn(unused), "default");
    let (site, events, _kept) = site(client).await;
    let (remote, _) = canned(&[]);
    let context = Context::new(SECRET, site, remote, events, Objects::new());
    let notes = Arc::new(Notes {
        context,
        asked: Mutex::default(),
    });
    let meta = |deleted: bool| Meta {
        uid: "u".into(),
        deleted: deleted.then_some(Timestamp(1)),
        ..Meta::default()
    };
    let objects = &notes.context.objects;
    let malformed = |deleted| {
        let error = "no object".to_owned();
        let meta = meta(deleted);
        Observed::Malformed(Arc::new(Malformed {
            meta,
            annotations: BTreeMap::new(),
            error,
        }))
    };
    let key = |name: &str| Key::new("ns", name);
    objects.set(&key("good"), Thing(meta(false)));
    objects.set(&key("ending"), Thing(meta(true)));
    for (name, deleted) in [("bad", false), ("bad-ending", true)] {
        let put = objects.put(&key(name), Some(malformed(deleted)));
        assert!(put.expect("memory"));
    }
    let mut all = Vec::new();
    for name in ["gone", "good", "ending", "bad", "bad-ending"] {
        all.push(one(Arc::clone(&notes), key(name)).await);
    }
    assert_eq!(
        all,
        [Next::Done, Next::Done, Next::Retry, Next::Done, Next::Retry]
    );
    assert_eq!(
        *notes.asked.lock(),
        [
            "reconcile gone false",
            "reconcile good true",
            "release ending u true",
            "release bad-ending u false",
        ]
    );
}

#[tokio::test]
async fn what_is_logged_of_an_object_has_the_level_of_its_system() {
    for (level, expected) in [(None, 0), (Some("info"), 0), (Some("debug"), 1)] {
        let client = kube::Client::new(tower::service_fn(unused), "default");
        let (site, events, _kept) = site(client).await;
        let context = Context::new(SECRET, site, canned(&[]).0, events, Objects::new());
        let notes = Arc::new(Notes {
            context,
            asked: Mutex::default(),
        });
        let key = Key::new("ns", "ending");
        let meta = Meta {
            deleted: Some(Timestamp(1)),
            ..Meta::default()
        };
        notes.context.objects.set(&key, Thing(meta));
        notes.context.objects.complete();
        notes.context.queue.add(key);
        let level = level.map(|level| level.parse().expect("a level"));
        let (capture, _logging) = logging::tests::capture("fipd::systems::claims", level);
        let mut tasks = JoinSet::new();
        work(&notes, &mut tasks);
        while notes.asked.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let logged = capture.messages();
        let logged = logged.iter().filter(|text| *text == "looking again");
        assert_eq!(logged.count(), expected, "{level:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_once_in_a_second_and_the_finalizer_once() {
    let client = kube::Client::new(tower::service_fn(unused), "default");
    let (site, events, _kept) = site(client).await;
    let (remote, asked) = canned(&[("PATCH", 200, "{}"), ("PATCH", 200, "{}")]);
    let objects = Objects::<Thing>::new();
    let context = Context::new(SECRET, site, remote, events, objects);
    let key = Key::new("ns", "a");
    assert_eq!(context.status_rests(&key), None);
    for _ in 0..2 {
        let write = context.write_status(&key, "u", (&[1], &[1]));
        write.await.expect("nothing to write");
    }
    assert!(asked.lock().is_empty() && context.status_rests(&key).is_none());
    let write = context.write_status(&key, "u", (&[1], &[2]));
    write.await.expect("an answer");
    assert!(matches!(context.status_rests(&key), Some(Next::After(_))));
    context.queue_status(key.clone());
    assert!(matches!(context.queue.take(), Err(Some(_))), "not yet");
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert_eq!(context.status_rests(&key), None);
    let mut meta = Meta {
        uid: "u".into(),
        version: "7".into(),
        finalizers: vec!["other".into()],
        ..Meta::default()
    };
    let add = context.add_finalizer::<serde_json::Value>(&key, &meta, "ours");
    assert!(add.await.expect("an answer").is_some());
    meta.finalizers.push("ours".into());
    let add = context.add_finalizer::<serde_json::Value>(&key, &meta, "ours");
    assert!(add.await.expect("an answer").is_none());
    let bodies: Vec<_> = asked.lock().iter().map(|one| one.body.clone()).collect();
    assert_eq!(
        bodies,
        [
            json!({ "metadata": { "uid": "u" }, "status": [2] }),
            json!({ "metadata": {
                "uid": "u", "resourceVersion": "7", "finalizers": ["other", "ours"],
            } }),
        ]
    );
}

/// An API server with Leases, one of them `a`, in these versions.
fn serving(versions: Arc<Mutex<Vec<&'static str>>>) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let all = Arc::clone(&asked);
    let serve = move |request: http::Request<kube::client::Body>| {
        let (path, watch) = (request.uri().path().to_owned(), request.uri().query());
        let watch = watch.is_some_and(|query| query.contains("watch=true"));
        let rest = versions.lock().iter().find_map(|version| {
            path.strip_prefix("/apis/coordination.k8s.io/")?
                .strip_prefix(version)
        });
        let (code, body) = match rest {
            None => (
                404,
                json!({ "kind": "Status", "code": 404, "status": "Failure" }),
            ),
            Some("/") => (200, json!({ "resources": [{ "name": "leases" }] })),
            Some("/leases") => {
                let lease = json!({ "metadata": { "namespace": "ns", "name": "a", "uid": "u" } });
                let meta = json!({ "resourceVersion": "7" });
                (200, json!({ "metadata": meta, "items": [lease] }))
            }
            Some(_) => (200, json!({})),
        };
        all.lock().push(format!("{} {path}", request.method()));
        async move {
            if watch {
                std::future::pending::<()>().await;
            }
            let answer = http::Response::builder().status(code);
            let body = kube::client::Body::from(body.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(answer.body(body).expect("an answer"))
        }
    };
    (
        kube::Client::new(tower::service_fn(serve), "default"),
        asked,
    )
}

#[tokio::test]
async fn each_connect_uses_the_first_version_that_the_server_serves() {
    const BOTH: Kind = LEASE.or(&["apis/coordination.k8s.io/v1beta1"]);
    let versions = Arc::new(Mutex::new(vec!["v1beta1"]));
    let (client, asked) = serving(Arc::clone(&versions));
    let (site, events, _kept) = site(client.clone()).await;
    let remote = Remote::new(client);
    let context = Context::new(BOTH, Arc::clone(&site), remote, events, Objects::new());
    let mut tasks = JoinSet::new();
    let view = |lease: PartialObjectMeta<Lease>| Some(Thing(Meta::of(&lease.metadata)));
    context.follow(&mut tasks, view, |_| {});
    context.objects.completed().await;
    let key = Key::new("ns", "a");
    for (served, used) in [
        (&["v1beta1"][..], "v1beta1"),
        (&["v1beta1", "v1"], "v1"),
        (&["v1beta1"], "v1beta1"),
    ] {
        *versions.lock() = served.to_vec();
        site.session.reconnected();
        let all = format!("/apis/coordination.k8s.io/{used}");
        let listed = format!("GET {all}/leases");
        while context.kind().api != &all[1..] || !asked.lock().contains(&listed) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let thing = context.objects.get(&key).expect("an object");
        let add = context.add_finalizer::<serde_json::Value>(&key, &thing.0, "ours");
        add.await.expect("an answer");
        let owner = context.reference(&key, "u").api_version;
        assert_eq!(owner.as_deref(), all.strip_prefix("/apis/"));
        let mut asked = asked.lock();
        let patched = format!("PATCH {all}/namespaces/ns/leases/a");
        assert!(asked.contains(&patched), "{asked:?}");
        asked.clear();
    }
}

#[tokio::test]
async fn a_kind_that_a_cluster_may_lack_is_followed_once_it_is_there() {
    let versions = Arc::new(Mutex::new(Vec::new()));
    let (client, _) = serving(Arc::clone(&versions));
    let (site, events, _kept) = site(client.clone()).await;
    let (kind, remote) = (LEASE.optional(), Remote::new(client));
    let context = Context::new(kind, site, remote, events, Objects::new());
    let mut tasks = JoinSet::new();
    let view = |lease: PartialObjectMeta<Lease>| Some(Thing(Meta::of(&lease.metadata)));
    context.follow(&mut tasks, view, |_| {});
    let objects = &context.objects;
    objects.completed().await;
    assert_eq!((objects.count(), objects.followed_as()), (Some(0), None));
    versions.lock().push("v1");
    while objects.count() == Some(0) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(objects.followed_as(), Some(kind));
}
