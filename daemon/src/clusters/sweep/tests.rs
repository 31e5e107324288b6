use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use fipd_core::{Adopt, ClusterId, LeaseKey};
use futures::{FutureExt as _, future::BoxFuture};
use kube::{Client, client::Body};
use parking_lot::Mutex;

use super::{
    super::{
        CallError,
        absence::{Confirmation, Presence},
        adoption::Sighting,
        answers::Bounded,
        session::testing,
    },
    *,
};
use crate::clusters::release_budget::Windows;
use crate::{clock, ipam::Ipam};

/// A cluster that knows nothing but its own identity, X.
fn client() -> Client {
    let answer = |_: http::Request<Body>| async {
        let namespace =
            r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"X"}}"#;
        Ok::<_, Infallible>(http::Response::new(Body::from(
            namespace.as_bytes().to_vec(),
        )))
    };
    Client::new(tower::service_fn(answer), "default")
}

async fn session(ipam: &Ipam, windows: &Arc<Windows>) -> ClusterSession {
    testing::session_with(client(), ipam, windows).await
}

async fn take(ipam: &Ipam, n: u8) {
    let adopt = Adopt {
        length: None,
        key: key(n),
        holder: Holder {
            identity: owner(n),
            instance: "1".into(),
        },
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    };
    ipam.submit(Request::Adopt(adopt)).await.unwrap();
}

fn sighting(n: u8) -> Sighting {
    Sighting {
        holder: Holder {
            identity: owner(n),
            instance: "1".into(),
        },
        tenant: None,
        uses: vec![key(n).into()],
        since: Timestamp(1),
    }
}

fn owner(n: u8) -> Identity {
    format!("rancher-fip/X/Service/ns/s{n}").parse().unwrap()
}

fn heir(n: u8) -> Holder {
    fipd_core::testing::holder(format!("rancher-fip/M/FloatingIP/p/f{n}"), "f")
}

fn key(n: u8) -> LeaseKey {
    fipd_core::testing::key([10, 7, 0, n])
}

/// Lists nothing; while it lists, somebody new gets a lease.
struct Empty {
    ipam: Ipam,
    comes_meanwhile: Vec<u8>,
    read: Mutex<BTreeSet<Identity>>,
    lists: AtomicUsize,
    /// These leases pass to FloatingIPs.
    left: Vec<u8>,
    /// The owners of these are there after all.
    shown: Mutex<Vec<u8>>,
}

impl Empty {
    fn new(ipam: &Ipam, comes_meanwhile: &[u8]) -> Self {
        Self {
            ipam: ipam.clone(),
            comes_meanwhile: comes_meanwhile.to_vec(),
            read: Mutex::default(),
            lists: AtomicUsize::new(0),
            left: Vec::new(),
            shown: Mutex::default(),
        }
    }
}

impl Inventory for Empty {
    fn kinds(&self) -> BTreeSet<&'static str> {
        BTreeSet::from(["Service"])
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>, CallError>> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {
            for n in &self.comes_meanwhile {
                take(&self.ipam, *n).await;
            }
            Ok(self.shown.lock().iter().map(|n| sighting(*n)).collect())
        })
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Presence> {
        self.read.lock().insert(identity.clone());
        Box::pin(std::future::ready(Presence::Gone))
    }

    fn heir(&self, gone: &Holder, key: LeaseKey) -> Option<Holder> {
        let left = self.left.iter().find(|n| self::key(**n) == key)?;
        assert_eq!(gone.identity, owner(*left));
        Some(heir(*left))
    }
}

fn address_book() -> (tempfile::TempDir, Ipam) {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
    (dir, ipam)
}

/// Two lists more than a minute apart.
async fn sweep_twice(sweep: &mut Sweep<'_>) {
    sweep.list().await.unwrap();
    a_minute_passes().await;
    sweep.list().await.unwrap();
}

async fn a_minute_passes() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
}

fn leases(ipam: &Ipam) -> Vec<u8> {
    let held = |n: &u8| ipam.read(|ledger| ledger.lease(key(*n)).is_some());
    (1..=30).filter(held).collect()
}

#[tokio::test]
async fn a_list_says_nothing_about_who_came_while_it_was_read() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    take(&ipam, 1).await;
    let (system, empty) = (System::rancher_fip(), Empty::new(&ipam, &[2]));
    let mut sweep = Sweep::new(&session, &system, &empty);

    sweep.list().await.unwrap();
    assert_eq!(*empty.read.lock(), BTreeSet::from([owner(1)]));
    assert_eq!(sweep.holders.len(), 1);
    a_minute_passes().await;
    sweep.list().await.unwrap();
    assert_eq!(leases(&ipam), [2], "its first list was the second");
    session.cancel.cancel();
}

#[tokio::test]
async fn a_new_session_goes_on_with_the_window_of_the_last() {
    let (_dir, ipam) = address_book();
    let windows = Arc::default();
    let system = System::rancher_fip();
    for (owners, left) in [(1..5_u8, &[][..]), (11..14, &[11, 12, 13])] {
        let session = session(&ipam, &windows).await;
        for n in owners {
            take(&ipam, n).await;
        }
        let empty = Empty::new(&ipam, &[]);
        sweep_twice(&mut Sweep::new(&session, &system, &empty)).await;
        assert_eq!(leases(&ipam), left);
        let held_back = session.shared.held_back.borrow().clone();
        let shown = held_back.get(&system).map(|held| (held.leases, held.limit));
        assert_eq!(shown, (!left.is_empty()).then_some((3, 5)));
        session.cancel.cancel();
    }
}

#[tokio::test]
async fn what_an_admin_confirmed_is_audited_under_the_admin() {
    let (_dir, ipam) = address_book();
    let windows = Arc::default();
    let session = session(&ipam, &windows).await;
    let system = System::rancher_fip();
    for n in 1..7 {
        take(&ipam, n).await;
    }
    let empty = Empty::new(&ipam, &[]);
    let mut sweep = Sweep::new(&session, &system, &empty);
    sweep_twice(&mut sweep).await;
    assert_eq!(leases(&ipam).len(), 6);

    let held_back = session.shared.held_back.borrow().clone();
    sweep.absences.confirm(&Confirmation {
        actor: "user:ada".into(),
        owners: BTreeMap::clone(&held_back.get(&system).unwrap().owners),
    });
    sweep.list().await.unwrap();
    assert!(leases(&ipam).is_empty());
    assert_eq!(session.shared.held_back.borrow().len(), 0);
    let rows = ipam.reader().audit_page(None, 6).unwrap();
    for (_, row) in rows {
        assert_eq!(
            (&*row.actor, &*row.detail),
            ("user:ada", release_budget::CONFIRMED)
        );
    }
    let window = windows.of(&session.id, &ipam).await.unwrap();
    assert_eq!(window.lock().await.spent(windows.now()), Some(0));
    session.cancel.cancel();
}

#[tokio::test]
async fn a_lease_with_an_heir_changes_hands_and_counts_as_one_that_went() {
    let (_dir, ipam) = address_book();
    let windows = Arc::default();
    let session = session(&ipam, &windows).await;
    for n in 1..=3 {
        take(&ipam, n).await;
    }
    let contends = Adopt {
        length: None,
        key: key(2),
        holder: heir(7),
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    };
    ipam.submit(Request::Adopt(contends)).await.unwrap();
    let (system, mut empty) = (System::rancher_fip(), Empty::new(&ipam, &[]));
    empty.left = vec![1, 2];
    sweep_twice(&mut Sweep::new(&session, &system, &empty)).await;
    for n in [1, 2] {
        let lease = ipam.read(|ledger| ledger.lease(key(n)).cloned()).unwrap();
        assert_eq!(lease.owner(), Some(&heir(n)), "before any contender");
    }
    assert_eq!(leases(&ipam), [1, 2]);
    let window = windows.of(&session.id, &ipam).await.unwrap();
    assert_eq!(window.lock().await.spent(windows.now()), Some(3));
    let next_life = Arc::<Windows>::default();
    let window = next_life.of(&session.id, &ipam).await.unwrap();
    let spent = window.lock().await.spent(next_life.now());
    assert_eq!(spent, Some(3), "the audit log tells the same");
    session.cancel.cancel();
}

/// The cluster is missed; what it holds from now on is not orphaned.
async fn orphan(ipam: &Ipam) {
    let orphan = Request::Orphan {
        cluster: ClusterId("X".into()),
        system: None,
        most: 1_000,
        actor: "test".into(),
    };
    ipam.submit(orphan).await.unwrap();
}

#[tokio::test]
async fn an_orphaned_lease_stays_when_its_owner_is_gone() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    take(&ipam, 1).await;
    orphan(&ipam).await;
    let second = Adopt {
        length: None,
        key: key(2),
        holder: Holder {
            identity: owner(1),
            instance: "1".into(),
        },
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    };
    ipam.submit(Request::Adopt(second)).await.unwrap();
    take(&ipam, 3).await;
    let contends = Adopt {
        length: None,
        key: key(4),
        holder: Holder {
            identity: owner(3),
            instance: "1".into(),
        },
        tenant: None,
        since: Timestamp(2),
        actor: "test".into(),
    };
    let other = Adopt {
        holder: fipd_core::testing::holder("rancher-fip/Y/Service/ns/s", "1"),
        since: Timestamp(1),
        ..contends.clone()
    };
    ipam.submit(Request::Adopt(other)).await.unwrap();
    ipam.submit(Request::Adopt(contends)).await.unwrap();
    let (system, empty) = (System::rancher_fip(), Empty::new(&ipam, &[]));
    let mut sweep = Sweep::new(&session, &system, &empty);
    sweep_twice(&mut sweep).await;
    assert_eq!(leases(&ipam), [1, 4]);
    let contended = ipam.read(|ledger| ledger.contentions().count());
    assert_eq!(contended, 0, "who is gone contends for nothing");
    session.cancel.cancel();
}

#[tokio::test]
async fn a_reservation_stays_while_its_owner_is_yet_to_come() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    take(&ipam, 1).await;
    let spec = fipd_core::testing::pool_spec("p", &["10.7.0.2"]);
    let made = ipam.submit(fipd_core::testing::create_pool(spec)).await;
    let Ok(Answer::Pool(pool)) = made else {
        panic!("{made:?}")
    };
    let ask = fipd_core::Allocate {
        holder: Holder {
            identity: owner(2),
            instance: "".into(),
        },
        tenant: None,
        wants: vec![fipd_core::Want {
            pool: pool.id.into(),
            address: None,
            count: 1,
        }],
        waiting_since: None,
        by_admin: false,
        share: None,
        probe: false,
        actor: "test".into(),
    };
    let reserve = fipd_core::Reserve { ask, until: None };
    ipam.submit(Request::Reserve(reserve)).await.unwrap();
    let (system, empty) = (System::rancher_fip(), Empty::new(&ipam, &[]));
    sweep_twice(&mut Sweep::new(&session, &system, &empty)).await;
    assert_eq!(leases(&ipam), [2]);
    session.cancel.cancel();
}

#[tokio::test]
async fn the_share_is_of_what_a_list_could_release() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    for n in 31..=160 {
        take(&ipam, n).await;
    }
    orphan(&ipam).await;
    for n in 1..=6 {
        take(&ipam, n).await;
    }
    let (system, empty) = (System::rancher_fip(), Empty::new(&ipam, &[]));
    sweep_twice(&mut Sweep::new(&session, &system, &empty)).await;
    assert_eq!(leases(&ipam).len(), 6);
    let held_back = session.shared.held_back.borrow().clone();
    assert_eq!(held_back.get(&system).unwrap().limit, 5);
    session.cancel.cancel();
}

/// Everybody who holds something counts as gone, but nothing is released yet.
fn all_gone(sweep: &mut Sweep<'_>) {
    sweep.holders = adoption::held(sweep.session, sweep.system, &sweep.inventory.kinds());
    let holders = sweep.holders.iter();
    let held = holders.map(|(identity, held)| (identity.clone(), count(held)));
    let (held, none) = (held.collect(), BTreeSet::new());
    for identity in sweep.absences.listed(Timestamp(0), &held, &none) {
        sweep.absences.read(Timestamp(1), &identity, Presence::Gone);
    }
    let later = Timestamp(super::super::absence::RECHECK_MS);
    sweep.absences.listed(later, &held, &none);
}

#[tokio::test]
async fn a_release_counts_although_nobody_hears_its_answer() {
    let (_dir, ipam) = address_book();
    let windows = Arc::default();
    let session = session(&ipam, &windows).await;
    take(&ipam, 1).await;
    let window = windows.of(&session.id, &ipam).await.unwrap();
    let (system, empty) = (System::rancher_fip(), Empty::new(&ipam, &[]));
    let mut sweep = Sweep::new(&session, &system, &empty);
    all_gone(&mut sweep);
    assert!(sweep.release().now_or_never().is_none());
    while !leases(&ipam).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(window.lock().await.spent(windows.now()), Some(1));
    session.cancel.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_suspicion_brings_the_next_list_forward() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    let (system, empty) = (System::rancher_fip(), Empty::new(&ipam, &[]));
    let listed = async |times: usize| {
        let begun = Instant::now();
        while empty.lists.load(Ordering::SeqCst) < times {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        begun.elapsed()
    };
    let script = async {
        listed(1).await;
        session.suspect();
        let waited = listed(2).await;
        assert!((SOON..SOON * 2).contains(&waited), "{waited:?}");
        let waited = listed(3).await;
        assert!(waited > PERIOD / 2, "nobody asked for it: {waited:?}");
        session.cancel.cancel();
    };
    tokio::join!(keep(&session, &system, &empty), script);
}

#[tokio::test]
async fn a_vouched_way_misses_only_what_it_has_shown_since_it_joined() {
    let (_dir, ipam) = address_book();
    let mut session = session(&ipam, &Arc::default()).await;
    session.shows.vouched = true;
    take(&ipam, 2).await;
    take(&ipam, 1).await;
    let (system, empty) = (System::rancher_fip(), Empty::new(&ipam, &[]));
    *empty.shown.lock() = vec![1];
    let mut sweep = Sweep::new(&session, &system, &empty);
    sweep.list().await.unwrap();
    empty.shown.lock().clear();
    sweep_twice(&mut sweep).await;
    a_minute_passes().await;
    sweep.list().await.unwrap();
    assert_eq!(leases(&ipam), [2], "1 was shown and is gone");
    let held_back = session.shared.held_back.borrow().clone();
    assert_eq!(held_back[&system].leases, 1, "2 waits for an admin's word");
}

#[tokio::test]
async fn a_session_that_ends_releases_nothing_more() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    take(&ipam, 1).await;
    let (system, empty) = (System::rancher_fip(), Empty::new(&ipam, &[]));
    let mut sweep = Sweep::new(&session, &system, &empty);
    all_gone(&mut sweep);
    session.cancel.cancel();
    sweep.release().await;
    assert_eq!(leases(&ipam), [1]);
}

#[tokio::test]
async fn a_list_is_read_in_pages_and_keeps_no_managed_fields() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let answer = move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or("").to_owned();
        let next = if query.contains("continue=") {
            ""
        } else {
            "more"
        };
        heard.lock().push(query);
        let page = format!(
            r#"{{"apiVersion":"v1","kind":"ServiceList","metadata":{{"continue":"{next}"}},"items":[
                {{"metadata":{{"name":"s{next}"}}}}]}}"#
        );
        async { Ok::<_, Infallible>(http::Response::new(Body::from(page.into_bytes()))) }
    };
    let client = Client::new(tower::service_fn(answer), "default");
    let api: kube::Api<k8s_openapi::api::core::v1::Service> = kube::Api::all(client);
    let params = kube::api::ListParams::default();
    let keep = |one: k8s_openapi::api::core::v1::Service| one.metadata.name;
    let list = adoption::complete_list(&session, &api, params, "list Services", keep);
    assert_eq!(list.await.unwrap(), ["smore", "s"]);
    assert_eq!(asked.lock().len(), 2);
    assert!(asked.lock().iter().all(|query| query.contains("limit=250")));
    session.cancel.cancel();
}

#[tokio::test]
async fn a_page_that_is_too_long_is_asked_for_again_by_half() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let answer = move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or("").to_owned();
        let limit = query
            .split('&')
            .find_map(|part| part.strip_prefix("limit="));
        let limit: usize = limit.expect("a limit").parse().expect("a number");
        let next = if query.contains("continue=") {
            ""
        } else {
            "more"
        };
        heard.lock().push((limit, query.contains("continue=")));
        let note = "x".repeat(limit * (300 << 10));
        let page = format!(
            r#"{{"apiVersion":"v1","kind":"ServiceList","metadata":{{"continue":"{next}"}},"items":[
                {{"metadata":{{"name":"s{next}","annotations":{{"note":"{note}"}}}}}}]}}"#
        );
        async { Ok::<_, Infallible>(http::Response::new(Body::from(page.into_bytes()))) }
    };
    let bounded = Bounded::new(tower::service_fn(answer), session.memory.clone());
    let api: kube::Api<k8s_openapi::api::core::v1::Service> =
        kube::Api::all(Client::new(bounded, "default"));
    let params = kube::api::ListParams::default();
    let keep = |one: k8s_openapi::api::core::v1::Service| one.metadata.name;
    let list = adoption::complete_list(&session, &api, params, "list Services", keep);
    assert_eq!(list.await.unwrap(), ["smore", "s"]);
    let asked = asked.lock().clone();
    assert_eq!(asked, [(250, false), (125, false), (62, false), (62, true)]);
    assert_eq!(session.memory.trouble(), None, "all of it was read");
    session.cancel.cancel();
}

#[tokio::test]
async fn a_page_that_comes_too_late_is_asked_for_again_as_small_as_a_watch_does() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    tokio::time::pause();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let answer = move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or("").to_owned();
        let limit = query
            .split('&')
            .find_map(|part| part.strip_prefix("limit="));
        let limit: u64 = limit.expect("a limit").parse().expect("a number");
        heard.lock().push(limit);
        async move {
            tokio::time::sleep(Duration::from_millis(limit * 180)).await;
            let page = r#"{"apiVersion":"v1","kind":"ServiceList","metadata":{},"items":[
                {"metadata":{"name":"s"}}]}"#;
            Ok::<_, Infallible>(http::Response::new(Body::from(page.as_bytes().to_vec())))
        }
    };
    let api: kube::Api<k8s_openapi::api::core::v1::Service> =
        kube::Api::all(Client::new(tower::service_fn(answer), "default"));
    let params = kube::api::ListParams::default();
    let keep = |one: k8s_openapi::api::core::v1::Service| one.metadata.name;
    let list = adoption::complete_list(&session, &api, params, "list Services", keep);
    assert_eq!(list.await.unwrap(), ["s"]);
    assert_eq!(*asked.lock(), [250, 125, 62, 50]);
    session.cancel.cancel();
}

/// A client whose lists name a next page for ever, a second later each.
fn endless(next: impl Fn(usize) -> String + Send + 'static) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let answer = move |_: http::Request<Body>| {
        let next = next(count.fetch_add(1, Ordering::SeqCst));
        let page = format!(
            r#"{{"apiVersion":"v1","kind":"ServiceList","metadata":{{"continue":"{next}"}},"items":[
                {{"metadata":{{"name":"s"}}}}]}}"#
        );
        async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, Infallible>(http::Response::new(Body::from(page.into_bytes())))
        }
    };
    (Client::new(tower::service_fn(answer), "default"), asked)
}

#[tokio::test]
async fn a_list_without_end_fails() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    tokio::time::pause();
    let list = async |client| {
        let api: kube::Api<k8s_openapi::api::core::v1::Service> = kube::Api::all(client);
        let params = kube::api::ListParams::default();
        let list = adoption::complete_list(&session, &api, params, "list Services", Some);
        list.await.unwrap_err().to_string()
    };
    let (same, asked) = endless(|_| "same".to_owned());
    assert!(list(same).await.contains("the same page"));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    let (other, asked) = endless(|page| page.to_string());
    let said = list(other).await;
    assert!(said.contains("within 600 s"), "{said}");
    assert!(asked.load(Ordering::SeqCst) <= 601);
    session.cancel.cancel();
}

#[tokio::test]
async fn a_list_that_the_clusters_memory_does_not_hold_fails() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    let mut charges = Vec::new();
    loop {
        let mut charge = session.memory.charge();
        if charge.set(1 << 20).is_err() {
            break;
        }
        charges.push(charge);
    }
    let answer = |_: http::Request<Body>| async {
        let name = "x".repeat(2 << 20);
        let page = format!(r#"{{"metadata":{{}},"items":[{{"metadata":{{"name":"{name}"}}}}]}}"#);
        Ok::<_, Infallible>(http::Response::new(Body::from(page.into_bytes())))
    };
    let client = Client::new(tower::service_fn(answer), "default");
    let api: kube::Api<k8s_openapi::api::core::v1::Service> = kube::Api::all(client);
    let list = async || {
        let params = kube::api::ListParams::default();
        let keep = |one: k8s_openapi::api::core::v1::Service| one.metadata.name;
        adoption::complete_list(&session, &api, params, "list Services", keep).await
    };
    let error = list().await.unwrap_err().to_string();
    assert!(error.contains("more memory than the 8 MiB"), "{error}");
    assert_eq!(
        session.memory.trouble().as_deref().map(|why| &why[..15]),
        Some("list Services: ")
    );
    charges.clear();
    assert_eq!(list().await.unwrap().len(), 1);
    session.cancel.cancel();
}

/// A Service of others that holds two addresses and shows the first.
struct Partial(Holder);

impl Inventory for Partial {
    fn kinds(&self) -> BTreeSet<&'static str> {
        BTreeSet::from(["Service"])
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>, CallError>> {
        let sighting = Sighting {
            holder: self.0.clone(),
            tenant: None,
            uses: vec![key(1).into()],
            since: Timestamp(1),
        };
        Box::pin(std::future::ready(Ok(vec![sighting])))
    }

    fn read<'a>(&'a self, _: &'a Identity) -> BoxFuture<'a, Presence> {
        Box::pin(std::future::ready(Presence::Gone))
    }

    fn is_whole(&self, _: &Identity) -> bool {
        false
    }

    fn heir(&self, gone: &Holder, key: LeaseKey) -> Option<Holder> {
        (key == self::key(1)).then(|| gone.clone())
    }
}

fn foreign(n: u8) -> Holder {
    fipd_core::testing::holder(format!("foreign/X/Service/ns/s{n}"), "1")
}

async fn use_of(ipam: &Ipam, n: u8, holder: Holder) {
    let adopt = Adopt {
        length: None,
        key: key(n),
        holder,
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    };
    ipam.submit(Request::Adopt(adopt)).await.unwrap();
}

#[tokio::test]
async fn a_foreign_service_keeps_what_it_still_shows() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    for n in [1, 2] {
        use_of(&ipam, n, foreign(1)).await;
    }
    let (system, partial) = (System::foreign(), Partial(foreign(1)));
    sweep_twice(&mut Sweep::new(&session, &system, &partial)).await;
    assert_eq!(leases(&ipam), [1]);
    session.cancel.cancel();
}

#[tokio::test]
async fn sightings_end_by_absence_also_where_they_only_contend() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    use_of(&ipam, 1, foreign(1)).await;
    let other: Identity = "rancher-fip/Y/Service/ns/s".parse().unwrap();
    let other = Holder {
        identity: other,
        instance: "1".into(),
    };
    use_of(&ipam, 2, other).await;
    use_of(&ipam, 2, foreign(2)).await;
    assert_eq!(ipam.read(|ledger| ledger.contentions().count()), 1);
    let (system, empty) = (System::foreign(), Empty::new(&ipam, &[]));
    let mut sweep = Sweep::new(&session, &system, &empty);
    sweep.list().await.unwrap();
    assert_eq!(leases(&ipam), [1, 2], "one list says nothing");
    sweep_twice(&mut sweep).await;
    assert_eq!(leases(&ipam), [2]);
    assert_eq!(ipam.read(|ledger| ledger.contentions().count()), 0);
    session.cancel.cancel();
}

/// One Service that has dropped an address and still shows another, which somebody else holds.
struct Dropped(Holder);

impl Inventory for Dropped {
    fn kinds(&self) -> BTreeSet<&'static str> {
        BTreeSet::from(["Service"])
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>, CallError>> {
        let sighting = Sighting {
            holder: self.0.clone(),
            tenant: None,
            uses: Vec::new(),
            since: Timestamp(1),
        };
        Box::pin(std::future::ready(Ok(vec![sighting])))
    }

    fn read<'a>(&'a self, _: &'a Identity) -> BoxFuture<'a, Presence> {
        Box::pin(std::future::ready(Presence::Gone))
    }

    fn is_whole(&self, _: &Identity) -> bool {
        false
    }

    fn still_shows(&self, holder: &Holder, key: LeaseKey) -> bool {
        *holder == self.0 && key == self::key(2)
    }
}

#[tokio::test]
async fn a_service_that_drops_an_address_goes_on_waiting_for_another() {
    let (_dir, ipam) = address_book();
    let session = session(&ipam, &Arc::default()).await;
    let other = fipd_core::testing::holder("rancher-fip/Y/Service/ns/web", "1");
    use_of(&ipam, 1, foreign(1)).await;
    use_of(&ipam, 2, other).await;
    use_of(&ipam, 2, foreign(1)).await;
    let (system, dropped) = (System::foreign(), Dropped(foreign(1)));
    let mut sweep = Sweep::new(&session, &system, &dropped);
    sweep.list().await.unwrap();
    sweep_twice(&mut sweep).await;
    assert_eq!(leases(&ipam), [2], "what it shows no more is free");
    assert_eq!(ipam.read(|ledger| ledger.contentions().count()), 1);
    session.cancel.cancel();
}
