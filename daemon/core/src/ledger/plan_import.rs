//! Rows from outside, decided together.
//!
//! They are tried one after the other on a copy of the ledger, so that a row may stand on the ones before it and a row
//! that is refused leaves nothing behind. That costs the memory of a second ledger for a moment; it is an admin's
//! request. It waits until no other decision is in flight, so that one copy is enough.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Ledger,
    intern::fingerprint,
    plan::{Draft, Draw, Stop},
    tentative::Table,
};
use crate::{
    Action, Actor, Answer, Family, Identity, Import, ImportRow, ImportedLease, ImportedPool, Lease,
    LeaseKey, LeaseState, Network, Op, Pool, PoolEdit, PoolId, PoolSpec, Quota, Refusal, RowFate,
    Text, Timestamp,
};

/// The rows so far.
struct Trial<'a> {
    /// As it is after them.
    ledger: Ledger,
    draft: Draft,
    /// Addresses that were free.
    fresh: Vec<LeaseKey>,
    networks: bool,
    actor: &'a Actor,
    now: Timestamp,
}

impl Ledger {
    pub(super) fn plan_import(&mut self, ask: &Import, now: Timestamp) -> Draw {
        if ask.rows.len() > Import::MAX_ROWS {
            let allowed = format!("up to {} rows at once", Import::MAX_ROWS);
            return Err(invalid("rows", ask.rows.len(), &allowed));
        }
        // Nothing may be in the way later: the copy is made once.
        if self.tentative.any() {
            return Err(Stop::Busy);
        }
        let mut trial = Trial {
            ledger: self.clone(),
            draft: Draft::new(now, &ask.actor),
            fresh: Vec::new(),
            networks: false,
            actor: &ask.actor,
            now,
        };
        let mut rows = Vec::with_capacity(ask.rows.len());
        for row in &ask.rows {
            rows.push(match trial.row(row) {
                Ok(fate) => fate,
                Err(Stop::Answer(_)) => RowFate::Same,
                Err(Stop::Refused(refusal)) => RowFate::Refused(refusal),
                Err(Stop::Busy) => return Err(Stop::Busy),
            });
        }
        let refused = rows.iter().any(|fate| matches!(fate, RowFate::Refused(_)));
        let written = !ask.dry_run && !refused;
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
        draft.flight.table = Some(Table::Pools);
        draft.flight.also = networks.then_some(Table::Networks);
        for key in fresh {
            self.free.take(key);
            draft.flight.taken.push(key);
        }
        Ok((draft, answer))
    }
}

impl Trial<'_> {
    /// How far beyond the others the number of an imported pool may be: one file must not use up the numbers.
    const GAP: u32 = 1_000_000;

    fn row(&mut self, row: &ImportRow) -> Result<RowFate, Stop> {
        match row {
            ImportRow::Network(name) => {
                let (draft, _) = self.ledger.plan_network(name, self.actor, self.now)?;
                self.networks = true;
                self.absorb(draft);
                Ok(RowFate::Created)
            }
            ImportRow::Separation(one, other) => {
                let pair = (self.network_named(one)?.id, self.network_named(other)?.id);
                let (draft, _) = (self.ledger).plan_separate(pair, true, self.actor, self.now)?;
                self.absorb(draft);
                Ok(RowFate::Created)
            }
            ImportRow::Pool(row) => self.pool(row),
            ImportRow::Quota {
                pool,
                tenant,
                limit,
            } => {
                let quota = Quota {
                    pool: self.pool_named(pool)?.id,
                    tenant: tenant.clone(),
                    limit: *limit,
                };
                let known = self.ledger.quota(quota.pool, tenant).is_some();
                let (draft, _) = self.ledger.plan_set_quota(&quota, self.actor, self.now)?;
                self.absorb(draft);
                Ok(made(known))
            }
            ImportRow::Lease(row) => self.lease(row),
        }
    }

    /// Takes a finished draft over and applies it to the copy.
    fn absorb(&mut self, draft: Draft) {
        for op in &draft.flight.ops {
            self.ledger.apply(op);
        }
        self.draft.flight.ops.extend(draft.flight.ops);
        self.draft.flight.keys.extend(draft.flight.keys);
        self.draft.flight.edits.extend(draft.flight.edits);
        self.draft.audit.extend(draft.audit);
    }

    fn pool(&mut self, row: &ImportedPool) -> Result<RowFate, Stop> {
        let named = row.network.clone();
        let network = self.network_named(&named.unwrap_or_else(|| "default".into()))?;
        let known = self.ledger.rows.pool_by_name(&row.spec.name).cloned();
        // A row that names the network which the pool has chooses none.
        let stays = known.as_ref().map(|pool| &pool.spec);
        let stays = stays.filter(|spec| spec.network == network.id);
        let silent = stays.map_or(row.network.is_none(), |spec| spec.network_by_default);
        let spec = PoolSpec {
            network: network.id,
            network_by_default: row.network_by_default.unwrap_or(silent),
            ..row.spec.clone()
        };
        let Some(known) = known else {
            let drawn = self.ledger.plan_create_pool(&spec, self.actor, self.now)?;
            let draft = self.as_it_was(drawn.0, row);
            self.absorb(draft);
            return Ok(RowFate::Created);
        };
        let edit = PoolEdit {
            pool: known.id,
            spec,
            if_generation: None,
            force: false,
            actor: Arc::clone(self.actor),
            reason: Text::default(),
        };
        let (draft, _) = self.ledger.plan_update_pool(&edit, self.now)?;
        self.absorb(draft);
        Ok(RowFate::Changed)
    }

    /// Gives a new pool the number, time and generation that it had elsewhere. The number stays where leases found
    /// before say it, or where it may have been another pool's.
    fn as_it_was(&self, mut draft: Draft, row: &ImportedPool) -> Draft {
        let attached = |op: &Op| matches!(op, Op::PutLease(_));
        let next = self.ledger.rows.next_pool.0;
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

    fn lease(&mut self, row: &ImportedLease) -> Result<RowFate, Stop> {
        let network = self.network_named(&row.network)?.id;
        let key = LeaseKey {
            network,
            address: row.lease.key.address.to_canonical(),
        };
        let pool = match &row.pool {
            None => self.ledger.pool_around(key),
            Some(name) => {
                let pool = self.pool_named(name)?;
                let family = Some(Family::of(key.address));
                if pool.spec.network != network || pool.spec.family() != family {
                    let allowed = format!("a pool of network {} and this family", row.network);
                    return Err(invalid("pool", name, &allowed));
                }
                Some(pool.id)
            }
        };
        let known = self.ledger.rows.leases.get(&key);
        let since = known.map(|known| known.since);
        let mut lease = Lease {
            key,
            pool,
            since: row.since.or(since).unwrap_or(self.now),
            ..row.lease.clone()
        };
        if let Some(known) = known {
            fill(&mut lease, known);
        }
        sound(&lease)?;
        self.ledger.settled(std::iter::once(key))?;
        let prints: Vec<u64> = super::identities(&lease).map(fingerprint).collect();
        if prints
            .iter()
            .any(|print| self.ledger.tentative.locks_identity(*print))
        {
            return Err(Stop::Busy);
        }
        let known = self.ledger.rows.leases.get(&key);
        if known.is_some_and(|known| **known == lease) {
            return Ok(RowFate::Same);
        }
        let owner = |lease: &Lease| lease.owner().map(|holder| holder.identity.clone());
        let fate = made(known.is_some());
        match known.map(|known| owner(known)) {
            Some(Some(holds)) if owner(&lease).as_ref() != Some(&holds) => {
                return Err(Refusal::AddressTaken {
                    address: key.address,
                    owner: holds.to_string(),
                }
                .into());
            }
            Some(_) => {}
            None => self.fresh.push(key),
        }
        if let Some(lost) = known.and_then(|known| left_out(&lease, known)) {
            let allowed = "every owner and contender of the lease; release first who is to go";
            return Err(invalid("members", lost, allowed));
        }
        let lease = Arc::new(lease);
        self.draft.put(&lease, Action::Imported, Text::default());
        self.draft.flight.identities.extend(prints);
        self.ledger.apply(&Op::PutLease(lease));
        Ok(fate)
    }

    fn network_named(&self, name: &Text) -> Result<Network, Stop> {
        let network = self.ledger.rows.network_by_name(name);
        let allowed = "the name of a network, there or in a row before this one";
        network
            .cloned()
            .ok_or_else(|| invalid("network", name, allowed))
    }

    fn pool_named(&self, name: &Text) -> Result<Arc<Pool>, Stop> {
        let pool = self.ledger.rows.pool_by_name(name);
        let allowed = "the full name of a pool, there or in a row before this one";
        pool.cloned().ok_or_else(|| invalid("pool", name, allowed))
    }
}

fn made(known: bool) -> RowFate {
    if known {
        RowFate::Changed
    } else {
        RowFate::Created
    }
}

/// What the row does not say of its owners stays.
fn fill(lease: &mut Lease, known: &Lease) {
    for member in &mut lease.members {
        let mut before = known.members.iter();
        if let Some(before) = before.find(|before| before.holder.identity == member.holder.identity)
        {
            if member.holder.instance.is_empty() {
                member.holder = before.holder.clone();
            }
            if member.ports.is_empty() {
                member.ports.clone_from(&before.ports);
            }
        }
    }
    for contender in &mut lease.contenders {
        let mut before = known.contenders.iter();
        if let Some(before) =
            before.find(|before| before.holder.identity == contender.holder.identity)
        {
            contender.tenant = contender.tenant.take().or_else(|| before.tenant.clone());
        }
    }
    lease.tenant = lease.tenant.take().or_else(|| known.tenant.clone());
    lease.group = lease.group.take().or_else(|| known.group.clone());
    if lease.labels.is_empty() && !lease.members.is_empty() {
        lease.labels.clone_from(&known.labels);
    }
}

/// Who uses the address and is not in the row.
fn left_out<'a>(lease: &Lease, known: &'a Lease) -> Option<&'a Identity> {
    super::identities(known).find(|one| !super::identities(lease).any(|named| named == *one))
}

/// What [`Lease`] promises of itself.
fn sound(lease: &Lease) -> Result<(), Stop> {
    let cools = lease.state == LeaseState::Quarantined;
    if cools != lease.members.is_empty() {
        let allowed = "at least one, and none while the address cools";
        return Err(invalid("members", lease.members.len(), allowed));
    }
    if lease.group.is_none() && lease.members.len() > 1 {
        let allowed = "one without a sharing group";
        return Err(invalid("members", lease.members.len(), allowed));
    }
    if lease.members.len() > Lease::MAX_MEMBERS {
        let allowed = format!("at most {}", Lease::MAX_MEMBERS);
        return Err(invalid("members", lease.members.len(), &allowed));
    }
    lease
        .check_labels()
        .map_err(|(value, allowed)| invalid("labels", value, &allowed))?;
    let mut ports = BTreeSet::new();
    let mut claims = lease.members.iter().flat_map(|member| &member.ports);
    if let Some(twice) = claims.find(|claim| !ports.insert(**claim)) {
        return Err(invalid("ports", twice, "each port for one member"));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = super::identities(lease).find(|identity| !seen.insert(*identity)) {
        let allowed = "each owner once, as member or contender";
        return Err(invalid("owner", twice, allowed));
    }
    if !lease
        .contenders
        .is_sorted_by_key(|contender| contender.since)
    {
        let allowed = "the oldest first";
        return Err(invalid("contenders", "out of order", allowed));
    }
    let (fine, allowed) = match lease.state {
        LeaseState::Quarantined | LeaseState::Probing => (lease.until.is_some(), "a time"),
        LeaseState::Reserved => (true, "a time or nothing"),
        LeaseState::Allocated | LeaseState::Orphaned => {
            (lease.until.is_none(), "nothing in this state")
        }
    };
    if fine {
        return Ok(());
    }
    let until = lease.until.map_or_else(String::new, |at| at.to_string());
    Err(invalid("until", until, allowed))
}

fn invalid(field: &'static str, value: impl ToString, allowed: &str) -> Stop {
    Refusal::Invalid {
        field,
        value: value.to_string(),
        allowed: allowed.to_owned(),
    }
    .into()
}
