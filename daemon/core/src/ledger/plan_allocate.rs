//! New addresses, or the same again.
//!
//! Policy, in this order: a want is answered by leases that the identity has already; only what is missing is
//! new. New leases need an open pool, a network that is not held back, room in the tenant's quotas, and the asker's
//! turn in the queue. All wants are served or none. An address that cools is given only by name, and only to an
//! admin or its last tenant.

use std::{net::IpAddr, sync::Arc};

use smallvec::SmallVec;

use super::{
    Ledger,
    intern::Prints,
    plan::{Draft, Draw, Stop},
    plan_adopt::exclusive,
    plan_reserve::Purpose,
    quotas::Need,
    waiters::Waiter,
};
use crate::{
    Action, Allocate, Answer, Lease, LeaseKey, LeaseState, Order, Pool, Refusal, Text, Timestamp,
    Want, address::number, layout,
};

/// One want with what the identity has of it already.
struct Asked {
    pool: Arc<Pool>,
    key: Option<LeaseKey>,
    existing: SmallVec<[Arc<Lease>; 1]>,
    /// How many new leases it takes.
    missing: u32,
    /// Their keys, once taken.
    fresh: SmallVec<[LeaseKey; 1]>,
    /// The named address cools, and the asker may end that.
    cools: bool,
}

type Wants = SmallVec<[(Arc<Pool>, Want); 2]>;

impl Ledger {
    pub(super) fn plan_allocate(
        &mut self,
        ask: &Allocate,
        purpose: Purpose,
        now: Timestamp,
    ) -> Draw {
        let wants = self.check_wants(ask)?;
        let prints = Prints::of(&ask.holder.identity);
        let mut held = self.settled_prints(prints.whole, &ask.holder.identity)?;
        held.retain(|lease| lease.held_by(&ask.holder.identity));
        let mut asked = self.match_held(wants, held);
        for want in asked.iter_mut().filter(|want| want.missing > 0) {
            want.cools = self.check_new(want, ask)?;
        }
        self.check_tenant(&asked, ask)?;
        self.check_turn(&asked, ask)?;
        let mut draft = Draft::new(now, &ask.actor);
        draft.flight.identities.push(prints.whole);
        draft.flight.prints = Some(prints);
        if let Err(pool) = self.take(&mut asked, &mut draft) {
            for key in draft.flight.taken {
                self.free.give_back(key);
            }
            return Err(self.full(&pool));
        }
        for want in &asked {
            let place = self.waiters.leave(want.pool.id, &ask.holder.identity);
            draft
                .flight
                .places
                .extend(place.map(|(place, waiter)| (want.pool.id, place, waiter)));
        }
        Ok(self.grant(draft, asked, prints, ask, purpose))
    }

    fn check_wants(&self, ask: &Allocate) -> Result<Wants, Stop> {
        let invalid = |field, value: String, allowed: &str| Refusal::Invalid {
            field,
            value,
            allowed: allowed.into(),
        };
        if ask.wants.is_empty() || ask.wants.len() > Allocate::MAX_WANTS {
            return Err(invalid(
                "wants",
                ask.wants.len().to_string(),
                &format!("1 to {}", Allocate::MAX_WANTS),
            )
            .into());
        }
        let mut wants = Wants::new();
        for (at, want) in ask.wants.iter().enumerate() {
            if !(1..=Want::MAX_COUNT).contains(&want.count) {
                return Err(invalid(
                    "count",
                    want.count.to_string(),
                    &format!("1 to {}", Want::MAX_COUNT),
                )
                .into());
            }
            if want.address.is_some() && want.count != 1 {
                return Err(invalid(
                    "count",
                    want.count.to_string(),
                    "1 where an address is named",
                )
                .into());
            }
            let pool = self
                .rows
                .pools
                .get(&want.pool)
                .ok_or(Refusal::UnknownPool(want.pool))?;
            let want = Want {
                address: want.address.map(|address| address.to_canonical()),
                ..want.clone()
            };
            let twice = |before: &(Arc<Pool>, Want)| {
                before.1.address == want.address && before.0.spec.network == pool.spec.network
            };
            if want.address.is_some() && wants.iter().take(at).any(twice) {
                let address = want
                    .address
                    .map_or_else(String::new, |address| address.to_string());
                return Err(invalid("address", address, "each address once").into());
            }
            wants.push((Arc::clone(pool), want));
        }
        Ok(wants)
    }

    /// Gives each want the leases that the identity has of it: named addresses first, then the lowest in use, then the
    /// others.
    fn match_held(&self, wants: Wants, mut held: Vec<Arc<Lease>>) -> SmallVec<[Asked; 2]> {
        held.sort_by_key(|lease| lease.state != LeaseState::Allocated);
        let mut asked: SmallVec<[Asked; 2]> = wants
            .into_iter()
            .map(|(pool, want)| {
                let key = want.address.map(|address| LeaseKey {
                    network: pool.spec.network,
                    address,
                });
                let at = key.and_then(|key| held.iter().position(|lease| lease.key == key));
                let existing: SmallVec<[_; 1]> = at.map(|at| held.remove(at)).into_iter().collect();
                let missing = want.count - u32::from(!existing.is_empty());
                Asked {
                    pool,
                    key,
                    existing,
                    missing,
                    fresh: SmallVec::new(),
                    cools: false,
                }
            })
            .collect();
        for want in asked.iter_mut().filter(|want| want.key.is_none()) {
            held.retain(|lease| {
                let takes = want.missing > 0 && self.answers(lease, &want.pool);
                if takes {
                    want.existing.push(Arc::clone(lease));
                    want.missing -= 1;
                }
                !takes
            });
        }
        asked
    }

    /// Whether a lease of the identity is one of the pool's: attributed to it or on its assignable addresses.
    fn answers(&self, lease: &Lease, pool: &Pool) -> bool {
        let assigns = || {
            self.free
                .stab(lease.key)
                .iter()
                .any(|part| part.pool == pool.id && part.assignable)
        };
        lease.key.network == pool.spec.network && (lease.pool == Some(pool.id) || assigns())
    }

    /// What has to hold before a pool gives anything new. Whether the address cools, see [`Asked`].
    fn check_new(&self, want: &Asked, ask: &Allocate) -> Result<bool, Stop> {
        let spec = &want.pool.spec;
        if self.tentative.edits(spec.network) {
            return Err(Stop::Busy);
        }
        let holds = self.gate.holds(spec.network);
        if !holds.is_empty() {
            let network = self.rows.networks.get(&spec.network);
            let network =
                network.map_or_else(|| Text::from("?"), |network| Arc::clone(&network.name));
            return Err(Refusal::NetworkHeld {
                network,
                waiting: holds.to_vec(),
            }
            .into());
        }
        if spec.closed {
            return Err(Refusal::PoolClosed(Arc::clone(&spec.name)).into());
        }
        match want.key {
            Some(key) if self.check_address(&want.pool, key, ask)? => Ok(true),
            Some(_) | None => self.check_restored().map(|()| false),
        }
    }

    /// Whether a named address can be given. One that cools goes only to an admin's request or back to its tenant.
    fn check_address(&self, pool: &Pool, key: LeaseKey, ask: &Allocate) -> Result<bool, Stop> {
        let address: IpAddr = key.address;
        let room = self.free.room(pool.id);
        let why = room.map_or_else(
            || Some("the pool's specification is not valid".to_owned()),
            |room| layout::why_not(&pool.spec, &room.layout, address),
        );
        if let Some(why) = why {
            let pool = Arc::clone(&pool.spec.name);
            return Err(Refusal::NotAssignable { pool, address, why }.into());
        }
        self.settled(std::iter::once(key))?;
        let Some(lease) = self.rows.leases.get(&key) else {
            return Ok(false);
        };
        if lease.state == LeaseState::Quarantined {
            let tenant = ask.tenant.is_some() && ask.tenant == lease.tenant;
            if (ask.by_admin || tenant) && lease.contenders.is_empty() {
                return Ok(true);
            }
            return Err(Refusal::Quarantined { address }.into());
        }
        let owner = lease
            .owner()
            .map_or_else(String::new, |owner| owner.identity.to_string());
        Err(Refusal::AddressTaken { address, owner }.into())
    }

    /// Whether the tenant's quotas allow it. Without any quota nothing is looked at.
    fn check_tenant(&mut self, asked: &[Asked], ask: &Allocate) -> Result<(), Stop> {
        match &ask.tenant {
            Some(tenant) if self.has_quotas() => {
                let needs = sums(asked.iter());
                self.check_quota(&needs, tenant, &ask.holder)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether it is the asker's turn in all pools that are to give something new. If not, and it says since when
    /// it waits, it gets a place in the queues of the pools that are full.
    fn check_turn(&mut self, asked: &[Asked], ask: &Allocate) -> Result<(), Stop> {
        let needs = needs(asked);
        let identity = &ask.holder.identity;
        let mut full = Vec::new();
        for (id, need, pool) in &needs {
            let free = self.free.room(*id).map_or(0, |room| room.free());
            if self.waiters.none(*id) && *need <= free {
                continue;
            }
            if !self
                .waiters
                .admits(*id, identity, ask.waiting_since, *need, free)
            {
                if self.free.room(*id).is_some_and(|room| room.taken > 0) {
                    return Err(Stop::Busy);
                }
                full.push((*id, *need, *pool));
            }
        }
        let Some((_, _, first)) = full.first() else {
            return Ok(());
        };
        let refusal = self.exhausted(first);
        if let Some(since) = ask.waiting_since {
            for (id, ..) in &needs {
                self.waiters.leave(*id, identity);
            }
            for (id, need, _) in full {
                let instance = Arc::clone(&ask.holder.instance);
                self.waiters
                    .keep(id, (since, identity.clone()), Waiter { need, instance });
            }
        }
        Err(refusal)
    }

    fn exhausted(&self, pool: &Pool) -> Stop {
        let room = self.free.room(pool.id);
        let (used, size) = room.map_or((0, 0), |room| (room.used, room.layout.size.assignable));
        Refusal::Exhausted {
            pool: Arc::clone(&pool.spec.name),
            used,
            size,
        }
        .into()
    }

    /// Busy where a decision in flight may yet give back, else exhausted.
    fn full(&self, pool: &Pool) -> Stop {
        if self.free.room(pool.id).is_some_and(|room| room.taken > 0) {
            return Stop::Busy;
        }
        self.exhausted(pool)
    }

    /// Takes the addresses that are missing, named ones first. Fails with the pool that has none left: only wants
    /// on pools that share addresses can come away empty here, and they get no place in a queue.
    fn take(&mut self, asked: &mut [Asked], draft: &mut Draft) -> Result<(), Arc<Pool>> {
        for want in asked.iter_mut().filter(|want| want.missing > 0) {
            if let Some(key) = want.key {
                if !want.cools {
                    self.free.take(key);
                    draft.flight.taken.push(key);
                }
                want.fresh.push(key);
            }
        }
        for want in asked.iter_mut().filter(|want| want.key.is_none()) {
            for _ in 0..want.missing {
                let Some(key) = self.choose(&want.pool) else {
                    return Err(Arc::clone(&want.pool));
                };
                self.free.take(key);
                draft.flight.taken.push(key);
                want.fresh.push(key);
            }
        }
        Ok(())
    }

    /// A free address, by the order of the pool.
    fn choose(&mut self, pool: &Pool) -> Option<LeaseKey> {
        match pool.spec.order {
            Order::Lowest => self.free.choose(pool.id, |choice| choice.lowest()),
            Order::Random => {
                let dice = &mut self.dice;
                self.free.choose(pool.id, |choice| choice.random(dice))
            }
        }
    }

    /// Writes the leases and answers them in the order of the wants, then by address.
    fn grant(
        &self,
        mut draft: Draft,
        asked: SmallVec<[Asked; 2]>,
        prints: Prints,
        ask: &Allocate,
        purpose: Purpose,
    ) -> (Draft, Answer) {
        let shared = self.interner.shared(prints, &ask.holder, &ask.tenant);
        let fresh = asked.iter().map(|want| want.fresh.len()).sum();
        let mut leases = Vec::with_capacity(asked.len());
        let mut any_fresh = fresh > 0;
        let mut holders = std::iter::repeat_n(shared, fresh);
        for want in asked {
            let mut mine = want.existing;
            for lease in &mut mine {
                if let Some((next, action)) = purpose.again(lease, &ask.holder) {
                    any_fresh |= action == Action::Allocated;
                    draft.put(&next, action, Text::default());
                    *lease = next;
                }
            }
            for (key, (holder, tenant)) in want.fresh.into_iter().zip(holders.by_ref()) {
                let mut lease = exclusive(key, Some(want.pool.id), holder, tenant, draft.now);
                let action = purpose.dedicate(&mut lease);
                let lease = Arc::new(lease);
                if want.cools {
                    draft.put(&lease, action, "it was in quarantine".into());
                } else {
                    draft.put_new(&lease, action, Text::default());
                }
                mine.push(lease);
            }
            if mine.len() > 1 {
                mine.sort_by_key(|lease| number(lease.key.address));
            }
            leases.extend(mine);
        }
        (
            draft,
            Answer::Granted {
                leases,
                fresh: any_fresh,
            },
        )
    }
}

/// Pools that are to give something free, each once, and how much.
fn needs(asked: &[Asked]) -> SmallVec<[Need<'_>; 2]> {
    sums(asked.iter().filter(|want| !want.cools))
}

/// What the wants miss, by pool.
fn sums<'a>(asked: impl Iterator<Item = &'a Asked>) -> SmallVec<[Need<'a>; 2]> {
    let mut needs: SmallVec<[Need<'_>; 2]> = SmallVec::new();
    for want in asked.filter(|want| want.missing > 0) {
        let missing = u128::from(want.missing);
        match needs.iter_mut().find(|(id, ..)| *id == want.pool.id) {
            Some((_, need, _)) => *need += missing,
            None => needs.push((want.pool.id, missing, &want.pool)),
        }
    }
    needs
}
