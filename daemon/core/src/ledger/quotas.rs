//! Quotas: decided and counted.
//!
//! What a decision in flight adds for a tenant that has a quota is counted ahead, so that requests planned beside
//! each other cannot exceed it together. Without a quota nothing is counted ahead; a quota that becomes one while
//! decisions are in flight counts them then.

use std::{ops::Bound, sync::Arc};

use super::{
    Change, Ledger,
    charges::{Charge, Charges, TenantPools, charge},
    plan::{Draft, Draw, Stop},
    tentative::{InFlight, Table},
    violation::Violation,
};
use crate::{
    Action, Actor, Answer, Holder, Lease, LeaseKey, Op, Pool, PoolId, Quota, Refusal, Tenant, Text,
    Timestamp,
};

/// A pool, how many addresses it is to give, and its name.
pub(super) type Need<'a> = (PoolId, u128, &'a Pool);

impl Ledger {
    pub(super) fn plan_set_quota(&self, quota: &Quota, actor: &Actor, now: Timestamp) -> Draw {
        let key = (quota.pool, quota.tenant.clone());
        self.unlocked_quota(&key)?;
        let length = quota.tenant.0.len();
        if !(1..=Quota::MAX_TENANT).contains(&length) {
            return Err(Refusal::Invalid {
                field: "tenant",
                value: quota.tenant.0.to_string(),
                allowed: format!("1 to {} bytes", Quota::MAX_TENANT),
            }
            .into());
        }
        let pool = self.rows.pools.get(&quota.pool);
        let pool = pool.ok_or(Refusal::UnknownPool(quota.pool))?;
        if self.rows.quotas.get(&key) == Some(&quota.limit) {
            return Err(Stop::Answer(Answer::Done));
        }
        let detail = format!("{}: {}", quota.tenant.0, quota.limit);
        let op = Op::PutQuota(quota.clone());
        Ok(decided(
            op,
            Action::QuotaSet,
            pool,
            detail.into(),
            actor,
            now,
        ))
    }

    pub(super) fn plan_delete_quota(
        &self,
        pool: PoolId,
        tenant: &Tenant,
        actor: &Actor,
        now: Timestamp,
    ) -> Draw {
        let key = (pool, tenant.clone());
        self.unlocked_quota(&key)?;
        let known = self.rows.pools.get(&pool);
        let Some(known) = known.filter(|_| self.rows.quotas.contains_key(&key)) else {
            return Err(Stop::Answer(Answer::Done));
        };
        let op = Op::DeleteQuota {
            pool,
            tenant: tenant.clone(),
        };
        let detail = Text::clone(&tenant.0);
        Ok(decided(op, Action::QuotaDeleted, known, detail, actor, now))
    }

    /// Busy while the quota or any pool is being changed.
    fn unlocked_quota(&self, key: &Charge) -> Result<(), Stop> {
        self.unlocked(Table::Pools)?;
        if self.tentative.locks_quota(key) {
            return Err(Stop::Busy);
        }
        Ok(())
    }

    /// What deletes the quotas of a pool with the pool; busy while one of them is being changed.
    pub(super) fn without_quotas(&self, pool: PoolId) -> Result<Vec<Op>, Stop> {
        if self.tentative.locks_quota_of(pool) {
            return Err(Stop::Busy);
        }
        let first = first_of(pool);
        let keys = self.quotas_after(Bound::Included(&first));
        Ok(keys
            .map_while(|((of, tenant), _)| (*of == pool).then(|| tenant.clone()))
            .map(|tenant| Op::DeleteQuota { pool, tenant })
            .collect())
    }

    /// Whether the tenant may have so much more. Busy where only decisions in flight are in the way. Who is refused
    /// keeps no place in the pools' queues: it would wait there for what it may not have.
    pub(super) fn check_quota(
        &mut self,
        needs: &[Need<'_>],
        tenant: &Tenant,
        holder: &Holder,
    ) -> Result<(), Stop> {
        let keys = || needs.iter().map(|(pool, ..)| (*pool, tenant.clone()));
        if keys().any(|key| self.tentative.locks_quota(&key)) {
            return Err(Stop::Busy);
        }
        let mut busy = false;
        for ((_, need, pool), key) in needs.iter().zip(keys()) {
            let Some(limit) = self.limit_in(pool, &key) else {
                continue;
            };
            let used = self.index.charges().of(&key);
            let after = u128::from(used) + need;
            if after > limit.into() {
                self.give_up_places(needs, holder);
                return Err(Refusal::QuotaExceeded {
                    tenant: tenant.clone(),
                    pool: Text::clone(&pool.spec.name),
                    used,
                    limit,
                }
                .into());
            }
            busy |= after + u128::from(self.tentative.charges.of(&key)) > limit.into();
        }
        if busy { Err(Stop::Busy) } else { Ok(()) }
    }

    /// Whether a lease that changes counts for a tenant beyond its quota then: refused unless `force`.
    pub(super) fn beyond_quota(
        &self,
        before: &Lease,
        after: &Lease,
        force: bool,
    ) -> Result<bool, Stop> {
        let new = charge(after).filter(|new| charge(before).as_ref() != Some(new));
        let Some(new) = new else {
            return Ok(false);
        };
        if self.tentative.locks_quota(&new) {
            return Err(Stop::Busy);
        }
        let Some(limit) = self.limit_of(&new) else {
            return Ok(false);
        };
        let used = self.index.charges().of(&new);
        if used >= limit && !force {
            let name = |pool: &Arc<Pool>| Text::clone(&pool.spec.name);
            return Err(Refusal::QuotaExceeded {
                pool: self.rows.pools.get(&new.0).map_or_else(|| "".into(), name),
                tenant: new.1,
                used,
                limit,
            }
            .into());
        }
        let beyond = used.saturating_add(self.tentative.charges.of(&new)) >= limit;
        match beyond {
            true if !force => Err(Stop::Busy),
            _ => Ok(beyond),
        }
    }

    /// Those behind may be served next.
    fn give_up_places(&mut self, needs: &[Need<'_>], holder: &Holder) {
        let left = |pool: &PoolId| self.waiters.leave(*pool, &holder.identity).is_some();
        let pools = needs.iter().map(|(id, ..)| *id).filter(left).collect();
        self.moved_up(pools);
    }

    /// Whether there is any quota, or one may come of a decision in flight.
    pub(super) fn has_quotas(&self) -> bool {
        !self.rows.quotas.is_empty() || !self.tentative.leaves_quotas()
    }

    /// The most that the tenant may have; `None`: any number.
    pub(super) fn limit_of(&self, key: &Charge) -> Option<u64> {
        let pool = self.rows.pools.get(&key.0);
        pool.and_then(|pool| self.limit_in(pool, key))
    }

    fn limit_in(&self, pool: &Pool, key: &Charge) -> Option<u64> {
        let limit = self.rows.quotas.get(key).copied();
        limit.or_else(|| without_quota(pool))
    }

    /// What the decision adds for tenants with a quota. The same from its start to its end: the leases are locked.
    fn added(&self, flight: &InFlight) -> Vec<Charge> {
        if self.rows.quotas.is_empty() {
            return Vec::new();
        }
        let new = |op: &Op| {
            let Op::PutLease(lease) = op else { return None };
            let new = charge(lease).filter(|new| self.rows.quotas.contains_key(new))?;
            (self.charge_at(lease.key).as_ref() != Some(&new)).then_some(new)
        };
        flight.ops.iter().filter_map(new).collect()
    }

    fn charge_at(&self, key: LeaseKey) -> Option<Charge> {
        self.rows.leases.get(&key).and_then(|lease| charge(lease))
    }

    /// A decision goes in flight.
    pub(super) fn count_ahead(&mut self, flight: &InFlight) {
        for charge in self.added(flight) {
            self.tentative.charges.count(charge, 1);
        }
    }

    /// A decision is in flight no more; nothing of it is in the rows yet.
    pub(super) fn uncount_ahead(&mut self, flight: &InFlight) {
        if self.tentative.charges.is_empty() {
            return;
        }
        for charge in self.added(flight) {
            self.tentative.charges.uncount(&charge);
        }
    }

    pub(super) fn put_quota(&mut self, quota: &Quota) {
        let key = (quota.pool, quota.tenant.clone());
        self.rows.quota_tenants.put(&key);
        let known = self.rows.quotas.insert(key.clone(), quota.limit);
        if known.is_none() {
            let flights = self.tentative.flights();
            let added = flights.flat_map(|flight| self.added(flight));
            let ahead = added.filter(|added| *added == key).count();
            self.tentative.charges.count(key, ahead as u64);
        }
    }

    pub(super) fn drop_quota(&mut self, pool: PoolId, tenant: &Tenant) {
        let key = (pool, tenant.clone());
        self.rows.quotas.remove(&key);
        self.rows.quota_tenants.remove(&key);
        self.tentative.charges.forget(&key);
    }

    /// Notes the tenants that may be given more once `op` is applied.
    pub(super) fn note_room(&self, op: &Op, change: &mut Change) {
        if let Op::PutQuota(Quota {
            pool,
            tenant,
            limit,
        }) = op
        {
            change.pools.push(*pool);
            let known = self.limit_of(&(*pool, tenant.clone()));
            if known.is_some_and(|known| known < *limit) {
                change.tenants.push(tenant.clone());
            }
        }
        if let Op::DeleteQuota { pool, tenant } = op {
            change.pools.push(*pool);
            change.tenants.push(tenant.clone());
        }
        if self.rows.quotas.is_empty() {
            return;
        }
        let (before, after) = if let Op::PutLease(lease) = op {
            (self.charge_at(lease.key), charge(lease))
        } else if let Op::DeleteLease(key) = op {
            (self.charge_at(*key), None)
        } else {
            return;
        };
        let freed = before
            .filter(|freed| after.as_ref() != Some(freed) && self.rows.quotas.contains_key(freed));
        change.tenants.extend(freed.map(|(_, tenant)| tenant));
    }

    /// Quotas name pools that there are.
    pub(super) fn check_quotas(&self, found: &mut Vec<Violation>) {
        let unknown = self
            .rows
            .quotas
            .keys()
            .filter(|(pool, _)| !self.rows.pools.contains_key(pool));
        found.extend(unknown.map(|(pool, tenant)| Violation::QuotaOfUnknownPool {
            pool: *pool,
            tenant: tenant.clone(),
        }));
    }

    /// Whether the counts say what the rows and the decisions in flight say.
    pub(super) fn charges_follow(&self) -> bool {
        let (mut used, mut ahead) = (Charges::default(), Charges::default());
        for lease in self.rows.leases.values() {
            used.add(lease);
        }
        let flights = self.tentative.flights();
        for charge in flights.flat_map(|flight| self.added(flight)) {
            ahead.count(charge, 1);
        }
        let quotas: TenantPools = self.rows.quotas.keys().collect();
        used == *self.index.charges()
            && ahead == self.tentative.charges
            && quotas == self.rows.quota_tenants
    }
}

/// The most that a tenant may have of the pool to whom no quota gives a number.
pub(super) fn without_quota(pool: &Pool) -> Option<u64> {
    pool.spec.quota_required.then_some(0)
}

/// Below all quotas of the pool.
pub(super) fn first_of(pool: PoolId) -> Charge {
    (pool, Tenant(Text::default()))
}

fn decided(
    op: Op,
    action: Action,
    pool: &Pool,
    detail: Text,
    actor: &Actor,
    now: Timestamp,
) -> (Draft, Answer) {
    let mut draft = Draft::new(now, actor);
    draft.flight.ops.push(op);
    draft.say(action, detail);
    if let Some(entry) = draft.audit.last_mut() {
        entry.network = Some(pool.spec.network);
        entry.pool = Some(pool.id);
    }
    (draft, Answer::Done)
}
