//! What pools of the model remember.

use std::{cmp::Reverse, sync::Arc};

use fipd_core::{
    Allocate, Lease, LeaseKey, LeasePrefix, LeaseState, Op, Order, PastLease, PoolId, PoolSpec,
    Timestamp,
};

use super::{
    Flight, Model, Stop,
    lease::Asked,
    pool::assignable,
    prefix::{around, length, touch},
};

/// How many past leases the pool remembers.
pub fn size(spec: &PoolSpec) -> usize {
    if spec.order == Order::LeastRecentlyUsed {
        return 65_536;
    }
    if spec.sticky.lasts == 0 {
        return 0;
    }
    spec.sticky.most as usize
}

fn over(spec: &PoolSpec, past: &PastLease, now: Timestamp) -> bool {
    past.released.0 + 1_000 * u64::from(spec.sticky.lasts) <= now.0
}

fn forgets(ops: &[Op], key: LeaseKey) -> bool {
    ops.contains(&Op::DeletePast(key))
}

fn adds(ops: &[Op], pool: PoolId) -> usize {
    let of_pool = |op: &&Op| matches!(op, Op::PutPast(past) if past.pool == pool);
    ops.iter().filter(of_pool).count()
}

impl Model {
    pub fn remembers(&self, key: LeaseKey) -> bool {
        self.pasts.iter().any(|past| past.key == key)
    }

    /// Whether a pool that gives what is as long remembers it.
    pub fn remembers_as(&self, prefix: LeasePrefix) -> bool {
        self.pasts.iter().any(|past| {
            let pool = self.pool(past.pool).expect("the pool of a past lease");
            past.key == prefix.key && length(&pool.spec) == prefix.length
        })
    }

    /// What the pool remembers.
    pub fn oldest_first(&self, pool: PoolId) -> Vec<LeaseKey> {
        let mut pasts: Vec<&PastLease> = self.pasts.iter().collect();
        pasts.retain(|past| past.pool == pool);
        pasts.sort_by_key(|past| (past.released, past.key));
        pasts.into_iter().map(|past| past.key).collect()
    }

    /// The oldest that nobody is about to forget.
    fn next_to_forget(&self, flight: &Flight, pool: PoolId) -> Option<&PastLease> {
        let goes = |key: &LeaseKey| {
            forgets(&flight.ops, *key) || self.flights.iter().any(|other| forgets(&other.ops, *key))
        };
        let keys = self.oldest_first(pool);
        let key = keys.into_iter().find(|key| !goes(key))?;
        self.pasts.iter().find(|past| past.key == key)
    }

    pub fn remember(
        &self,
        flight: &mut Flight,
        lease: &Lease,
        own: bool,
        now: Timestamp,
    ) -> Result<(), Stop> {
        let used = matches!(lease.state, LeaseState::Allocated | LeaseState::Orphaned);
        let Some(pool) = lease.pool.and_then(|id| self.pool(id)).filter(|_| used) else {
            return Ok(());
        };
        let most = size(&pool.spec);
        if most == 0 || !assignable(&pool.spec, lease.key.address) {
            return Ok(());
        }
        if self.edited(pool.spec.network) {
            return Err(Stop::Busy);
        }
        for _ in 0..2 {
            let oldest = self.next_to_forget(flight, pool.id);
            let stale = oldest.filter(|past| {
                pool.spec.order != Order::LeastRecentlyUsed && over(&pool.spec, past, now)
            });
            flight
                .ops
                .extend(stale.map(|past| Op::DeletePast(past.key)));
        }
        let in_flight = self.flights.iter().map(|other| adds(&other.ops, pool.id));
        let known = self.oldest_first(pool.id);
        let gone = known
            .iter()
            .filter(|key| forgets(&flight.ops, **key))
            .count();
        let added = adds(&flight.ops, pool.id) + in_flight.sum::<usize>();
        if known.len() + added - gone >= most {
            let Some(oldest) = self.next_to_forget(flight, pool.id) else {
                return Ok(());
            };
            flight.ops.push(Op::DeletePast(oldest.key));
        }
        flight.ops.push(Op::PutPast(Arc::new(PastLease {
            key: lease.key,
            pool: pool.id,
            identity: lease.members[0].holder.identity.clone(),
            released: now,
            own,
        })));
        Ok(())
    }

    /// What the identity gets again: free ones, and those that cool.
    pub fn had(
        &self,
        want: &Asked,
        ask: &Allocate,
        named: &mut Vec<LeasePrefix>,
        now: Timestamp,
    ) -> Result<(Vec<LeaseKey>, Vec<LeaseKey>), Stop> {
        let pool = &want.pool;
        let (mut free, mut cooling) = (Vec::new(), Vec::new());
        let mut pasts: Vec<&PastLease> = self.pasts.iter().collect();
        pasts.retain(|past| past.pool == pool.id && past.identity == ask.holder.identity);
        pasts.retain(|past| !over(&pool.spec, past, now));
        pasts.retain(|past| !self.withheld(pool, past.key.address));
        pasts.sort_by_key(|past| (Reverse(past.released), past.key));
        for past in pasts {
            if free.len() + cooling.len() == want.missing as usize {
                break;
            }
            let prefix = around(&pool.spec, past.key.address);
            if named.iter().any(|one| touch(*one, prefix)) {
                continue;
            }
            match self.lease_over(prefix) {
                None if self.is_free(prefix) => free.push(past.key),
                Some(lease)
                    if lease.prefix() == prefix
                        && !want.keep
                        && past.own
                        && lease.contenders.is_empty()
                        && lease.tenant == ask.tenant =>
                {
                    if self.locked(past.key) {
                        return Err(Stop::Busy);
                    }
                    cooling.push(past.key);
                }
                _ => continue,
            }
            named.push(prefix);
        }
        Ok((free, cooling))
    }

    /// Who has it again is past no more.
    pub fn forget_granted(&self, flight: &mut Flight) {
        for op in flight.ops.clone() {
            if let Op::PutLease(lease) = op
                && lease.state != LeaseState::Quarantined
                && self.remembers(lease.key)
            {
                flight.ops.push(Op::DeletePast(lease.key));
            }
        }
    }

    /// Forgets what the pool no longer gives, then the oldest that are too many.
    pub fn forget_by_edit(&self, flight: &mut Flight, pool: PoolId, next: &PoolSpec) {
        let given = |key: &LeaseKey| key.network == next.network && assignable(next, key.address);
        let (kept, gone): (Vec<LeaseKey>, Vec<LeaseKey>) =
            self.oldest_first(pool).into_iter().partition(given);
        let over = kept.len().saturating_sub(size(next));
        for key in gone.into_iter().chain(kept.into_iter().take(over)) {
            flight.ops.push(Op::DeletePast(key));
        }
    }
}
