//! Imports of the model: each row on a copy that has the rows before it.

use std::sync::Arc;

use fipd_core::{
    Action, Answer, Family, Import, ImportRow, ImportedLease, ImportedPool, Lease, LeaseKey,
    LeasePrefix, LeaseState, NetworkId, Op, Pool, PoolEdit, PoolSpec, Quota, Refusal, RowFate,
    Text, Timestamp,
};

use super::{
    Flight, Model, Plan, Stop, contender,
    lease::overlap,
    owner,
    pool::{invalid, refused},
    prefix::{self, touch},
};

impl Model {
    pub fn import(&mut self, ask: &Import, now: Timestamp) -> Plan {
        if !self.flights.is_empty() {
            return Err(Stop::Busy);
        }
        let mut trial = self.clone();
        let mut whole = Flight {
            pools: true,
            ..Flight::default()
        };
        let mut rows = Vec::new();
        for row in &ask.rows {
            rows.push(match trial.import_row(row, ask.force, now) {
                Ok((flight, fate)) => {
                    for op in &flight.ops {
                        trial.apply(op.clone());
                    }
                    whole.ops.extend(flight.ops);
                    whole.audit.extend(flight.audit);
                    whole.keys.extend(flight.keys);
                    whole.taken.extend(flight.taken);
                    whole.gains.extend(flight.gains);
                    whole.edits.extend(flight.edits);
                    whole.networks |= flight.networks;
                    fate
                }
                Err(Stop::Answer(_)) => RowFate::Same,
                Err(Stop::Refused(refusal)) => RowFate::Refused(refusal),
                Err(Stop::Busy) => return Err(Stop::Busy),
            });
        }
        let bad = rows.iter().any(|row| matches!(row, RowFate::Refused(_)));
        let written = !bad;
        let answer = Answer::Imported { rows, written };
        if written {
            Ok((whole, answer))
        } else {
            Err(Stop::Answer(answer))
        }
    }

    fn import_row(
        &mut self,
        row: &ImportRow,
        force: bool,
        now: Timestamp,
    ) -> Result<(Flight, RowFate), Stop> {
        match row {
            ImportRow::Network(name) => Ok((self.create_network(name)?.0, RowFate::Created)),
            ImportRow::Separation(one, other) => {
                let mut pair = [NetworkId::DEFAULT; 2];
                for (id, name) in pair.iter_mut().zip([one, other]) {
                    let Some(known) = self.networks.iter().find(|known| known.name == *name) else {
                        return invalid("network");
                    };
                    *id = known.id;
                }
                Ok((self.separate(pair.into(), true)?.0, RowFate::Created))
            }
            ImportRow::Pool(row) => self.import_pool(row, now),
            ImportRow::Quota {
                pool,
                tenant,
                limit,
            } => {
                let pool = self.pool_called(pool)?.id;
                let fate = made(self.limit(pool, tenant).is_some());
                let (tenant, limit) = (tenant.clone(), *limit);
                let quota = Quota {
                    pool,
                    tenant,
                    limit,
                };
                Ok((self.set_quota(&quota)?.0, fate))
            }
            ImportRow::Lease(row) => self.import_lease(row, force, now),
        }
    }

    fn import_pool(
        &mut self,
        row: &ImportedPool,
        now: Timestamp,
    ) -> Result<(Flight, RowFate), Stop> {
        let name = row.network.clone().unwrap_or_else(|| "default".into());
        let Some(network) = self.networks.iter().find(|known| known.name == name) else {
            return invalid("network");
        };
        let mut spec = PoolSpec {
            network: network.id,
            network_by_default: row.network.is_none(),
            ..row.spec.clone()
        };
        let known = self.pool_called(&spec.name);
        if let Ok(known) = &known
            && known.spec.network == spec.network
        {
            spec.network_by_default = known.spec.network_by_default;
        }
        if let Some(by_default) = row.network_by_default {
            spec.network_by_default = by_default;
        }
        if let Ok(known) = known {
            let edit = PoolEdit {
                pool: known.id,
                spec,
                if_generation: None,
                force: false,
                actor: "".into(),
                reason: "".into(),
            };
            return Ok((self.edit_pool(&edit)?.0, RowFate::Changed));
        }
        let mut flight = self.create_pool(&spec, now)?.0;
        let attached = flight.ops.iter().any(|op| matches!(op, Op::PutLease(_)));
        let next = self.next_pool;
        let id = row.id.filter(|id| !attached && id.0 >= next);
        for op in &mut flight.ops {
            if let Op::PutPool(pool) = op {
                let mut known = Pool::clone(pool);
                known.id = id.unwrap_or(known.id);
                known.created = row.created.unwrap_or(known.created);
                known.generation = row.generation.unwrap_or(known.generation);
                *pool = Arc::new(known);
            } else if let Op::PutNextPool(next) = op {
                next.0 = id.map_or(next.0, |id| id.0 + 1);
            }
        }
        Ok((flight, RowFate::Created))
    }

    fn import_lease(
        &mut self,
        row: &ImportedLease,
        force: bool,
        now: Timestamp,
    ) -> Result<(Flight, RowFate), Stop> {
        let Some(network) = self.networks.iter().find(|known| known.name == row.network) else {
            return invalid("network");
        };
        let (network, address) = (network.id, row.lease.key.address);
        let key = LeaseKey { network, address };
        let length = row.lease.length;
        let whole = LeasePrefix { key, length };
        if !prefix::aligned(whole) {
            return invalid("address");
        }
        let pool = match &row.pool {
            None => self.pool_of(whole),
            Some(name) => {
                let pool = self.pool_called(name)?;
                let family = pool.spec.addresses[0].family();
                if pool.spec.network != network || family != Family::of(address) {
                    return invalid("pool");
                }
                if prefix::length(&pool.spec) != length {
                    return invalid("address");
                }
                Some(pool.id)
            }
        };
        if let Some(over) = self.lease_over(whole)
            && over.prefix() != whole
        {
            return refused(overlap(whole, over));
        }
        let mut lease = Lease {
            key,
            pool,
            since: match (row.since, self.lease(key)) {
                (Some(since), _) => since,
                (None, Some(known)) => known.since,
                (None, None) => now,
            },
            ..row.lease.clone()
        };
        for one in &lease.contenders {
            let uses = contender::uses(one, whole);
            let part = |used: &LeasePrefix| prefix::aligned(*used) && touch(*used, whole);
            if contender::said_uses(&uses, whole) != one.uses || !uses.iter().all(part) {
                return invalid("uses");
            }
        }
        if let Some(known) = self.lease(key) {
            fill(&mut lease, known);
        }
        if (lease.state == LeaseState::Quarantined) != lease.members.is_empty()
            || lease.members.len() > 1 && lease.group.is_none()
        {
            return invalid("members");
        }
        if lease.state == LeaseState::Quarantined && !lease.labels.is_empty() {
            return invalid("labels");
        }
        let ends = lease.until.is_some();
        let fine = match lease.state {
            LeaseState::Reserved => true,
            LeaseState::Quarantined | LeaseState::Probing => ends,
            LeaseState::Allocated | LeaseState::Orphaned => !ends,
        };
        if !fine {
            return invalid("until");
        }
        let members = lease.members.iter().map(|member| &member.holder);
        let others = lease.contenders.iter().map(|contender| &contender.holder);
        let named: Vec<_> = members.chain(others).map(|one| &one.identity).collect();
        self.settled(whole)?;
        if named.iter().any(|one| self.gains(one)) {
            return Err(Stop::Busy);
        }
        let known = self.lease(key);
        if known == Some(&lease) {
            return Err(Stop::Answer(Answer::Done));
        }
        if let Some(holds) = known.and_then(owner)
            && owner(&lease) != Some(holds)
        {
            return refused(Refusal::AddressTaken {
                address: lease.prefix(),
                owner: String::new(),
            });
        }
        let had = known.and_then(owner);
        if had.is_none() && (known.is_none() || owner(&lease).is_some()) {
            self.restored()?;
        }
        let new = |known: &Lease| {
            lease.members.iter().any(|member| {
                let holder = &member.holder.identity;
                let contends = known
                    .contenders
                    .iter()
                    .any(|one| one.holder.identity == *holder);
                let before = known
                    .members
                    .iter()
                    .find(|one| one.holder.identity == *holder);
                let ports = before.map(|one| one.ports.clone()).unwrap_or_default();
                (before.is_none() && !contends)
                    || (before.is_some() && member.ports.iter().any(|port| !ports.contains(port)))
            })
        };
        if had.is_some() && known.is_some_and(new) {
            self.restored()?;
        }
        let uses = |known: &Lease| {
            let mut all: Vec<_> = known.members.iter().map(|one| one.holder.clone()).collect();
            all.extend(known.contenders.iter().map(|one| one.holder.clone()));
            all
        };
        let mut before = known.map(uses).unwrap_or_default().into_iter();
        if before.any(|one| !named.contains(&&one.identity)) {
            return invalid("members");
        }
        self.one_more(known, &lease, force)?;
        let mut flight = Flight {
            gains: named.into_iter().cloned().collect(),
            ..Flight::default()
        };
        if known.is_none() {
            flight.taken.push(whole);
        }
        flight.put(&lease, Action::Imported, owner(&lease));
        let fate = made(known.is_some());
        Ok((flight, fate))
    }

    fn pool_called(&self, name: &Text) -> Result<Arc<Pool>, Stop> {
        let pool = self.pools.iter().find(|pool| pool.spec.name == *name);
        pool.map_or_else(|| invalid("pool"), |pool| Ok(Arc::clone(pool)))
    }
}

/// What the row leaves out.
fn fill(lease: &mut Lease, known: &Lease) {
    for member in &mut lease.members {
        for before in &known.members {
            if before.holder.identity == member.holder.identity {
                if member.holder.instance.is_empty() {
                    member.holder.instance = before.holder.instance.clone();
                }
                if member.ports.is_empty() {
                    member.ports = before.ports.clone();
                }
            }
        }
    }
    let whole = lease.prefix();
    for contender in &mut lease.contenders {
        for before in &known.contenders {
            if before.holder.identity == contender.holder.identity {
                if contender.tenant.is_none() {
                    contender.tenant = before.tenant.clone();
                }
                let mut all = contender::uses(before, whole);
                all.extend(contender::uses(contender, whole));
                contender.uses = contender::said_uses(&all, whole);
            }
        }
    }
    if lease.tenant.is_none() {
        lease.tenant = known.tenant.clone();
    }
    if lease.group.is_none() {
        lease.group = known.group.clone();
    }
    if lease.labels.is_empty() && lease.state != LeaseState::Quarantined {
        lease.labels = known.labels.clone();
    }
}

fn made(known: bool) -> RowFate {
    if known {
        RowFate::Changed
    } else {
        RowFate::Created
    }
}
