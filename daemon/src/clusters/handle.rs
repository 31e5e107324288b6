//! The handle on the registry for the rest of the daemon.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use fipd_core::{Actor, ClusterId, Ledger, NetworkId, System, Text};
use futures::{FutureExt as _, future::BoxFuture};
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    ClusterSession, ClusterView, DiscoveryView, HeldBack, SystemRunner, Trust,
    absence::Confirmation,
    identity::Proofs,
    registry::{Event, Events, Registry},
    show,
};
use crate::{
    clusters::{
        identity_conflicts::SiteStanding,
        offers::Offers,
        registrations::{Registration, Registrations},
    },
    config::{Config, NetworkChoice, NetworkRules, PoolFacts, Systems},
    ipam::{Ipam, IpamError},
};

/// What the registry starts with.
#[derive(Clone, Debug, Default)]
pub struct ClustersOptions {
    pub config: Config,
    pub trust: Trust,
    /// Where clusters are kept that admins add. `None`: they cannot.
    pub data_dir: Option<PathBuf>,
}

/// Why a request about clusters is not done.
#[derive(Debug, thiserror::Error)]
pub enum ClustersError {
    #[error("no cluster is known as {0:?}")]
    Unknown(Text),
    #[error("network {0:?} does not exist")]
    UnknownNetwork(Text),
    #[error("no network waits for cluster {0:?} there: nothing to skip")]
    NotAwaited(Text),
    #[error(
        "cluster {name:?} is in use as {site:?}: remove it from the configuration first; nothing was changed"
    )]
    InUse { name: Text, site: Text },
    #[error("cluster {0:?} has no release that waits to be confirmed")]
    NothingHeldBack(Text),
    #[error(
        "cluster {0:?} shows no address of a foreign Service that waits to be confirmed; `fipd clusters show {0}` says what it shows"
    )]
    NothingSighted(Text),
    /// A field and what is wrong with it.
    #[error("{0}: {1}")]
    Invalid(&'static str, String),
    #[error(
        "cluster {name:?} comes from {from}: it is changed and removed there; nothing was changed"
    )]
    Elsewhere { name: Text, from: &'static str },
    #[error(
        "cluster {0:?} is being added, removed, left or attached at this moment; nothing was changed: ask again when that is done"
    )]
    Busy(Text),
    #[error("this fipd decides nothing: clusters come from its configuration file")]
    NoPlace,
    #[error("clusters that were added by hand cannot be kept: {0}")]
    NotKept(std::io::Error),
    #[error(transparent)]
    Ipam(#[from] IpamError),
    #[error("fipd is stopping")]
    Stopping,
}

/// All clusters; cheap to clone.
#[derive(Clone)]
pub struct Clusters(pub(super) Arc<Registered>);

pub(super) struct Registered {
    pub(super) ipam: Ipam,
    known: Systems,
    events: Events,
    published: RwLock<Published>,
    changes: watch::Sender<u64>,
    pub(super) range_changes: watch::Sender<u64>,
    /// Names of clusters that an admin's request works on.
    pub(super) busy: Mutex<BTreeSet<Text>>,
}

#[derive(Default)]
struct Published {
    views: Vec<ClusterView>,
    discovery: Option<DiscoveryView>,
    sessions: BTreeMap<ClusterId, ClusterSession>,
    rules: NetworkRules,
    said: BTreeMap<Text, Registration>,
    /// As [`Registrations::held`].
    held: BTreeMap<Text, BTreeSet<System>>,
    /// As [`Clusters::managers`].
    managers: BTreeSet<(Text, System)>,
}

impl Clusters {
    /// The systems that clusters can have.
    pub fn known(&self) -> Systems {
        self.0.known
    }

    /// Starts the registry. When this returns, the ledger knows what every network waits for: nothing may be
    /// allocated before.
    ///
    /// # Errors
    /// When the store does not take the networks of the configuration, or what admins said of clusters cannot be read.
    pub async fn start(
        options: ClustersOptions,
        ipam: Ipam,
        runner: Arc<dyn SystemRunner>,
        cancel: CancellationToken,
    ) -> Result<(Self, JoinHandle<()>), ClustersError> {
        let kept = match &options.data_dir {
            Some(dir) => {
                let kept = Registrations::load(dir, options.config.known)
                    .map_err(ClustersError::NotKept)?;
                if let Err(error) = kept.save_list(dir) {
                    tracing::warn!(%error, "the list of attached clusters is not written");
                }
                kept
            }
            None => Registrations::default(),
        };
        let (events, heard) = mpsc::unbounded_channel();
        let inner = Registered {
            ipam: ipam.clone(),
            known: options.config.known,
            events: events.clone(),
            published: RwLock::new(Published::default()),
            changes: watch::Sender::new(0),
            range_changes: watch::Sender::new(0),
            busy: Mutex::default(),
        };
        let clusters = Self(Arc::new(inner));
        let proofs = Proofs::new(&ipam);
        let mut registry = Registry {
            ipam,
            clusters: clusters.clone(),
            runner,
            trust: options.trust,
            cancel,
            events,
            config: kept.over(&options.config),
            file: options.config,
            kept,
            data_dir: options.data_dir,
            sites: BTreeMap::new(),
            sessions: BTreeMap::new(),
            tasks: tokio::task::JoinSet::new(),
            looking: None,
            found: None,
            discovery_error: None,
            seen: BTreeSet::new(),
            orphaned: BTreeSet::new(),
            expected: Vec::new(),
            offers: Offers::default(),
            serial: 0,
            proofs,
            windows: Arc::default(),
        };
        registry.remember_pools();
        registry.expect_first().await?;
        Ok((clusters, tokio::spawn(registry.run(heard))))
    }

    /// All clusters, by name: configured, discovered, and those that only have leases left.
    pub fn views(&self) -> Vec<ClusterView> {
        let mut views = self.0.published.read().views.clone();
        for some in views.chunks_mut(Ledger::SCAN) {
            (self.0.ipam).read(|ledger| some.iter_mut().for_each(|view| count(ledger, view)));
        }
        views
    }

    /// The cluster that goes by this name.
    pub fn view(&self, name: &str) -> Option<ClusterView> {
        let published = self.0.published.read();
        let views = published.views.iter();
        let mut view = called(views, name, |view| (&view.name, &view.names))?.clone();
        drop(published);
        self.0.ipam.read(|ledger| count(ledger, &mut view));
        Some(view)
    }

    /// `None` where nothing is discovered.
    pub fn discovery(&self) -> Option<DiscoveryView> {
        self.0.published.read().discovery.clone()
    }

    /// Puts another configuration in force; waits until it is.
    pub async fn configure(&self, config: Config) {
        // A registry that is stopping needs none.
        let _ = self
            .ask(|registry| {
                registry.take_config(config);
                std::future::ready(Ok(())).boxed()
            })
            .await;
    }

    /// Changes whenever a view may have.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// The session of the cluster that goes by this name, while there is one.
    pub fn session(&self, name: &str) -> Option<ClusterSession> {
        let sessions = &self.0.published.read().sessions;
        called(sessions.values(), name, |one| (&one.name, &one.names)).cloned()
    }

    /// The same, or that there is none.
    pub(super) fn connected(&self, name: &str) -> Result<ClusterSession, ClustersError> {
        let session = self.session(name);
        session.ok_or_else(|| ClustersError::Unknown(name.into()))
    }

    /// All sessions, by cluster id.
    pub fn sessions(&self) -> Vec<ClusterSession> {
        self.0.published.read().sessions.values().cloned().collect()
    }

    /// What was said of a cluster that was added so; `None` for others.
    pub fn said_of(&self, name: &str) -> Option<Registration> {
        self.0.published.read().said.get(name).cloned()
    }

    /// Systems that were on in the cluster of these names since it was last left cleanly.
    pub fn held(&self, names: &[Text]) -> BTreeSet<System> {
        let published = self.0.published.read();
        let held = names.iter().filter_map(|name| published.held.get(name));
        held.flatten().cloned().collect()
    }

    /// Ranchers whose cluster manager of a system may have put something into others since they were last left cleanly.
    pub fn managers(&self) -> BTreeSet<(Text, System)> {
        self.0.published.read().managers.clone()
    }

    /// Lets go what is shown as held back at this moment, and nothing else, once a fresh list does not have it
    /// either. In memory only. How many leases that is.
    pub fn confirm_release(&self, name: &str, actor: &Actor) -> Result<usize, ClustersError> {
        let session = self.connected(name)?;
        let held_back = session.shared.held_back.borrow().clone();
        let leases: usize = held_back.values().map(|held| held.leases).sum();
        if leases == 0 {
            return Err(ClustersError::NothingHeldBack(name.into()));
        }
        tracing::warn!(cluster = %session.name, leases, %actor, "release by absence confirmed");
        let word = |(system, held): (System, HeldBack)| {
            let owners = BTreeMap::clone(&held.owners);
            let actor = actor.clone();
            (system, Confirmation { actor, owners })
        };
        let words = held_back.into_iter().map(word).collect();
        session.shared.confirmed.send_replace(words);
        Ok(leases)
    }

    /// What decides about the networks of pools.
    pub(super) fn rules(&self) -> MappedRwLockReadGuard<'_, NetworkRules> {
        RwLockReadGuard::map(self.0.published.read(), |published| &published.rules)
    }

    pub(super) async fn network_made(
        &self,
        cluster: &Text,
        pool: &PoolFacts<'_>,
        choice: NetworkChoice,
    ) -> Result<(NetworkId, NetworkChoice), ClustersError> {
        let (cluster, system, name) =
            (cluster.clone(), pool.system.clone(), choice.network.clone());
        let take = self.ask(move |registry| registry.take_network(cluster, system, name).boxed());
        Ok((take.await?, choice))
    }

    /// A session shows something else: views are made anew.
    pub(super) fn touch(&self) {
        drop(self.0.events.send(Event::Touched));
    }

    /// Has the registry do it in its turn: what came of it.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        work: impl for<'a> FnOnce(&'a mut Registry) -> BoxFuture<'a, Result<T, ClustersError>>
        + Send
        + 'static,
    ) -> Result<T, ClustersError> {
        let (done, answer) = oneshot::channel();
        let request = Event::Request(Box::new(move |registry| {
            async move { drop(done.send(work(registry).await)) }.boxed()
        }));
        let sent = self.0.events.send(request);
        sent.map_err(|_| ClustersError::Stopping)?;
        answer.await.map_err(|_| ClustersError::Stopping)?
    }

    /// Called by the registry after each pass.
    pub(super) fn publish(&self, registry: &Registry, standings: &BTreeMap<Text, SiteStanding>) {
        let views = show::views(registry, standings);
        let running = registry
            .sessions
            .iter()
            .filter(|(_, running)| !running.ending);
        let sessions: BTreeMap<_, _> = running
            .map(|(id, running)| (id.clone(), running.session.clone()))
            .collect();
        let discovery = registry
            .config
            .discovery
            .as_ref()
            .map(|discovery| DiscoveryView {
                cluster: discovery.cluster.clone(),
                listed: registry.found.is_some(),
                last_error: registry.discovery_error.clone(),
                found: registry.found.as_ref().map_or(0, |found| found.found.len()),
            });
        let mut published = self.0.published.write();
        let same_sessions = published.sessions.keys().eq(sessions.keys());
        let same = published.views == views && published.discovery == discovery && same_sessions;
        *published = Published {
            views,
            discovery,
            sessions,
            rules: registry.config.networks.clone(),
            said: registry.kept.said(),
            held: registry.kept.held.clone(),
            managers: show::managers(registry, standings),
        };
        drop(published);
        if !same_sessions {
            self.ranges_changed();
        }
        if !same {
            self.0.changes.send_modify(|count| *count += 1);
        }
    }
}

/// Which of them has this name, or else goes by it.
fn called<'a, T>(
    mut all: impl Iterator<Item = &'a T> + Clone,
    name: &str,
    names: impl Fn(&T) -> (&Text, &[Text]),
) -> Option<&'a T> {
    let exact = all.clone().find(|one| **names(one).0 == *name);
    exact.or_else(|| all.find(|one| names(one).1.iter().any(|other| **other == *name)))
}

fn count(ledger: &Ledger, view: &mut ClusterView) {
    let id = view.id.as_ref();
    view.leases = id.map_or(0, |id| ledger.cluster_lease_count(id, None));
}
