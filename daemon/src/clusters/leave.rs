//! What becomes of the leases of clusters that leave, and what an admin may say about clusters.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{Actor, Answer, ClusterId, Release, ReleaseScope, Request, System, Text};

use super::{ClustersError, adoption::note_adopted, registry::Registry};
use crate::clusters::converge::Standings;
use crate::{config::SightingMode, ipam::IpamError};

/// Leases orphaned or forgotten by one request.
const CHUNK: usize = 512;

impl Registry {
    /// Marks the leases of clusters that were removed and of systems that were switched off.
    pub(super) async fn orphan_leavers(&mut self, standings: &Standings) -> Result<(), IpamError> {
        if self.ipam.is_of_another_host() {
            return Ok(());
        }
        for (id, system) in self.leavers(standings) {
            // Its controllers may still be finishing: what they do counts before it is orphaned.
            if self.sessions.get(&id).is_some_and(|running| running.ending)
                || self.orphaned.contains(&(id.clone(), system.clone()))
            {
                continue;
            }
            // Nothing of it asks again; those behind it are to have their turn.
            self.ipam.forget_waiters_of(&id, system.as_ref());
            if system == Some(System::foreign()) {
                self.end_contentions(&id).await?;
            }
            let moved = self.orphan(&id, system.as_ref(), &"fipd".into()).await?;
            self.orphaned.insert((id.clone(), system));
            if moved > 0 {
                tracing::warn!(%id, leases = moved, "not in the configuration any more: its leases are kept as orphaned");
            }
        }
        Ok(())
    }

    /// Services of others that are not listed any more get no address that somebody releases.
    async fn end_contentions(&self, id: &ClusterId) -> Result<(), IpamError> {
        let mut after = None;
        loop {
            let leases = self
                .ipam
                .read(|ledger| ledger.contended_by(id, after, CHUNK));
            for lease in &leases {
                let contenders = lease.contenders.iter().map(|one| &one.holder);
                let foreign = contenders.filter(|one| {
                    one.identity.is_foreign() && one.identity.cluster.as_ref() == Some(id)
                });
                for holder in foreign {
                    let release = Release {
                        scope: ReleaseScope::Contention {
                            contender: holder.clone(),
                            key: lease.key,
                            beside: None,
                        },
                        actor: "fipd".into(),
                        reason: "sightings of the cluster are off".into(),
                    };
                    self.ipam.submit(Request::Release(release)).await?;
                }
            }
            after = leases.last().map(|lease| lease.key);
            if leases.len() < CHUNK {
                return Ok(());
            }
        }
    }

    pub(super) fn leavers(&self, standings: &Standings) -> Vec<(ClusterId, Option<System>)> {
        // A joined site does not lead: its systems are not on. Before anything is connected it is not known who
        // leads, and everything counts that any site of the cluster has on.
        let foreign = System::foreign();
        let mut on: BTreeMap<&ClusterId, BTreeSet<&System>> = BTreeMap::new();
        for (name, standing) in standings
            .iter()
            .filter(|(_, standing)| standing.joined.is_none())
        {
            if let (Some(id), Some(site)) = (&standing.id, self.sites.get(name)) {
                let systems = on.entry(id).or_default();
                systems.extend(&site.spec.systems);
                if site.spec.sightings() != SightingMode::Off {
                    systems.insert(&foreign);
                }
            }
        }
        let discovers = self.config.discovery.is_some();
        let found = self.found.as_ref();
        let gone = |id: &ClusterId| found.is_some_and(|found| found.gone.contains(id));
        let mut leavers = Vec::new();
        self.ipam
            .for_each_cluster(|_, record| match on.get(&record.id) {
                Some(systems) => {
                    let known = self.config.known.all();
                    let off = known
                        .chain([System::foreign()])
                        .filter(|system| !systems.contains(system));
                    leavers.extend(off.map(|system| (record.id.clone(), Some(system))));
                }
                // Its Secret may be gone for a while; only without its Cluster object it has left.
                None if record.discovered && discovers && !gone(&record.id) => {}
                None => leavers.push((record.id.clone(), None)),
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

    /// Frees the leases of a cluster that left, or whose name is now another cluster's, and its name. What is left there is
    /// not asked after any more.
    pub async fn forget(&mut self, name: &Text, actor: Actor) -> Result<usize, ClustersError> {
        let Some(record) = self.record_of(name) else {
            let known = !self.sites.contains_key(name);
            let known = known && self.forget_held(std::slice::from_ref(name), actor).await?;
            return match known {
                true => Ok(0),
                false => Err(ClustersError::Unknown(name.clone())),
            };
        };
        let (standings, leads) = self.standings();
        let id = record.id;
        let in_use = standings
            .iter()
            .find(|(_, standing)| standing.id.as_ref() == Some(&id) && standing.conflict.is_none())
            .map(|(site, _)| site);
        let led = leads.contains_key(&id) || self.sessions.contains_key(&id);
        if let Some(site) = in_use.or(led.then_some(name)).cloned() {
            let name = name.clone();
            return Err(ClustersError::InUse { name, site });
        }
        let mut moved = 0;
        self.orphan(&id, None, &actor).await?;
        // The name is to be free for whoever answers under it; until then nobody waits for it.
        let others = self
            .expected
            .iter()
            .filter(|expected| !record.names.contains(&expected.cluster));
        self.ipam.set_expectations(others.cloned().collect());
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
        // The leases are free by now: asked once more, it has only this to do.
        if let Err(error) = self.forget_held(&record.names, actor).await {
            let names = record.names.join(", ");
            tracing::warn!(%error, names, "a forgotten cluster stays in the list of attached ones; `fipd clusters forget` with the name that is there takes it off");
        }
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
        let record = self.record_of(name);
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
            let place = (network, cluster.clone(), system);
            note_adopted(&self.ipam, place, true, actor.clone()).await?;
        }
        Ok(())
    }
}
