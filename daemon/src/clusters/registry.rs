//! The one task that knows all clusters: takes news from links, discovery and the configuration, and keeps
//! sessions, names and expectations as they should be ([`super::converge`]).
//!
//! It waits for the store but never for a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use fipd_core::{ClusterId, Origin, System, Text, Timestamp};
use futures::future::BoxFuture;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    ClusterState, Clusters, SystemRunner, Trust,
    discovery::Discovered,
    identity::{Proofs, Reached, WayKey, secret::SecretOrder},
    link::{Link, LinkNews, Up},
    session::ClusterSession,
    sites::{self, SiteSpec, SiteWay},
};
use crate::clusters::{offers::Offers, registrations::Registrations, release_budget::Windows};
use crate::{config::Config, ipam::Ipam};

/// Looks over everything this often even if nothing happens.
const TICK: Duration = Duration::from_secs(5);
/// How long the tasks of a session may take to end before they are aborted.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// What the registry hears.
pub(super) enum Event {
    Link {
        site: Text,
        way: SiteWay,
        serial: u64,
        news: LinkNews,
    },
    Discovered {
        serial: u64,
        result: Result<Discovered, String>,
    },
    SessionEnded {
        id: ClusterId,
        serial: u64,
    },
    /// What somebody else has it do, who waits for the answer.
    Request(RegistryRequest),
    /// A session shows something else.
    Touched,
}

pub(super) type RegistryRequest =
    Box<dyn for<'a> FnOnce(&'a mut Registry) -> BoxFuture<'a, ()> + Send>;

pub(super) type Events = mpsc::UnboundedSender<Event>;

/// A site and its links.
pub(super) struct ManagedSite {
    pub spec: SiteSpec,
    pub links: BTreeMap<SiteWay, LinkState>,
    pub state: ClusterState,
    pub last_error: Option<Text>,
    pub since: Timestamp,
}

/// What is known of a link.
pub(super) struct LinkState {
    spec: super::link::LinkSpec,
    pub serial: u64,
    /// Ends the link with this.
    _end: DropGuard,
    look: Arc<Notify>,
    pub orders: mpsc::UnboundedSender<(SecretOrder, Reached)>,
    /// The latest client and identity; kept while the cluster does not answer.
    pub up: Option<Up>,
    pub answers: bool,
    pub refused: bool,
    pub error: Option<Text>,
}

/// A session under way, or on its way to its end.
pub(super) struct Running {
    pub session: ClusterSession,
    pub serial: u64,
    /// The way it uses, and which client of it.
    pub over: WayKey,
    pub client: (u64, u64),
    pub answers: bool,
    pub ending: bool,
}

/// A discovery under way.
pub(super) struct Looking {
    pub serial: u64,
    /// Serial of the session it uses.
    pub session: u64,
    pub spec: crate::config::Discovery,
    /// Ends it with this.
    pub _end: DropGuard,
}

pub(super) struct Registry {
    pub ipam: Ipam,
    pub clusters: Clusters,
    pub runner: Arc<dyn SystemRunner>,
    pub trust: Trust,
    pub cancel: CancellationToken,
    pub events: Events,
    /// The configuration file's.
    pub file: Config,
    pub kept: Registrations,
    /// Both together.
    pub config: Config,
    /// Where what is kept is written. `None`: nothing is.
    pub data_dir: Option<PathBuf>,
    pub sites: BTreeMap<Text, ManagedSite>,
    pub sessions: BTreeMap<ClusterId, Running>,
    pub tasks: JoinSet<()>,
    pub looking: Option<Looking>,
    /// The latest complete list of the discovery source.
    pub found: Option<Discovered>,
    pub discovery_error: Option<Text>,
    /// Networks that pools of (cluster, system) were found in.
    pub seen: BTreeSet<(Text, System, Text)>,
    /// Leases already marked as orphaned: nothing to do again.
    pub orphaned: BTreeSet<(ClusterId, Option<System>)>,
    /// Expectations as last pushed.
    pub expected: Vec<fipd_core::Expectation>,
    /// Networks of fipd's own pools that clusters may use.
    pub offers: Offers,
    pub serial: u64,
    /// What the ways to clusters have proved.
    pub proofs: Proofs,
    /// What was released by absence, over all sessions.
    pub windows: Arc<Windows>,
}

impl Registry {
    pub fn link(&self, (site, way): &WayKey) -> Option<&LinkState> {
        self.sites.get(site)?.links.get(way)
    }

    /// Networks of mirrored pools as the store knows them; the first step before anything is expected.
    pub fn remember_pools(&mut self) {
        let mut seen = BTreeSet::new();
        self.ipam.for_each_pool(|ledger, pool| {
            let Origin::Mirror {
                system, cluster, ..
            } = &pool.spec.origin
            else {
                return;
            };
            let (Some(record), Some(network)) =
                (ledger.cluster(cluster), ledger.network(pool.spec.network))
            else {
                return;
            };
            let of_name = |name: &Text| (name.clone(), system.clone(), network.name.clone());
            seen.extend(record.names.iter().map(of_name));
        });
        self.seen = seen;
    }

    /// Until cancelled; ends all links and sessions then.
    pub async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let cancel = self.cancel.clone();
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                event = events.recv() => match event {
                    Some(event) => self.take(event).await,
                    None => break,
                },
                _ = tick.tick() => {}
                Some(ended) = self.tasks.join_next() => if let Err(err) = ended {
                    tracing::error!("a task of the cluster registry ended badly: {err}");
                },
            }
            while let Ok(event) = events.try_recv() {
                self.take(event).await;
            }
            self.settle().await;
        }
        self.stop().await;
    }

    async fn stop(&mut self) {
        self.note_at_stop().await;
        self.sites.clear();
        for running in self.sessions.values() {
            running.session.cancel.cancel();
        }
        self.looking = None;
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE + GRACE / 2, ended)
            .await
            .is_err()
        {
            self.tasks.shutdown().await;
        }
    }

    async fn take(&mut self, event: Event) {
        match event {
            Event::Link {
                site,
                way,
                serial,
                news,
            } => self.take_link(&site, &way, serial, news),
            Event::Discovered { serial, result } => self.take_discovered(serial, result),
            Event::SessionEnded { id, serial } => {
                let running = self.sessions.get(&id);
                if running.is_some_and(|running| running.serial == serial) {
                    self.sessions.remove(&id);
                }
            }
            Event::Request(request) => request(self).await,
            Event::Touched => {}
        }
    }

    fn take_link(&mut self, site: &Text, way: &SiteWay, serial: u64, news: LinkNews) {
        let site_of = self.sites.get_mut(site);
        let known = site_of.and_then(|site| site.links.get_mut(way));
        let Some(link) = known.filter(|link| link.serial == serial) else {
            return;
        };
        match news {
            LinkNews::Up(up) => {
                let again = !link.answers;
                link.up = Some(*up);
                (link.answers, link.refused, link.error) = (true, false, None);
                if again {
                    // What answers now may be another one.
                    self.proofs.reconnected(&(site.clone(), way.clone()));
                }
            }
            LinkNews::Lost(error) => {
                if link.answers || link.error.is_none() {
                    tracing::warn!(cluster = %site, "does not answer: {error}");
                }
                (link.answers, link.refused, link.error) = (false, false, Some(error.into()));
            }
            LinkNews::Refused(error) => {
                if link.error.as_deref() != Some(&*error) {
                    tracing::error!(cluster = %site, "{error}");
                }
                // What an acceptable kubeconfig led to before goes on: a bad edit breaks nothing.
                (link.answers, link.refused, link.error) = (false, true, Some(error.into()));
            }
        }
    }

    pub fn take_config(&mut self, config: Config) {
        let clusters = config.clusters.len();
        tracing::info!(clusters, "the changed configuration is in force");
        self.file = config;
        self.config = self.kept.over(&self.file);
        if self.config.discovery.is_none() {
            self.found = None;
        }
        // Kubeconfigs may have changed with it.
        for link in self.sites.values().flat_map(|site| site.links.values()) {
            link.look.notify_one();
        }
    }

    fn take_discovered(&mut self, serial: u64, result: Result<Discovered, String>) {
        let looking = self.looking.as_ref();
        if looking.is_none_or(|looking| looking.serial != serial) {
            return;
        }
        match result {
            Ok(discovered) => {
                self.discovery_error = None;
                self.found = Some(discovered);
            }
            Err(error) => {
                tracing::warn!("discovery: {error}");
                self.discovery_error = Some(error.into());
            }
        }
    }

    /// Starts, stops and replaces links so that they are those of the configuration and of the discovery.
    pub fn arrange_sites(&mut self) {
        let found = self.found.as_ref().map_or(&[][..], |found| &found.found);
        let mut wanted = sites::wanted(&self.config, found);
        for (name, spec) in &mut wanted {
            if self.kept.detached.contains(name) {
                spec.systems.clear();
            }
        }
        self.sites.retain(|name, _| wanted.contains_key(name));
        for (name, spec) in wanted {
            let now = self.ipam.now();
            let site = self.sites.entry(name).or_insert_with(|| ManagedSite {
                spec: spec.clone(),
                links: BTreeMap::new(),
                state: ClusterState::Connecting,
                last_error: None,
                since: now,
            });
            site.spec = spec;
            let links = &site.spec.links;
            site.links
                .retain(|way, link| links.get(way) == Some(&link.spec));
            for (way, link) in &site.spec.links {
                if !site.links.contains_key(way) {
                    self.serial += 1;
                    let cancel = self.cancel.child_token();
                    let (events, serial) = (self.events.clone(), self.serial);
                    let (name, of) = (site.spec.name.clone(), way.clone());
                    let tell = move |news| {
                        let event = Event::Link {
                            site: name.clone(),
                            way: of.clone(),
                            serial,
                            news,
                        };
                        drop(events.send(event));
                    };
                    let look = Arc::new(Notify::new());
                    let (orders, ordered) = mpsc::unbounded_channel();
                    let task = Link {
                        spec: link.clone(),
                        trust: self.trust.clone(),
                        tell,
                        look: Arc::clone(&look),
                        orders: ordered,
                        generation: 0,
                    };
                    self.tasks.spawn(task.run(cancel.clone()));
                    let state = LinkState {
                        spec: link.clone(),
                        serial,
                        _end: cancel.drop_guard(),
                        look,
                        orders,
                        up: None,
                        answers: false,
                        refused: false,
                        error: None,
                    };
                    site.links.insert(way.clone(), state);
                }
            }
        }
    }
}
