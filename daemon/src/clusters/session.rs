//! What a running cluster gives its systems.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fipd_core::{Actor, ClusterId, NetworkId, Pool, System, Text};
use futures::future::BoxFuture;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Clusters, ClustersError, HeldBack, SightingsView,
    absence::Confirmation,
    answers::Unbounded,
    connect::{self, ConnectError},
    event_recorder::EventRecorder,
    identity::{Seen, secret as identity_secret},
    memory::Memory,
    ranges::ForeignRange,
    sightings::ConfirmedSightings,
};
use crate::clusters::release_budget::Windows;
use crate::{
    config::{ClusterSettings, NetworkChoice, PoolFacts},
    ipam::Ipam,
};

/// Starts a system on a cluster; what [`super::Clusters`] is given instead of knowing the controllers.
///
/// `run` returns when the session is cancelled. If it returns earlier or panics, it is started again after a pause.
pub trait SystemRunner: Send + Sync + 'static {
    fn run(&self, session: ClusterSession, system: System) -> BoxFuture<'static, ()>;

    /// These are all clusters that are configured or discovered, whether reached or not: each under one name, with its
    /// systems and settings.
    fn known(&self, clusters: &[(&Text, &BTreeSet<System>, &ClusterSettings)]) {
        let _ = clusters;
    }
}

/// A connected cluster whose identity was checked. Cheap to clone.
///
/// When the cluster is removed, changed, replaced or stopped, `cancel` is cancelled and nothing may be written
/// to it any more; a short outage does not end a session.
#[derive(Clone)]
pub struct ClusterSession {
    /// The name it is configured or was discovered under.
    pub name: Text,
    /// Every name, `name` among them: aliases, Rancher id, display name.
    pub names: Vec<Text>,
    pub id: ClusterId,
    pub(super) shows: Shows,
    pub discovered: bool,
    /// Its calls have no deadline of their own: use [`ClusterSession::call`]. Watches may be silent for 150 s.
    pub client: Client,
    /// What its answers and objects are charged to.
    pub memory: Memory,
    pub systems: BTreeSet<System>,
    pub settings: ClusterSettings,
    /// For each system that draws from pools, the name of the cluster that has them.
    pub pools_in: BTreeMap<System, Text>,
    pub cancel: CancellationToken,
    pub recorder: EventRecorder,
    pub ipam: Ipam,
    pub clusters: Clusters,
    pub(super) shared: Arc<SessionShared>,
}

/// What the cluster has to show over the way of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shows {
    /// The nonce of its Secret. `None`: fipd may not keep one there.
    pub nonce: Option<Text>,
    pub namespace: Text,
    /// The Secret need not be readable over this way; a nonce that is shown must be right all the same.
    pub hidden: bool,
    /// An admin vouches for this way: what it has not shown yet is not gone because it does not show it.
    pub vouched: bool,
}

/// What registry and session tell each other.
#[derive(Default)]
pub(super) struct SessionShared {
    /// The networks that wait for each system of this cluster.
    pub networks: watch::Sender<BTreeMap<System, BTreeSet<NetworkId>>>,
    /// Grows with each reconnection: time for a fresh list.
    pub reconnects: watch::Sender<u64>,
    /// Grows when a controller finds an owner missing: time for a list soon.
    pub suspects: watch::Sender<u64>,
    /// Releases by absence that wait for an admin.
    pub held_back: watch::Sender<BTreeMap<System, HeldBack>>,
    /// The latest confirmation by an admin.
    pub confirmed: watch::Sender<BTreeMap<System, Confirmation>>,
    /// What the latest list had of Services that others serve.
    pub sightings: watch::Sender<Option<SightingsView>>,
    /// What admins have confirmed of these since the session began.
    pub confirmed_sightings: watch::Sender<Arc<ConfirmedSightings>>,
    /// What load balancers there draw from.
    pub ranges: watch::Sender<Arc<[ForeignRange]>>,
    /// What keeps a system from beginning although the cluster answers.
    pub waiting: watch::Sender<BTreeMap<System, Text>>,
    /// Parts of what fipd keeps in the cluster that are not as they are to be, and why.
    pub troubles: watch::Sender<BTreeMap<&'static str, Text>>,
    /// How many objects of each kind the systems serve there.
    pub counters: Mutex<Counters>,
    /// What was released by absence lately; the registry's, not the session's.
    pub windows: Arc<Windows>,
}

/// By system and kind; `None` while it is not known.
pub(super) type Counters =
    BTreeMap<(System, &'static str), Box<dyn Fn() -> Option<usize> + Send + Sync>>;

/// Why a call to a cluster has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("{what}: no answer within {} s", .after.as_secs())]
    Deadline { what: String, after: Duration },
    #[error("{what}: {}", connect::explain(.source))]
    Api { what: String, source: kube::Error },
    /// The session is over; do nothing more.
    #[error("{what}: the cluster was stopped")]
    Cancelled { what: String },
    /// The client reaches another cluster than the session is for; do nothing more with it.
    #[error("{what}: cluster {found} answers where {expected} was")]
    WrongCluster {
        what: String,
        expected: ClusterId,
        found: ClusterId,
    },
}

impl CallError {
    /// The bound that the answer exceeded.
    pub(super) fn exceeded(&self) -> Option<Unbounded> {
        match self {
            Self::Api { source, .. } => Unbounded::of(source),
            Self::Deadline { .. } => Some(Unbounded::Late),
            Self::Cancelled { .. } | Self::WrongCluster { .. } => None,
        }
    }

    /// The HTTP status, where the API server answered.
    pub fn status(&self) -> Option<u16> {
        let Self::Api {
            source: kube::Error::Api(status),
            ..
        } = self
        else {
            return None;
        };
        Some(status.code)
    }
}

impl ClusterSession {
    /// How long one call may take.
    pub const CALL_DEADLINE: Duration = connect::CALL;

    /// Where the Secret is that proves which cluster it is. `None`: fipd keeps none there.
    pub fn identity_namespace(&self) -> Option<&str> {
        let shows = &self.shows;
        shows.nonce.as_ref().map(|_| &*shows.namespace)
    }

    /// Runs one call under the deadline and the session's cancellation. `what` starts the error's text.
    pub async fn call<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        let after = Self::CALL_DEADLINE;
        let result = self.unless_over(what, tokio::time::timeout(after, call));
        let what = what.to_owned();
        match result.await? {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(source)) => Err(CallError::Api { what, source }),
            Err(_) => Err(CallError::Deadline { what, after }),
        }
    }

    async fn unless_over<T>(
        &self,
        what: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, CallError> {
        let done = self.cancel.run_until_cancelled(work).await;
        done.ok_or_else(|| CallError::Cancelled {
            what: what.to_owned(),
        })
    }

    /// Reads which cluster answers and fails unless it is this session's and shows its nonce. A list counts as this cluster's
    /// only between two of these.
    pub async fn verify_identity(&self) -> Result<(), CallError> {
        self.verify_uid().await?;
        let Some(expected) = &self.shows.nonce else {
            return Ok(());
        };
        let what = format!("read the Secret {}", identity_secret::NAME);
        let read = identity_secret::read(&self.client, &self.shows.namespace);
        match self.answer(&what, read).await? {
            (Seen::Value { nonce, .. }, _) if nonce == *expected => Ok(()),
            (Seen::Hidden | Seen::Absent, _) if self.shows.hidden => Ok(()),
            (Seen::Value { .. } | Seen::Hidden | Seen::Absent, _) => {
                let text = "it is not shown as fipd knows it: this is a clone, or the cluster was restored";
                Err(CallError::service(&what, text.to_owned()))
            }
        }
    }

    async fn verify_uid(&self) -> Result<(), CallError> {
        let what = "read the namespace kube-system";
        let found = self.answer(what, connect::identity(&self.client)).await?;
        if *found.0 == *connect::uid(&self.id) {
            return Ok(());
        }
        let (what, expected) = (what.to_owned(), self.id.clone());
        Err(CallError::WrongCluster {
            what,
            expected,
            found,
        })
    }

    /// What a read of the identity has brought, unless the session is over.
    async fn answer<T>(
        &self,
        what: &str,
        read: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, CallError> {
        let answer = self.unless_over(what, read).await?;
        answer.map_err(|error| match error {
            ConnectError::Deadline(after) => CallError::Deadline {
                what: what.to_owned(),
                after,
            },
            error @ (ConnectError::Api(_) | ConnectError::NoIdentity) => {
                CallError::service(what, error.to_string())
            }
        })
    }

    /// An owner of leases seems to be gone: its absence is looked into soon rather than with the next list.
    pub fn suspect(&self) {
        let suspects = &self.shared.suspects;
        suspects.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Shows what a system waits for before it begins; `None`: for nothing.
    pub fn waits_for(&self, system: &System, what: Option<Text>) {
        if note(&self.shared.waiting, system.clone(), what.as_ref()) {
            if let Some(what) = &what {
                tracing::info!(cluster = %self.name, %system, "{what}");
            }
            self.clusters.touch();
        }
    }

    /// Shows that a part of what fipd keeps in the cluster is not as it is to be; `None`: it is. Whether that is news.
    pub fn troubled(&self, part: &'static str, why: Option<Text>) -> bool {
        let changed = note(&self.shared.troubles, part, why.as_ref());
        if changed {
            self.clusters.touch();
        }
        changed
    }

    /// Has the objects of a kind counted that a system serves there. `count` says nothing while they are not known.
    pub fn counts(
        &self,
        system: &System,
        kind: &'static str,
        count: impl Fn() -> Option<usize> + Send + Sync + 'static,
    ) {
        let mut counters = self.shared.counters.lock();
        counters.insert((system.clone(), kind), Box::new(count));
    }

    /// How many objects of which kinds a system serves there, as far as that is known here.
    pub fn objects(&self, system: &System) -> Vec<(&'static str, usize)> {
        let counters = self.shared.counters.lock();
        let of_system = counters.iter().filter(|((one, _), _)| one == system);
        of_system
            .filter_map(|((_, kind), count)| Some((*kind, count()?)))
            .collect()
    }

    /// How the audit log names a system on this cluster.
    pub fn actor(&self, system: &System) -> Actor {
        format!("controller:{system}/{}", self.name).into()
    }

    /// The networks that wait for this system of this cluster. Changes with the configuration and with pools.
    pub fn networks(&self, system: &System) -> BTreeSet<NetworkId> {
        let networks = self.shared.networks.borrow();
        networks.get(system).cloned().unwrap_or_default()
    }

    /// The network of a pool object of this cluster; made if it does not exist yet. When this returns, the
    /// network already waits for every cluster that uses pools of this one, so that the pool may be mirrored.
    pub async fn network_of(
        &self,
        pool: &PoolFacts<'_>,
        mirror: Option<&Pool>,
    ) -> Result<(NetworkId, NetworkChoice), ClustersError> {
        let choice = self.network_choice(pool, mirror);
        self.clusters.network_made(&self.name, pool, choice).await
    }

    /// Whether the VLAN of a pool, which is not known, decides its network.
    pub fn rules_ask_for_vlan(&self, pool: &PoolFacts<'_>) -> bool {
        self.clusters.rules().ask_for_vlan(pool)
    }

    /// The choice of [`Self::network_of`]; the network need not exist yet. An object that has a mirror stays in its network
    /// where neither the object nor a rule says another.
    pub fn network_choice(&self, pool: &PoolFacts<'_>, mirror: Option<&Pool>) -> NetworkChoice {
        let present = mirror.and_then(|mirror| {
            self.ipam.read(|ledger| {
                let network = ledger.network(mirror.spec.network);
                network.map(|network| Text::clone(&network.name))
            })
        });
        self.clusters.rules().choose(pool).unless_in(present)
    }
}

/// Notes what there is to say about a part; `None`: nothing. Whether that is news.
fn note<K: Ord>(told: &watch::Sender<BTreeMap<K, Text>>, part: K, what: Option<&Text>) -> bool {
    told.send_if_modified(|all| {
        let before = match what {
            Some(what) => all.insert(part, what.clone()),
            None => all.remove(&part),
        };
        before.as_ref() != what
    })
}

impl CallError {
    pub(super) fn service(what: &str, text: String) -> Self {
        Self::Api {
            what: what.to_owned(),
            source: kube::Error::Service(text.into()),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Sessions for tests.

    use fipd_core::{Answer, ClusterRecord, Request, Timestamp};
    use kube::runtime::events::Reporter;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::{clusters::ClustersOptions, config::Config};

    struct NoRunner;

    impl SystemRunner for NoRunner {
        fn run(&self, _: ClusterSession, _: System) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    /// A session of the cluster X over a client.
    pub async fn session(client: Client, ipam: &Ipam) -> ClusterSession {
        session_with(client, ipam, &Arc::default()).await
    }

    /// The same without a registry, to which every recorded cluster is one that was removed from the configuration.
    pub async fn unregistered(client: Client, ipam: &Ipam) -> ClusterSession {
        let options = ClustersOptions::default();
        let (session, registry) = started(options, client, ipam, &Arc::default()).await;
        registry.abort();
        session
    }

    /// The same under a configuration.
    pub async fn session_under(client: Client, ipam: &Ipam, config: Config) -> ClusterSession {
        let options = ClustersOptions {
            config,
            ..ClustersOptions::default()
        };
        started(options, client, ipam, &Arc::default()).await.0
    }

    /// A new network of this name.
    pub async fn new_network(ipam: &Ipam, name: &str) -> NetworkId {
        let (name, actor) = (name.into(), "test".into());
        let made = ipam.submit(Request::CreateNetwork { name, actor }).await;
        let Ok(Answer::Network(network)) = made else {
            panic!("{made:?}");
        };
        network.id
    }

    /// A network waits for a system of the cluster.
    pub fn map_to(session: &ClusterSession, system: &System, network: NetworkId) {
        session.shared.networks.send_modify(|networks| {
            let of_system = networks.entry(system.clone()).or_default();
            of_system.insert(network);
        });
    }

    /// What is shown of foreign Services.
    pub fn sightings(session: &ClusterSession) -> Option<SightingsView> {
        session.shared.sightings.borrow().clone()
    }

    /// An admin confirms these.
    pub async fn confirm_sightings(session: &ClusterSession) -> Result<usize, ClustersError> {
        crate::clusters::sightings::confirm(session, "user:ada".into()).await
    }

    /// What systems wait for before they begin.
    pub fn waiting(session: &ClusterSession) -> Vec<Text> {
        session.shared.waiting.borrow().values().cloned().collect()
    }

    pub fn troubles(session: &ClusterSession) -> BTreeMap<&'static str, Text> {
        session.shared.troubles.borrow().clone()
    }

    /// A cluster without names.
    pub fn record(id: &str) -> ClusterRecord {
        ClusterRecord {
            id: ClusterId(id.into()),
            names: Vec::new(),
            discovered: false,
            first_seen: Timestamp(0),
            proof: None,
        }
    }

    pub(in crate::clusters) async fn session_with(
        client: Client,
        ipam: &Ipam,
        windows: &Arc<Windows>,
    ) -> ClusterSession {
        let options = ClustersOptions::default();
        started(options, client, ipam, windows).await.0
    }

    async fn started(
        options: ClustersOptions,
        client: Client,
        ipam: &Ipam,
        windows: &Arc<Windows>,
    ) -> (ClusterSession, JoinHandle<()>) {
        let cancel = CancellationToken::new();
        let runner = Arc::new(NoRunner);
        let started = Clusters::start(options, ipam.clone(), runner, cancel.clone());
        let (clusters, registry) = started.await.expect("a registry");
        let reporter = Reporter {
            controller: "fipd".to_owned(),
            instance: None,
        };
        let session = ClusterSession {
            name: "x".into(),
            names: vec!["x".into()],
            id: ClusterId("X".into()),
            shows: Shows::default(),
            discovered: false,
            client: client.clone(),
            memory: Memory::default(),
            systems: BTreeSet::from([System::rancher_fip()]),
            settings: ClusterSettings::default(),
            pools_in: BTreeMap::new(),
            cancel,
            recorder: EventRecorder::new(client, reporter),
            ipam: ipam.clone(),
            clusters,
            shared: Arc::new(SessionShared {
                windows: Arc::clone(windows),
                ..SessionShared::default()
            }),
        };
        (session, registry)
    }
}
