//! What every kind that defines pools must do, and do again after the daemon died at any write.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{
    AddressSpec, Adopt, Allocate, Answer, Choice, Holder, LeaseKey, NetworkId, Pool, PoolSpec,
    Refusal, Release, ReleaseScope, Request, System, Timestamp, Want,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Leaving, PoolController, PoolSource};
use crate::{
    clock,
    clusters::{ClusterSession, testing},
    controller::{
        client::Remote,
        context::Context,
        events::Events,
        fake_api_tests::{Daemon, Death, FakeApi, client},
        kind::Kind,
        meta::Meta,
        reconcile::Controller as _,
        site::Site,
        store::{Key, Malformed, Objects, Observed},
    },
    ipam::{Ipam, IpamError},
};

/// A kind under test.
pub trait Subject {
    type Source: PoolSource;

    const KIND: Kind;

    fn system() -> System;

    fn source(site: &Arc<Site>) -> Self::Source;

    /// The spec of an object that gives the addresses 10.7.0.FIRST to 10.7.0.LAST. With a first one above the last one it breaks
    /// a rule.
    fn object(first: u8, last: u8) -> Value;

    /// What is kept of an object; `None`: it does not fit its schema.
    fn view(object: Value) -> Option<<Self::Source as PoolSource>::View>;
}

type Source<S> = <S as Subject>::Source;

/// What a kind does otherwise than it must.
type Conforms = Result<(), String>;

macro_rules! must {
    ($fact:expr, $($what:tt)+) => {
        if !$fact {
            return Err(format!($($what)+));
        }
    };
}

struct Bench<S: Subject> {
    _dir: tempfile::TempDir,
    ipam: Ipam,
    server: Arc<Mutex<FakeApi>>,
    session: ClusterSession,
    daemon: Daemon<PoolController<Source<S>>>,
    key: Key,
    death: Death,
}

impl<S: Subject> Bench<S> {
    /// The object has 10.7.0.1 to 10.7.0.9.
    async fn new(death: Death) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let server = Arc::<Mutex<FakeApi>>::default();
        let session = testing::session(client(&server), &ipam).await;
        let daemon = Daemon::new(start::<S>(&session, &server));
        let namespace = if S::KIND.namespaced { "ns" } else { "" };
        let key = Key::new(namespace, "net");
        let mut bench = Self {
            _dir: dir,
            ipam,
            server,
            session,
            daemon,
            key,
            death,
        };
        let object = json!({ "spec": S::object(1, 9) });
        bench.server.lock().make(&bench.key, object);
        bench.settle().await;
        bench
    }

    /// Works until nothing is left to do; once more after a restart, in which the daemon may have died midway.
    async fn settle(&mut self) {
        self.server.lock().die(self.death);
        self.work().await;
        self.server.lock().die(Death::Never);
        self.daemon = Daemon::new(start::<S>(&self.session, &self.server));
        self.work().await;
    }

    async fn work(&mut self) {
        let view = |object: &Value| match S::view(object.clone()) {
            Some(view) => Observed::Parsed(Arc::new(view)),
            None => {
                let meta = serde_json::from_value(object["metadata"].clone());
                let meta = Meta::of(&meta.expect("metadata"));
                let error = "it does not fit".to_owned();
                Observed::Malformed(Arc::new(Malformed {
                    meta,
                    annotations: BTreeMap::new(),
                    error,
                }))
            }
        };
        self.daemon.work(&self.ipam, &self.server, view).await;
    }

    async fn edit(&mut self, first: u8, last: u8) {
        let patch = json!({ "spec": S::object(first, last) });
        self.server.lock().edit(&self.key, &patch);
        self.settle().await;
    }

    async fn delete(&mut self, at: &str) {
        self.server.lock().delete(&self.key, at);
        self.settle().await;
    }

    fn pool(&self) -> Option<Arc<Pool>> {
        self.daemon.controller.existing(&self.key)
    }

    /// The addresses that the pool gives: without each of them it is smaller.
    fn addresses(&self) -> String {
        let Some(pool) = self.pool() else {
            return String::new();
        };
        let size = |spec: &PoolSpec| spec.size().expect("a size").assignable;
        let gives = |last: &u8| {
            let mut spec = pool.spec.clone();
            let address = [10, 7, 0, *last].into();
            spec.exclusions.push(AddressSpec::Single(address));
            size(&spec) < size(&pool.spec)
        };
        let given: Vec<u8> = (0..=u8::MAX).filter(gives).collect();
        let runs = given.chunk_by(|one, next| one + 1 == *next);
        let texts = runs.map(|run| match run {
            [first, .., last] => format!("10.7.0.{first}-10.7.0.{last}"),
            one => format!("10.7.0.{}", one[0]),
        });
        texts.collect::<Vec<_>>().join(", ")
    }

    fn object(&self) -> Value {
        self.server.lock().object(&self.key)
    }

    fn condition(&self, kind: &str) -> (String, String, String) {
        let object = self.object();
        let conditions = object["status"]["conditions"].as_array();
        let found = conditions.and_then(|all| all.iter().find(|one| one["type"] == kind));
        let text = |field: &str| {
            let text = found.and_then(|one| one[field].as_str());
            text.unwrap_or_default().to_owned()
        };
        (text("status"), text("reason"), text("message"))
    }

    /// The condition `Ready` is so, and its message has the word.
    fn ready(&self, status: &str, reason: &str, word: &str) -> Conforms {
        let (is, because, message) = self.condition("Ready");
        must!(
            is == status && because == reason && message.contains(word),
            "Ready={is}/{because}: {message:?}, not {status}/{reason} with {word:?}"
        );
        Ok(())
    }

    /// Somebody uses 10.7.0.LAST.
    async fn adopt(&self, last: u8) {
        let adopt = Adopt {
            length: None,
            key: LeaseKey {
                network: NetworkId::DEFAULT,
                address: [10, 7, 0, last].into(),
            },
            holder: holder("used"),
            tenant: None,
            since: Timestamp(1),
            actor: "test".into(),
        };
        let adopted = self.ipam.submit(Request::Adopt(adopt)).await;
        adopted.expect("an answer");
    }

    async fn release(&self) {
        let request = Request::Release(Release {
            scope: ReleaseScope::Holder(holder("used")),
            actor: "test".into(),
            reason: "a test".into(),
        });
        self.ipam.submit(request).await.expect("an answer");
    }

    /// Whether the pool gives 10.7.0.5 to somebody new.
    async fn gives(&self) -> Result<(), Refusal> {
        let pool = self.pool().expect("a pool").id;
        let allocate = Allocate {
            holder: holder("new"),
            tenant: None,
            wants: vec![Want {
                pool: Choice::Pool(pool),
                address: Some([10, 7, 0, 5].into()),
                count: 1,
            }],
            waiting_since: None,
            by_admin: false,
            share: None,
            probe: false,
            actor: "test".into(),
        };
        match self.ipam.submit(Request::Allocate(allocate)).await {
            Ok(_) => Ok(()),
            Err(IpamError::Refused(refusal)) => Err(refusal),
            Err(error) => panic!("{error}"),
        }
    }
}

fn holder(name: &str) -> Holder {
    let identity = format!("rancher-fip/other/Service/ns/{name}");
    Holder {
        identity: identity.parse().expect("an identity"),
        instance: "u".into(),
    }
}

fn start<S: Subject>(
    session: &ClusterSession,
    server: &Arc<Mutex<FakeApi>>,
) -> Arc<PoolController<Source<S>>> {
    let site = Arc::new(Site::new(session.clone(), S::system()));
    let quiet = || std::future::ready(());
    let events = Events::start(session.recorder.clone(), site.cancel(), quiet);
    let (source, remote) = (S::source(&site), Remote::new(client(server)));
    let context = Context::new(S::KIND, site, remote, Arc::new(events), Objects::new());
    PoolController::new(context, source)
}

/// Runs everything, without and with the death of the daemon at each write.
pub async fn conforms<S: Subject>() -> Conforms {
    let mut deaths = vec![Death::Never];
    for writes in 0..3 {
        deaths.extend([Death::Before(writes), Death::After(writes)]);
    }
    for death in deaths {
        let ran = async {
            defined_and_edited::<S>(death).await?;
            leaving::<S>(death).await?;
            ambiguous::<S>(death).await?;
            malformed::<S>(death).await?;
            elsewhere::<S>(death).await?;
            deleted::<S>(death).await
        };
        ran.await.map_err(|what| format!("{death:?}: {what}"))?;
    }
    Ok(())
}

async fn defined_and_edited<S: Subject>(death: Death) -> Conforms {
    let mut bench = Bench::<S>::new(death).await;
    must!(
        bench.addresses() == "10.7.0.1-10.7.0.9",
        "it is not defined"
    );
    bench.ready("True", "Mirrored", "")?;
    let finalizers = bench.object()["metadata"]["finalizers"].clone();
    let expected = Source::<S>::FINALIZER.map_or(Value::Null, |finalizer| json!([finalizer]));
    must!(finalizers == expected, "its finalizers are {finalizers}");
    let before = (bench.object(), bench.ipam.read(|ledger| ledger.revision()));
    bench.settle().await;
    let after = (bench.object(), bench.ipam.read(|ledger| ledger.revision()));
    must!(before == after, "it writes without need");
    let id = bench.pool().map(|pool| pool.id);
    bench.edit(1, 20).await;
    must!(
        bench.addresses() == "10.7.0.1-10.7.0.20",
        "the edit is lost"
    );
    must!(bench.pool().map(|pool| pool.id) == id, "it is another pool");

    // A rule that is broken changes nothing, and is named.
    bench.edit(9, 1).await;
    must!(
        bench.addresses() == "10.7.0.1-10.7.0.20",
        "a mistake counts"
    );
    bench.ready("False", "Refused", "10.7.0.9")?;
    must!(bench.gives().await.is_ok(), "a mistake closes the pool");
    bench.edit(1, 9).await;
    must!(
        bench.addresses() == "10.7.0.1-10.7.0.9",
        "it does not recover"
    );
    bench.ready("True", "Mirrored", "")?;

    // Where nothing was ever accepted, nothing is in force.
    bench.server.lock().objects.clear();
    bench.settle().await;
    let request = Request::Release(Release {
        scope: ReleaseScope::Holder(holder("new")),
        actor: "test".into(),
        reason: "a test".into(),
    });
    bench.ipam.submit(request).await.expect("an answer");
    bench.settle().await;
    must!(bench.pool().is_none(), "its pool outlives it");
    let wrong = json!({ "spec": S::object(9, 1) });
    bench.server.lock().make(&bench.key, wrong);
    bench.settle().await;
    must!(bench.pool().is_none(), "a mistake defines a pool");
    bench.ready("False", "Invalid", "10.7.0.9")
}

/// An edit that leaves out an address in use.
async fn leaving<S: Subject>(death: Death) -> Conforms {
    let mut bench = Bench::<S>::new(death).await;
    bench.adopt(8).await;
    bench.edit(1, 5).await;
    let outside = |bench: &Bench<S>| {
        let id = bench.pool().expect("a pool").id;
        let usage = bench.ipam.read(|ledger| ledger.usage(id));
        usage.expect("usage").out_of_range
    };
    match Source::<S>::LEAVING {
        Leaving::Refused => {
            must!(bench.addresses() == "10.7.0.1-10.7.0.9", "it is applied");
            bench.ready("False", "Refused", "10.7.0.8")?;
            must!(outside(&bench) == 0, "a lease is marked");
            bench.release().await;
            bench.settle().await;
        }
        Leaving::Marked => must!(outside(&bench) == 1, "the lease is not marked"),
    }
    must!(
        bench.addresses() == "10.7.0.1-10.7.0.5",
        "it is not applied"
    );
    bench.ready("True", "Mirrored", "")
}

/// Another pool may mean the same addresses, and nobody said whether the networks are two.
async fn ambiguous<S: Subject>(death: Death) -> Conforms {
    let mut bench = Bench::<S>::new(death).await;
    let name = Request::CreateNetwork {
        name: "other".into(),
        actor: "test".into(),
    };
    let network = match bench.ipam.submit(name).await {
        Ok(Answer::Network(network)) => network.id,
        other => panic!("{other:?}"),
    };
    let addresses = vec!["10.7.0.1-10.7.0.9".parse().expect("addresses")];
    let spec = PoolSpec {
        network,
        network_by_default: true,
        ..PoolSpec::own("other", addresses)
    };
    let actor = "test".into();
    let create = Request::CreatePool { spec, actor };
    bench.ipam.submit(create).await.expect("a pool");
    bench.settle().await;
    let refused = matches!(bench.gives().await, Err(Refusal::NetworkAmbiguous { .. }));
    must!(refused, "an ambiguous address is given");
    let (status, reason, message) = match Source::<S>::AMBIGUOUS_IS_UNREADY {
        true => bench.condition("Ready"),
        false => bench.condition("NetworkAmbiguous"),
    };
    let expected = match Source::<S>::AMBIGUOUS_IS_UNREADY {
        true => status == "False" && reason == "NetworkAmbiguous",
        false => status == "True",
    };
    must!(
        expected && message.contains("other"),
        "{status}/{reason}: {message}"
    );
    Ok(())
}

async fn malformed<S: Subject>(death: Death) -> Conforms {
    let mut bench = Bench::<S>::new(death).await;
    let spec = bench.pool().map(|pool| pool.spec.clone());
    let status = bench.object()["status"].clone();
    bench.server.lock().edit(&bench.key, &json!({ "spec": 7 }));
    bench.settle().await;
    must!(
        bench.pool().map(|pool| pool.spec.clone()) == spec,
        "it changes the pool"
    );
    must!(bench.object()["status"] == status, "its status is written");
    bench.delete("2024-01-02T00:00:00Z").await;
    must!(bench.object().is_null(), "it does not go");
    must!(bench.pool().is_none(), "its pool does not go");
    Ok(())
}

/// The watch shows no object: another cluster answers, then this one, which has it, and last this one without it.
async fn elsewhere<S: Subject>(death: Death) -> Conforms {
    let bench = Bench::<S>::new(death).await;
    for (is_other, is_there) in [(true, false), (false, true), (false, false)] {
        let there = {
            let mut server = bench.server.lock();
            server.is_other = is_other;
            match is_there {
                true => None,
                false => server.objects.remove(&bench.key),
            }
        };
        let gone = bench.daemon.controller.reconcile(&bench.key, None).await;
        must!(gone.is_err() == is_other, "{is_other}: {gone:?}");
        let stays = bench.pool().is_some_and(|pool| !pool.spec.closed);
        let what = (is_other, is_there);
        must!(
            stays == (is_other || is_there),
            "{what:?}: its pool stays: {stays}"
        );
        if let Some(there) = there {
            bench.server.lock().objects.insert(bench.key.clone(), there);
        }
    }
    Ok(())
}

async fn deleted<S: Subject>(death: Death) -> Conforms {
    let mut bench = Bench::<S>::new(death).await;
    bench.adopt(8).await;
    bench.delete(&clock::rfc3339(clock::now())).await;
    must!(
        bench.pool().is_some_and(|pool| pool.spec.closed),
        "it is not closed"
    );
    if Source::<S>::FINALIZER.is_some() {
        bench.ready("False", "InUse", "Service/ns/used")?;
        let defined = bench.daemon.controller.define_all().await;
        must!(defined.is_ok(), "it is defined: {defined:?}");
        must!(
            bench.pool().is_some_and(|pool| pool.spec.closed),
            "a start opens its pool"
        );
    } else {
        must!(bench.object().is_null(), "it does not go");
    }
    bench.release().await;
    bench.settle().await;
    must!(bench.object().is_null(), "it does not go");
    must!(
        bench.pool().is_none(),
        "its pool does not go with its last lease"
    );

    // Nobody ends the use: the object goes all the same.
    let mut bench = Bench::<S>::new(death).await;
    bench.adopt(8).await;
    bench.delete("2024-01-02T00:00:00Z").await;
    if bench.daemon.controller.source.release_wait().is_none() {
        must!(!bench.object().is_null(), "a use does not keep it");
        bench.release().await;
        bench.settle().await;
        must!(bench.object().is_null(), "it does not go");
        return Ok(());
    }
    must!(bench.object().is_null(), "a use keeps it for ever");
    let pool = bench.pool().expect("a pool");
    let leases = bench
        .ipam
        .read(|ledger| ledger.pool_leases(pool.id, None, 9));
    must!(pool.spec.closed && leases.len() == 1, "its lease is lost");

    // Another object of the name is not bound by what was accepted of this one.
    let other = json!({ "metadata": { "uid": "u-other" } });
    let again = json!({ "spec": S::object(1, 5) });
    {
        let mut server = bench.server.lock();
        server.make(&bench.key, again);
        server.edit(&bench.key, &other);
    }
    bench.settle().await;
    must!(
        bench.addresses() == "10.7.0.1-10.7.0.5",
        "another object of the name is not applied"
    );
    let usage = bench.ipam.read(|ledger| ledger.usage(pool.id));
    must!(
        usage.is_some_and(|usage| usage.out_of_range == 1),
        "the lease is not marked"
    );
    bench.ready("True", "Mirrored", "")
}

mod samples {
    //! A kind that marks leases, and some that break the contract.

    use std::sync::atomic::{AtomicU32, Ordering};

    use fipd_core::Lease;
    use k8s_openapi::jiff;
    use serde::Serialize;

    use super::*;
    use crate::{
        controller::{
            meta::View,
            pool_source::{PoolReport, SourceFacts},
        },
        validation::mirror::MirrorOf,
    };

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum Fault {
        None,
        /// Each start of the daemon means another pool.
        Unstable,
        /// Nothing is ever wrong with it.
        Silent,
        /// It takes a mistake for something else.
        Lenient,
    }

    #[derive(Debug, PartialEq)]
    pub struct Range(Meta, String, Value);

    impl View for Range {
        fn meta(&self) -> Meta {
            self.0.clone()
        }
    }

    pub struct Ranges<const FAULT: u8> {
        quarantine: u32,
    }

    static STARTS: AtomicU32 = AtomicU32::new(1);

    #[derive(Debug, PartialEq, Serialize)]
    #[serde(transparent)]
    pub struct Status(Value);

    impl<const FAULT: u8> Ranges<FAULT> {
        fn has(fault: Fault) -> bool {
            FAULT == fault as u8
        }
    }

    impl<const FAULT: u8> PoolSource for Ranges<FAULT> {
        type View = Range;
        type Status = Status;

        const METRIC: &'static str = "range";
        const FINALIZER: Option<&'static str> = Some("example.org/range");
        const LEAVING: Leaving = Leaving::Marked;
        const AMBIGUOUS_IS_UNREADY: bool = true;

        fn facts<'a>(&'a self, _: &'a Range) -> SourceFacts<'a> {
            SourceFacts::default()
        }

        fn spec(&self, mirror: &MirrorOf<'_>, range: &Range) -> Result<PoolSpec, String> {
            let addresses: AddressSpec = match range.1.parse() {
                Ok(addresses) => addresses,
                Err(_) if Self::has(Fault::Lenient) => AddressSpec::Single([10, 7, 0, 9].into()),
                Err(wrong) => return Err(wrong.to_string()),
            };
            Ok(PoolSpec {
                origin: mirror.origin(System::claims()),
                quarantine: self.quarantine,
                ..PoolSpec::own(mirror.pool_name(&System::claims()), vec![addresses])
            })
        }

        fn written(&self, range: &Range) -> Status {
            Status(range.2.clone())
        }

        fn status(&self, range: &Range, report: &PoolReport, now: jiff::Timestamp) -> Status {
            let conditions = range.2["conditions"].clone();
            let mut conditions = serde_json::from_value(conditions).unwrap_or_default();
            let mut report = report.clone();
            report.ready.status |= Self::has(Fault::Silent);
            report.set_conditions(&mut conditions, None, now);
            Status(json!({ "conditions": conditions }))
        }

        fn entry(&self, _: &Lease) -> String {
            String::new()
        }
    }

    impl<const FAULT: u8> Subject for Ranges<FAULT> {
        type Source = Self;

        const KIND: Kind = Kind::namespaced("apis/example.org/v1", "ranges", "Range");

        fn system() -> System {
            System::claims()
        }

        fn source(_: &Arc<Site>) -> Self {
            let quarantine = match Self::has(Fault::Unstable) {
                true => STARTS.fetch_add(1, Ordering::Relaxed),
                false => 0,
            };
            Self { quarantine }
        }

        fn object(first: u8, last: u8) -> Value {
            json!({ "range": format!("10.7.0.{first}-10.7.0.{last}") })
        }

        fn view(object: Value) -> Option<Range> {
            let meta = serde_json::from_value(object["metadata"].clone()).ok()?;
            let range = object["spec"]["range"].as_str()?.to_owned();
            Some(Range(Meta::of(&meta), range, object["status"].clone()))
        }
    }
}

#[tokio::test]
async fn a_kind_that_marks_leases_conforms() {
    let conforms = conforms::<samples::Ranges<{ samples::Fault::None as u8 }>>().await;
    assert_eq!(conforms, Ok(()));
}

#[tokio::test]
async fn kinds_that_break_the_contract_are_found() {
    use samples::{Fault, Ranges};
    let unstable = conforms::<Ranges<{ Fault::Unstable as u8 }>>().await;
    assert_eq!(unstable, Err("Never: it writes without need".to_owned()));
    let silent = conforms::<Ranges<{ Fault::Silent as u8 }>>().await;
    assert!(silent.is_err_and(|what| what.contains("Ready=True/Refused")));
    let lenient = conforms::<Ranges<{ Fault::Lenient as u8 }>>().await;
    assert_eq!(lenient, Err("Never: a mistake counts".to_owned()));
}
