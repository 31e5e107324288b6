//! Rows from outside, decided together.
//!
//! They are tried one after the other on a small ledger that is brought what each of them is about, so that a row may
//! stand on the ones before it and a row that is refused leaves nothing behind. What that costs follows from the rows
//! and not from how many leases there are. An import waits until no other decision is in flight, so that none of what
//! it was brought changes meanwhile.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    Actor, Answer, Import, ImportRow, ImportedPool, LeaseKey, LeasePrefix, Network, Op, Pool,
    PoolEdit, PoolId, PoolSpec, Quota, Refusal, RowFate, Span, Tenant, Text, Timestamp,
    layout::Layout,
    ledger::{
        Ledger,
        draft::{Draft, Draw, LockedTable, Stop},
        index::charges::{Charge, Charges},
        keyset::KeySet,
    },
};

/// Rows tried beside a ledger: what would become of them if they were imported.
///
/// It may be asked for some rows at a time, each time with the ledger as it is then.
pub struct Trial {
    /// What of the ledger the rows so far are about, as it is after them. Nothing is in flight in it.
    pub(super) small: Ledger,
    /// What the leases in it counted for when they were brought.
    brought: Charges,
    /// Known pools that a row has changed.
    edited: BTreeSet<PoolId>,
    pub(super) draft: Draft,
    /// Addresses that were free.
    pub(super) fresh: Vec<LeasePrefix>,
    networks: bool,
    pub(super) force: bool,
}

impl Ledger {
    pub(super) fn plan_import(&mut self, ask: &Import, now: Timestamp) -> Draw {
        if ask.rows.len() > Import::MAX_ROWS {
            let allowed = format!("up to {} rows at once", Import::MAX_ROWS);
            return Err(invalid("rows", ask.rows.len(), &allowed));
        }
        // The rows are held against no lock.
        Stop::busy_if(!self.drafts.is_empty())?;
        let mut trial = Trial::new(&ask.actor, ask.force, now);
        let rows = trial.rows(self, &ask.rows);
        let written = !rows.iter().any(|fate| matches!(fate, RowFate::Refused(_)));
        let answer = Answer::Imported { rows, written };
        if !written {
            return Err(Stop::Answer(answer));
        }
        let Trial {
            mut draft,
            fresh,
            networks,
            ..
        } = trial;
        // The pools that the rows name must stay until it is durable.
        draft.flight.table = Some(LockedTable::Pools);
        draft.flight.also = networks.then_some(LockedTable::Networks);
        for prefix in fresh {
            self.free.take(prefix);
            draft.flight.taken.push(prefix.key);
        }
        Ok((draft, answer))
    }
}

impl Trial {
    /// How far beyond the others the number of an imported pool may be: one file must not use up the numbers.
    const GAP: u32 = 1_000_000;

    /// `force`: quotas may be exceeded.
    pub fn new(actor: &Actor, force: bool, now: Timestamp) -> Self {
        Self {
            small: Ledger::new(),
            brought: Charges::default(),
            edited: BTreeSet::new(),
            draft: Draft::new(now, actor),
            fresh: Vec::new(),
            networks: false,
            force,
        }
    }

    /// A draft of a row beside that of the import.
    fn begin(&self) -> Draft {
        Draft::new(self.draft.now, &self.draft.actor)
    }

    /// What becomes of the next rows.
    pub fn rows(&mut self, ledger: &Ledger, rows: &[ImportRow]) -> Vec<RowFate> {
        let fate = |row| match self.row(ledger, row) {
            Ok(fate) => fate,
            Err(Stop::Refused(refusal)) => RowFate::Refused(refusal),
            // Nothing is in flight here that a row could wait for.
            Err(Stop::Answer(_) | Stop::Busy) => RowFate::Same,
        };
        rows.iter().map(fate).collect()
    }

    fn row(&mut self, ledger: &Ledger, row: &ImportRow) -> Result<RowFate, Stop> {
        match row {
            ImportRow::Network(name) => self.network(ledger, name),
            ImportRow::Separation(one, other) => self.separation(ledger, (one, other)),
            ImportRow::Pool(row) => self.pool(ledger, row),
            ImportRow::Quota {
                pool,
                tenant,
                limit,
            } => self.quota(ledger, pool, tenant, *limit),
            ImportRow::Lease(row) => self.lease(ledger, row),
        }
    }

    fn network(&mut self, ledger: &Ledger, name: &Text) -> Result<RowFate, Stop> {
        // Its number follows the last one.
        let last = ledger.rows.networks.last_key_value();
        let known = ledger.rows.network_by_name(name);
        if let Some(network) = known.or(last.map(|last| last.1)) {
            self.bring_network(network);
        }
        let (draft, _) = self.small.plan_network(name, self.begin())?;
        self.networks = true;
        self.absorb(draft);
        Ok(RowFate::Created)
    }

    fn separation(&mut self, ledger: &Ledger, two: (&Text, &Text)) -> Result<RowFate, Stop> {
        let one = self.network_named(ledger, two.0)?.id;
        let other = self.network_named(ledger, two.1)?.id;
        if ledger.separated(one, other) {
            return Ok(RowFate::Same);
        }
        let (draft, _) = (self.small).plan_separate((one, other), true, self.begin())?;
        self.absorb(draft);
        Ok(RowFate::Created)
    }

    fn quota(
        &mut self,
        ledger: &Ledger,
        pool: &Text,
        tenant: &Tenant,
        limit: u64,
    ) -> Result<RowFate, Stop> {
        let pool = self.pool_named(ledger, pool)?;
        self.bring_pool(&pool);
        let quota = |limit| Quota {
            pool: pool.id,
            tenant: tenant.clone(),
            limit,
        };
        let known = self.limit(ledger, &(pool.id, tenant.clone()));
        if let Some(limit) = known {
            self.small.put_quota(&quota(limit));
        }
        let (draft, _) = (self.small).plan_set_quota(&quota(limit), self.begin())?;
        self.absorb(draft);
        Ok(made(known.is_some()))
    }

    /// Takes a finished draft over and applies it.
    fn absorb(&mut self, draft: Draft) {
        for op in &draft.flight.ops {
            self.small.apply(op);
        }
        self.draft.flight.ops.extend(draft.flight.ops);
        self.draft.flight.keys.extend(draft.flight.keys);
        self.draft.flight.edits.extend(draft.flight.edits);
        self.draft.audit.extend(draft.audit);
    }

    fn pool(&mut self, ledger: &Ledger, row: &ImportedPool) -> Result<RowFate, Stop> {
        let named = row.network.clone();
        let network = self.network_named(ledger, &named.unwrap_or_else(|| "default".into()))?;
        let known = self.known_pool(ledger, &row.spec.name);
        // A row that names the network which the pool has chooses none.
        let stays = known.as_ref().map(|pool| &pool.spec);
        let stays = stays.filter(|spec| spec.network == network.id);
        let silent = stays.map_or(row.network.is_none(), |spec| spec.network_by_default);
        let spec = PoolSpec {
            network: network.id,
            network_by_default: row.network_by_default.unwrap_or(silent),
            ..row.spec.clone()
        };
        if known.as_ref().is_some_and(|known| known.spec == spec) {
            return Ok(RowFate::Same);
        }
        self.bring_around(ledger, known.as_ref(), &spec);
        let Some(known) = known else {
            let drawn = self.small.plan_create_pool(&spec, self.begin())?;
            let draft = self.as_it_was(drawn.0, row);
            self.absorb(draft);
            return Ok(RowFate::Created);
        };
        let edit = PoolEdit {
            pool: known.id,
            spec,
            if_generation: None,
            force: false,
            actor: Arc::clone(&self.draft.actor),
            reason: Text::default(),
        };
        let (draft, _) = self.small.edit_pool(&edit, self.begin())?;
        self.absorb(draft);
        Ok(RowFate::Changed)
    }

    /// Gives a new pool the number, time and generation that it had elsewhere. The number stays where leases found
    /// before say it, or where it may have been another pool's.
    fn as_it_was(&self, mut draft: Draft, row: &ImportedPool) -> Draft {
        let attached = |op: &Op| matches!(op, Op::PutLease(_));
        let next = self.small.rows.next_pool.0;
        let may_choose = !draft.flight.ops.iter().any(attached);
        let id = row
            .id
            .filter(|id| may_choose && (next..next.saturating_add(Self::GAP)).contains(&id.0));
        for op in &mut draft.flight.ops {
            if let Op::PutPool(pool) = &mut *op {
                *pool = Arc::new(Pool {
                    id: id.unwrap_or(pool.id),
                    spec: pool.spec.clone(),
                    created: row.created.unwrap_or(pool.created),
                    generation: row.generation.unwrap_or(pool.generation),
                });
            } else if let (Op::PutNextPool(next), Some(id)) = (op, id) {
                *next = PoolId(id.0 + 1);
            }
        }
        for entry in &mut draft.audit {
            entry.pool = id.or(entry.pool);
        }
        draft
    }

    pub(super) fn network_named(&mut self, ledger: &Ledger, name: &Text) -> Result<Network, Stop> {
        let known = self.small.rows.network_by_name(name);
        let network = known.or_else(|| ledger.rows.network_by_name(name)).cloned();
        let allowed = "the name of a network, there or in a row before this one";
        let network = network.ok_or_else(|| invalid("network", name, allowed))?;
        self.bring_network(&network);
        Ok(network)
    }

    pub(super) fn pool_named(&self, ledger: &Ledger, name: &Text) -> Result<Arc<Pool>, Stop> {
        let allowed = "the full name of a pool, there or in a row before this one";
        let pool = self.known_pool(ledger, name);
        pool.ok_or_else(|| invalid("pool", name, allowed))
    }

    fn known_pool(&self, ledger: &Ledger, name: &Text) -> Option<Arc<Pool>> {
        let known = self.small.rows.pool_by_name(name);
        known.or_else(|| ledger.rows.pool_by_name(name)).cloned()
    }

    fn limit(&self, ledger: &Ledger, charge: &Charge) -> Option<u64> {
        let known = self.small.rows.quotas.get(charge);
        known.or_else(|| ledger.rows.quotas.get(charge)).copied()
    }

    /// Refused where the lease counts for a tenant that has used up its quota, unless forced; whether that is so.
    pub(super) fn beyond_quota(&self, ledger: &Ledger, charge: Charge) -> Result<bool, Stop> {
        let pools = self.small.rows.pools.get(&charge.0);
        let pool = pools.or_else(|| ledger.rows.pools.get(&charge.0));
        let required = pool.is_some_and(|pool| pool.spec.quota_required);
        let limit = self.limit(ledger, &charge).or(required.then_some(0));
        let Some(limit) = limit else {
            return Ok(false);
        };
        let weight = pool.map_or(1, |pool| pool.spec.quota_weight());
        let there = ledger.index.charges.of(&charge);
        let used = there + self.small.index.charges.of(&charge);
        let used = used
            .saturating_sub(self.brought.of(&charge))
            .saturating_mul(weight);
        let beyond = u128::from(used) + u128::from(weight) > limit.into();
        if !beyond || self.force {
            return Ok(beyond);
        }
        let refusal = Refusal::QuotaExceeded {
            pool: pool.map_or_else(Text::default, |pool| Arc::clone(&pool.spec.name)),
            tenant: charge.1,
            used,
            limit,
        };
        Err(refusal.into())
    }

    fn bring_network(&mut self, network: &Network) {
        if !self.small.rows.networks.contains_key(&network.id) {
            self.small.rows.put_network(network.clone());
        }
    }

    fn bring_pool(&mut self, pool: &Arc<Pool>) {
        if !self.small.rows.pools.contains_key(&pool.id) {
            self.small.put_pool(Arc::clone(pool));
        }
    }

    pub(super) fn bring_lease(&mut self, ledger: &Ledger, key: LeaseKey) {
        if self.small.rows.leases.contains_key(&key) {
            return;
        }
        if let Some(lease) = ledger.rows.leases.get(&key) {
            self.brought.add(lease);
            self.small.put_lease(Arc::clone(lease));
        }
    }

    fn bring_leases(&mut self, ledger: &Ledger, keys: impl IntoIterator<Item = LeaseKey>) {
        for key in keys {
            self.bring_lease(ledger, key);
        }
    }

    /// What it takes to make the pool, or to change the known one.
    fn bring_around(&mut self, ledger: &Ledger, known: Option<&Arc<Pool>>, spec: &PoolSpec) {
        let next = ledger.rows.next_pool;
        self.small.rows.next_pool = self.small.rows.next_pool.max(next);
        if let Some(mirror) = ledger.rows.mirror_of(&spec.origin) {
            self.bring_pool(mirror);
        }
        if let Some(known) = known {
            self.bring_pool(known);
        }
        let Ok(layout) = Layout::new(spec) else {
            return;
        };
        for span in &layout.listed {
            let range = LeaseKey::within(spec.network, *span);
            let found = &ledger.index.poolless;
            self.bring_leases(ledger, found.within(*range.start(), *range.end()));
        }
        if let Some(known) = known {
            let gone = self.small.leaving(known, spec, &layout);
            self.bring_held(ledger, known, &gone);
        }
    }

    /// The leases of a known pool that leave it with the spans. A pool that is changed twice needs all.
    fn bring_held(&mut self, ledger: &Ledger, pool: &Pool, gone: &[Span]) {
        let mine = ledger.index.of_pool(pool.id);
        if !self.edited.insert(pool.id) {
            return self.bring_leases(ledger, mine.into_iter().flat_map(KeySet::iter));
        }
        // Whether it has any; a lease that is here already may be another pool's by now.
        let here = |key: &LeaseKey| self.small.rows.leases.contains_key(key);
        let any = mine.and_then(|keys| keys.iter().find(|key| !here(key)));
        self.bring_leases(ledger, any);
        for span in gone {
            let range = ledger
                .rows
                .leases
                .range(LeaseKey::within(pool.spec.network, *span));
            let held = range.filter(|(_, lease)| lease.pool == Some(pool.id));
            self.bring_leases(ledger, held.map(|(key, _)| *key));
        }
        let memory = ledger.free.memory();
        let pasts = memory.of_pool(pool.id);
        for past in pasts.filter_map(|(_, key)| memory.get(key)) {
            self.small.free.remember(Arc::clone(past));
        }
    }
}

pub(super) fn made(known: bool) -> RowFate {
    if known {
        RowFate::Changed
    } else {
        RowFate::Created
    }
}

pub(super) fn invalid(field: &'static str, value: impl ToString, allowed: &str) -> Stop {
    Refusal::invalid(field, value, allowed).into()
}
