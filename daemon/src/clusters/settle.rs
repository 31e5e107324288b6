//! Bringing everything to where it should be: names, expectations, sessions, orphans, views.
//!
//! Runs after every event and may run at any time: each step compares what is with what should be. The order
//! counts: what networks wait for is known to the ledger before any session may make it adopt.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fipd_core::{
    Actor, Adoption, Answer, ClusterId, ClusterRecord, Expectation, NetworkId, Request, System,
    Text,
};
use kube::runtime::events::{Recorder, Reporter};
use tokio::sync::watch;

use super::{
    ClusterState, ClustersError,
    claims::{self, Claim, Lead, Standing},
    discovery,
    registry::{Event, Looking, Registry, Site},
    session::{ClusterSession, SessionShared},
    sites::{SiteSpec, Way},
};
use crate::{
    config::{self, Awaited, discovery_system},
    ipam::IpamError,
};

/// Leases orphaned or forgotten by one request.
const CHUNK: usize = 512;

type Standings = BTreeMap<Text, Standing>;
type Leads = BTreeMap<ClusterId, Lead>;

impl Registry {
    /// One pass. A store that does not take decisions is tried again with the next.
    pub async fn settle(&mut self) {
        self.arrange_sites();
        let (standings, leads) = self.standings();
        if let Err(err) = self.settle_in(&standings, &leads).await {
            tracing::error!("clusters cannot be brought up to date, tried again soon: {err}");
        }
        self.show(&standings);
    }

    /// The first pass, before anything is connected: all that counts is that the ledger knows what to wait for.
    pub async fn expect_first(&mut self) -> Result<(), IpamError> {
        self.arrange_sites();
        let (standings, _) = self.standings();
        self.expect(&standings).await?;
        self.show(&standings);
        Ok(())
    }

    async fn settle_in(&mut self, standings: &Standings, leads: &Leads) -> Result<(), IpamError> {
        self.record_names(standings, leads).await?;
        let awaited = self.expect(standings).await?;
        self.end_sessions(leads);
        self.start_sessions(leads, &awaited);
        self.tell_networks(&awaited);
        self.arrange_discovery();
        self.mark_discovery(&awaited).await?;
        self.orphan_leavers(standings).await
    }

    fn standings(&self) -> (Standings, Leads) {
        let mut sites: Vec<&Site> = self.sites.values().collect();
        sites.sort_by(|a, b| (a.spec.order, &a.spec.name).cmp(&(b.spec.order, &b.spec.name)));
        let claims: Vec<Claim> = self.ipam.read(|ledger| {
            let claim = |site: &&Site| Claim {
                site: site.spec.name.clone(),
                ways: site
                    .links
                    .iter()
                    .filter_map(|(way, link)| {
                        link.up
                            .as_ref()
                            .map(|up| (way.clone(), up.id.clone(), link.answers))
                    })
                    .collect(),
                owner: ledger
                    .cluster_by_name(&site.spec.name)
                    .map(|record| record.id.clone()),
            };
            sites.iter().map(claim).collect()
        });
        claims::decide(&claims)
    }

    /// Remembers under which names each connected cluster goes.
    async fn record_names(&self, standings: &Standings, leads: &Leads) -> Result<(), IpamError> {
        for (id, lead) in leads {
            let here: Vec<&SiteSpec> = self
                .sites
                .values()
                .map(|site| &site.spec)
                .filter(|spec| lead.ways.iter().any(|(site, _, _)| *site == spec.name))
                .collect();
            // An alias that is another site's own name may turn out to be another cluster.
            let free = |name: &Text| {
                standings
                    .get(name)
                    .is_none_or(|other| other.id.as_ref() == Some(id))
            };
            let mut names: Vec<Text> = Vec::new();
            let first = here.iter().filter(|spec| spec.name == lead.site);
            for name in first.chain(here.iter()).flat_map(|spec| &spec.names) {
                if free(name) && !names.contains(name) {
                    names.push(name.clone());
                }
            }
            let discovered = here.iter().all(|spec| spec.discovered);
            let news = self.ipam.read(|ledger| {
                names.retain(|name| {
                    ledger
                        .cluster_by_name(name)
                        .is_none_or(|record| record.id == *id)
                });
                ledger.cluster(id).is_none_or(|record| {
                    names.iter().any(|name| !record.names.contains(name))
                        || (record.discovered && !discovered)
                })
            });
            if news {
                let record = ClusterRecord {
                    id: id.clone(),
                    names,
                    discovered,
                    first_seen: self.ipam.now(),
                };
                self.ipam.submit(Request::RecordCluster { record }).await?;
            }
        }
        Ok(())
    }

    /// Tells the ledger what each network waits for.
    async fn expect(
        &mut self,
        standings: &Standings,
    ) -> Result<Vec<(NetworkId, Awaited)>, IpamError> {
        let mut awaited = Vec::new();
        for one in self.awaited(standings) {
            awaited.push((self.network(&one.network).await?, one));
        }
        let expected: Vec<Expectation> = awaited
            .iter()
            .map(|(network, one)| Expectation {
                network: *network,
                cluster: one.cluster.clone(),
                system: one.system.clone(),
            })
            .collect();
        if self.expected != expected {
            self.ipam.expect(expected.clone());
            self.expected = expected;
        }
        Ok(awaited)
    }

    fn awaited(&self, standings: &Standings) -> Vec<Awaited> {
        let joined = |name: &Text| {
            standings
                .get(name)
                .is_some_and(|standing| standing.joined.is_some())
        };
        let names = |spec: &SiteSpec| {
            let recorded = self.ipam.read(|ledger| {
                ledger
                    .cluster_by_name(&spec.name)
                    .map(|record| record.names.clone())
            });
            let mut names = spec.names.clone();
            names.extend(
                recorded
                    .into_iter()
                    .flatten()
                    .filter(|name| !spec.names.contains(name)),
            );
            names
        };
        let systems =
            |systems: &BTreeSet<System>, management: Option<&Text>| -> BTreeMap<System, Text> {
                systems
                    .iter()
                    .filter_map(|system| Some((system.clone(), management?.clone())))
                    .collect()
            };
        let sites: Vec<config::Site> = self
            .sites
            .values()
            .filter(|site| !joined(&site.spec.name))
            .map(|site| config::Site {
                name: site.spec.name.clone(),
                names: names(&site.spec),
                systems: systems(&site.spec.systems, site.spec.management.as_ref()),
            })
            .collect();
        let unlisted = self
            .config
            .discovery
            .as_ref()
            .filter(|_| self.found.is_none())
            .map(|discovery| {
                let management = self
                    .config
                    .management_of(&discovery.cluster, &discovery.settings.rancher_fip);
                (
                    &discovery.cluster,
                    systems(&discovery.systems, management.as_ref()),
                )
            });
        let unlisted = unlisted
            .as_ref()
            .map(|(cluster, systems)| (*cluster, systems));
        config::awaited(&self.config.networks, &sites, &self.seen, unlisted)
    }

    /// The network of that name, made if it is new.
    pub async fn network(&self, name: &Text) -> Result<NetworkId, IpamError> {
        if let Some(id) = self
            .ipam
            .read(|ledger| ledger.network_by_name(name).map(|network| network.id))
        {
            return Ok(id);
        }
        match self
            .ipam
            .submit(Request::CreateNetwork {
                name: name.clone(),
                actor: "fipd".into(),
            })
            .await?
        {
            Answer::Network(network) => Ok(network.id),
            _ => Ok(NetworkId::DEFAULT),
        }
    }

    /// Ends sessions that no longer are what they should be. What runs in their place starts when they have ended.
    fn end_sessions(&mut self, leads: &Leads) {
        let mut over = Vec::new();
        for (id, running) in self.sessions.iter().filter(|(_, running)| !running.ending) {
            let keep = leads.get(id).is_some_and(|lead| {
                let way = lead.choose(Some(&running.over));
                way.as_ref() == Some(&running.over)
                    && self.client_of(&running.over) == Some(running.client)
                    && self
                        .sites
                        .get(&lead.site)
                        .is_some_and(|site| same(&running.session, &site.spec))
            });
            if !keep {
                over.push(id.clone());
            }
        }
        for id in over {
            if let Some(running) = self.sessions.get_mut(&id) {
                running.ending = true;
                running.session.cancel.cancel();
            }
        }
    }

    /// Which client a way has now: (serial of the link, generation).
    fn client_of(&self, (site, way): &(Text, Way)) -> Option<(u64, u64)> {
        let link = self.sites.get(site)?.links.get(way)?;
        Some((link.serial, link.up.as_ref()?.generation))
    }

    fn start_sessions(&mut self, leads: &Leads, awaited: &[(NetworkId, Awaited)]) {
        for (id, lead) in leads {
            let Some(over) = lead.choose(self.sessions.get(id).map(|running| &running.over)) else {
                continue;
            };
            let link = self
                .sites
                .get(&over.0)
                .and_then(|site| site.links.get(&over.1));
            let Some(link) = link else { continue };
            if let Some(running) = self.sessions.get_mut(id) {
                if link.answers && !running.answers && !running.ending {
                    running
                        .session
                        .shared
                        .reconnects
                        .send_modify(|count| *count += 1);
                }
                running.answers = link.answers;
                continue;
            }
            let (Some(up), Some(site)) = (&link.up, self.sites.get(&lead.site)) else {
                continue;
            };
            if !link.answers {
                continue;
            }
            let client = (link.serial, up.generation);
            let session = self.session(id, &site.spec, up.client.clone(), awaited);
            self.orphaned.retain(|(orphan, _)| orphan != id);
            self.start(session, over, client);
        }
    }

    fn session(
        &self,
        id: &ClusterId,
        spec: &SiteSpec,
        client: kube::Client,
        awaited: &[(NetworkId, Awaited)],
    ) -> ClusterSession {
        let names = self
            .ipam
            .read(|ledger| ledger.cluster(id).map(|record| record.names.clone()));
        let reporter = Reporter {
            controller: "fipd".to_owned(),
            instance: None,
        };
        let shared = SessionShared {
            networks: watch::Sender::new(networks_of(&spec.name, awaited)),
            reconnects: watch::Sender::new(0),
            held_back: watch::Sender::new(BTreeMap::new()),
            confirmed: watch::Sender::new(0),
        };
        ClusterSession {
            name: spec.name.clone(),
            names: names.unwrap_or_else(|| spec.names.clone()),
            id: id.clone(),
            discovered: spec.discovered,
            recorder: Recorder::new(client.clone(), reporter),
            client,
            systems: spec.systems.clone(),
            settings: spec.settings.clone(),
            management: spec.management.clone(),
            cancel: self.cancel.child_token(),
            ipam: self.ipam.clone(),
            clusters: self.clusters.clone(),
            shared: Arc::new(shared),
        }
    }

    fn tell_networks(&self, awaited: &[(NetworkId, Awaited)]) {
        for running in self.sessions.values() {
            let networks = networks_of(&running.session.name, awaited);
            running.session.shared.networks.send_if_modified(|told| {
                let changed = *told != networks;
                *told = networks;
                changed
            });
        }
    }

    /// Keeps the discovery running on the session of its cluster.
    fn arrange_discovery(&mut self) {
        let source = self.config.discovery.as_ref().and_then(|spec| {
            let running = self.sessions.values().find(|running| {
                !running.ending
                    && (running.session.name == spec.cluster
                        || running.session.names.contains(&spec.cluster))
            })?;
            Some((spec.clone(), running.serial, running.session.clone()))
        });
        let fits = |looking: &Looking| {
            source.as_ref().is_some_and(|(spec, session, _)| {
                looking.session == *session && looking.spec == *spec
            })
        };
        if let Some(looking) = self.looking.take_if(|looking| !fits(looking)) {
            looking.cancel.cancel();
            // What another source or another template finds is another list.
            if self.config.discovery.as_ref() != Some(&looking.spec) {
                self.found = None;
            }
        }
        if self.looking.is_some() {
            return;
        }
        let Some((spec, session_serial, session)) = source else {
            return;
        };
        self.serial += 1;
        let (serial, events, cancel) = (
            self.serial,
            self.events.clone(),
            session.cancel.child_token(),
        );
        let tell = move |result| drop(events.send(Event::Discovered { serial, result }));
        let (over, what) = (cancel.clone(), spec.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = over.cancelled() => {}
                () = discovery::run(session, what, tell) => {}
            }
        });
        self.looking = Some(Looking {
            serial,
            session: session_serial,
            spec,
            cancel,
        });
    }

    /// Once every cluster of the first complete list was adopted, the source itself counts as adopted: should fipd
    /// start again before that, it waits for the list again, for those clusters are known only from it.
    async fn mark_discovery(&self, awaited: &[(NetworkId, Awaited)]) -> Result<(), IpamError> {
        let (Some(discovery), Some(_)) = (&self.config.discovery, &self.found) else {
            return Ok(());
        };
        let networks: BTreeSet<NetworkId> = awaited.iter().map(|(network, _)| *network).collect();
        let ready: Vec<(NetworkId, ClusterId)> = self.ipam.read(|ledger| {
            let Some(record) = ledger.cluster_by_name(&discovery.cluster) else {
                return Vec::new();
            };
            let open = |network: &&NetworkId| {
                !ledger.adopted(**network, &record.id, &discovery_system())
                    && ledger.holds(**network).is_empty()
            };
            networks
                .iter()
                .filter(open)
                .map(|network| (*network, record.id.clone()))
                .collect()
        });
        for (network, id) in ready {
            let marker = Adoption {
                network,
                cluster: id.0,
                system: discovery_system(),
                at: self.ipam.now(),
                skipped: false,
            };
            self.ipam
                .submit(Request::MarkAdopted {
                    marker,
                    actor: "fipd".into(),
                })
                .await?;
        }
        Ok(())
    }

    /// Marks the leases of clusters that were removed and of systems that were switched off.
    async fn orphan_leavers(&mut self, standings: &Standings) -> Result<(), IpamError> {
        for (id, system) in self.leavers(standings) {
            // Its controllers may still be finishing: what they do counts before it is orphaned.
            if self.sessions.get(&id).is_some_and(|running| running.ending)
                || !self.orphaned.insert((id.clone(), system.clone()))
            {
                continue;
            }
            let moved = self.orphan(&id, system.as_ref(), &"fipd".into()).await?;
            if moved > 0 {
                tracing::warn!(%id, leases = moved, "not in the configuration any more: its leases are kept as orphaned");
            }
        }
        Ok(())
    }

    fn leavers(&self, standings: &Standings) -> Vec<(ClusterId, Option<System>)> {
        // Joined sites do not lead: their systems are not on.
        let on: BTreeMap<&ClusterId, &BTreeSet<System>> = standings
            .iter()
            .filter(|(_, standing)| standing.joined.is_none())
            .filter_map(|(name, standing)| {
                Some((standing.id.as_ref()?, &self.sites.get(name)?.spec.systems))
            })
            .collect();
        let discovers = self.config.discovery.is_some();
        let gone = |id: &ClusterId| {
            self.found
                .as_ref()
                .is_some_and(|found| found.gone.contains(id))
        };
        let mut leavers = Vec::new();
        self.ipam.read(|ledger| {
            for record in ledger.clusters() {
                match on.get(&record.id) {
                    Some(systems) => {
                        let off = served()
                            .into_iter()
                            .filter(|system| !systems.contains(system));
                        leavers.extend(off.map(|system| (record.id.clone(), Some(system))));
                    }
                    // Its Secret may be gone for a while; only without its Cluster object it has left.
                    None if record.discovered && discovers && !gone(&record.id) => {}
                    None => leavers.push((record.id.clone(), None)),
                }
            }
        });
        leavers
    }

    /// Marks all leases of a cluster (and system) as orphaned; how many.
    pub async fn orphan(
        &self,
        id: &ClusterId,
        system: Option<&System>,
        actor: &Actor,
    ) -> Result<usize, IpamError> {
        let mut moved = 0;
        loop {
            let request = Request::Orphan {
                cluster: id.clone(),
                system: system.cloned(),
                most: CHUNK,
                actor: actor.clone(),
            };
            let Answer::Moved { leases, more } = self.ipam.submit(request).await? else {
                return Ok(moved);
            };
            moved += leases;
            if !more || leases == 0 {
                return Ok(moved);
            }
        }
    }

    /// Frees the leases of a cluster that left, or whose name is now another cluster's, and its name.
    pub async fn forget(&mut self, name: &Text, actor: Actor) -> Result<usize, ClustersError> {
        let record = self
            .ipam
            .read(|ledger| ledger.cluster_by_name(name).cloned());
        let Some(record) = record else {
            return Err(ClustersError::Unknown(name.clone()));
        };
        let (standings, leads) = self.standings();
        let id = record.id;
        let in_use = standings
            .iter()
            .find(|(_, standing)| standing.id.as_ref() == Some(&id) && standing.conflict.is_none());
        if let Some((site, _)) = in_use {
            return Err(ClustersError::InUse {
                name: name.clone(),
                site: site.clone(),
            });
        }
        if leads.contains_key(&id) || self.sessions.contains_key(&id) {
            return Err(ClustersError::InUse {
                name: name.clone(),
                site: name.clone(),
            });
        }
        let mut moved = 0;
        self.orphan(&id, None, &actor).await?;
        // The name is to be free for whoever answers under it; until then nobody waits for it.
        let others = self
            .expected
            .iter()
            .filter(|expected| !record.names.contains(&expected.cluster));
        self.ipam.expect(others.cloned().collect());
        self.expected.clear();
        loop {
            let request = Request::Forget {
                cluster: id.clone(),
                most: CHUNK,
                actor: actor.clone(),
            };
            let Answer::Moved { leases, more } = self.ipam.submit(request).await? else {
                break;
            };
            moved += leases;
            if !more {
                break;
            }
        }
        self.seen
            .retain(|(cluster, _, _)| !record.names.contains(cluster));
        Ok(moved)
    }

    /// An admin's word that the network need not wait for this cluster.
    pub async fn skip(
        &mut self,
        name: &Text,
        network: &Text,
        actor: Actor,
    ) -> Result<(), ClustersError> {
        let id = self
            .ipam
            .read(|ledger| ledger.network_by_name(network).map(|network| network.id));
        let network = id.ok_or_else(|| ClustersError::UnknownNetwork(network.clone()))?;
        let record = self
            .ipam
            .read(|ledger| ledger.cluster_by_name(name).cloned());
        let names = record
            .as_ref()
            .map_or_else(|| vec![name.clone()], |record| record.names.clone());
        let systems: BTreeSet<System> = self
            .expected
            .iter()
            .filter(|expected| expected.network == network && names.contains(&expected.cluster))
            .map(|expected| expected.system.clone())
            .collect();
        if systems.is_empty() {
            return Err(ClustersError::NotAwaited(name.clone()));
        }
        let cluster: Text =
            record.map_or_else(|| format!("name:{name}").into(), |record| record.id.0);
        for system in systems {
            let marker = Adoption {
                network,
                cluster: cluster.clone(),
                system,
                at: self.ipam.now(),
                skipped: true,
            };
            self.ipam
                .submit(Request::MarkAdopted {
                    marker,
                    actor: actor.clone(),
                })
                .await?;
        }
        Ok(())
    }

    /// A pool of the cluster is in this network: from now on the network waits for all who use the cluster's pools.
    pub async fn take_network(
        &mut self,
        cluster: Text,
        system: System,
        name: Text,
    ) -> Result<NetworkId, ClustersError> {
        let network = self.network(&name).await?;
        if self.seen.insert((cluster, system, name)) {
            let (standings, _) = self.standings();
            let awaited = self.expect(&standings).await?;
            self.tell_networks(&awaited);
        }
        Ok(network)
    }

    fn show(&mut self, standings: &Standings) {
        let now = self.ipam.now();
        for (name, site) in &mut self.sites {
            let standing = standings.get(name).cloned().unwrap_or_default();
            let (state, error) = state_of(site, &standing);
            if site.state != state {
                site.state = state;
                site.since = now;
            }
            site.last_error = error;
        }
        self.clusters.publish(self, standings);
    }
}

/// Drop-ins that a configuration can switch on.
fn served() -> Vec<System> {
    vec![System::rancher_fip()]
}

fn same(session: &ClusterSession, spec: &SiteSpec) -> bool {
    session.name == spec.name
        && session.systems == spec.systems
        && session.settings == spec.settings
        && session.management == spec.management
        && spec
            .names
            .iter()
            .all(|name| session.names.contains(name) || *name != spec.name)
}

fn networks_of(
    site: &Text,
    awaited: &[(NetworkId, Awaited)],
) -> BTreeMap<System, BTreeSet<NetworkId>> {
    let mut networks: BTreeMap<System, BTreeSet<NetworkId>> = BTreeMap::new();
    for (network, one) in awaited.iter().filter(|(_, one)| one.cluster == *site) {
        networks
            .entry(one.system.clone())
            .or_default()
            .insert(*network);
    }
    networks
}

fn state_of(site: &Site, standing: &Standing) -> (ClusterState, Option<Text>) {
    let conflict = standing.conflict.as_ref().map(|(expected, found)| -> Text {
        format!(
            "{} is known as cluster {expected}, but cluster {found} answers: nothing runs on it and nothing is released. \
             Correct its kubeconfig, or run `fipd clusters forget {}` if the old cluster is gone for good",
            site.spec.name, site.spec.name
        )
        .into()
    });
    let answers = |link: &super::registry::LinkState| {
        link.answers && link.up.as_ref().map(|up| &up.id) == standing.id.as_ref()
    };
    let error = || site.links.values().find_map(|link| link.error.clone());
    if site.links.values().any(answers) {
        return match &standing.joined {
            Some(lead) => (
                ClusterState::Joined,
                Some(format!("the same cluster as {lead}, whose settings count").into()),
            ),
            None => (ClusterState::Ready, conflict.or_else(error)),
        };
    }
    if conflict.is_some() {
        return (ClusterState::IdentityConflict, conflict);
    }
    if !site.links.is_empty() && site.links.values().all(|link| link.refused) {
        return (ClusterState::Refused, error());
    }
    let state = if standing.id.is_some() {
        ClusterState::Degraded
    } else {
        ClusterState::Connecting
    };
    (state, error())
}
