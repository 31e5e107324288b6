//! Networks and pools.
//!
//! Making or editing a pool costs as much as its specification has entries and as there are leases on addresses
//! that come or go, and the first pool of an allocation length as much as its network has leases; it is an
//! admin's request. Leases without a pool on addresses that the pool now lists are attributed to it in the same
//! decision, under the pool's own audit entry: each of them is a row, nothing about who holds it changes.

use std::sync::Arc;

use crate::{
    Action, Answer, Lease, LeaseKey, LeasePrefix, LeaseState, Network, NetworkId, Op, Origin, Pool,
    PoolEdit, PoolId, PoolSpec, Refusal, Span, Text,
    layout::{Layout, minus},
    ledger::{
        Ledger,
        draft::{Draft, Draw, LockedTable, Stop},
        keyset::KeySet,
    },
};

impl Ledger {
    pub(super) fn plan_network(&self, name: &Text, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Networks, &mut draft)?;
        if let Some(network) = self.rows.network_by_name(name) {
            return Err(Stop::Answer(Answer::Network(network.clone())));
        }
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let fine = (1..=63).contains(&name.len())
            && name.chars().all(|c| edge(c) || c == '-')
            && name.starts_with(edge)
            && name.ends_with(edge);
        if !fine {
            let allowed = "1 to 63 of a-z, 0-9 and '-', starting and ending with a letter or digit";
            return Err(Refusal::invalid("network", name, allowed).into());
        }
        let last = self.rows.networks.last_key_value();
        let last = last.map_or(0, |(id, _)| id.0);
        let network = Network {
            id: NetworkId(last.saturating_add(1)),
            name: Arc::clone(name),
            hold: None,
        };
        draft.flight.ops.push(Op::PutNetwork(network.clone()));
        let entry = draft.say(Action::NetworkCreated, Arc::clone(name));
        entry.network = Some(network.id);
        Ok((draft, Answer::Network(network)))
    }

    pub(super) fn plan_create_pool(&self, spec: &PoolSpec, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Pools, &mut draft)?;
        if let Some(pool) = self.rows.pool_by_name(&spec.name) {
            return Err(if pool.spec == *spec {
                Stop::Answer(Answer::Pool(Arc::clone(pool)))
            } else {
                Refusal::PoolExists(Arc::clone(&spec.name)).into()
            });
        }
        let layout = self.check_spec(spec, None)?;
        let id = self.rows.next_pool;
        if id.0 == u32::MAX {
            return Err(Refusal::NoPoolNumber.into());
        }
        let pool = Arc::new(Pool {
            id,
            spec: spec.clone(),
            created: draft.now,
            generation: 1,
        });
        let next = PoolId(id.0.saturating_add(1));
        draft.flight.ops.push(Op::PutNextPool(next));
        self.write_pool(draft, pool, &layout, &[], Action::PoolCreated)
    }

    pub(super) fn plan_update_pool(&self, edit: &PoolEdit, draft: Draft) -> Draw {
        let pool = self.rows.pools.get(&edit.pool);
        let leaves = |pool: &&Arc<Pool>| pool.spec.network != edit.spec.network;
        let planned = self.edit_pool(edit, draft)?;
        if let Some(pool) = pool.filter(leaves) {
            self.check_unused(pool)?;
        }
        Ok(planned)
    }

    /// The same for an import, which says where every lease of the pool goes.
    pub(super) fn edit_pool(&self, edit: &PoolEdit, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Pools, &mut draft)?;
        let pool = self.known_pool(edit.pool)?;
        let stale = |expected: &u64| *expected != pool.generation;
        if let Some(expected) = edit.if_generation.filter(stale) {
            return Err(Refusal::Stale {
                pool: Arc::clone(&pool.spec.name),
                expected,
                actual: pool.generation,
            }
            .into());
        }
        if pool.spec == edit.spec {
            return Err(Stop::Answer(Answer::Pool(Arc::clone(pool))));
        }
        let layout = self.check_spec(&edit.spec, Some(pool))?;
        let gone = self.leaving(pool, &edit.spec, &layout);
        if !edit.force {
            self.check_leaving(pool, &gone)?;
        }
        let next = Pool {
            spec: edit.spec.clone(),
            generation: pool.generation.saturating_add(1),
            ..Pool::clone(pool)
        };
        let next = Arc::new(next);
        let written = self.write_pool(draft, next, &layout, &gone, Action::PoolUpdated);
        let (mut draft, answer) = written?;
        if let Some(entry) = draft.audit.last_mut().filter(|_| !edit.reason.is_empty()) {
            entry.detail = format!("{}: {}", entry.detail, edit.reason).into();
        }
        Ok((draft, answer))
    }

    pub(super) fn plan_delete_pool(&self, id: PoolId, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Pools, &mut draft)?;
        let pool = self.known_pool(id)?;
        let keys = self.index.of_pool(id);
        let leases = keys.map_or(0, KeySet::len) as u64 - self.index.cooling.count(id);
        if leases > 0 {
            return Err(Refusal::PoolInUse {
                pool: Arc::clone(&pool.spec.name),
                leases,
            }
            .into());
        }
        self.settled(keys.into_iter().flat_map(KeySet::iter))?;
        self.unlocked_spans(pool.spec.network, self.listed(id))?;
        let quotas = self.without_quotas(id)?;
        draft.flight.edits.push(pool.spec.network);
        draft.flight.ops.extend(quotas);
        // Nobody has what cools: it goes on cooling where another pool may give it or somebody uses it, else its row goes with
        // the pool.
        for key in keys.into_iter().flat_map(KeySet::iter) {
            draft.flight.keys.push(key);
            let cooling = self.rows.leases.get(&key);
            let around =
                cooling.and_then(|cooling| self.pool_around_but(cooling.prefix(), Some(id)));
            let stays = |lease: &&Arc<Lease>| around.is_some() || !lease.contenders.is_empty();
            let op = match cooling.filter(stays) {
                Some(cooling) => {
                    let (pool, lease) = (around, Lease::clone(cooling));
                    Op::PutLease(Arc::new(Lease { pool, ..lease }))
                }
                None => Op::DeleteLease(key),
            };
            draft.flight.ops.push(op);
        }
        let pasts = self.free.memory().of_pool(id);
        let forgets = pasts.map(|(_, key)| Op::DeletePast(key));
        draft.flight.ops.extend(forgets);
        draft.flight.ops.push(Op::DeletePool(id));
        draft.say_pool(Action::PoolDeleted, pool, Arc::clone(&pool.spec.name));
        Ok((draft, Answer::Done))
    }

    /// Everything about a specification that the ledger can judge. `before` is the pool being edited.
    pub(super) fn check_spec(
        &self,
        spec: &PoolSpec,
        before: Option<&Arc<Pool>>,
    ) -> Result<Layout, Refusal> {
        let layout = Layout::new(spec)?;
        self.check_network(spec.network)?;
        let other = |pool: &&Arc<Pool>| before.is_none_or(|before| before.id != pool.id);
        if self.rows.pool_by_name(&spec.name).filter(other).is_some() {
            return Err(Refusal::PoolExists(Arc::clone(&spec.name)));
        }
        if let Some(mirror) = self.rows.mirror_of(&spec.origin).filter(other) {
            return Err(Refusal::PoolExists(Arc::clone(&mirror.spec.name)));
        }
        let Some(before) = before else {
            return Ok(layout);
        };
        if matches!(before.spec.origin, Origin::Own) != matches!(spec.origin, Origin::Own) {
            let allowed = "that of the pool: own pools and mirrors stay what they are";
            return Err(Refusal::invalid("origin", &spec.name, allowed));
        }
        if before.spec.allocation_length != spec.allocation_length {
            let text =
                |length: Option<u8>| length.map_or_else(|| "none".into(), |it| it.to_string());
            let allowed = format!(
                "{}, which a pool keeps; make another pool for other lengths",
                text(before.spec.allocation_length)
            );
            let value = text(spec.allocation_length);
            return Err(Refusal::invalid("allocation_length", value, allowed));
        }
        if self.index.of_pool(before.id).is_some() {
            if before.spec.network != spec.network {
                let allowed = "the pool's network while it has leases; `fipd pool move-network` takes them along";
                return Err(Refusal::invalid("network", spec.network.0, allowed));
            }
            if before.spec.family() != spec.family() {
                let allowed =
                    "addresses of the pool's family while it has leases; release them first";
                let first = spec.addresses.first().map(ToString::to_string);
                return Err(Refusal::invalid(
                    "addresses",
                    first.unwrap_or_default(),
                    allowed,
                ));
            }
        }
        Ok(layout)
    }

    /// Whether a pool may leave its network without its leases: nothing is known or still to be learned of its addresses there.
    /// A lease on them may be counted to another pool that lists the address too.
    fn check_unused(&self, pool: &Pool) -> Result<(), Refusal> {
        let network = pool.spec.network;
        self.check_adopted(network)?;
        self.check_restored(network)?;
        let mut spans = self.listed(pool.id).iter();
        let used = spans.find_map(|span| self.lease_in(network, *span));
        match used.map(|lease| lease.key) {
            None => Ok(()),
            Some(key) => {
                let allowed = format!(
                    "the pool's network while {} is in use there by a pool with the same addresses; release it first",
                    key.address
                );
                Err(Refusal::invalid("network", &pool.spec.name, allowed))
            }
        }
    }

    /// Assignable spans of the pool that a new layout does not have; all that it lists, if it goes to another network
    /// or family, for no lease may follow it there.
    pub(super) fn leaving(&self, pool: &Pool, spec: &PoolSpec, layout: &Layout) -> Vec<Span> {
        let before = self.free.room(pool.id).map(|room| &room.layout);
        before.map_or_else(Vec::new, |before| {
            if before.family == layout.family && pool.spec.network == spec.network {
                let had = [before.assignable.as_slice(), &before.withheld].concat();
                minus(&had, &layout.assignable)
            } else {
                before.listed.clone()
            }
        })
    }

    fn check_leaving(&self, pool: &Pool, gone: &[Span]) -> Result<(), Stop> {
        let mine = |(key, _): &(&LeaseKey, &Arc<Lease>)| {
            self.rows.leases.get(key).is_some_and(|lease| {
                lease.pool == Some(pool.id) && lease.state != LeaseState::Quarantined
            })
        };
        let leases = gone.iter().flat_map(|span| {
            self.rows
                .leases
                .range(LeaseKey::within(pool.spec.network, *span))
        });
        let (mut count, mut sample) = (0, Vec::<LeasePrefix>::new());
        for (_, lease) in leases.filter(mine) {
            count += 1;
            if sample.len() < 5 {
                sample.push(lease.prefix());
            }
        }
        if count == 0 {
            return Ok(());
        }
        Err(Refusal::WouldOrphan {
            pool: Arc::clone(&pool.spec.name),
            count,
            sample,
        }
        .into())
    }

    /// Finishes a draft that makes or edits `pool`. Decisions in flight about addresses that come or go end first.
    fn write_pool(
        &self,
        mut draft: Draft,
        pool: Arc<Pool>,
        layout: &Layout,
        gone: &[Span],
        action: Action,
    ) -> Draw {
        let network = pool.spec.network;
        let before = self.rows.pools.get(&pool.id);
        let old = before
            .and_then(|before| Some((before.spec.network, &self.free.room(before.id)?.layout)));
        let come = match old {
            Some((old_network, old)) if old_network == network && old.family == layout.family => {
                minus(&layout.listed, &old.listed)
            }
            Some(_) | None => layout.listed.clone(),
        };
        let from = before.map_or(network, |before| before.spec.network);
        self.unlocked_spans(from, gone)?;
        self.unlocked_spans(network, &come)?;
        if let Some((before, (_, old))) = before
            .zip(old)
            .filter(|(pool, _)| pool.spec.remembers() > 0)
        {
            self.unlocked_spans(from, &old.listed)?;
            let forgets = self.forget_by_edit(before, &pool.spec, layout);
            draft.flight.ops.extend(forgets);
        }
        draft.flight.edits.push(network);
        if from != network {
            draft.flight.edits.push(from);
        }
        draft.flight.ops.push(Op::PutPool(Arc::clone(&pool)));
        let detail = match self.attach(&mut draft, &pool, &come) {
            0 => Arc::clone(&pool.spec.name),
            attached => format!("{}, with {attached} leases found before", pool.spec.name).into(),
        };
        draft.say_pool(action, &pool, detail);
        Ok((draft, Answer::Pool(pool)))
    }

    /// What the pool lists.
    pub(super) fn listed(&self, pool: PoolId) -> &[Span] {
        let room = self.free.room(pool);
        room.map_or(&[], |room| &room.layout.listed)
    }

    /// Gives the pool the leases without a pool that its network has on the spans; how many.
    pub(super) fn attach(&self, draft: &mut Draft, pool: &Pool, spans: &[Span]) -> usize {
        let mut attached = 0;
        let known = |span: &Span| {
            let range = LeaseKey::within(pool.spec.network, *span);
            self.index.poolless.within(*range.start(), *range.end())
        };
        for key in spans.iter().flat_map(known) {
            if let Some(lease) = self.rows.leases.get(&key) {
                if lease.length != pool.spec.lease_length() {
                    continue;
                }
                let lease = Lease {
                    pool: Some(pool.id),
                    ..Lease::clone(lease)
                };
                draft.write(Arc::new(lease));
                attached += 1;
            }
        }
        attached
    }

    /// Busy if a decision in flight is about an address of one of the spans.
    pub(super) fn unlocked_spans(&self, network: NetworkId, spans: &[Span]) -> Result<(), Stop> {
        if self.drafts.is_empty() {
            return Ok(());
        }
        for span in spans {
            let first = LeaseKey::within(network, *span).into_inner().0;
            let around = self.lease_around(first).map(|lease| lease.key);
            Stop::busy_if(
                self.free.takes_in(network, *span)
                    || self.drafts.locks_in(LeaseKey::within(network, *span))
                    || around.is_some_and(|key| self.drafts.locks(key)),
            )?;
        }
        Ok(())
    }
}
