//! Known clusters, adoption markers, and what becomes of a cluster's leases when it leaves.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    Action, Adoption, Answer, ClusterId, ClusterRecord, Holder, Identity, Lease, LeaseKey,
    LeaseState, Op, Refusal, System, Text,
    ledger::{
        Ledger,
        draft::{Draft, Draw, LockedTable, Stop},
        identities,
    },
};

/// The most leases that one `Orphan`, `Forget` or `Expire` changes.
pub(super) const CHUNK: usize = 1_000;

impl Ledger {
    /// As many of these leases as one decision may give up: each that contenders use in parts becomes several.
    pub(super) fn affordable(&self, mut keys: Vec<LeaseKey>, more: bool) -> (Vec<LeaseKey>, bool) {
        let mut rows = 0;
        let within = |key: &&LeaseKey| {
            let lease = self.rows.leases.get(key);
            rows += 1 + lease.map_or(0, |lease| lease.part_uses(|_| true));
            rows <= CHUNK
        };
        let some = keys.iter().take_while(within).count().max(1);
        let more = more || some < keys.len();
        keys.truncate(some);
        (keys, more)
    }

    /// Names are only ever added; a name that another cluster has is refused, for it would make two clusters one.
    pub(super) fn plan_record_cluster(&self, record: &ClusterRecord, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Clusters, &mut draft)?;
        let foreign = record.names.iter().find_map(|name| {
            let owner = self.rows.cluster_by_name(name)?;
            (owner.id != record.id).then_some((name, owner))
        });
        if let Some((name, owner)) = foreign {
            let allowed = format!(
                "a name that no other cluster has; this one is that of {}, not of {}",
                owner.id, record.id
            );
            return Err(Refusal::invalid("cluster", name, allowed).into());
        }
        let known = self.rows.clusters.get(&record.id);
        let mut next = known.cloned().unwrap_or_else(|| ClusterRecord {
            names: Vec::new(),
            ..record.clone()
        });
        for name in &record.names {
            if !next.names.contains(name) {
                next.names.push(Arc::clone(name));
            }
        }
        next.discovered &= record.discovered;
        if record.proof.is_some() {
            next.proof.clone_from(&record.proof);
        }
        if known == Some(&next) {
            return Err(Stop::Answer(Answer::Done));
        }
        // A challenge value changes with each use; only a change of who the cluster is goes into the audit log.
        let nonce =
            |record: &ClusterRecord| record.proof.as_ref().and_then(|proof| proof.nonce.clone());
        let same = known.is_some_and(|known| {
            known.names == next.names
                && known.discovered == next.discovered
                && nonce(known) == nonce(&next)
        });
        if !same {
            let detail = format!("{} ({})", next.id, next.names.join(", "));
            draft.say(Action::ClusterRecorded, detail);
        }
        draft.flight.ops.push(Op::PutCluster(next));
        Ok((draft, Answer::Done))
    }

    /// Makes a cluster of its own of what goes by `name`: the cluster that had the name goes by its other names, or by its id
    /// where it has none.
    pub(super) fn plan_set_apart(
        &self,
        record: &ClusterRecord,
        name: &Text,
        mut draft: Draft,
    ) -> Draw {
        self.lock(LockedTable::Clusters, &mut draft)?;
        if self.rows.clusters.contains_key(&record.id) {
            let allowed = "an id that no cluster has; ask again";
            return Err(Refusal::invalid("cluster", &record.id, allowed).into());
        }
        if let Some(before) = self.rows.cluster_by_name(name) {
            let mut before = before.clone();
            before.names.retain(|known| known != name);
            if before.names.is_empty() {
                before.names.push(Arc::clone(&before.id.0));
            }
            draft.flight.ops.push(Op::PutCluster(before));
        }
        let apart = ClusterRecord {
            names: vec![Arc::clone(name)],
            ..record.clone()
        };
        let detail = format!("{name} is a cluster of its own now: {}", apart.id);
        Ok(draft.done(Op::PutCluster(apart), Action::ClusterChanged, detail))
    }

    pub(super) fn plan_mark_adopted(&self, marker: &Adoption, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Clusters, &mut draft)?;
        self.check_network(marker.network)?;
        let known = self.adoption(marker.network, &marker.cluster, &marker.system);
        // A true adoption replaces a skipped one, and nothing else replaces anything.
        if known.is_some_and(|known| !known.skipped || marker.skipped) {
            return Err(Stop::Answer(Answer::Done));
        }
        draft.flight.ops.push(Op::PutAdoption(marker.clone()));
        if !marker.skipped {
            let id = ClusterId(Arc::clone(&marker.cluster));
            let replaced = self
                .skipped_by_name(&id)
                .filter(|skip| skip.network == marker.network && skip.system == marker.system);
            draft.flight.ops.extend(replaced.map(deletion));
        }
        let action = if marker.skipped {
            Action::AdoptionSkipped
        } else {
            Action::ClusterAdopted
        };
        let detail = format!("{} ({})", marker.cluster, marker.system);
        draft.say(action, detail).network = Some(marker.network);
        Ok((draft, Answer::Done))
    }

    pub(super) fn plan_orphan(
        &self,
        cluster: &ClusterId,
        system: Option<&System>,
        most: usize,
        mut draft: Draft,
    ) -> Draw {
        let (keys, more) = self.index.live(cluster, system, most.clamp(1, CHUNK));
        self.settled(keys.iter().copied())?;
        for lease in keys.iter().filter_map(|key| self.rows.leases.get(key)) {
            let lease = Lease {
                state: LeaseState::Orphaned,
                until: None,
                ..Lease::clone(lease)
            };
            draft.put(&Arc::new(lease), Action::Orphaned, Text::default());
        }
        let leases = keys.len();
        Ok((draft, Answer::Moved { leases, more }))
    }

    /// What is forgotten counts as not adopted any more: should the cluster come back, it is adopted again before
    /// its networks give anything new. Its contenders go as well, or an address would pass to nobody.
    pub(super) fn plan_forget(&self, cluster: &ClusterId, most: usize, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Clusters, &mut draft)?;
        let (keys, more) = self.index.forgettable(cluster, most.clamp(1, CHUNK));
        if keys.is_empty() {
            return self.forget_names(cluster, draft);
        }
        let (keys, more) = self.affordable(keys, more);
        self.settled(keys.iter().copied())?;
        let (mut systems, mut leases, mut entries) = (BTreeSet::new(), 0, 0);
        for lease in keys.iter().filter_map(|key| self.rows.leases.get(key)) {
            let of_cluster = |identity: &&Identity| identity.cluster.as_ref() == Some(cluster);
            let gone = identities(lease).filter(of_cluster);
            systems.extend(gone.map(|identity| identity.system.clone()));
            if self.forget_lease(&mut draft, lease, cluster)? {
                leases += 1;
                entries += systems_of(lease, cluster);
            }
        }
        let last = !more && self.index.count_of_cluster(cluster, None) == entries;
        let forgotten = self.rows.adoptions.values().filter(|marker| {
            marker.cluster == cluster.0 && (last || systems.contains(&marker.system))
        });
        let skipped = self.skipped_by_name(cluster);
        let forgotten = forgotten.chain(skipped).map(deletion);
        draft.flight.ops.extend(forgotten);
        if !more {
            draft.flight.cluster_leaves = Some(cluster.clone());
        }
        let record = self.rows.clusters.get(cluster);
        if last
            && record.is_some_and(|record| !record.names.iter().any(|name| self.gate.expects(name)))
        {
            draft.flight.ops.push(Op::DeleteCluster(cluster.clone()));
        }
        Ok((draft, Answer::Moved { leases, more }))
    }

    /// A cluster without leases has only its names, markers and waiters: they must not keep another one from the name.
    fn forget_names(&self, cluster: &ClusterId, mut draft: Draft) -> Draw {
        let unused = self.rows.clusters.get(cluster).filter(|record| {
            self.index.count_of_cluster(cluster, None) == 0
                && !record.names.iter().any(|name| self.gate.expects(name))
        });
        let Some(record) = unused else {
            return Err(Refusal::UnknownCluster(cluster.to_string()).into());
        };
        let markers = self.rows.adoptions.values();
        let markers = markers.filter(|marker| marker.cluster == cluster.0);
        let markers = markers.chain(self.skipped_by_name(cluster));
        draft.flight.ops.extend(markers.map(deletion));
        draft.flight.ops.push(Op::DeleteCluster(cluster.clone()));
        draft.flight.cluster_leaves = Some(cluster.clone());
        let detail = format!("{cluster} ({})", record.names.join(", "));
        draft.say(Action::Forgotten, detail);
        let (leases, more) = (0, false);
        Ok((draft, Answer::Moved { leases, more }))
    }

    /// Takes the cluster's contenders off a lease, and frees it if it is the cluster's own. One that it shares with
    /// others stays theirs. Whether the cluster had it.
    fn forget_lease(
        &self,
        draft: &mut Draft,
        lease: &Arc<Lease>,
        cluster: &ClusterId,
    ) -> Result<bool, Stop> {
        let of_cluster = |holder: &Holder| holder.identity.cluster.as_ref() == Some(cluster);
        let mut rest = Lease::clone(lease);
        for contender in rest
            .contenders
            .extract_if(.., |contender| of_cluster(&contender.holder))
        {
            draft.say_lease(
                lease,
                Action::ContenderLeft,
                Some(contender.holder.identity),
                "its cluster is forgotten".into(),
            );
        }
        let members = rest.members.iter();
        let count = members.filter(|member| of_cluster(&member.holder)).count();
        let own = count > 0
            && match rest.state {
                LeaseState::Orphaned => true,
                LeaseState::Allocated => self.index.has_left(cluster),
                // A reservation without end would be kept for nobody.
                LeaseState::Reserved | LeaseState::Probing => count == rest.members.len(),
                LeaseState::Quarantined => false,
            };
        if own && count < rest.members.len() {
            let members = &mut rest.members;
            members.retain(|member| {
                let goes = of_cluster(&member.holder);
                if goes {
                    let identity = Some(member.holder.identity.clone());
                    draft.say_lease(lease, Action::Forgotten, identity, Text::default());
                }
                !goes
            });
            draft.write(Arc::new(rest));
            return Ok(true);
        }
        let rest = Arc::new(rest);
        if own {
            self.vacate(draft, &rest, (Action::Forgotten, &Text::default()), false)?;
        } else {
            draft.write(rest);
        }
        Ok(own)
    }

    /// Markers an admin left under a name of this cluster before its id was known. They end with what becomes known
    /// of it: the next cluster under the name is waited for again.
    fn skipped_by_name(&self, cluster: &ClusterId) -> impl Iterator<Item = &Adoption> {
        let record = self.rows.clusters.get(cluster);
        self.rows.adoptions.values().filter(move |marker| {
            let name = marker.cluster.strip_prefix("name:");
            name.zip(record)
                .is_some_and(|(name, record)| record.names.iter().any(|known| **known == *name))
        })
    }
}

/// How many of the cluster's systems have the lease.
fn systems_of(lease: &Lease, cluster: &ClusterId) -> usize {
    let members = lease.owners();
    let of_cluster = members.filter(|identity| identity.cluster.as_ref() == Some(cluster));
    let systems: BTreeSet<&System> = of_cluster.map(|identity| &identity.system).collect();
    systems.len()
}

pub(super) fn deletion(marker: &Adoption) -> Op {
    Op::DeleteAdoption {
        network: marker.network,
        cluster: Arc::clone(&marker.cluster),
        system: marker.system.clone(),
    }
}

#[cfg(test)]
mod tests;
