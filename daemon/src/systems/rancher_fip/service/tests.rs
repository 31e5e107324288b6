use std::{collections::BTreeMap, convert::Infallible};

use fipd_core::{
    AddressSpec, Adopt, ClusterId, Family, Holder, LeaseKey, NetworkId, Origin, PoolSpec, Release,
    ReleaseScope, Request, Tenant, Timestamp,
};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{observe::Projects, status::BEHIND, validate::Wish, *};
use crate::{
    clock,
    clusters::{absence::Presence, adoption::Inventory, testing},
    controller::{events::Events, waiters::Cause},
    ipam::Ipam,
    systems::rancher_fip::{
        floating_ip,
        names::{CLASS, FINALIZER, FLOATING_IP, HOLDER},
        rancher::{Data, Guest, Ranchers},
        sample,
        service::adopt::ServiceInventory,
    },
};

/// What the API server answers: the identity of the cluster, and the Service.
type Answers = Arc<Mutex<(String, Value)>>;

struct Bench {
    _dir: tempfile::TempDir,
    ipam: Ipam,
    answers: Answers,
    calls: Arc<Mutex<Calls>>,
    rancher: Arc<Rancher>,
    services: Arc<Services>,
    inventory: ServiceInventory,
}

/// What was changed, and what the API server refuses with which status.
#[derive(Default)]
struct Calls {
    patched: Vec<&'static str>,
    refused: BTreeMap<&'static str, u16>,
}

const METADATA: &str = "metadata";
const STATUS: &str = "status";

fn client(answers: &Answers) -> Client {
    recorded(answers, &Arc::default())
}

fn recorded(answers: &Answers, calls: &Arc<Mutex<Calls>>) -> Client {
    let (answers, calls) = (Arc::clone(answers), Arc::clone(calls));
    let serve = move |request: http::Request<Body>| {
        let (identity, service) = answers.lock().clone();
        let path = request.uri().path();
        let patched = match path.rsplit('/').next() {
            Some("web") => Some(METADATA),
            Some("status") => Some(STATUS),
            _ => None,
        };
        let patched = patched.filter(|_| request.method() == http::Method::PATCH);
        let mut code = 200;
        let mut body = if path.ends_with("/kube-system") {
            json!({ "metadata": { "name": "kube-system", "uid": identity } })
        } else if request.method() == http::Method::GET && path.ends_with("/services/web") {
            service
        } else {
            json!({ "metadata": {} })
        };
        if let Some(part) = patched {
            let mut calls = calls.lock();
            calls.patched.push(part);
            code = calls.refused.get(part).copied().unwrap_or(200);
        }
        if code != 200 {
            body = json!({ "kind": "Status", "status": "Failure", "message": "no", "code": code });
        }
        async move {
            let answer = http::Response::builder().status(code);
            Ok::<_, Infallible>(
                answer
                    .body(Body::from(body.to_string().into_bytes()))
                    .expect("an answer"),
            )
        }
    };
    Client::new(tower::service_fn(serve), "default")
}

fn object(uid: &str, kind: &str) -> Value {
    json!({
        "metadata": { "namespace": "ns", "name": "web", "uid": uid },
        "spec": { "type": kind },
    })
}

fn marked(uid: &str, more: Value) -> Value {
    let mut object = object(uid, "LoadBalancer");
    object["spec"]["loadBalancerClass"] = json!(CLASS);
    object["metadata"]["finalizers"] = json!([FINALIZER]);
    object["metadata"]["annotations"] = json!({ HOLDER: "Service/X/ns/web/1" });
    let meta = object["metadata"].as_object_mut().expect("metadata");
    meta.extend(more.as_object().expect("an object").clone());
    object
}

fn management() -> ClusterId {
    ClusterId("M".into())
}

fn key() -> Key {
    Key::new("ns", "web")
}

fn holder() -> Holder {
    let identity = "rancher-fip/X/Service/ns/web".parse().expect("an identity");
    Holder {
        identity,
        instance: "1".into(),
    }
}

fn place() -> LeaseKey {
    LeaseKey {
        network: NetworkId::DEFAULT,
        address: [10, 7, 0, 1].into(),
    }
}

impl Bench {
    /// A cluster X whose Service ns/web of instance 1 has an address.
    async fn new(service: Value) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let answers: Answers = Arc::new(Mutex::new(("X".into(), service)));
        let calls = Arc::default();
        let session = testing::session(recorded(&answers, &calls), &ipam).await;
        let adopt = Adopt {
            length: None,
            key: place(),
            holder: holder(),
            tenant: None,
            since: Timestamp(1),
            actor: "test".into(),
        };
        let adopted = ipam.submit(Request::Adopt(adopt)).await;
        adopted.expect("a lease");
        let site = Arc::new(Site::new(session, fipd_core::System::rancher_fip()));
        let events = Events::start(site.session.recorder.clone(), site.cancel(), || {
            std::future::ready(())
        });
        let rancher = Ranchers::default().get("rancher");
        let services = Services::new(
            Arc::clone(&site),
            Arc::clone(&rancher),
            Remote::new(site.session.client.clone()),
            Arc::new(events),
            Queue::new(),
        );
        let inventory = ServiceInventory(Arc::clone(&services));
        Self {
            _dir: dir,
            ipam,
            answers,
            calls,
            rancher,
            services,
            inventory,
        }
    }

    fn has_lease(&self) -> bool {
        self.ipam.read(|ledger| ledger.lease(place()).is_some())
    }

    /// One look after the watch lost sight of the Service.
    async fn unseen(&self) -> Next {
        let svc = self.services.context.objects.get(&key());
        let done = self.services.reconcile(&key(), svc).await;
        done.unwrap_or_else(|error| error.next(KIND_SERVICE, &key()))
    }

    /// One look after the watch told this of the Service.
    async fn told(&self, told: Value) -> Next {
        let svc = observe::all(serde_json::from_value(told).expect("a Service"));
        let turn = self.services.turn(&key(), &svc);
        let done = match svc.terminating {
            true => self.services.finalize(&turn).await,
            false => self.services.disown_once_confirmed(&turn).await,
        };
        done.unwrap_or(Next::Retry)
    }

    /// Rancher is reached, and has this FloatingIP of another program for the Service.
    fn publish(&self, cluster: &str) {
        let remote = Remote::new(client(&self.answers));
        let data = Data::new(management(), remote, CancellationToken::new());
        let assignee = fipd_crds::floating_ip::ServiceRef {
            service_namespace: "ns".into(),
            service_name: "web".into(),
        };
        let fip = floating_ip::observe::Fip {
            cluster: Some(cluster.into()),
            services: vec![assignee],
            ..floating_ip::observe::view(fipd_crds::floating_ip::FloatingIP::default())
        };
        data.stock.note(&Key::new(cluster, "fip-abc12"), Some(&fip));
        self.rancher.publish(data);
    }

    /// Its lease is of a pool of Rancher's, which is reached.
    async fn of_a_pool(&self) -> Arc<Data> {
        let mut spec = sample::pool(1, "rancher-fip/M/net").spec;
        spec.addresses = vec![AddressSpec::Cidr("10.7.0.0/24".parse().expect("a CIDR"))];
        spec.origin = Origin::Mirror {
            system: fipd_core::System::rancher_fip(),
            cluster: management(),
            object: "net".into(),
            uid: "p".into(),
        };
        let release = Release {
            scope: ReleaseScope::Holder(holder()),
            actor: "test".into(),
            reason: "".into(),
        };
        let adopt = Adopt {
            length: None,
            key: place(),
            holder: holder(),
            tenant: Some(Tenant("p-1".into())),
            since: Timestamp(1),
            actor: "test".into(),
        };
        let actor = "test".into();
        for request in [
            Request::CreatePool { spec, actor },
            Request::Release(release),
            Request::Adopt(adopt),
        ] {
            self.ipam.submit(request).await.expect("an answer");
        }
        let data = Data::new(
            management(),
            Remote::new(client(&self.answers)),
            CancellationToken::new(),
        );
        data.names.note(&"c-abcde".into(), Some("x"));
        data.clusters.complete();
        self.rancher.publish(Arc::clone(&data));
        data
    }

    async fn presence(&self) -> Presence {
        self.inventory.read(&holder().identity).await
    }
}

#[tokio::test]
async fn defect_16_a_service_turned_into_another_gives_its_address_back_at_once() {
    let bench = Bench::new(object("1", "ClusterIP")).await;
    bench.unseen().await;
    assert!(!bench.has_lease());
}

#[tokio::test]
async fn another_of_its_name_frees_nothing_at_once_but_counts_as_absence() {
    let bench = Bench::new(object("2", "ClusterIP")).await;
    assert_eq!(bench.unseen().await, Next::Done);
    bench.told(object("2", "ClusterIP")).await;
    assert!(bench.has_lease());
    assert_eq!(bench.presence().await, Presence::Gone);
    bench.answers.lock().1 = marked("2", json!({}));
    assert_eq!(bench.presence().await, Presence::Present, "it takes over");
    bench.answers.lock().1 = object("1", "ClusterIP");
    assert_eq!(bench.presence().await, Presence::Present);
}

#[tokio::test]
async fn what_is_no_answer_of_this_cluster_frees_nothing() {
    let bench = Bench::new(json!({})).await;
    assert_eq!(bench.unseen().await, Next::Retry, "no Service at all");
    assert_eq!(bench.presence().await, Presence::Unknown);
    *bench.answers.lock() = ("Y".into(), object("1", "ClusterIP"));
    assert_eq!(bench.unseen().await, Next::Retry, "another cluster");
    assert_eq!(bench.told(object("1", "ClusterIP")).await, Next::Retry);
    assert!(bench.has_lease());
}

#[tokio::test]
async fn the_word_of_a_watch_is_not_enough() {
    let bench = Bench::new(marked("1", json!({}))).await;
    let next = bench.told(object("1", "ClusterIP")).await;
    assert_eq!(next, Next::After(BEHIND));
    let gone = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [] });
    bench.told(marked("1", gone)).await;
    assert!(bench.has_lease(), "it may live on for others' finalizers");
    let deleted = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
    bench.told(marked("2", deleted.clone())).await;
    assert!(bench.has_lease(), "the end of another instance");
    bench.told(marked("1", deleted)).await;
    assert!(!bench.has_lease(), "the end of this one");
}

#[tokio::test]
async fn an_address_goes_only_if_the_service_itself_wishes_another() {
    let mut service = marked("1", json!({}));
    let bench = Bench::new(service.clone()).await;
    let svc = |value: &Value| observe::all(serde_json::from_value(value.clone()).expect("one"));
    let reference = bench.services.service(&key(), &"1".into());
    let wish = validate::wish(&svc(&service)).expect("a wish");
    let really = async || leases::really_wishes(&bench.services.context, &reference, &wish).await;
    assert!(matches!(really().await, Ok(true)));
    service["metadata"]["uid"] = json!("2");
    bench.answers.lock().1 = service;
    assert!(matches!(really().await, Ok(false)));
    bench.answers.lock().0 = "Y".into();
    assert!(really().await.is_err());
}

#[tokio::test]
async fn the_finalizer_of_another_program_of_the_family_stays() {
    let deleted = || {
        let mut deleted = marked("1", json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }));
        deleted["metadata"]["annotations"] = json!({ FLOATING_IP: "10.7.0.1" });
        deleted
    };
    let bench = Bench::new(deleted()).await;
    bench.told(deleted()).await;
    assert!(
        bench.has_lease(),
        "whose it is is not known without Rancher"
    );
    bench.publish("c-abcde");
    bench.told(deleted()).await;
    assert!(bench.has_lease(), "a FloatingIP of another is for it");
    let none = Data::new(
        management(),
        Remote::new(client(&bench.answers)),
        CancellationToken::new(),
    );
    bench.rancher.publish(none);
    bench.told(deleted()).await;
    assert!(!bench.has_lease());
}

#[tokio::test]
async fn what_the_original_serves_waits_until_the_cluster_is_known() {
    let bench = Bench::new(json!({})).await;
    let mut object = marked("1", json!({}));
    object["metadata"]["annotations"] = json!({ FLOATING_IP: "10.7.0.1" });
    let svc = observe::all(serde_json::from_value(object).expect("a Service"));
    let turn = ServiceTurn {
        held: Vec::new(),
        ..bench.services.turn(&key(), &svc)
    };
    let wish: Wish = validate::wish(&svc).expect("a wish");
    let reason = || {
        let taken = bench.services.transfers(&turn, &wish, None);
        taken.err().map(|problem| problem.reason)
    };
    assert_eq!(reason(), Some("WaitingForRancher"));
    bench.publish("c-abcde");
    assert_eq!(reason(), Some("MissingProject"));
    let projects = Projects {
        own: None,
        rancher: Some("c-abcde:p-1".into()),
    };
    let namespaces = &bench.services.namespaces;
    namespaces.set(&Key::new("", "ns"), projects);
    assert_eq!(reason(), Some("ClusterIdUnknown"), "a mark is no proof");
}

#[tokio::test]
async fn a_floating_ip_is_found_under_the_service_that_it_shows() {
    let answers: Answers = Arc::new(Mutex::new(("X".into(), json!({}))));
    let data = Data::new(
        management(),
        Remote::new(client(&answers)),
        CancellationToken::new(),
    );
    let fip = Key::new("c-abcde", "fip-1");
    let object = floating_ip::observe::view(fipd_crds::floating_ip::FloatingIP::default());
    data.fips.set(&fip, object);
    let shows = |name: &str| {
        let service = (ClusterId("X".into()), Key::new("ns", name));
        data.shown.note(&fip, [service].into());
    };
    let found = |name: &str| {
        let found = data.fips_of(&ClusterId("X".into()), &Key::new("ns", name));
        found.len()
    };
    shows("web");
    assert_eq!((found("web"), found("api")), (1, 0));
    shows("api");
    assert_eq!((found("web"), found("api")), (0, 1));
}

#[tokio::test]
async fn the_floating_ip_that_shows_a_lease_is_its_heir() {
    let bench = Bench::new(json!({})).await;
    let heir = || bench.inventory.heir(&holder(), place());
    assert_eq!(heir(), None, "a lease of no pool of Rancher's");
    let data = bench.of_a_pool().await;
    let service = ServiceRef::of(&holder()).expect("a Service");
    let fip = |name: &str, uid: &str| {
        let key = Key::new("c-abcde", name);
        Some(Holder {
            identity: names::identity(&management(), names::KIND_FLOATING_IP, &key),
            instance: uid.into(),
        })
    };
    let ours = service.floating_ip_name(Family::V4);
    assert_eq!(heir(), fip(&ours, ""), "not seen yet");
    let taken_over = Key::new("c-abcde", "fip-abc12");
    let object = floating_ip::observe::Fip {
        meta: Meta {
            uid: "f".into(),
            ..Default::default()
        },
        holder: Some(service.clone()),
        wanted: "10.7.0.1".into(),
        ..floating_ip::observe::view(fipd_crds::floating_ip::FloatingIP::default())
    };
    data.fips.set(&taken_over, object);
    let shown = (service.cluster.clone(), service.key.clone());
    data.shown.note(&taken_over, [shown].into());
    assert_eq!(heir(), fip("fip-abc12", "f"));
    bench.services.unwritten.lock().insert("1".into());
    assert_eq!(heir(), None, "none was ever written");
}

#[tokio::test]
async fn an_address_is_free_only_once_its_service_does_not_show_it() {
    let shown = |kind: &str, more: Value| {
        let mut service = marked("1", more);
        service["spec"] = json!({ "type": kind });
        service["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "10.7.0.1" }] } });
        service
    };
    let kept =
        json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["other", FINALIZER] });
    for (code, kind, more, freed) in [
        (503, "ClusterIP", json!({}), false),
        (422, "ClusterIP", json!({}), true),
        (404, "ClusterIP", json!({}), true),
        (503, "LoadBalancer", kept.clone(), false),
        (422, "LoadBalancer", kept.clone(), false),
        (422, "ClusterIP", kept.clone(), true),
    ] {
        let service = shown(kind, more);
        let bench = Bench::new(service.clone()).await;
        bench.calls.lock().refused.insert(STATUS, code);
        bench.told(service.clone()).await;
        assert_eq!(bench.has_lease(), !freed, "{code} {service}");
        bench.calls.lock().refused.clear();
        bench.told(service.clone()).await;
        assert!(!bench.has_lease(), "{code} {service}");
    }
}

#[tokio::test]
async fn a_service_that_could_not_be_marked_is_written_again_at_the_next_try() {
    // The API server takes no metadata with a status.
    let bench = Bench::new(json!({})).await;
    let svc = observe::all(serde_json::from_value(object("1", "LoadBalancer")).expect("one"));
    let turn = bench.services.turn(&key(), &svc);
    let show = async || {
        let shown = bench.services.show(&turn, &[place().address]).await;
        (
            shown.is_ok(),
            std::mem::take(&mut bench.calls.lock().patched),
        )
    };
    bench.calls.lock().refused.insert(METADATA, 503);
    assert_eq!(show().await, (false, vec![STATUS, METADATA]));
    assert_eq!(show().await, (false, vec![STATUS, METADATA]));
    bench.calls.lock().refused.clear();
    assert_eq!(show().await, (true, vec![STATUS, METADATA]));
    assert_eq!(show().await, (true, vec![]), "the watch is behind");
}

#[tokio::test]
async fn a_pool_is_gone_with_its_object_although_its_mirror_is_not_closed_yet() {
    let bench = Bench::new(json!({})).await;
    let data = bench.of_a_pool().await;
    let wish = Wish {
        pool: Some("net".into()),
        ..validate::any(&Svc::default())
    };
    let found = || {
        let pools = bench.services.pools(&wish);
        pools.map_err(|problem| problem.reason)
    };
    assert_eq!(found().map(|pools| pools.len()), Err("PoolNotFound"));
    let object = fipd_crds::floating_ip::FloatingIPPool::new("net", Default::default());
    data.pools.set(&Key::new("", "net"), object);
    assert_eq!(found().map(|pools| pools.len()), Ok(1));
}

#[tokio::test]
async fn a_pool_that_gives_prefixes_serves_no_service() {
    let bench = Bench::new(json!({})).await;
    let blocks = PoolSpec {
        allocation_length: Some(64),
        ..fipd_core::testing::pool_spec("blocks", &["2001:db8::/56"])
    };
    let single = fipd_core::testing::pool_spec("single", &["2001:db8:1::/64"]);
    for spec in [blocks, single] {
        let create = fipd_core::testing::create_pool(spec);
        bench.ipam.submit(create).await.expect("a pool");
    }
    let found = |pool: &str| {
        let wish = Wish {
            pool: Some(pool.into()),
            ..validate::any(&Svc::default())
        };
        bench.services.pools(&wish)
    };
    assert_eq!(found("single").map(|pools| pools.len()), Ok(1));
    let problem = found("blocks").expect_err("prefixes");
    assert_eq!(problem.reason, "PoolNotFound");
    assert_eq!(problem.cause, Some(Cause::Pools));
    let why = "pool \"blocks\" gives prefixes of /64, and a Service needs a pool of addresses";
    assert!(problem.message.contains(why), "{}", problem.message);
}

#[tokio::test]
async fn a_service_whose_address_is_in_a_leased_prefix_waits_for_that() {
    let bench = Bench::new(json!({})).await;
    let release = fipd_core::testing::release(holder());
    bench.ipam.submit(release).await.expect("a release");
    let spec = fipd_core::testing::pool_spec("net", &["10.7.0.0/24"]);
    let create = fipd_core::testing::create_pool(spec);
    bench.ipam.submit(create).await.expect("a pool");
    let status = json!({ "loadBalancer": { "ingress": [{ "ip": "10.7.0.9" }] } });
    let mut object = marked("1", json!({}));
    object["status"] = status;
    let svc = watched(object);
    let waits = || {
        let turn = bench.services.turn(&key(), &svc);
        bench.services.still_shown(&turn)
    };
    let address = |text: &str| Some(Cause::Address(fipd_core::testing::key_of(text)));
    assert_eq!(waits(), address("10.7.0.9"));
    let adopt = Adopt {
        length: Some(29),
        key: fipd_core::testing::key_of("10.7.0.8"),
        holder: fipd_core::testing::holder("rancher-fip/Y/Service/ns/api", "1"),
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    };
    let adopted = bench.ipam.submit(Request::Adopt(adopt)).await;
    adopted.expect("a lease");
    assert_eq!(waits(), address("10.7.0.8"));
}

/// A Service of another program, which shows the addresses.
fn of_another(uid: &str, addresses: &[&str]) -> Value {
    let mut object = object(uid, "LoadBalancer");
    object["spec"]["loadBalancerClass"] = json!("other.example.net/lb");
    let ingress: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
    object["status"] = json!({ "loadBalancer": { "ingress": ingress } });
    object
}

fn watched(object: Value) -> Svc {
    observe::all(serde_json::from_value(object).expect("a Service"))
}

#[tokio::test]
async fn an_address_stays_with_a_service_of_another_program_until_no_list_shows_it() {
    let using = of_another("2", &["10.7.0.1"]);
    let bench = Bench::new(using.clone()).await;
    bench.services.context.objects.set(&key(), watched(using));
    assert_eq!(bench.unseen().await, Next::Done);
    assert_eq!(bench.presence().await, Presence::Present);
    assert!(bench.has_lease());
    assert!(
        bench.calls.lock().patched.is_empty(),
        "it is not fipd's to write"
    );

    let idle = of_another("2", &["10.7.0.9"]);
    bench.answers.lock().1 = idle.clone();
    assert_eq!(bench.presence().await, Presence::Gone);
    let behind = bench.told(of_another("2", &["10.7.0.1"])).await;
    assert_eq!(
        behind,
        Next::Done,
        "another instance's lease is for the sweep"
    );
}

#[tokio::test]
async fn a_service_that_shows_the_address_by_a_fresh_read_keeps_it() {
    let mut using = of_another("1", &["10.7.0.1"]);
    let bench = Bench::new(using.clone()).await;
    assert_eq!(bench.told(of_another("1", &[])).await, Next::After(BEHIND));
    assert!(bench.has_lease());
    using["status"] = json!({});
    bench.answers.lock().1 = using.clone();
    bench.told(using).await;
    assert!(!bench.has_lease(), "it has given the address up");
}

#[tokio::test]
async fn a_cluster_is_asked_who_shows_an_address() {
    let bench = Bench::new(of_another("2", &["10.7.0.1"])).await;
    let address = place().address;
    let services = &bench.services;
    assert_eq!(services.shows(address), None);
    let shown = services.service(&key(), &"2".into());
    let found = services.ask(&[key()], address).await.expect("an answer");
    assert_eq!(found, Some(shown));
    let other = services.ask(&[key()], [10, 7, 0, 2].into()).await;
    assert_eq!(other.expect("an answer"), None);
    let aged = |uid: &str, terminating, created| Svc {
        terminating,
        created: Timestamp(created),
        ..watched(of_another(uid, &["10.7.0.1"]))
    };
    for (name, svc) in [
        ("ends", aged("a", true, 1)),
        ("young", aged("b", false, 3)),
        ("old", aged("c", false, 2)),
    ] {
        services.context.objects.set(&Key::new("ns", name), svc);
    }
    let oldest = services.shows(address).expect("a Service");
    assert_eq!((&*oldest.key.name, &*oldest.uid), ("old", "c"));
    bench.answers.lock().0 = "Y".into();
    assert!(
        services.ask(&[key()], address).await.is_err(),
        "another cluster answers"
    );
}

#[tokio::test]
async fn what_was_kept_under_ranchers_name_passes_to_the_cluster_once_it_is_connected() {
    for shown in [false, true] {
        let bench = Bench::new(object("2", "LoadBalancer")).await;
        bench.of_a_pool().await;
        let reported = names::reported_service(&management(), "c-abcde", &key());
        let handover = fipd_core::Handover {
            from: holder(),
            to: reported,
            keys: vec![],
            actor: "test".into(),
            reason: "".into(),
        };
        let kept = bench.ipam.submit(Request::Handover(handover)).await;
        kept.expect("a handover");
        if shown {
            let using = watched(of_another("9", &["10.7.0.1"]));
            bench
                .services
                .context
                .objects
                .set(&Key::new("ns", "api"), using);
        }
        bench.services.claim_reported().await;
        let lease = bench.ipam.read(|ledger| ledger.lease(place()).cloned());
        let lease = lease.expect("a lease");
        let owner = lease.owner().expect("an owner");
        let (name, uid) = if shown { ("api", "9") } else { ("web", "") };
        assert_eq!(
            owner.identity.to_string(),
            format!("rancher-fip/X/Service/ns/{name}")
        );
        assert_eq!(&*owner.instance, uid);
    }
}

#[tokio::test]
async fn an_address_that_services_shared_stays_until_the_last_does_not_show_it() {
    let bench = Bench::new(of_another("2", &["10.7.0.1"])).await;
    let heir = || bench.inventory.heir(&holder(), place());
    assert_eq!(heir(), None);
    let api = Key::new("ns", "api");
    let mut noted = watched(of_another("9", &[]));
    noted.marks.insert(FLOATING_IP, "10.7.0.1".to_owned());
    bench.services.context.objects.set(&api, noted);
    assert_eq!(heir(), None, "anybody may write an annotation");
    let using = watched(of_another("9", &["10.7.0.1"]));
    bench.services.context.objects.set(&api, using);
    let next = bench.services.service(&api, &"9".into());
    assert_eq!(heir(), Some(next.holder()));
}
