//! What changed lately, so that readers need not look at everything.

use std::{collections::VecDeque, sync::Arc};

use smallvec::SmallVec;

use super::{Ledger, identities};
use crate::{Identity, LeasePrefix, Network, Op, PoolId, RestoreHold, Tenant, Text};

/// What one confirmed decision touched. Lists are sorted and without repetition; a decision of very many rows names none
/// of them, and is not in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The revision that the ledger has since.
    pub revision: u64,
    /// Pools changed themselves or with an address taken or freed.
    pub pools: SmallVec<[PoolId; 2]>,
    /// What they cover, or covered.
    pub leases: SmallVec<[LeasePrefix; 1]>,
    /// Members and contenders of these leases, before and after.
    pub identities: SmallVec<[Identity; 1]>,
    /// Tenants that may be given more than before by a quota: it was raised, or less counts against it.
    pub tenants: Vec<Tenant>,
    /// Accounts, tokens, clusters, networks or expectations changed.
    pub other: bool,
}

impl Change {
    /// How many rows of the ledger it names.
    pub fn rows(&self) -> usize {
        self.pools.len() + self.leases.len() + self.identities.len()
    }

    /// The change, or several of its revision that name the same, at most `most` rows each.
    pub fn parts(self: &Arc<Self>, most: usize) -> Vec<Arc<Self>> {
        if self.rows() <= most {
            return vec![Arc::clone(self)];
        }
        let part = || Self {
            revision: self.revision,
            ..Self::default()
        };
        let pools = self.pools.chunks(most).map(|pools| Self {
            pools: pools.into(),
            ..part()
        });
        let leases = self.leases.chunks(most).map(|leases| Self {
            leases: leases.into(),
            ..part()
        });
        let identities = self.identities.chunks(most).map(|identities| Self {
            identities: identities.into(),
            ..part()
        });
        let rest = Self {
            tenants: self.tenants.clone(),
            other: self.other,
            ..part()
        };
        let parts = pools.chain(leases).chain(identities).chain([rest]);
        parts.map(Arc::new).collect()
    }
}

/// The change log does not reach back that far: look at everything once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the changes since that revision are no longer known; the oldest known one is {oldest}")]
pub struct TooOld {
    /// The oldest revision that can be asked for.
    pub oldest: u64,
}

/// The bounded log of changes.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    revision: u64,
    log: VecDeque<Arc<Change>>,
    /// Leases and identities in the log.
    names: usize,
}

impl Changes {
    /// A few seconds of the busiest time; about 4 MB when full.
    const MOST: usize = 16_384;
    /// Leases and identities in the log: some per change when it is full, about 10 MB.
    const NAMES: usize = 131_072;
    /// A decision of more rows is not kept lease by lease: its readers look at everything once, which costs them no more.
    pub const ROWS: usize = 10_000;

    pub fn new(revision: u64) -> Self {
        Self {
            revision,
            log: VecDeque::new(),
            names: 0,
        }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Gives the change the next revision and keeps it.
    pub fn push(&mut self, mut change: Change) -> Arc<Change> {
        self.revision += 1;
        change.revision = self.revision;
        change.pools.sort_unstable();
        change.pools.dedup();
        change.leases.sort_unstable();
        change.leases.dedup();
        if change.identities.len() > 1 {
            change.identities.sort_unstable();
            change.identities.dedup();
        }
        if change.tenants.len() > 1 {
            change.tenants.sort_unstable();
            change.tenants.dedup();
        }
        let change = Arc::new(change);
        self.names += names(&change);
        self.log.push_back(Arc::clone(&change));
        while self.log.len() > Self::MOST || self.names > Self::NAMES {
            let Some(oldest) = self.log.pop_front() else {
                break;
            };
            self.names -= names(&oldest);
        }
        change
    }

    /// Gives the next revision to a change that is not kept: nobody from before it is told more than that.
    pub fn skip(&mut self) -> Arc<Change> {
        self.revision += 1;
        self.log.clear();
        self.names = 0;
        Arc::new(Change {
            revision: self.revision,
            other: true,
            ..Change::default()
        })
    }

    /// The first `most` changes after `revision`.
    pub fn since(&self, revision: u64, most: usize) -> Result<Vec<Arc<Change>>, TooOld> {
        let oldest = self.revision - self.log.len() as u64;
        if revision < oldest {
            return Err(TooOld { oldest });
        }
        let skip = usize::try_from(revision - oldest).unwrap_or(usize::MAX);
        Ok(self.log.iter().skip(skip).take(most).cloned().collect())
    }
}

fn names(change: &Change) -> usize {
    change.leases.len() + change.identities.len()
}

impl Ledger {
    /// Notes what `op` is about to change.
    pub(super) fn note(&self, op: &Op, change: &mut Change) {
        self.note_room(op, change);
        change.pools.extend(self.note_ambiguity(op));
        match op {
            Op::PutLease(lease) => {
                self.note_lease(lease.prefix(), change);
                change.pools.extend(lease.pool);
                change.identities.extend(identities(lease).cloned());
            }
            Op::DeleteLease(key) => {
                let known = self.rows.leases.get(key);
                let prefix = known.map_or_else(|| key.whole(), |known| known.prefix());
                self.note_lease(prefix, change);
            }
            Op::PutPool(pool) => change.pools.push(pool.id),
            Op::DeletePool(id) => change.pools.push(*id),
            Op::PutNextPool(_)
            | Op::PutQuota(_)
            | Op::DeleteQuota { .. }
            | Op::PutPast(_)
            | Op::DeletePast(_)
            | Op::PutRollup(_)
            | Op::PutClock(_) => {}
            Op::PutNetwork(network) => {
                // What is left of a hold changes each minute.
                let told =
                    |one: &Network| (Text::clone(&one.name), one.hold.map(|hold| hold.until));
                change.other |= self.network(network.id).map(told) != Some(told(network));
            }
            Op::PutCluster(_)
            | Op::DeleteCluster(_)
            | Op::PutAdoption(_)
            | Op::DeleteAdoption { .. }
            | Op::PutAccount(_)
            | Op::DeleteAccount(_)
            | Op::PutToken(_)
            | Op::DeleteToken(_)
            | Op::PutKey(_)
            | Op::DeleteKey(_)
            | Op::PutSeparation(_)
            | Op::DeleteSeparation(_) => change.other = true,
            Op::PutEpoch(epoch) => {
                let until = |hold: RestoreHold| hold.until;
                let known = self.epoch().and_then(|epoch| epoch.hold);
                change.other |= known.map(until) != epoch.hold.map(until);
            }
        }
    }

    fn note_lease(&self, prefix: LeasePrefix, change: &mut Change) {
        change.leases.push(prefix);
        change.pools.extend(self.free.touched(prefix));
        if let Some(old) = self.rows.leases.get(&prefix.key) {
            change.pools.extend(old.pool);
            change.identities.extend(identities(old).cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeaseKey, NetworkId, testing};

    fn change(leases: u32) -> Change {
        let key = |number: u32| LeaseKey {
            network: NetworkId::DEFAULT,
            address: std::net::Ipv4Addr::from(number).into(),
        };
        Change {
            leases: (0..leases).map(|number| key(number).whole()).collect(),
            ..Change::default()
        }
    }

    #[test]
    fn many_large_changes_take_no_more_room_than_many_small_ones() {
        let mut changes = Changes::new(7);
        for _ in 0..1_000 {
            changes.push(change(1_000));
        }
        assert!(changes.names <= Changes::NAMES, "{}", changes.names);
        assert_eq!(
            changes.since(1_007 - 131, 999).map(|all| all.len()),
            Ok(131)
        );
        let oldest = 1_007 - 131;
        assert_eq!(changes.since(oldest - 1, 999), Err(TooOld { oldest }));
        for _ in 0..20_000 {
            changes.push(change(1));
        }
        assert_eq!((changes.log.len(), changes.names), (16_384, 16_384));
    }

    #[test]
    fn a_large_change_comes_in_parts() {
        let named = |name: u32| testing::holder(format!("fipd/vm/lab/{name}"), "").identity;
        let change = Arc::new(Change {
            revision: 7,
            pools: (1..=3).map(PoolId).collect(),
            leases: (0..12_u32)
                .map(|at| testing::key(at.to_be_bytes()).whole())
                .collect(),
            identities: (0..6).map(named).collect(),
            tenants: vec![Tenant("t".into())],
            other: true,
        });
        assert_eq!(change.parts(21), [Arc::clone(&change)]);
        let parts = change.parts(5);
        assert_eq!(
            parts.iter().map(|part| part.rows()).collect::<Vec<_>>(),
            [3, 5, 5, 2, 5, 1, 0]
        );
        let mut whole = Change::default();
        for part in parts {
            whole.revision = part.revision;
            whole.pools.extend(part.pools.iter().copied());
            whole.leases.extend(part.leases.iter().copied());
            whole.identities.extend(part.identities.iter().cloned());
            whole.tenants.extend(part.tenants.iter().cloned());
            whole.other |= part.other;
        }
        assert_eq!(whole, *change);
    }
}
