//! Leases of the model.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{
    Action, Adopt, Allocate, Answer, Choice, ClusterId, Contender, Family, Handover, Holder, Lease,
    LeaseKey, LeasePrefix, LeaseState, Op, Order, Pool, PoolId, Refusal, Release, ReleaseScope,
    Selection, System, Timestamp,
};

use super::{
    Flight, Model, Plan, Stop, Waiter, contender, new_lease, owner,
    pool::{assignable, delete_marker, invalid, lists},
    prefix::{self, around, touch},
    share,
};

pub struct Asked {
    pub pool: Arc<Pool>,
    pub selection: Option<Selection>,
    /// Pools that the selection may be served by.
    pub candidates: Vec<Arc<Pool>>,
    pub keep: bool,
    pub key: Option<LeaseKey>,
    have: Vec<Lease>,
    pub missing: u32,
    /// Quarantined and may be given.
    pub cooling: Vec<LeaseKey>,
    /// Free, and the identity had them before.
    pub again: Vec<LeaseKey>,
    reshared: bool,
    pub joins: Option<Lease>,
}

impl Asked {
    pub fn lacks(&self) -> u32 {
        self.missing - self.cooling.len() as u32
    }
}

impl Model {
    /// `keep`: reserved until then.
    pub fn allocate(
        &mut self,
        ask: &Allocate,
        keep: Option<Option<Timestamp>>,
        now: Timestamp,
    ) -> Plan {
        let identity = &ask.holder.identity;
        for want in &ask.wants {
            if let Choice::Any(selection) = &want.pool
                && let Some(length) = selection.length
                && (length == 0 || length > selection.family.bits())
            {
                return invalid("select.length");
            }
        }
        let mut asked: Vec<Asked> = Vec::new();
        for want in &ask.wants {
            let (selection, candidates) = match &want.pool {
                Choice::Pool(id) => {
                    let pool = self.pool(*id).cloned();
                    let pool = pool.ok_or(Stop::Refused(Refusal::UnknownPool(*id)))?;
                    (None, vec![pool])
                }
                Choice::Any(selection) => {
                    let all = self.selected(selection);
                    let candidates = self.with_address(all, want.address);
                    (Some(Selection::clone(selection)), candidates)
                }
            };
            let held = || {
                let like = |lease: &&Lease| {
                    let selection = selection.as_ref();
                    lease.held_by(identity)
                        && selection.is_some_and(|all| is_like(lease, all, want.address))
                };
                let lease = self.leases.iter().find(like)?;
                self.pool(lease.pool?).cloned()
            };
            let Some(pool) = candidates.first().cloned().or_else(held) else {
                let selection = selection.expect("a named pool is there");
                return Err(Stop::Refused(Refusal::NoPool {
                    family: selection.family,
                    length: selection.length,
                    address: want.address,
                }));
            };
            let key = want.address.map(|address| LeaseKey {
                network: pool.spec.network,
                address,
            });
            let twice = |other: &Asked| {
                let (Some(a), Some(b)) = (other.key, key) else {
                    return false;
                };
                let open = other.selection.is_some() || selection.is_some();
                let a = around(&other.pool.spec, a.address);
                let mut b = around(&pool.spec, b.address);
                if open {
                    b.key.network = a.key.network;
                }
                touch(a, b)
            };
            if asked.iter().any(twice) {
                return invalid("address");
            }
            asked.push(Asked {
                pool,
                selection,
                candidates,
                keep: keep.is_some() || ask.probe,
                key,
                have: Vec::new(),
                missing: want.count,
                cooling: Vec::new(),
                again: Vec::new(),
                reshared: false,
                joins: None,
            });
        }
        let share = share::wish(ask)?;
        let mut held = self.leases_with(identity)?;
        held.retain(|lease| lease.held_by(identity));
        distribute(&mut asked, &mut held);
        if keep.is_none() {
            for lease in asked.iter().flat_map(|want| &want.have) {
                self.may_use(lease, ask)?;
            }
        }
        if let Some(share) = &share {
            for want in asked.iter_mut() {
                for lease in &mut want.have {
                    let before = lease.clone();
                    want.reshared |= share::again(lease, share, &ask.holder)?;
                    if share::more_ports(lease, &before) {
                        self.restored()?;
                    }
                }
            }
            let mut joined = Vec::new();
            for want in asked.iter_mut().filter(|want| want.missing > 0) {
                self.may_open(want)?;
                want.joins = self.join(&want.pool, want.key, share, ask, &joined)?;
                if want.joins.is_some() {
                    self.restored()?;
                }
                joined.extend(want.joins.as_ref().map(|lease| lease.key));
                want.missing -= u32::from(want.joins.is_some());
            }
        } else if keep.is_none() {
            for want in asked.iter_mut() {
                for lease in &mut want.have {
                    want.reshared |= share::alone(lease)?;
                }
            }
        }
        let named = |want: &&mut Asked| want.missing > 0 && want.selection.is_none();
        for want in asked.iter_mut().filter(named) {
            if self.may_give(want, ask)? {
                want.cooling.extend(want.key);
            }
        }
        let mut named: Vec<LeasePrefix> = Vec::new();
        for want in &asked {
            named.extend(want.key.map(|key| around(&want.pool.spec, key.address)));
        }
        for want in asked.iter_mut() {
            if want.key.is_none() && want.missing > 0 && want.selection.is_none() {
                (want.again, want.cooling) = self.had(want, ask, &mut named, now)?;
            }
        }
        self.settle(&mut asked, ask, now)?;
        let mut needs: Vec<(PoolId, u64)> = Vec::new();
        for want in asked.iter().filter(|want| want.missing > 0) {
            match needs.iter_mut().find(|(id, _)| *id == want.pool.id) {
                Some((_, need)) => *need += u64::from(want.missing),
                None => needs.push((want.pool.id, want.missing.into())),
            }
        }
        self.within_quota(&needs, ask)?;
        self.turn(&asked, ask)?;
        let taken = self.choose(&asked)?;
        let mut flight = Flight {
            gains: vec![identity.clone()],
            ..Flight::default()
        };
        for want in &asked {
            let pools = match &want.selection {
                None => vec![want.pool.id],
                Some(selection) => self.selectable(selection),
            };
            let of_mine =
                |waiter: &Waiter| pools.contains(&waiter.pool) && waiter.identity == *identity;
            flight.gave_up.extend(
                self.waiters
                    .iter()
                    .filter(|waiter| of_mine(waiter))
                    .cloned(),
            );
            self.waiters.retain(|waiter| !of_mine(waiter));
        }
        let (mut leases, mut fresh) = (Vec::new(), false);
        for (want, keys) in asked.into_iter().zip(taken) {
            let mut mine = Vec::new();
            for mut lease in want.have {
                if let Some(until) = keep {
                    if keep_on(&mut lease, &ask.holder, until) {
                        let who = owner(&lease);
                        flight.put(&lease, Action::Reserved, who);
                    }
                    mine.push(lease);
                    continue;
                }
                let probes = ask.probe && lease.state == LeaseState::Reserved;
                let (changed, revived) = renew(&mut lease, &ask.holder, !ask.probe);
                if probes {
                    lease.state = LeaseState::Probing;
                    lease.until = Some(Timestamp(now.0 + 30_000));
                }
                if changed {
                    let action = if probes {
                        Action::Probing
                    } else if revived {
                        Action::Allocated
                    } else {
                        Action::InstanceChanged
                    };
                    let who = owner(&lease);
                    flight.put(&lease, action, who);
                } else if want.reshared {
                    let who = owner(&lease);
                    flight.put(&lease, Action::PortsChanged, who);
                }
                fresh |= revived;
                mine.push(lease);
            }
            if let Some(lease) = want.joins {
                flight.put(&lease, Action::Allocated, Some(identity.clone()));
                mine.push(lease);
                fresh = true;
            }
            let cooling = want.cooling.clone();
            for key in cooling.iter().copied().chain(keys) {
                let prefix = around(&want.pool.spec, key.address);
                let mut lease =
                    new_lease(prefix, Some(want.pool.id), &ask.holder, &ask.tenant, now);
                let mut action = Action::Allocated;
                if let Some(share) = &share {
                    lease.group = Some(share.key.clone());
                    lease.members[0].ports = share.ports.clone();
                }
                if let Some(until) = keep {
                    lease.state = LeaseState::Reserved;
                    lease.until = until;
                    action = Action::Reserved;
                } else if ask.probe {
                    lease.state = LeaseState::Probing;
                    lease.until = Some(Timestamp(now.0 + 30_000));
                    action = Action::Probing;
                }
                flight.put(&lease, action, Some(identity.clone()));
                if !cooling.contains(&key) {
                    flight.taken.push(prefix);
                }
                mine.push(lease);
                fresh = true;
            }
            mine.sort_by_key(|lease| lease.key);
            leases.extend(mine.into_iter().map(Arc::new));
        }
        Ok((flight, Answer::Granted { leases, fresh }))
    }

    pub fn may_give(&self, want: &Asked, ask: &Allocate) -> Result<bool, Stop> {
        self.may_open(want)?;
        self.may_name(want, ask)
    }

    /// Whether what the identity has and does not use yet is used by nobody else, as far as is known.
    fn may_use(&self, lease: &Lease, ask: &Allocate) -> Result<(), Stop> {
        let begins = lease.state == LeaseState::Reserved
            || (lease.state == LeaseState::Probing && !ask.probe);
        if let Some(contender) = lease.contenders.first().filter(|_| begins) {
            return Err(Stop::Refused(Refusal::AddressTaken {
                address: lease.prefix(),
                owner: contender.holder.identity.to_string(),
            }));
        }
        let waiting = self.holds(lease.key.network);
        if matches!(lease.state, LeaseState::Reserved | LeaseState::Orphaned) && !waiting.is_empty()
        {
            let network = self.network_name(lease.key.network);
            return Err(Stop::Refused(Refusal::NetworkHeld { network, waiting }));
        }
        Ok(())
    }

    fn may_open(&self, want: &Asked) -> Result<(), Stop> {
        let spec = &want.pool.spec;
        if self.edited(spec.network) {
            return Err(Stop::Busy);
        }
        let waiting = self.holds(spec.network);
        if !waiting.is_empty() {
            let network = self.network_name(spec.network);
            return Err(Stop::Refused(Refusal::NetworkHeld { network, waiting }));
        }
        if spec.closed {
            return Err(Stop::Refused(Refusal::PoolClosed(spec.name.clone())));
        }
        Ok(())
    }

    /// Whether free addresses are given again after a restore.
    pub fn restored(&self) -> Result<(), Stop> {
        match self.epoch.and_then(|epoch| epoch.hold) {
            Some(hold) => Err(Stop::Refused(Refusal::RestoreHeld { until: hold.until })),
            None => Ok(()),
        }
    }

    /// Whether the address that is named cools and may be given.
    fn may_name(&self, want: &Asked, ask: &Allocate) -> Result<bool, Stop> {
        let spec = &want.pool.spec;
        let free = || self.restored().map(|()| false);
        let Some(key) = want.key else {
            return free();
        };
        let (pool, address) = (spec.name.clone(), key.address);
        if self.withheld(&want.pool, address) {
            return Err(Stop::Refused(self.ambiguous(&want.pool, address)));
        }
        if !assignable(spec, address) {
            return Err(Stop::Refused(Refusal::NotAssignable {
                pool,
                address,
                why: String::new(),
            }));
        }
        let prefix = around(spec, address);
        self.settled(prefix)?;
        match self.lease_over(prefix) {
            Some(lease) if lease.prefix() != prefix => Err(Stop::Refused(overlap(prefix, lease))),
            Some(lease) if lease.state == LeaseState::Quarantined => {
                let back = ask.tenant.is_some() && lease.tenant == ask.tenant;
                let (until, keep) = (lease.until.expect("it ends"), want.keep);
                if !keep && lease.contenders.is_empty() && (back || ask.by_admin) {
                    self.restored()?;
                    Ok(true)
                } else {
                    Err(Stop::Refused(Refusal::Quarantined {
                        address: prefix,
                        until,
                        keep,
                    }))
                }
            }
            Some(_) => Err(Stop::Refused(Refusal::AddressTaken {
                address: prefix,
                owner: String::new(),
            })),
            None => free(),
        }
    }

    pub fn exhausted(&self, pool: &Pool) -> Stop {
        let all = self.assignable(pool);
        let over = |key: &&LeaseKey| self.lease_over(around(&pool.spec, key.address)).is_some();
        let used = all.iter().filter(over).count() as u128;
        let cooling = self
            .leases
            .iter()
            .filter(|lease| lease.pool == Some(pool.id) && lease.state == LeaseState::Quarantined);
        let ends: Vec<Timestamp> = cooling.filter_map(|lease| lease.until).collect();
        let first = ends.iter().min();
        Stop::Refused(Refusal::Exhausted {
            pool: pool.spec.name.clone(),
            used,
            size: all.len() as u128,
            of_prefixes: pool.spec.allocation_length.is_some(),
            cooling: first.map(|first| (ends.len() as u128, *first)),
        })
    }

    /// An asker gets what is left after everybody with an earlier place had theirs.
    fn turn(&mut self, asked: &[Asked], ask: &Allocate) -> Result<(), Stop> {
        let mut pools: Vec<(PoolId, u128)> = Vec::new();
        for want in asked.iter().filter(|want| want.lacks() > 0) {
            match pools.iter_mut().find(|(id, _)| *id == want.pool.id) {
                Some((_, need)) => *need += u128::from(want.lacks()),
                None => pools.push((want.pool.id, want.lacks().into())),
            }
        }
        let mut full = Vec::new();
        for (id, need) in &pools {
            if !self.has_turn(*id, *need, ask)? {
                full.push((*id, *need));
            }
        }
        let Some((first, _)) = full.first() else {
            return Ok(());
        };
        let refusal = self.exhausted(&self.pool(*first).expect("checked before").clone());
        let pools: Vec<PoolId> = pools.iter().map(|(id, _)| *id).collect();
        self.wait(&pools, &full, ask);
        Err(refusal)
    }

    /// Whether so many addresses are left after everybody with an earlier place had theirs.
    pub fn has_turn(&self, id: PoolId, need: u128, ask: &Allocate) -> Result<bool, Stop> {
        let identity = &ask.holder.identity;
        let pool = self.pool(id).expect("checked before");
        let all = self.assignable(pool);
        let prefix = |key: &LeaseKey| around(&pool.spec, key.address);
        let free = all.iter().filter(|key| self.is_free(prefix(key)));
        let free = free.count() as u128;
        let queue: Vec<&Waiter> = self
            .waiters
            .iter()
            .filter(|waiter| waiter.pool == id)
            .collect();
        let kept = queue
            .iter()
            .find(|waiter| waiter.identity == *identity)
            .map(|waiter| waiter.since);
        let since = ask.waiting_since.or(kept);
        let ahead: u128 = queue
            .iter()
            .filter(|waiter| waiter.identity != *identity)
            .filter(|waiter| {
                since.is_none_or(|since| (waiter.since, &waiter.identity) < (since, identity))
            })
            .map(|waiter| waiter.need)
            .sum();
        if ahead + need <= free {
            return Ok(true);
        }
        let mut prefixes = all.iter().map(prefix);
        if prefixes.any(|one| self.may_come_back(one)) {
            return Err(Stop::Busy);
        }
        Ok(false)
    }

    /// Leaves the queues of `pools` for places in those that are full.
    pub fn wait(&mut self, pools: &[PoolId], full: &[(PoolId, u128)], ask: &Allocate) {
        let Some(since) = ask.waiting_since else {
            return;
        };
        let identity = &ask.holder.identity;
        let gone = |pool: &PoolId| pools.contains(pool) || full.iter().any(|(id, _)| id == pool);
        self.waiters
            .retain(|waiter| !gone(&waiter.pool) || waiter.identity != *identity);
        for (pool, need) in full {
            self.waiters.push(Waiter {
                pool: *pool,
                since,
                identity: identity.clone(),
                need: *need,
                instance: ask.holder.instance.clone(),
            });
        }
    }

    fn choose(&self, asked: &[Asked]) -> Result<Vec<Vec<LeaseKey>>, Stop> {
        let mut gone: Vec<LeasePrefix> = Vec::new();
        for want in asked {
            let named = want.key.filter(|_| want.missing > 0);
            let keys = named.iter().chain(&want.again);
            gone.extend(keys.map(|key| around(&want.pool.spec, key.address)));
        }
        let mut chosen = Vec::new();
        let mut given = self.given.iter().copied();
        for want in asked {
            if let Some(key) = want.key {
                if want.lacks() > 0 {
                    given.next();
                }
                chosen.push(if want.lacks() > 0 {
                    vec![key]
                } else {
                    Vec::new()
                });
                continue;
            }
            let mut keys = want.again.clone();
            for _ in &keys {
                given.next();
            }
            while keys.len() < want.lacks() as usize {
                let prefix = |key: &LeaseKey| around(&want.pool.spec, key.address);
                let free = |key: &LeaseKey| {
                    let gone = gone.iter().any(|one| touch(*one, prefix(key)));
                    self.is_free(prefix(key)) && !gone
                };
                let all = self.assignable(&want.pool);
                let unused = |key: &LeaseKey| free(key) && !self.remembers_as(prefix(key));
                let by_chance = given.next().filter(|key| {
                    want.pool.spec.order == Order::Random && unused(key) && all.contains(key)
                });
                let key = by_chance
                    .or_else(|| all.iter().copied().find(unused))
                    .or_else(|| {
                        let mut known = self.oldest_first(want.pool.id).into_iter();
                        known.find(|key| free(key) && all.contains(key))
                    })
                    .or_else(|| all.iter().copied().find(free));
                let Some(key) = key else {
                    let busy = all.iter().any(|key| self.may_come_back(prefix(key)));
                    return Err(if busy {
                        Stop::Busy
                    } else {
                        self.exhausted(&want.pool)
                    });
                };
                gone.push(prefix(&key));
                keys.push(key);
            }
            chosen.push(keys);
        }
        Ok(chosen)
    }

    pub fn release(&mut self, ask: &Release, now: Timestamp) -> Plan {
        let mut flight = Flight::default();
        let mut freed = Vec::new();
        let (holder, only) = match &ask.scope {
            ReleaseScope::Address(key) | ReleaseScope::Quarantine(key) => {
                if self.locked(*key) {
                    return Err(Stop::Busy);
                }
                let cools = matches!(ask.scope, ReleaseScope::Quarantine(_));
                let lease = self.lease(*key);
                if let Some(lease) =
                    lease.filter(|lease| cools == (lease.state == LeaseState::Quarantined))
                {
                    let prefix = lease.prefix();
                    self.vacate(&mut flight, lease, (Action::Released, false), now)?;
                    freed.push(prefix);
                }
                return Ok((flight, Answer::Released { leases: freed }));
            }
            ReleaseScope::Contention {
                contender: holder,
                key,
                beside,
            } => {
                if self.locked(*key) {
                    return Err(Stop::Busy);
                }
                let has_it = |lease: &&Lease| {
                    let beside = beside.as_ref();
                    beside.is_none_or(|one| lease.held_by(one))
                };
                let mut contended = self.lease(*key).filter(has_it).cloned();
                if let Some(rest) = &mut contended
                    && contender::end(rest, holder, None)
                {
                    let identity = Some(holder.identity.clone());
                    flight.put(rest, Action::ContenderLeft, identity);
                }
                return Ok((flight, Answer::Released { leases: freed }));
            }
            ReleaseScope::Holder(holder) => (holder, None),
            ReleaseScope::HolderAddresses(holder, keys) => (holder, Some(keys)),
        };
        let leases = match only {
            None => self.leases_with(&holder.identity)?,
            Some(keys) if keys.iter().any(|key| self.locked(*key)) => return Err(Stop::Busy),
            Some(keys) => {
                let named = |lease: &&Lease| {
                    let mut keys = keys.iter();
                    keys.any(|key| touch(lease.prefix(), key.whole()))
                };
                let around: Vec<Lease> = self.leases.iter().filter(named).cloned().collect();
                if around.iter().any(|lease| self.locked(lease.key)) {
                    return Err(Stop::Busy);
                }
                around
            }
        };
        for lease in leases {
            let identity = Some(holder.identity.clone());
            let is_member = lease.members.iter().any(|member| member.holder == *holder);
            let all = only.is_none_or(|keys| keys.contains(&lease.key));
            if is_member && all {
                freed.push(lease.prefix());
                if lease.members.len() == 1 {
                    self.vacate(&mut flight, &lease, (Action::Released, true), now)?;
                } else {
                    let mut rest = lease.clone();
                    rest.members.retain(|member| member.holder != *holder);
                    flight.put(&rest, Action::Released, identity);
                }
            } else if !is_member {
                let mut rest = lease.clone();
                let inside = |keys: &Vec<LeaseKey>| {
                    let inside = keys.iter().copied();
                    let inside = inside.filter(|key| touch(lease.prefix(), key.whole()));
                    inside.collect::<Vec<_>>()
                };
                let keys = only.map(inside);
                if contender::end(&mut rest, holder, keys.as_deref()) {
                    flight.put(&rest, Action::ContenderLeft, identity);
                }
            }
        }
        if only.is_none() {
            flight.leaves = Some(holder.clone());
        }
        Ok((flight, Answer::Released { leases: freed }))
    }

    pub fn adopt(&mut self, ask: &Adopt, now: Timestamp) -> Plan {
        let key = ask.key;
        let length = ask.length.unwrap_or_else(|| key.bits());
        let prefix = LeasePrefix { key, length };
        if !prefix::aligned(prefix) {
            return invalid("address");
        }
        if !self
            .networks
            .iter()
            .any(|network| network.id == key.network)
        {
            return Err(Stop::Refused(Refusal::UnknownNetwork(key.network)));
        }
        if self.edited(key.network) || self.gains(&ask.holder.identity) {
            return Err(Stop::Busy);
        }
        self.settled(prefix)?;
        let mut flight = Flight {
            gains: vec![ask.holder.identity.clone()],
            ..Flight::default()
        };
        let who = Some(ask.holder.identity.clone());
        let Some(mut lease) = self.lease_over(prefix).cloned() else {
            let lease = new_lease(prefix, self.pool_of(prefix), &ask.holder, &ask.tenant, now);
            flight.put(&lease, Action::Adopted, who);
            flight.taken.push(prefix);
            return Ok((
                flight,
                Answer::Adopted {
                    lease: Arc::new(lease),
                },
            ));
        };
        if lease.length > prefix.length {
            return self.adopt_over(flight, prefix, ask, now);
        }
        if lease.held_by(&ask.holder.identity) {
            let (changed, revived) = renew(&mut lease, &ask.holder, true);
            let answer = Answer::Adopted {
                lease: Arc::new(lease.clone()),
            };
            if !changed {
                return Err(Stop::Answer(answer));
            }
            let first = owner(&lease);
            flight.put(
                &lease,
                if revived {
                    Action::Adopted
                } else {
                    Action::InstanceChanged
                },
                first,
            );
            return Ok((flight, answer));
        }
        let same = lease.prefix() == prefix;
        if let Some(lease) = over_foreign(&lease, ask, now).filter(|_| same) {
            flight.put(&lease, Action::Adopted, who);
            let lease = Arc::new(lease);
            return Ok((flight, Answer::Adopted { lease }));
        }
        if same && lease.state == LeaseState::Quarantined {
            let mut contenders = lease.contenders;
            contenders.retain(|contender| contender.holder.identity != ask.holder.identity);
            let mut lease = new_lease(prefix, lease.pool, &ask.holder, &ask.tenant, now);
            lease.contenders = contenders;
            flight.put(&lease, Action::Adopted, who);
            return Ok((
                flight,
                Answer::Adopted {
                    lease: Arc::new(lease),
                },
            ));
        }
        let asker = (&ask.holder, &ask.tenant);
        if !contender::contend(&mut lease, asker, (prefix, ask.since)) {
            return Err(Stop::Answer(Answer::Contended {
                lease: Arc::new(lease),
            }));
        }
        let first = owner(&lease);
        flight.put(&lease, Action::Contended, first);
        Ok((
            flight,
            Answer::Contended {
                lease: Arc::new(lease),
            },
        ))
    }

    /// Of smaller leases its own, cooling and foreign ones of its cluster give way; it contends for the others, and has all
    /// around them.
    fn adopt_over(
        &self,
        mut flight: Flight,
        prefix: LeasePrefix,
        ask: &Adopt,
        now: Timestamp,
    ) -> Plan {
        let asks = &ask.holder.identity;
        let inside = |lease: &&Lease| touch(lease.prefix(), prefix);
        let over: Vec<Lease> = self.leases.iter().filter(inside).cloned().collect();
        if over.iter().any(|lease| self.locked(lease.key)) {
            return Err(Stop::Busy);
        }
        let (mut others, mut gone) = (Vec::new(), Vec::new());
        for lease in over {
            let mine = |member: &fipd_core::Member| member.holder.identity == *asks;
            let gives_way =
                over_foreign(&lease, ask, now).is_some() || lease.members.iter().all(mine);
            let list = if gives_way { &mut gone } else { &mut others };
            list.push(lease);
        }
        let mut parts = Vec::new();
        prefix::beside(prefix, &others, &mut parts);
        let known = |lease: &Lease| {
            let has = lease.members.iter().any(|one| one.holder == ask.holder);
            has && lease.state == LeaseState::Allocated && parts.contains(&lease.prefix())
        };
        let mut answer = None;
        if gone.len() != parts.len() || !gone.iter().all(known) {
            if self.flights.iter().any(Flight::locks_pools) {
                return Err(Stop::Busy);
            }
            flight.edits.push(prefix.key.network);
            for lease in &gone {
                flight.keys.push(lease.prefix());
                flight.ops.push(Op::DeleteLease(lease.key));
                let address = Some(lease.key.address);
                flight.audit.push((Action::Released, address, owner(lease)));
            }
            for part in parts {
                let pool = self.pool_of(part);
                let mut next = new_lease(part, pool, &ask.holder, &ask.tenant, now);
                for lease in gone.iter().filter(|lease| touch(lease.prefix(), part)) {
                    let mut contenders = lease.contenders.clone();
                    if let Some(taken) = over_foreign(lease, ask, now) {
                        contenders = taken.contenders;
                    } else if !lease.members.is_empty() {
                        next.tenant = next.tenant.or(lease.tenant.clone());
                        if next.labels == fipd_core::Labels::default() {
                            next.labels = lease.labels.clone();
                        }
                    }
                    contenders.retain(|one| one.holder.identity != *asks);
                    contender::take_in(&mut next, lease.prefix(), contenders);
                }
                flight.put(&next, Action::Adopted, Some(asks.clone()));
                answer = answer.or_else(|| Some(Arc::new(next)));
            }
        }
        if others.is_empty() {
            let lease = answer.expect("a part");
            return Ok((flight, Answer::Adopted { lease }));
        }
        let mut answer = None;
        for lease in &mut others {
            let asker = (&ask.holder, &ask.tenant);
            if !lease.held_by(asks) && contender::contend(lease, asker, (prefix, ask.since)) {
                flight.put(lease, Action::Contended, owner(lease));
            }
            answer = answer.or_else(|| Some(Arc::new(lease.clone())));
        }
        let lease = answer.expect("there are others");
        match flight.ops.is_empty() {
            true => Err(Stop::Answer(Answer::Contended { lease })),
            false => Ok((flight, Answer::Contended { lease })),
        }
    }

    /// Of the pools that list it an open one, the smallest, the oldest.
    pub fn pool_of(&self, prefix: LeasePrefix) -> Option<PoolId> {
        self.pool_of_but(prefix, None)
    }

    /// Of those that give what is as long.
    pub fn pool_of_but(&self, prefix: LeasePrefix, other: Option<PoolId>) -> Option<PoolId> {
        let key = prefix.key;
        let size = |pool: &Pool| {
            let family = pool.spec.addresses[0].family();
            super::world(family)
                .into_iter()
                .filter(|address| lists(&pool.spec, *address))
                .count()
        };
        self.pools
            .iter()
            .filter(|pool| pool.spec.network == key.network && lists(&pool.spec, key.address))
            .filter(|pool| prefix::length(&pool.spec) == prefix.length)
            .filter(|pool| Some(pool.id) != other)
            .min_by_key(|pool| (pool.spec.closed, size(pool), pool.id))
            .map(|pool| pool.id)
    }

    pub fn handover(&mut self, ask: &Handover) -> Plan {
        let leases = self.leases_with(&ask.from.identity)?;
        self.leases_with(&ask.to.identity)?;
        let mut flight = Flight {
            gains: vec![ask.to.identity.clone()],
            ..Flight::default()
        };
        let mut keys = Vec::new();
        for mut lease in leases {
            let wanted = ask.keys.is_empty() || ask.keys.contains(&lease.key);
            let mine = lease
                .members
                .iter()
                .position(|member| member.holder == ask.from);
            let (true, Some(mine), true) = (wanted, mine, ask.from != ask.to) else {
                continue;
            };
            let contended = lease.contenders.len();
            lease
                .contenders
                .retain(|contender| contender.holder.identity != ask.to.identity);
            if lease.contenders.len() < contended {
                lease.state = LeaseState::Allocated;
                lease.until = None;
            }
            if ask.from.identity != ask.to.identity && lease.held_by(&ask.to.identity) {
                let gone = lease.members.remove(mine);
                for member in &mut lease.members {
                    if member.holder.identity == ask.to.identity {
                        member.holder = ask.to.clone();
                        member.ports.extend(gone.ports.clone());
                    }
                }
            } else {
                lease.members[mine].holder = ask.to.clone();
                if matches!(lease.state, LeaseState::Orphaned | LeaseState::Probing) {
                    lease.state = LeaseState::Allocated;
                    lease.until = None;
                }
            }
            flight.put(&lease, Action::HandedOver, Some(ask.to.identity.clone()));
            keys.push(lease.key);
        }
        Ok((flight, Answer::HandedOver { leases: keys }))
    }

    fn of_cluster(
        &self,
        cluster: &ClusterId,
        state: LeaseState,
        system: Option<&System>,
    ) -> Vec<Lease> {
        let of = |lease: &&Lease| {
            lease.state == state
                && (state != LeaseState::Allocated || systems(lease) == 1)
                && lease.members.iter().any(|member| {
                    let identity = &member.holder.identity;
                    identity.cluster.as_ref() == Some(cluster)
                        && system.is_none_or(|system| identity.system == *system)
                })
        };
        self.leases.iter().filter(of).cloned().collect()
    }

    pub fn orphan(&mut self, cluster: &ClusterId, system: Option<&System>, most: usize) -> Plan {
        let mut leases = self.of_cluster(cluster, LeaseState::Allocated, system);
        let more = leases.len() > most;
        leases.truncate(most);
        if leases.iter().any(|lease| self.locked(lease.key)) {
            return Err(Stop::Busy);
        }
        let mut flight = Flight::default();
        for lease in &mut leases {
            lease.state = LeaseState::Orphaned;
            let who = owner(lease);
            flight.put(lease, Action::Orphaned, who);
        }
        Ok((
            flight,
            Answer::Moved {
                leases: leases.len(),
                more,
            },
        ))
    }

    pub fn forget(&mut self, cluster: &ClusterId, most: usize, now: Timestamp) -> Plan {
        self.clusters_busy()?;
        let mut owned = self.of_cluster(cluster, LeaseState::Orphaned, None);
        let kept = self.leases.iter().filter(|lease| {
            matches!(lease.state, LeaseState::Reserved | LeaseState::Probing)
                && lease
                    .members
                    .iter()
                    .all(|member| of(&member.holder, cluster))
        });
        owned.extend(kept.cloned());
        if self
            .of_cluster(cluster, LeaseState::Allocated, None)
            .is_empty()
        {
            let shared = self.leases.iter().filter(|lease| {
                lease.state == LeaseState::Allocated
                    && lease
                        .members
                        .iter()
                        .any(|member| of(&member.holder, cluster))
            });
            owned.extend(shared.cloned());
        }
        let mut all = self.leases.clone();
        all.retain(|lease| owned.contains(lease) || contends(lease, cluster));
        let leases: Vec<Lease> = all.iter().take(most).cloned().collect();
        let freed = leases.iter().filter(|lease| owned.contains(lease)).count();
        let count: usize = self
            .leases
            .iter()
            .map(|lease| systems_of(lease, cluster))
            .sum();
        let expected =
            |name: &fipd_core::Text| self.expectations.iter().any(|e| e.cluster == *name);
        let unexpected = self
            .clusters
            .iter()
            .any(|record| record.id == *cluster && !record.names.iter().any(expected));
        if leases.is_empty() && (count > 0 || !unexpected) {
            return Err(Stop::Refused(Refusal::UnknownCluster(cluster.to_string())));
        }
        if leases.iter().any(|lease| self.locked(lease.key)) {
            return Err(Stop::Busy);
        }
        let more = all.len() > leases.len();
        let gone = leases.iter().filter(|lease| owned.contains(lease));
        let gone: usize = gone.map(|lease| systems_of(lease, cluster)).sum();
        let last = !more && count == gone;
        let mut flight = Flight {
            clusters: true,
            cluster_leaves: (!more).then(|| cluster.clone()),
            ..Flight::default()
        };
        for lease in &leases {
            let mut rest = lease.clone();
            rest.contenders
                .retain(|contender| !of(&contender.holder, cluster));
            for contender in &lease.contenders {
                if of(&contender.holder, cluster) {
                    let who = Some(contender.holder.identity.clone());
                    let address = Some(lease.key.address);
                    flight.audit.push((Action::ContenderLeft, address, who));
                }
            }
            let others = rest
                .members
                .iter()
                .filter(|member| !of(&member.holder, cluster));
            if owned.contains(lease) && others.count() > 0 {
                for member in &lease.members {
                    if of(&member.holder, cluster) {
                        let who = Some(member.holder.identity.clone());
                        let address = Some(lease.key.address);
                        flight.audit.push((Action::Forgotten, address, who));
                    }
                }
                rest.members.retain(|member| !of(&member.holder, cluster));
                flight.keys.push(rest.prefix());
                flight.ops.push(Op::PutLease(Arc::new(rest)));
            } else if owned.contains(lease) {
                self.vacate(&mut flight, &rest, (Action::Forgotten, false), now)?;
            } else {
                flight.keys.push(rest.prefix());
                flight.ops.push(Op::PutLease(Arc::new(rest)));
            }
        }
        let mut markers = self.adoptions.clone();
        markers.sort();
        for marker in markers {
            let members = leases.iter().flat_map(|lease| &lease.members);
            let contenders = leases.iter().flat_map(|lease| &lease.contenders);
            let mut gone = members
                .map(|member| &member.holder)
                .chain(contenders.map(|contender| &contender.holder))
                .filter(|holder| of(holder, cluster));
            let systems = gone.any(|holder| holder.identity.system == marker.system);
            if marker.cluster == cluster.0 && (systems || last) {
                flight.ops.push(delete_marker(marker));
            }
        }
        let by_name = self.skipped_by_name(cluster);
        flight.ops.extend(by_name.into_iter().map(delete_marker));
        if leases.is_empty() {
            flight.say(Action::Forgotten);
        }
        if unexpected && last {
            flight.ops.push(Op::DeleteCluster(cluster.clone()));
        }
        let answer = Answer::Moved {
            leases: freed,
            more,
        };
        Ok((flight, answer))
    }
}

impl Model {
    pub fn expire(&mut self, most: usize, now: Timestamp) -> Plan {
        let mut over: Vec<Lease> = self.leases.clone();
        over.retain(|lease| lease.until.is_some_and(|until| until <= now));
        over.sort_by_key(|lease| (lease.until, lease.key));
        let more = over.len() > most;
        over.truncate(most);
        if over.iter().any(|lease| self.locked(lease.key)) {
            return Err(Stop::Busy);
        }
        let mut flight = Flight::default();
        for lease in &over {
            self.vacate(&mut flight, lease, (Action::Expired, false), now)?;
        }
        let leases = over.len();
        Ok((flight, Answer::Moved { leases, more }))
    }

    /// `own`: by the word of who had it.
    pub fn vacate(
        &self,
        flight: &mut Flight,
        lease: &Lease,
        (action, own): (Action, bool),
        now: Timestamp,
    ) -> Result<(), Stop> {
        let all = lease.contenders.iter().position(|one| one.uses.is_empty());
        if let Some(at) = all {
            let mut contenders = lease.contenders.clone();
            let next = contenders.remove(at);
            let mut passed = new_lease(lease.prefix(), lease.pool, &next.holder, &next.tenant, now);
            passed.contenders = contenders;
            let who = Some(next.holder.identity.clone());
            flight.put(&passed, Action::PassedOn, who);
            return Ok(());
        }
        let pool = lease.pool.and_then(|id| self.pool(id));
        let seconds = pool.map_or(0, |pool| pool.spec.quarantine);
        let used = matches!(lease.state, LeaseState::Allocated | LeaseState::Orphaned);
        if used && seconds > 0 {
            let mut cooling = lease.clone();
            cooling.state = LeaseState::Quarantined;
            cooling.members.clear();
            cooling.group = None;
            cooling.labels = Default::default();
            cooling.since = now;
            cooling.until = Some(Timestamp(now.0 + 1_000 * u64::from(seconds)));
            flight.put(&cooling, action, owner(lease));
        } else if !lease.contenders.is_empty() {
            return self.pass_parts(flight, lease, action, now);
        } else {
            flight.keys.push(lease.prefix());
            flight.ops.push(Op::DeleteLease(lease.key));
            let address = Some(lease.key.address);
            flight.audit.push((action, address, owner(lease)));
        }
        self.remember(flight, lease, own, now)
    }
}

/// A lease of another length has some of it.
pub fn overlap(prefix: LeasePrefix, lease: &Lease) -> Refusal {
    Refusal::PrefixTaken {
        prefix: prefix.net(),
        held: lease.prefix().net(),
        owner: String::new(),
    }
}

/// What reserving does to a lease that the identity has: nothing unless it is reserved.
fn keep_on(lease: &mut Lease, holder: &Holder, until: Option<Timestamp>) -> bool {
    let before = lease.clone();
    if lease.state == LeaseState::Reserved {
        lease.until = until;
        for member in &mut lease.members {
            if member.holder.identity == holder.identity {
                member.holder.instance = holder.instance.clone();
            }
        }
    }
    *lease != before
}

fn of(holder: &Holder, cluster: &ClusterId) -> bool {
    holder.identity.cluster.as_ref() == Some(cluster)
}

fn contends(lease: &Lease, cluster: &ClusterId) -> bool {
    let mut contenders = lease.contenders.iter();
    contenders.any(|contender| of(&contender.holder, cluster))
}

/// Named addresses first, then each want the lowest in use of what is left, then the lowest.
fn distribute(asked: &mut [Asked], held: &mut Vec<Lease>) {
    let (mut in_use, others): (Vec<Lease>, Vec<Lease>) = held
        .drain(..)
        .partition(|lease| lease.state == LeaseState::Allocated);
    in_use.extend(others);
    *held = in_use;
    for want in asked.iter_mut() {
        let Some(key) = want.key else { continue };
        let named = |lease: &Lease| match want.selection {
            None => {
                let around = around(&want.pool.spec, key.address);
                lease.key == key && lease.length == around.length
            }
            Some(_) => lease.key.address == key.address && want.answered_by(lease),
        };
        if let Some(at) = held.iter().position(named) {
            want.have.push(held.remove(at));
            want.missing = 0;
        }
    }
    for want in asked.iter_mut().filter(|want| want.key.is_none()) {
        while want.missing > 0 {
            let Some(at) = held.iter().position(|lease| want.answered_by(lease)) else {
                break;
            };
            want.have.push(held.remove(at));
            want.missing -= 1;
        }
    }
    for want in asked {
        let Some(selection) = &want.selection else {
            continue;
        };
        let address = want.key.map(|key| key.address);
        while want.missing > 0 {
            let like = |lease: &Lease| is_like(lease, selection, address);
            let Some(at) = held.iter().position(like) else {
                break;
            };
            want.have.push(held.remove(at));
            want.missing -= 1;
        }
    }
}

/// Whether the lease could answer the selection if its pool were there for everybody.
fn is_like(lease: &Lease, selection: &Selection, address: Option<IpAddr>) -> bool {
    lease.pool.is_some()
        && Family::of(lease.key.address) == selection.family
        && lease.length == selection.length.unwrap_or(selection.family.bits())
        && selection.network.is_none_or(|id| id == lease.key.network)
        && address.is_none_or(|address| address == lease.key.address)
}

pub fn answers(lease: &Lease, pool: &Pool) -> bool {
    let here = prefix::fits(lease, &pool.spec) && assignable(&pool.spec, lease.key.address);
    lease.key.network == pool.spec.network && (lease.pool == Some(pool.id) || here)
}

/// Whether anything changed, and whether the lease was not in use before.
fn renew(lease: &mut Lease, holder: &Holder, found: bool) -> (bool, bool) {
    let idle = matches!(lease.state, LeaseState::Reserved | LeaseState::Orphaned)
        || (found && lease.state == LeaseState::Probing);
    let mut changed = idle;
    if idle {
        lease.state = LeaseState::Allocated;
        lease.until = None;
    }
    for member in &mut lease.members {
        if member.holder.identity == holder.identity && member.holder.instance != holder.instance {
            member.holder.instance = holder.instance.clone();
            changed = true;
        }
    }
    (changed, idle)
}

/// The lease of an object of ours that shows what foreign objects of its cluster hold; these contend unless they are that object.
fn over_foreign(lease: &Lease, ask: &Adopt, now: Timestamp) -> Option<Lease> {
    let asks = &ask.holder.identity;
    let foreign = System::foreign();
    let mut all = lease.members.iter().map(|member| &member.holder);
    let there = |one: &Holder| {
        let of = &one.identity;
        of.system == foreign && of.cluster.is_some() && of.cluster == asks.cluster
    };
    if asks.system == foreign || lease.members.is_empty() || !all.all(there) {
        return None;
    }
    let mut next = new_lease(lease.prefix(), lease.pool, &ask.holder, &ask.tenant, now);
    next.contenders = lease.contenders.clone();
    for member in &lease.members {
        let of = &member.holder.identity;
        next.contenders.retain(|one| one.holder.identity != *of);
        if (&of.kind, &of.namespace, &of.name) != (&asks.kind, &asks.namespace, &asks.name) {
            next.contenders.push(Contender {
                holder: member.holder.clone(),
                tenant: lease.tenant.clone(),
                since: lease.since,
                uses: Vec::new(),
            });
        }
    }
    next.contenders.retain(|one| one.holder.identity != *asks);
    next.contenders.sort_by_key(|one| one.since);
    Some(next)
}

/// How many systems of the cluster share the lease.
fn systems_of(lease: &Lease, cluster: &ClusterId) -> usize {
    let members = lease.members.iter().map(|member| &member.holder.identity);
    let mut systems: Vec<_> = members
        .filter(|identity| identity.cluster.as_ref() == Some(cluster))
        .map(|identity| &identity.system)
        .collect();
    systems.sort();
    systems.dedup();
    systems.len()
}

/// How many pairs of cluster and system share the lease.
fn systems(lease: &Lease) -> usize {
    let members = lease.members.iter().map(|member| &member.holder.identity);
    let mut pairs: Vec<_> = members
        .map(|identity| (&identity.cluster, &identity.system))
        .collect();
    pairs.sort();
    pairs.dedup();
    pairs.len()
}
