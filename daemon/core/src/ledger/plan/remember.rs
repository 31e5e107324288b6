//! What a pool remembers: who had an address, and which one was released longest ago.
//!
//! A past lease is written with the release and forgotten with the next grant. Nothing waits for the end of a memory:
//! what is too old is no longer heeded, and each release forgets a few of those.

use std::sync::Arc;

use super::{
    release::in_use,
    wants::{Again, AskedWant, Given},
};
use crate::{
    Allocate, Lease, LeaseKey, LeaseState, Op, Order, PastLease, Pool, PoolSpec, Timestamp,
    address::number,
    layout::Layout,
    ledger::{
        Ledger,
        draft::{Draft, InFlight, Stop},
        intern::Prints,
        space::{free::prefixes_in, memory::Age},
    },
};

impl Ledger {
    /// The most rows that are forgotten with one release because they are too old.
    const STALE_AT_ONCE: usize = 2;

    /// Remembers a lease that goes, if it was in use.
    pub(super) fn remember(&self, draft: &mut Draft, lease: &Lease, own: bool) -> Result<(), Stop> {
        let pool = lease.pool.and_then(|id| self.rows.pools.get(&id));
        let Some((pool, owner)) = pool.zip(lease.owner()).filter(|_| in_use(lease)) else {
            return Ok(());
        };
        let most = pool.spec.remembers();
        let room = self.free.room(pool.id);
        if most == 0 || !room.is_some_and(|room| room.layout.in_range(number(lease.key.address))) {
            return Ok(());
        }
        Stop::busy_if(self.drafts.edits(pool.spec.network))?;
        let past = PastLease {
            key: lease.key,
            pool: pool.id,
            identity: owner.identity.clone(),
            released: draft.now,
            own,
        };
        let stale = |(released, _): &Age| {
            pool.spec.order != Order::LeastRecentlyUsed
                && pool.spec.sticky.is_over(*released, past.released)
        };
        for _ in 0..Self::STALE_AT_ONCE {
            self.forget_oldest(draft, pool, stale);
        }
        let known = self.free.memory().count(pool.id);
        let shift = draft.shifts.entry(pool.id).or_default();
        if known + shift.added >= most + shift.forgotten
            && !self.forget_oldest(draft, pool, |_| true)
        {
            // Decisions in flight forget all there is: this one has no room.
            return Ok(());
        }
        draft.shifts.entry(pool.id).or_default().added += 1;
        draft.flight.ops.push(Op::PutPast(Arc::new(past)));
        Ok(())
    }

    /// Forgets the pool's oldest row if it `may`; whether it does.
    fn forget_oldest(&self, draft: &mut Draft, pool: &Pool, may: impl Fn(&Age) -> bool) -> bool {
        let shift = draft.shifts.entry(pool.id).or_default();
        let oldest = self.free.memory().oldest(pool.id, shift.last);
        let Some(age) = oldest.filter(may) else {
            return false;
        };
        shift.forgotten += 1;
        shift.last = Some(age);
        draft.flight.ops.push(Op::DeletePast(age.1));
        true
    }

    /// What the holder's identity had of the want's pool and may have again, as many addresses as are missing, the
    /// latest first. `named` are the addresses that the request gives out already; what is found is added to them. One
    /// that cools is found only where the same tenant asks for it at once.
    pub(super) fn had(
        &self,
        want: &AskedWant<'_>,
        (prints, ask): (Prints, &Allocate),
        named: &mut Given,
        now: Timestamp,
    ) -> Result<Again, Stop> {
        let mut again = Again::default();
        let pool = &want.pool;
        let sticky = pool.spec.sticky;
        let memory = self.free.memory();
        if !sticky.is_on() || memory.is_empty() {
            return Ok(again);
        }
        let most = usize::try_from(want.missing).unwrap_or(usize::MAX);
        for past in memory.of_owner(prints.whole, &ask.holder.identity, pool.id) {
            if again.free.len() + again.cooling.len() == most || sticky.is_over(past.released, now)
            {
                break;
            }
            let prefix = pool.spec.prefix_at(past.key);
            let overlaps = || prefixes_in(named, past.key.network, prefix.span()).next();
            let is_given = !named.is_empty() && overlaps().is_some();
            if is_given || self.withholds(past.key, pool.id) {
                continue;
            }
            let is_free = self.free.is_free(prefix);
            let over = (!is_free).then(|| self.lease_over(prefix)).flatten();
            let list = match over {
                None if is_free => &mut again.free,
                Some(lease)
                    if lease.prefix() == prefix
                        && !want.keep
                        && past.own
                        && lease.contenders.is_empty()
                        && lease.tenant == ask.tenant =>
                {
                    self.settled(std::iter::once(past.key))?;
                    &mut again.cooling
                }
                None | Some(_) => continue,
            };
            list.push(past.key);
            named.insert(past.key, prefix.length);
        }
        Ok(again)
    }

    /// A free address, by the order of the pool. What is remembered for others comes last, and the oldest of it first.
    pub(super) fn choose(&mut self, pool: &Pool) -> Option<LeaseKey> {
        let (id, dice) = (pool.id, &mut self.dice);
        let unused = match pool.spec.order {
            Order::Lowest | Order::LeastRecentlyUsed => {
                self.free.choose_unused(id, |choice| choice.lowest())
            }
            Order::Random => self.free.choose_unused(id, |choice| choice.random(dice)),
        };
        unused
            .or_else(|| self.free.oldest_idle(id))
            .or_else(|| self.free.choose(id, |choice| choice.lowest()))
    }

    /// Forgets what a new specification of the pool does not remember.
    pub(super) fn forget_by_edit(&self, pool: &Pool, spec: &PoolSpec, layout: &Layout) -> Vec<Op> {
        let stays = spec.network == pool.spec.network
            && pool.spec.family() == Some(layout.family)
            && pool.spec.lease_length() == layout.length;
        let (kept, mut gone): (Vec<Age>, Vec<Age>) = self
            .free
            .memory()
            .of_pool(pool.id)
            .partition(|(_, key)| stays && layout.assigns(number(key.address)));
        let over = kept.len().saturating_sub(spec.remembers());
        gone.extend(kept.into_iter().take(over));
        gone.into_iter()
            .map(|(_, key)| Op::DeletePast(key))
            .collect()
    }

    /// What is given again is past no more.
    pub(super) fn forget_granted(&self, flight: &InFlight) -> Vec<Op> {
        let memory = self.free.memory();
        if memory.is_empty() {
            return Vec::new();
        }
        let granted = flight.ops.iter().filter_map(|op| {
            if let Op::PutLease(lease) = op {
                (lease.state != LeaseState::Quarantined).then_some(lease.key)
            } else {
                None
            }
        });
        let known = granted.filter(|key| memory.get(*key).is_some());
        known.map(Op::DeletePast).collect()
    }
}
