//! Guests of a Rancher with answers out of memory, over hours of a clock that tests move.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use fipd_core::{Answer, Holder, PoolId, ReleaseScope, Request, System, Timestamp, testing};
use fipd_crds::labels::{ADOPTED, FIELD_MANAGER};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt as _;

use super::{
    notes::{NOTES, VipNote},
    *,
};
use crate::{
    clock, clusters,
    clusters::adoption::Inventory as _,
    config,
    controller::{
        address_user::{inventory::AddressInventory, settle::AddressAsker},
        confirm_absence::RECHECK_AFTER,
        context::Context,
        fake_api_tests::merge,
        queue::Next,
    },
    guests::{
        GuestPhase,
        clusters::{ClusterMark, ManagedCluster},
        hosting::Provisioned,
        sources::GuestListener as _,
    },
    ipam::Ipam,
    logging::tests::Capture,
    system,
    systems::kube_fip::{
        floating_ip::{self, FipView, GuestFipController, GuestFloatingIps},
        metrics::GuestEvent,
        names::FLOATING_IP,
        range,
        settings::GuestInstall,
    },
};

const RANCHER: &str = "default";
/// Names of the releases that helm has deployed in each guest.
const DEPLOYED: [&str; 2] = ["kube-vip", "kube-vip-cloud-provider"];

/// An API server that keeps ConfigMaps, knows the releases and nothing else.
struct FakeCluster {
    uid: String,
    /// Names of the releases that helm has deployed.
    deployed: Mutex<Vec<&'static str>>,
    /// Another installed them, and fipd only kept them in step.
    is_adopted: AtomicBool,
    answers: AtomicBool,
    /// As Rancher it has the kubeconfigs of all guests.
    has_kubeconfigs: AtomicBool,
    /// ConfigMaps can be written.
    takes_maps: AtomicBool,
    maps: Mutex<BTreeMap<String, Value>>,
    services: Mutex<Vec<Value>>,
    /// FloatingIPs, by name.
    fips: Mutex<BTreeMap<String, Value>>,
    /// What Events say.
    told: Mutex<Vec<String>>,
    /// Method and path of each request.
    asked: Mutex<Vec<String>>,
}

impl FakeCluster {
    fn new(uid: &str) -> Arc<Self> {
        Arc::new(Self {
            uid: uid.to_owned(),
            deployed: Mutex::new(DEPLOYED.to_vec()),
            is_adopted: AtomicBool::new(false),
            answers: AtomicBool::new(true),
            has_kubeconfigs: AtomicBool::new(true),
            takes_maps: AtomicBool::new(true),
            maps: Mutex::default(),
            services: Mutex::default(),
            fips: Mutex::default(),
            told: Mutex::default(),
            asked: Mutex::default(),
        })
    }

    fn remote(self: &Arc<Self>) -> Remote {
        Remote::new(self.client())
    }

    fn client(self: &Arc<Self>) -> Client {
        let cluster = Arc::clone(self);
        let serve = move |request: http::Request<Body>| {
            let cluster = Arc::clone(&cluster);
            async move {
                let (head, body) = request.into_parts();
                let path = head.uri.path().to_owned();
                cluster.asked.lock().push(format!("{} {path}", head.method));
                if !cluster.answers.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                let bytes = body.collect().await.map(|body| body.to_bytes());
                let body = serde_json::from_slice(&bytes.unwrap_or_default());
                let (code, answer) = cluster.answer(&head.method, &path, body.unwrap_or_default());
                let answer = Body::from(answer.to_string().into_bytes());
                let answer = http::Response::builder().status(code).body(answer);
                Ok::<_, Infallible>(answer.expect("an answer"))
            }
        };
        Client::new(tower::service_fn(serve), RANCHER)
    }

    fn answer(&self, method: &http::Method, path: &str, body: Value) -> (u16, Value) {
        let missing =
            json!({ "status": "Failure", "code": 404, "message": "no", "reason": "NotFound" });
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (method.as_str(), parts.as_slice()) {
            ("GET", [.., "namespaces", "kube-system"]) => (
                200,
                json!({ "metadata": { "name": "kube-system", "uid": self.uid } }),
            ),
            ("GET", [.., "secrets", name])
                if name.ends_with("-kubeconfig")
                    && self.has_kubeconfigs.load(Ordering::Relaxed) =>
            {
                // "kube", as access keeps it.
                (
                    200,
                    json!({ "metadata": { "name": name }, "data": { "value": "a3ViZQ==" } }),
                )
            }
            ("GET", [.., "secrets"]) => {
                let deployed = self.deployed.lock().clone();
                let adopted = self.is_adopted.load(Ordering::Relaxed);
                let items = deployed.into_iter().map(|name| {
                    let mut secret = json!({ "metadata": {
                        "name": format!("sh.helm.release.v1.{name}.v1"), "namespace": "kube-system",
                        "labels": {
                            "owner": "helm", "name": name, "version": "1", "status": "deployed",
                            "app.kubernetes.io/managed-by": "fipd", "fipd.io/system": "kube-fip",
                        },
                    } });
                    if adopted {
                        secret["metadata"]["labels"][ADOPTED] = json!("true");
                    }
                    secret
                });
                let items: Vec<Value> = items.collect();
                (200, json!({ "metadata": {}, "items": items }))
            }
            ("GET", [.., "services"]) => {
                let items = self.services.lock().clone();
                (200, json!({ "metadata": {}, "items": items }))
            }
            ("GET", [.., "configmaps", name]) => {
                let maps = self.maps.lock();
                maps.get(*name)
                    .map_or((404, missing), |map| (200, map.clone()))
            }
            ("POST" | "PATCH", [.., "configmaps"] | [.., "configmaps", _])
                if !self.takes_maps.load(Ordering::Relaxed) =>
            {
                let status = json!({ "status": "Failure", "code": 403, "reason": "Forbidden" });
                (403, status)
            }
            ("POST", [.., "configmaps"]) => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let mut made = body.clone();
                merge(
                    &mut made,
                    &json!({ "metadata": { "uid": "u", "resourceVersion": "1" } }),
                );
                self.maps.lock().insert(name.to_owned(), made.clone());
                (201, made)
            }
            ("PATCH", [.., "configmaps", name]) => {
                let mut maps = self.maps.lock();
                let map = maps.entry((*name).to_owned()).or_default();
                merge(map, &body);
                (200, map.clone())
            }
            ("DELETE", [.., "configmaps", name]) => {
                self.maps.lock().remove(*name);
                (200, json!({}))
            }
            ("GET", [.., "floatingips", name]) => {
                let fips = self.fips.lock();
                fips.get(*name)
                    .map_or((404, missing), |fip| (200, fip.clone()))
            }
            ("POST", [.., "events"]) => {
                let note = body["note"].as_str().unwrap_or_default();
                self.told.lock().push(note.to_owned());
                (201, body)
            }
            ("POST", _) => (201, json!({})),
            _ => (404, missing),
        }
    }

    /// The addresses that its cloud provider would give.
    fn provides(&self) -> Option<String> {
        let maps = self.maps.lock();
        let data = &maps.get("kubevip")?["data"];
        data["cidr-global"].as_str().map(str::to_owned)
    }
}

/// Guests that each have a FloatingIP with a lease.
struct Bench {
    guests: Arc<VipGuests>,
    rancher: Arc<FakeCluster>,
    clusters: BTreeMap<String, Arc<FakeCluster>>,
    _dir: tempfile::TempDir,
}

impl Bench {
    async fn new(names: &[&str]) -> Self {
        let bench = Self::starting(names).await;
        bench.guests.maps.seen.complete();
        bench
    }

    /// The notes about the guests are not listed yet.
    async fn starting(names: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let rancher = FakeCluster::new("X");
        let session = clusters::testing::session(rancher.client(), &ipam).await;
        let site = Arc::new(Site::new(session, System::kube_fip()));
        let quiet = || std::future::ready(());
        let events = Events::start(site.session.recorder.clone(), site.cancel(), quiet);
        let means = system::testing::means(&ipam);
        let known = RancherClusters::new(&site, &means);
        let (fips, ranges) = (Objects::new(), Objects::new());
        let helm = Helm::start(&config::Helm::default(), dir.path(), site.cancel());
        let guests = VipGuests::new(VipMeans {
            site: &site,
            events: &Arc::new(events),
            board: &GuestBoard::default(),
            counts: VipCounts::default(),
            metrics_ports: BTreeSet::new(),
            helm: Some(helm),
            clusters: &known,
            fips: &fips,
            ranges: &ranges,
        });
        let mut bench = Self {
            guests,
            rancher,
            clusters: BTreeMap::new(),
            _dir: dir,
        };
        let spec = testing::pool_spec("net", &["10.0.0.0/24"]);
        let made = ipam
            .submit(testing::create_pool(spec))
            .await
            .expect("a pool");
        let Answer::Pool(pool) = made else {
            panic!("{made:?}");
        };
        for name in names {
            bench.add(name, &ipam, pool.id).await;
        }
        bench
    }

    /// A guest whose charts are to be there.
    async fn add(&mut self, name: &str, ipam: &Ipam, pool: PoolId) {
        let guests = &self.guests;
        let id = format!("c-m-{name}");
        let cluster = ManagedCluster {
            uid: id.clone(),
            ending: false,
            display_name: name.to_owned(),
            harvester: false,
            local: false,
            engine: ClusterMark::Silent,
        };
        guests.seen.clusters.set(&Key::new("", &id), cluster);
        let made = Provisioned {
            uid: format!("u-{name}"),
            id: Some(id.clone()),
            marks: [(fipd_crds::kube_fip::KUBE_VIP, "true".to_owned())].into(),
            ..Provisioned::default()
        };
        let key = Key::new("fleet-default", name);
        guests.sources.provisioned.set(&key, made);
        guests.access.names.note(&id.as_str().into(), Some(name));
        let fip = self.name_cluster(name, name);
        let site = &guests.site;
        let holder = Holder {
            identity: fip.identity(site.system.clone(), &site.id, FLOATING_IP.kind),
            instance: "u".into(),
        };
        let ask = testing::allocate(holder, [testing::want(pool, None)]);
        let given = ipam.submit(Request::Allocate(ask)).await;
        given.expect("an address");
        let cluster = FakeCluster::new(&id);
        guests.access.keep(&id, "kube", cluster.remote());
        self.clusters.insert(name.to_owned(), cluster);
    }

    /// Has the FloatingIP of a guest name a cluster.
    fn name_cluster(&self, name: &str, named: &str) -> Key {
        let fip = Key::new(&format!("c-m-{name}"), &format!("{name}-kubevip"));
        let object = json!({
            "apiVersion": "kubefip.k8s.binbash.org/v1", "kind": "FloatingIP",
            "metadata": { "annotations": {
                "clustername": named, "fiprange": "net", "updateConfigMap": "true",
            } },
            "spec": {},
        });
        let view = floating_ip::view(serde_json::from_value(object).expect("a FloatingIP"));
        self.guests.fips.set(&fip, view);
        fip
    }

    fn cluster(&self, name: &str) -> &FakeCluster {
        &self.clusters[name]
    }

    /// How often a guest answered, or did not.
    fn looks(&self, name: &str, well: bool) -> u64 {
        let id = format!("c-m-{name}");
        let counts = &self.guests.counts;
        counts.count(&id, GuestEvent::ApiConnection, well)
    }

    fn phase(&self, name: &str) -> Option<(GuestPhase, &'static str)> {
        let guests = &self.guests;
        let view = guests
            .board
            .get(&guests.site.name, &format!("c-m-{name}"), SYSTEM)?;
        Some((view.says.phase, view.says.reason))
    }
}

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_guest_is_down_for_an_hour_while_others_go_on_and_is_served_once_it_is_back() {
    let bench = Bench::new(&["near", "down", "far"]).await;
    bench
        .cluster("down")
        .answers
        .store(false, Ordering::Relaxed);
    tokio::time::pause();
    bench.guests.everything_changed();
    let run = tokio::spawn({
        let guests = Arc::clone(&bench.guests);
        async move { guests.run().await }
    });
    // It is asked first, and would keep those behind it waiting for as long as its deadline.
    tokio::time::sleep(Duration::from_secs(8)).await;
    for name in ["near", "far"] {
        assert!(bench.cluster(name).provides().is_some(), "{name} waits");
    }
    tokio::time::sleep(HOUR - Duration::from_secs(8)).await;
    for name in ["near", "far"] {
        assert!(bench.cluster(name).provides().is_some(), "{name}");
        assert_eq!(bench.phase(name), Some((GuestPhase::Ready, "Ready")));
        let looks = bench.looks(name, true);
        assert!(
            (7..=10).contains(&looks),
            "{name} was looked at {looks} times"
        );
    }
    assert_eq!(bench.cluster("down").provides(), None);
    assert_eq!(
        bench.phase("down"),
        Some((GuestPhase::Waiting, "Unreachable"))
    );
    let tries = bench.looks("down", false);
    assert!((60..=130).contains(&tries), "it was tried {tries} times");

    bench.cluster("down").answers.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(bench.cluster("down").provides().is_some());
    assert_eq!(bench.phase("down"), Some((GuestPhase::Ready, "Ready")));
    run.abort();
}

#[tokio::test]
async fn a_guest_where_nothing_has_to_be_done_is_asked_six_times_an_interval_at_most() {
    let bench = Bench::new(&["idle"]).await;
    tokio::time::pause();
    bench.guests.everything_changed();
    let run = tokio::spawn({
        let guests = Arc::clone(&bench.guests);
        async move { guests.run().await }
    });
    let interval = bench.guests.config().interval;
    tokio::time::sleep(interval / 2).await;
    assert_eq!(bench.phase("idle"), Some((GuestPhase::Ready, "Ready")));
    bench.cluster("idle").asked.lock().clear();
    const INTERVALS: u32 = 10;
    tokio::time::sleep(interval * INTERVALS).await;
    let asked = bench.cluster("idle").asked.lock().clone();
    let most = usize::try_from(6 * INTERVALS).expect("few");
    assert!(asked.len() <= most, "{}: {asked:?}", asked.len());
    assert!(asked.iter().all(|one| one.starts_with("GET ")), "{asked:?}");
    run.abort();
}

#[tokio::test]
async fn what_decides_a_first_address_matters_only_to_guests_that_had_none() {
    let machines = |bench: &Bench| bench.guests.machines_changed();
    let range = |bench: &Bench| {
        let object = json!({
            "apiVersion": "kubefip.k8s.binbash.org/v1", "kind": "FloatingIPRange",
            "metadata": { "name": "new" }, "spec": { "iprange": "10.0.1.0/24" },
        });
        let view = range::view(serde_json::from_value(object).expect("a range"));
        let key = Key::new("", "new");
        bench.guests.ranges.set(&key, view);
        bench.guests.range_changed(&key);
    };
    for change in [&machines as &dyn Fn(&Bench), &range] {
        for served in [true, false] {
            let bench = Bench::new(&["one"]).await;
            let note = |note| VipNote { served, ..note };
            assert!(bench.guests.note("c-m-one", note).await.is_ok());
            change(&bench);
            assert_eq!(bench.guests.queue.is_idle(), served);
        }
    }
}

#[tokio::test]
async fn what_a_guest_had_is_noted_before_it_is_written_to() {
    let bench = Bench::new(&["one"]).await;
    bench.cluster("one").answers.store(false, Ordering::Relaxed);
    tokio::time::pause();
    let key = Key::new("", "c-m-one");
    let next = Arc::clone(&bench.guests).reconcile(key.clone()).await;
    assert!(matches!(next, Next::After(_)), "{next:?}");
    assert!(
        !bench.guests.noted("c-m-one").written,
        "nothing was written"
    );
    bench.cluster("one").answers.store(true, Ordering::Relaxed);
    Arc::clone(&bench.guests).reconcile(key).await;
    assert!(bench.guests.noted("c-m-one").written);
    let notes = bench.guests.maps.get(NOTES).expect("notes");
    assert_eq!(notes["c-m-one"], "served written");
}

/// A FloatingIP as far as it says who wrote its annotations.
fn annotated_by(manager: &str) -> Value {
    json!({ "metadata": { "managedFields": [{
        "manager": manager,
        "fieldsV1": { "f:metadata": { "f:annotations": { "f:clustername": {} } } },
    }] } })
}

#[tokio::test]
async fn a_guest_whose_note_is_lost_may_have_the_address_that_its_floating_ip_shows() {
    let bench = Bench::new(&["new", "lost"]).await;
    let guests = &bench.guests;
    bench
        .rancher
        .has_kubeconfigs
        .store(false, Ordering::Relaxed);
    for name in ["new", "lost"] {
        let fip = (format!("{name}-kubevip"), annotated_by(FIELD_MANAGER));
        bench.rancher.fips.lock().extend([fip]);
    }
    let key = Key::new("c-m-lost", "lost-kubevip");
    let mut fip = FipView::clone(&guests.fips.get(&key).expect("a FloatingIP"));
    fip.status.address = "10.0.0.5".into();
    guests.fips.set(&key, fip);
    for (name, written) in [("new", false), ("lost", true)] {
        bench.look(name).await;
        let note = guests.noted(&format!("c-m-{name}"));
        assert_eq!((note.made, note.written), (true, written), "{name}");
    }
}

#[tokio::test]
async fn what_fipd_made_before_it_was_killed_is_told_and_noted() {
    let bench = Bench::new(&["one", "two"]).await;
    bench.rancher.fips.lock().extend([
        ("one-kubevip".to_owned(), annotated_by(FIELD_MANAGER)),
        ("two-kubevip".to_owned(), annotated_by("kubectl")),
    ]);
    for name in ["one", "two"] {
        bench.look(name).await;
    }
    let made = |id: &str| bench.guests.noted(id).made;
    assert!(made("c-m-one") && !made("c-m-two"));
    let told = || {
        let told = bench.rancher.told.lock();
        let made = told.iter().filter(|note| note.contains("is made"));
        made.cloned().collect::<Vec<_>>()
    };
    while told().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        told(),
        ["FloatingIP c-m-one/one-kubevip of range net is made"]
    );
}

impl Bench {
    /// The FloatingIP of a guest goes, as its controller has it go; the address.
    async fn delete_fip(&self, name: &str) -> IpAddr {
        let id = format!("c-m-{name}");
        let key = Key::new(&id, &format!("{name}-kubevip"));
        let guests = &self.guests;
        let fip = guests.fips.get(&key).expect("a FloatingIP");
        assert!(guests.may_use(&id, &fip));
        let place = guests.lease(&key, &fip).expect("a lease");
        let site = &guests.site;
        let own = Holder {
            identity: key.identity(site.system.clone(), &site.id, FLOATING_IP.kind),
            instance: "u".into(),
        };
        let keeper = guests.keeper(&id);
        site.transfer(own, keeper, place, "deleted")
            .await
            .expect("it is kept");
        guests.fips.remove(&key);
        place.address
    }

    /// The controller of the FloatingIPs, which knows no guests yet.
    fn floating_ips(&self) -> Arc<GuestFipController> {
        let guests = &self.guests;
        let context = Context::new(
            FLOATING_IP,
            Arc::clone(&guests.site),
            guests.remote.clone(),
            Arc::clone(&guests.events),
            Arc::clone(&guests.fips),
        );
        GuestFipController::new(context, GuestFloatingIps::default())
    }

    /// The ledger has no lease of the FloatingIP of `one` any more; the one that it had.
    async fn lose_lease(&self) -> LeaseKey {
        let guests = &self.guests;
        let key = Key::new("c-m-one", "one-kubevip");
        let fip = guests.fips.get(&key).expect("a FloatingIP");
        let place = guests.lease(&key, &fip).expect("a lease");
        let site = &guests.site;
        let own = Holder {
            identity: key.identity(site.system.clone(), &site.id, FLOATING_IP.kind),
            instance: "u".into(),
        };
        let released = site.release(ReleaseScope::Holder(own), "the ledger is an older one");
        assert!(released.await.is_ok());
        place
    }

    /// The FloatingIP of `one` shows this address, and this condition `Ready`.
    fn show_ready(&self, place: &LeaseKey, status: &str, reason: &str) {
        let key = Key::new("c-m-one", "one-kubevip");
        let fip = self.guests.fips.get(&key).expect("a FloatingIP");
        let mut view = FipView::clone(&fip);
        view.status.address = place.address.to_string();
        let ready = json!([{
            "type": "Ready", "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        }]);
        view.status.conditions = serde_json::from_value(ready).expect("a condition");
        self.guests.fips.set(&key, view);
    }

    async fn look(&self, name: &str) -> Next {
        Arc::clone(&self.guests)
            .reconcile(Key::new("", &format!("c-m-{name}")))
            .await
    }

    /// Has a guest keep an address beside that of its FloatingIP.
    async fn keep_another(&self, name: &str) -> IpAddr {
        let id = format!("c-m-{name}");
        let ipam = &self.guests.site.ipam;
        let pool = ipam.read(|ledger| ledger.pools().next().map(|pool| pool.id));
        let want = testing::want(pool.expect("a pool"), None);
        let ask = testing::allocate(self.guests.keeper(&id), [want]);
        let given = ipam.submit(Request::Allocate(ask)).await;
        given.expect("an address");
        self.guests.kept(&id)[0].address
    }

    fn kept(&self, name: &str) -> usize {
        self.guests.kept(&format!("c-m-{name}")).len()
    }
}

#[tokio::test]
async fn an_address_stays_with_its_guest_until_no_service_there_has_it_or_can_get_it() {
    let bench = Bench::new(&["one"]).await;
    tokio::time::pause();
    bench.look("one").await;
    assert!(bench.cluster("one").provides().is_some());
    let address = bench.delete_fip("one").await;
    let service = json!({
        "metadata": { "namespace": "shop", "name": "web" }, "spec": { "type": "LoadBalancer" },
        "status": { "loadBalancer": { "ingress": [{ "ip": address }] } },
    });
    *bench.cluster("one").services.lock() = vec![service];
    bench.look("one").await;
    assert_eq!(bench.kept("one"), 1);
    assert_eq!(
        bench.cluster("one").provides(),
        None,
        "no other Service gets it"
    );

    bench.cluster("one").answers.store(false, Ordering::Relaxed);
    bench.cluster("one").services.lock().clear();
    bench.look("one").await;
    assert_eq!(bench.kept("one"), 1, "nobody knows");
    bench.cluster("one").answers.store(true, Ordering::Relaxed);
    let theirs = json!({
        "metadata": { "uid": "u", "resourceVersion": "1" },
        "data": { "cidr-shop": format!("{address}/32") },
    });
    let maps = &bench.cluster("one").maps;
    maps.lock().insert("kubevip".to_owned(), theirs);
    bench.look("one").await;
    assert_eq!(bench.kept("one"), 1, "the next Service may get it");
    maps.lock().remove("kubevip");
    bench.look("one").await;
    assert_eq!(
        bench.kept("one"),
        1,
        "the cloud provider may be about to write it"
    );
    tokio::time::advance(kept::AGAIN).await;
    // The clock would run ahead to the deadline of the look while the ledger, which has a thread of its own, answers.
    tokio::time::resume();
    // Its charts, which cannot be uninstalled without helm, do not keep it.
    bench.look("one").await;
    assert_eq!(bench.kept("one"), 0);
}

#[tokio::test]
async fn a_guest_is_looked_at_soon_again_only_where_what_it_keeps_was_seen_unused() {
    let bench = Bench::new(&["one"]).await;
    let interval = Next::After(bench.guests.config().interval);
    assert_eq!(bench.look("one").await, interval);
    let address = bench.keep_another("one").await;
    let cluster = bench.cluster("one");
    *cluster.services.lock() = vec![json!({
        "metadata": { "namespace": "shop", "name": "web" },
        "spec": { "type": "LoadBalancer", "loadBalancerIP": address },
    })];
    assert_eq!(bench.look("one").await, interval, "a Service has it");
    cluster.services.lock().clear();
    let offer = |offered: Value| {
        let mut maps = cluster.maps.lock();
        let map = maps.get_mut("kubevip").expect("the ConfigMap");
        merge(map, &json!({ "data": { "cidr-shop": offered } }));
    };
    offer(json!(format!("{address}/32")));
    assert_eq!(bench.look("one").await, interval, "it is offered");
    offer(Value::Null);
    assert_eq!(bench.look("one").await, Next::After(kept::AGAIN));
    assert_eq!(bench.kept("one"), 1);
}

#[tokio::test]
async fn what_a_floating_ip_contends_for_is_contended_for_by_its_guest_once_it_gives_it_up() {
    let bench = Bench::new(&["one", "two"]).await;
    let guests = &bench.guests;
    let site = &guests.site;
    let key = |name: &str| Key::new(&format!("c-m-{name}"), &format!("{name}-kubevip"));
    let fip = |name: &str| guests.fips.get(&key(name)).expect("a FloatingIP");
    let place = guests.lease(&key("one"), &fip("one")).expect("a lease");
    let fips = bench.floating_ips();
    let own = fips.context.holder(&key("two"), &fip("two").meta.uid);
    let doubled = AddressAsker {
        holder: own,
        created: Timestamp(1),
        actor: "test".into(),
    };
    let doubled = site.ipam.submit(doubled.adopt(place.into(), None));
    doubled.await.expect("it contends");
    let set = fips.user.guests.set(Arc::downgrade(guests));
    assert!(set.is_ok());
    let lease = || site.ipam.read(|ledger| ledger.lease(place).cloned());
    for _ in 0..2 {
        let (key, fip) = (key("two"), fip("two"));
        let gone = fips.give_up(&key, &fip, std::slice::from_ref(&place), "deleted");
        assert!(gone.await.is_ok());
        let lease = lease().expect("a lease");
        let contenders = lease.contenders.iter().map(|one| &one.holder);
        let keeper = guests.keeper("c-m-two");
        assert_eq!(contenders.collect::<Vec<_>>(), [&keeper]);
        assert_eq!(bench.kept("two"), 1);
    }
    bench.look("two").await;
    assert_eq!(bench.kept("two"), 1, "it is not known yet to be unused");
}

#[tokio::test]
async fn while_it_is_not_known_who_has_an_address_its_guest_stays_as_it_is() {
    let bench = Bench::new(&["one"]).await;
    bench.look("one").await;
    let provided = bench.cluster("one").provides();
    assert!(provided.is_some());
    let place = bench.lose_lease().await;
    for (reason, stays) in [("RestoreHold", true), ("PoolExhausted", false)] {
        bench.show_ready(&place, "False", reason);
        bench.look("one").await;
        let shown = bench.phase("one").map(|(_, reason)| reason);
        assert_eq!(shown == Some("AddressUnclear"), stays, "{shown:?}");
        assert_eq!(bench.cluster("one").provides() == provided, stays);
    }
}

#[tokio::test]
async fn a_guest_stays_as_it_is_until_its_floating_ip_was_looked_at() {
    let bench = Bench::new(&["one"]).await;
    bench.look("one").await;
    let provided = bench.cluster("one").provides();
    assert!(provided.is_some());
    let place = bench.lose_lease().await;
    bench.show_ready(&place, "True", "Allocated");
    bench.look("one").await;
    let waits = Some((GuestPhase::Waiting, "AddressUnclear"));
    assert_eq!(bench.phase("one"), waits);
    assert_eq!(bench.cluster("one").provides(), provided);
}

#[tokio::test]
async fn a_guest_stays_as_it_is_while_its_floating_ip_has_an_address_and_is_not_listed() {
    let bench = Bench::new(&["one", "two"]).await;
    for name in ["one", "two"] {
        bench.look(name).await;
    }
    let provided = bench.cluster("one").provides();
    assert!(provided.is_some());
    let guests = &bench.guests;
    let key = Key::new("c-m-one", "one-kubevip");
    let fip = guests.fips.get(&key).expect("a FloatingIP");
    guests.fips.remove(&key);
    let next = bench.look("one").await;
    assert_eq!(next, Next::After(Duration::from_secs(30)));
    let waits = Some((GuestPhase::Waiting, "AddressUnclear"));
    assert_eq!(bench.phase("one"), waits);
    assert_eq!(bench.cluster("one").provides(), provided);
    let made = guests.made_by("c-m-one").expect("it is made");
    let (plan, _) = guests.planned("c-m-one", &made.0, &made.1).await;
    assert_eq!(plan.releases, None, "its charts stay");
    bench.look("two").await;
    assert_ne!(bench.phase("two"), waits, "it has its own");
    guests.fips.set(&key, FipView::clone(&fip));
    bench.look("one").await;
    assert_ne!(bench.phase("one"), waits);
    bench.delete_fip("one").await;
    bench.look("one").await;
    assert_eq!(bench.cluster("one").provides(), None, "it is gone");
}

#[tokio::test]
async fn a_guest_is_known_by_its_id_and_by_its_display_name() {
    let bench = Bench::new(&["one", "two"]).await;
    let called = |name: &str| bench.guests.called(&[name.into()]);
    assert_eq!(called("one"), None, "they are not listed yet");
    bench.guests.seen.clusters.complete();
    for name in ["one", "c-m-one"] {
        assert_eq!(called(name), Some(vec!["c-m-one".to_owned()]), "{name}");
    }
    assert_eq!(called("three"), Some(Vec::new()));
}

impl Bench {
    /// Rancher deletes the guest.
    fn end(&self, name: &str) {
        let clusters = &self.guests.seen.clusters;
        let key = Key::new("", &format!("c-m-{name}"));
        let ending = ManagedCluster {
            ending: true,
            ..(*clusters.get(&key).expect("a cluster")).clone()
        };
        clusters.set(&key, ending);
    }

    fn may_use(&self, name: &str) -> bool {
        let key = Key::new(&format!("c-m-{name}"), &format!("{name}-kubevip"));
        let fip = self.guests.fips.get(&key).expect("a FloatingIP");
        self.guests.may_use(&key.namespace, &fip)
    }

    /// fipd made the first FloatingIP of the guest, and wrote nothing into it.
    async fn untouched(&self, name: &str) {
        let untouched = |note| VipNote {
            made: true,
            written: false,
            ..note
        };
        let noted = self.guests.note(&format!("c-m-{name}"), untouched).await;
        assert!(noted.is_ok(), "{name}");
    }
}

#[tokio::test]
async fn before_the_notes_are_listed_any_guest_may_have_been_written_to() {
    let bench = Bench::starting(&["one", "two", "gone"]).await;
    let guests = &bench.guests;
    for name in ["one", "two"] {
        bench.untouched(name).await;
    }
    bench.end("one");
    bench.name_cluster("two", "none");
    guests.seen.clusters.remove(&Key::new("", "c-m-gone"));
    guests.seen.clusters.complete();
    guests.sources.provisioned.complete();
    for name in ["one", "two", "gone"] {
        assert!(bench.may_use(name), "{name}");
    }
    bench.name_cluster("two", "one");
    assert!(bench.may_use("two"));
    guests.maps.seen.complete();
    for name in ["one", "two", "gone"] {
        assert!(!bench.may_use(name), "nothing was written to {name}");
    }
}

#[tokio::test]
async fn a_guest_that_is_being_deleted_has_its_addresses_until_it_is_gone() {
    let bench = Bench::new(&["one"]).await;
    bench.look("one").await;
    let guests = &bench.guests;
    bench.end("one");
    assert!(guests.is_there("c-m-one"), "its machines run still");
    bench.untouched("one").await;
    assert!(!guests.is_there("c-m-one"));
}

#[tokio::test]
async fn what_an_original_may_have_written_counts_while_rancher_has_the_guest() {
    let bench = Bench::new(&["one", "two"]).await;
    let guests = &bench.guests;
    guests.seen.clusters.complete();
    guests.sources.provisioned.complete();
    bench.end("one");
    assert!(bench.may_use("one"), "it is being deleted");
    for named in ["one", "none"] {
        bench.name_cluster("two", named);
        assert!(bench.may_use("two"), "it names {named}");
    }
    bench.untouched("two").await;
    assert!(!bench.may_use("two"));
    guests.seen.clusters.remove(&Key::new("", "c-m-one"));
    assert!(!bench.may_use("one"), "it is gone");
}

#[tokio::test]
async fn where_nobody_can_have_written_an_address_it_is_free_at_once() {
    for made in [false, true] {
        let bench = Bench::new(&["one"]).await;
        bench
            .rancher
            .has_kubeconfigs
            .store(false, Ordering::Relaxed);
        let note = |note| VipNote {
            served: true,
            made,
            ..note
        };
        let noted = bench.guests.note("c-m-one", note).await;
        assert!(noted.is_ok());
        bench.look("one").await;
        bench.delete_fip("one").await;
        bench.look("one").await;
        let why = "an original may have given the guest an address that fipd did not make";
        assert_eq!(bench.kept("one"), usize::from(!made), "{why}");
    }
}

#[tokio::test]
async fn an_address_in_use_is_kept_where_the_guest_has_no_charts_of_fipds() {
    let bench = Bench::new(&["one"]).await;
    let cluster = bench.cluster("one");
    cluster.deployed.lock().clear();
    let made = |note| VipNote { made: true, ..note };
    assert!(bench.guests.note("c-m-one", made).await.is_ok());
    // It has another kube-vip.
    bench.unlabel("one");
    bench.look("one").await;
    assert!(cluster.provides().is_some());
    let address = bench.delete_fip("one").await;
    *cluster.services.lock() = vec![json!({
        "metadata": { "namespace": "shop", "name": "web" }, "spec": { "type": "LoadBalancer" },
        "status": { "loadBalancer": { "ingress": [{ "ip": address }] } },
    })];
    for _ in 0..3 {
        bench.look("one").await;
        tokio::task::yield_now().await;
    }
    bench
        .rancher
        .has_kubeconfigs
        .store(false, Ordering::Relaxed);
    bench.look("one").await;
    assert_eq!(bench.kept("one"), 1, "the Service has it");
}

impl Bench {
    /// Takes the label away by which the guest gets charts.
    fn unlabel(&self, name: &str) {
        let made = self.guests.made_by(&format!("c-m-{name}"));
        let made = Provisioned {
            marks: BTreeMap::new(),
            ..(*made.expect("it is made").1).clone()
        };
        let key = Key::new("fleet-default", name);
        self.guests.sources.provisioned.set(&key, made);
    }

    async fn look_after_charts(&self, name: &str) -> Next {
        Arc::clone(&self.guests)
            .reconcile_charts(Key::new("", &format!("c-m-{name}")))
            .await
    }
}

#[tokio::test]
async fn harvesters_kube_vip_is_on_again_once_nobody_has_another_there() {
    let bench = Bench::new(&["one"]).await;
    let cluster = bench.cluster("one");
    cluster.is_adopted.store(true, Ordering::Relaxed);
    bench.unlabel("one");
    bench.look("one").await;
    bench.look_after_charts("one").await;
    let looks_at_harvesters = async || {
        cluster.asked.lock().clear();
        bench.look("one").await;
        let asked = cluster.asked.lock();
        asked
            .iter()
            .any(|one| one.ends_with("/daemonsets/kube-vip"))
    };
    assert!(!looks_at_harvesters().await, "fipd did not install it");
    assert_eq!(bench.phase("one"), Some((GuestPhase::Ready, "Ready")));
    cluster.deployed.lock().clear();
    assert!(looks_at_harvesters().await, "somebody uninstalled it");
}

#[tokio::test]
async fn a_guest_that_is_being_deleted_gets_no_charts() {
    let bench = Bench::new(&["one"]).await;
    bench.look_after_charts("one").await;
    let asked = || std::mem::take(&mut *bench.cluster("one").asked.lock());
    assert!(!asked().is_empty());
    bench.end("one");
    bench.look_after_charts("one").await;
    assert_eq!(asked(), [""; 0]);
}

#[tokio::test]
async fn only_services_that_kube_vip_answers_for_keep_the_charts() {
    let bench = Bench::new(&["one"]).await;
    let cluster = &bench.clusters["one"];
    let unused = async |address: &str| {
        *cluster.services.lock() = vec![json!({
            "metadata": { "namespace": "shop", "name": "web" }, "spec": { "type": "LoadBalancer" },
            "status": { "loadBalancer": { "ingress": [{ "ip": address }] } },
        })];
        let remote = cluster.remote();
        let checked = bench.guests.check_unused("c-m-one", &remote).await;
        checked.is_ok()
    };
    let key = Key::new("c-m-one", "one-kubevip");
    let fip = bench.guests.fips.get(&key).expect("a FloatingIP");
    let leased = bench.guests.lease(&key, &fip).expect("a lease").address;
    assert!(!unused(&leased.to_string()).await);
    assert!(unused("10.9.0.1").await, "of another load balancer");
    let theirs = json!({ "data": { "range-global": "10.9.0.1-10.9.0.9" } });
    cluster.maps.lock().insert("kubevip".to_owned(), theirs);
    assert!(!unused("10.9.0.1").await, "the cloud provider gave it");
    bench.delete_fip("one").await;
    assert!(!unused(&leased.to_string()).await, "the guest keeps it");
}

#[tokio::test]
async fn a_floating_ip_that_names_another_cluster_or_none_takes_nothing_from_its_guest() {
    let bench = Bench::new(&["one", "two"]).await;
    let may_use = |fip: &Key| {
        let view = bench.guests.fips.get(fip).expect("a FloatingIP");
        bench.guests.may_use(&fip.namespace, &view)
    };
    bench.untouched("one").await;
    let fip = bench.name_cluster("one", "two");
    assert!(!may_use(&fip), "nothing of it was ever written");
    bench.name_cluster("one", "one");
    bench.look("one").await;
    let provides = bench.cluster("one").provides();
    assert!(provides.is_some());
    for named in ["two", ""] {
        bench.name_cluster("one", named);
        assert!(may_use(&fip), "a Service may have it");
        bench.look("one").await;
        assert_eq!(bench.cluster("one").provides(), provides);
        let waits = Some((GuestPhase::Waiting, "AnnotationInvalid"));
        assert_eq!(bench.phase("one"), waits, "{named:?}");
    }
    bench.look("two").await;
    let waits = Some((GuestPhase::Waiting, "ChartsInstalling"));
    assert_eq!(bench.phase("two"), waits);
}

#[tokio::test]
async fn a_list_that_does_not_come_shows_at_the_cluster_until_it_does() {
    let bench = Bench::starting(&[]).await;
    let guests = &bench.guests;
    guests.seen.clusters.complete();
    guests.seen.namespaces.complete();
    guests.fips.complete();
    guests.ranges.complete();
    let shown = || {
        let troubles = clusters::testing::troubles(&guests.site.session);
        troubles.get(lists::PART).map(ToString::to_string)
    };
    tokio::time::pause();
    let mut known = std::pin::pin!(guests.known());
    let waits = tokio::time::timeout(lists::WITHIN * 2, &mut known).await;
    assert!(waits.is_err());
    let why = shown().expect("it is shown");
    let missing = "clusters.provisioning.cattle.io, configmaps in namespace kube-fip;";
    assert!(
        why.contains(missing) && !why.contains("namespaces"),
        "{why}"
    );
    guests.maps.seen.complete();
    guests.sources.provisioned.complete();
    known.await;
    assert_eq!(shown(), None);
}

impl Bench {
    /// The admin's ConfigMap says how charts are installed.
    fn say_install(&self, mode: &str) {
        let key = Key::new(self.guests.config_namespace(), observe::CONFIG);
        let texts = [("kubevipGuestInstall".to_owned(), mode.to_owned())];
        self.guests.maps.seen.set(&key, texts.into());
    }

    fn install(&self) -> GuestInstall {
        self.guests.config().install
    }
}

#[tokio::test]
async fn the_last_good_value_counts_also_where_it_could_not_be_kept_and_is_kept_later() {
    let bench = Bench::new(&[]).await;
    tokio::time::pause();
    bench.rancher.takes_maps.store(false, Ordering::Relaxed);
    bench.say_install("enabled");
    assert!(bench.guests.read_config().await);
    assert_eq!(bench.install(), GuestInstall::Enabled);
    bench.say_install("enabeld");
    assert!(!bench.guests.read_config().await);
    assert_eq!(bench.install(), GuestInstall::Enabled);
    assert_eq!(bench.guests.maps.get(notes::COPY), None);

    let guests = Arc::clone(&bench.guests);
    let follow = tokio::spawn(async move { guests.follow_config().await });
    bench.rancher.takes_maps.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let kept = bench.guests.maps.get(notes::COPY).expect("it is kept");
    assert_eq!(kept["kubevipGuestInstall"], "enabled");
    follow.abort();
}

#[tokio::test]
async fn trace_ipam_data_logs_each_address_at_each_look() {
    let bench = Bench::new(&["one"]).await;
    let capture = Capture::default();
    let subscriber = tracing_subscriber::registry().with(capture.clone());
    let _logging = tracing::subscriber::set_default(subscriber);
    let traced = || {
        let messages = capture.messages();
        messages.iter().filter(|text| *text == "FloatingIP").count()
    };
    bench.look("one").await;
    assert_eq!(traced(), 0);
    let config = GuestConfig {
        trace_ipam_data: true,
        ..(*bench.guests.config()).clone()
    };
    *bench.guests.config.write() = Arc::new(config);
    for _ in 0..2 {
        bench.look("one").await;
        assert_eq!(traced(), 1);
    }
}

#[tokio::test]
async fn what_a_guest_keeps_is_free_once_rancher_has_the_guest_no_more() {
    let bench = Bench::new(&["one"]).await;
    tokio::time::pause();
    bench.look("one").await;
    bench.delete_fip("one").await;
    bench.cluster("one").answers.store(false, Ordering::Relaxed);
    bench.look("one").await;
    assert_eq!(bench.kept("one"), 1);
    assert!(bench.guests.queue.is_idle());
    bench.guests.queue_keepers().await;
    assert!(
        !bench.guests.queue.is_idle(),
        "it is looked at after a start too"
    );
    bench.guests.seen.clusters.complete();
    bench.guests.seen.clusters.remove(&Key::new("", "c-m-one"));
    let next = bench.look("one").await;
    assert!(matches!(next, Next::After(_)), "{next:?}");
    assert_eq!(bench.kept("one"), 1, "a list may be short");
    assert!(bench.guests.is_there("c-m-one"));
    assert!(!bench.guests.is_there("kube-system"), "it is no guest");
    tokio::time::advance(RECHECK_AFTER).await;
    // As above.
    tokio::time::resume();
    bench.look("one").await;
    assert_eq!(bench.kept("one"), 0);
    assert!(!bench.guests.noted("c-m-one").served);
    assert!(!bench.guests.is_there("c-m-one"));
}

#[tokio::test]
async fn an_address_whose_floating_ip_is_torn_away_is_left_to_its_guest() {
    let bench = Bench::new(&["one"]).await;
    let guests = &bench.guests;
    let id = "c-m-one";
    let fips = bench.floating_ips();
    let inventory = AddressInventory(Arc::clone(&fips));
    let key = Key::new(id, "one-kubevip");
    let fip = guests.fips.get(&key).expect("a FloatingIP");
    let place = guests.lease(&key, &fip).expect("a lease");
    let gone = fips.context.holder(&key, &"u".into());
    assert_eq!(inventory.heir(&gone, place), None, "no guests are known");
    let known = fips.user.guests.set(Arc::downgrade(guests));
    known.expect("they have no guests yet");
    // It went before it had its finalizer.
    guests.fips.remove(&key);
    assert_eq!(inventory.heir(&gone, place), Some(guests.keeper(id)));
    guests.seen.clusters.remove(&Key::new("", id));
    let listed = "nothing is known of a guest before Rancher's clusters are listed";
    assert_eq!(
        inventory.heir(&gone, place),
        Some(guests.keeper(id)),
        "{listed}"
    );
    guests.seen.clusters.complete();
    assert_eq!(inventory.heir(&gone, place), None, "its guest is gone too");
}
