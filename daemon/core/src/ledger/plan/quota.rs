//! Quotas: set, deleted, heeded.

use std::{ops::Bound, sync::Arc};

use crate::{
    Action, Answer, Holder, Lease, Op, Pool, PoolId, Quota, Refusal, Tenant, Text,
    ledger::{
        Ledger,
        draft::{Draft, Draw, LockedTable, Stop},
        index::charges::{Charge, charge},
        quotas::first_of,
    },
};

/// A pool, how many addresses it is to give, and its name.
pub(super) type Need<'a> = (PoolId, u128, &'a Pool);

impl Ledger {
    pub(super) fn plan_set_quota(&self, quota: &Quota, mut draft: Draft) -> Draw {
        let key = (quota.pool, quota.tenant.clone());
        self.unlocked_quota(&key)?;
        let length = quota.tenant.0.len();
        if !(1..=Quota::MAX_TENANT).contains(&length) {
            let allowed = format!("1 to {} bytes", Quota::MAX_TENANT);
            return Err(Refusal::invalid("tenant", &quota.tenant.0, allowed).into());
        }
        let pool = self.known_pool(quota.pool)?;
        if self.rows.quotas.get(&key) == Some(&quota.limit) {
            return Err(Stop::Answer(Answer::Done));
        }
        let detail = format!("{}: {}", quota.tenant.0, quota.limit);
        draft.flight.ops.push(Op::PutQuota(quota.clone()));
        draft.say_pool(Action::QuotaSet, pool, detail.into());
        Ok((draft, Answer::Done))
    }

    pub(super) fn plan_delete_quota(
        &self,
        pool: PoolId,
        tenant: &Tenant,
        mut draft: Draft,
    ) -> Draw {
        let key = (pool, tenant.clone());
        self.unlocked_quota(&key)?;
        let known = self.rows.pools.get(&pool);
        let Some(known) = known.filter(|_| self.rows.quotas.contains_key(&key)) else {
            return Err(Stop::Answer(Answer::Done));
        };
        let (detail, tenant) = (Text::clone(&tenant.0), tenant.clone());
        draft.flight.ops.push(Op::DeleteQuota { pool, tenant });
        draft.say_pool(Action::QuotaDeleted, known, detail);
        Ok((draft, Answer::Done))
    }

    /// Busy while the quota or any pool is being changed.
    fn unlocked_quota(&self, key: &Charge) -> Result<(), Stop> {
        self.unlocked(LockedTable::Pools)?;
        Stop::busy_if(self.drafts.locks_quota(key))
    }

    /// What deletes the quotas of a pool with the pool; busy while one of them is being changed.
    pub(super) fn without_quotas(&self, pool: PoolId) -> Result<Vec<Op>, Stop> {
        Stop::busy_if(self.drafts.locks_quota_of(pool))?;
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
        Stop::busy_if(keys().any(|key| self.drafts.locks_quota(&key)))?;
        let mut busy = false;
        for ((_, need, pool), key) in needs.iter().zip(keys()) {
            let Some(limit) = self.limit_in(pool, &key) else {
                continue;
            };
            let weight = pool.spec.quota_weight();
            let used = self.index.charges.of(&key).saturating_mul(weight);
            let need = need.saturating_mul(weight.into());
            let after = u128::from(used).saturating_add(need);
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
            let ahead = self.drafts.charges.of(&key).saturating_mul(weight);
            busy |= after.saturating_add(ahead.into()) > limit.into();
        }
        Stop::busy_if(busy)
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
        Stop::busy_if(self.drafts.locks_quota(&new))?;
        let Some(limit) = self.limit_of(&new) else {
            return Ok(false);
        };
        let weight = self.weight_of(new.0);
        let used = self.charged(new.0, &new.1);
        let full = |used: u64| u128::from(used) + u128::from(weight) > limit.into();
        if full(used) && !force {
            let name = |pool: &Arc<Pool>| Text::clone(&pool.spec.name);
            return Err(Refusal::QuotaExceeded {
                pool: self.rows.pools.get(&new.0).map_or_else(|| "".into(), name),
                tenant: new.1,
                used,
                limit,
            }
            .into());
        }
        let ahead = self.drafts.charges.of(&new).saturating_mul(weight);
        let beyond = full(used.saturating_add(ahead));
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
}
