//! Quotas of the model.

use fipd_core::{
    Action, Allocate, Answer, Lease, LeaseState, Op, PoolId, Quota, QuotaUnit, Refusal, Tenancy,
    Tenant,
};

use super::{Flight, Model, Plan, Stop, prefix};

type Charge = (PoolId, Tenant);

/// Which pool and tenant the lease counts for.
fn charge(lease: &Lease) -> Option<Charge> {
    match (lease.state, lease.pool, &lease.tenant) {
        (LeaseState::Quarantined, _, _) | (_, None, _) | (_, _, None) => None,
        (_, Some(pool), Some(tenant)) => Some((pool, tenant.clone())),
    }
}

fn changes(flight: &Flight, charge: &Charge) -> bool {
    flight.ops.iter().any(|op| match op {
        Op::PutQuota(quota) => (quota.pool, &quota.tenant) == (charge.0, &charge.1),
        Op::DeleteQuota { pool, tenant } => (*pool, tenant) == (charge.0, &charge.1),
        _ => false,
    })
}

impl Model {
    /// How much of a quota one lease of the pool is.
    fn weight(&self, pool: PoolId) -> u64 {
        let Some(pool) = self.pool(pool) else {
            return 1;
        };
        let spec = &pool.spec;
        let spare = spec.addresses[0].family().bits() - prefix::length(spec);
        match spec.quota_unit {
            QuotaUnit::Lease => 1,
            QuotaUnit::Address => (0..spare).fold(1, |all, _| all * 2),
        }
    }

    pub fn used(&self, pool: PoolId, tenant: &Tenant) -> u64 {
        let wanted = Some((pool, tenant.clone()));
        let mine = self.leases.iter().filter(|lease| charge(lease) == wanted);
        mine.count() as u64 * self.weight(pool)
    }

    /// What decisions in flight add.
    fn ahead(&self, pool: PoolId, tenant: &Tenant) -> u64 {
        let wanted = Some((pool, tenant.clone()));
        let ops = self.flights.iter().flat_map(|flight| &flight.ops);
        let adds = |op: &&Op| match op {
            Op::PutLease(lease) => {
                let before = self.lease(lease.key).and_then(charge);
                charge(lease) == wanted && before != wanted
            }
            _ => false,
        };
        ops.filter(adds).count() as u64 * self.weight(pool)
    }

    pub fn limit(&self, pool: PoolId, tenant: &Tenant) -> Option<u64> {
        self.quotas
            .iter()
            .find(|quota| quota.pool == pool && quota.tenant == *tenant)
            .map(|quota| quota.limit)
    }

    /// What the tenant may have; `None`: any number.
    fn most(&self, pool: PoolId, tenant: &Tenant) -> Option<u64> {
        let required = self.pool(pool).is_some_and(|pool| pool.spec.quota_required);
        self.limit(pool, tenant).or(required.then_some(0))
    }

    /// A lease that changes must not count beyond the quota of whom it counts for then, unless forced.
    pub fn one_more(&self, before: Option<&Lease>, after: &Lease, force: bool) -> Result<(), Stop> {
        let counted = before.and_then(charge);
        let Some(new) = charge(after).filter(|new| counted.as_ref() != Some(new)) else {
            return Ok(());
        };
        if self.flights.iter().any(|flight| changes(flight, &new)) {
            return Err(Stop::Busy);
        }
        let (pool, tenant) = new;
        let Some(limit) = self.most(pool, &tenant).filter(|_| !force) else {
            return Ok(());
        };
        let used = self.used(pool, &tenant);
        let more = self.weight(pool);
        if used + more > limit {
            return Err(Stop::Refused(Refusal::QuotaExceeded {
                pool: self.pool(pool).expect("it has a lease").spec.name.clone(),
                tenant,
                used,
                limit,
            }));
        }
        if used + self.ahead(pool, &tenant) + more > limit {
            return Err(Stop::Busy);
        }
        Ok(())
    }

    /// `needs`: what is asked of each pool, in the order of the wants.
    pub fn within_quota(&mut self, needs: &[(PoolId, u64)], ask: &Allocate) -> Result<(), Stop> {
        let Some(tenant) = &ask.tenant else {
            return Ok(());
        };
        for (pool, _) in needs {
            let charge = (*pool, tenant.clone());
            if self.flights.iter().any(|flight| changes(flight, &charge)) {
                return Err(Stop::Busy);
            }
        }
        let mut busy = false;
        for (pool, need) in needs {
            let Some(limit) = self.most(*pool, tenant) else {
                continue;
            };
            let used = self.used(*pool, tenant);
            let need = need * self.weight(*pool);
            if used + need > limit {
                let refusal = Refusal::QuotaExceeded {
                    tenant: tenant.clone(),
                    pool: self.pool(*pool).expect("checked before").spec.name.clone(),
                    used,
                    limit,
                };
                let identity = &ask.holder.identity;
                self.waiters.retain(|waiter| {
                    waiter.identity != *identity
                        || !needs.iter().any(|(pool, _)| *pool == waiter.pool)
                });
                return Err(Stop::Refused(refusal));
            }
            busy |= used + self.ahead(*pool, tenant) + need > limit;
        }
        if busy { Err(Stop::Busy) } else { Ok(()) }
    }

    fn quota_busy(&self, charge: &Charge) -> Result<(), Stop> {
        let of = |flight: &Flight| flight.locks_pools() || changes(flight, charge);
        if self.flights.iter().any(of) {
            Err(Stop::Busy)
        } else {
            Ok(())
        }
    }

    pub fn set_quota(&mut self, quota: &Quota) -> Plan {
        self.quota_busy(&(quota.pool, quota.tenant.clone()))?;
        if self.pool(quota.pool).is_none() {
            return Err(Stop::Refused(Refusal::UnknownPool(quota.pool)));
        }
        if self.quotas.contains(quota) {
            return Err(Stop::Answer(Answer::Done));
        }
        let mut flight = Flight::default();
        flight.ops.push(Op::PutQuota(quota.clone()));
        flight.say(Action::QuotaSet);
        Ok((flight, Answer::Done))
    }

    pub fn delete_quota(&mut self, pool: PoolId, tenant: &Tenant) -> Plan {
        self.quota_busy(&(pool, tenant.clone()))?;
        if self.limit(pool, tenant).is_none() {
            return Err(Stop::Answer(Answer::Done));
        }
        let mut flight = Flight::default();
        let tenant = tenant.clone();
        flight.ops.push(Op::DeleteQuota { pool, tenant });
        flight.say(Action::QuotaDeleted);
        Ok((flight, Answer::Done))
    }

    /// What deletes the pool's quotas with it.
    pub fn without_quotas(&self, pool: PoolId) -> Result<Vec<Op>, Stop> {
        let of_pool = |op: &Op| match op {
            Op::PutQuota(quota) => quota.pool == pool,
            Op::DeleteQuota { pool: of, .. } => *of == pool,
            _ => false,
        };
        if self
            .flights
            .iter()
            .any(|flight| flight.ops.iter().any(of_pool))
        {
            return Err(Stop::Busy);
        }
        let quotas = self.quotas.iter().filter(|quota| quota.pool == pool);
        Ok(quotas
            .map(|quota| Op::DeleteQuota {
                pool,
                tenant: quota.tenant.clone(),
            })
            .collect())
    }

    /// Who holds something of a pool, or has a quota in it.
    pub fn tenancies(&self) -> Vec<Tenancy> {
        let mut keys: Vec<Charge> = self.leases.iter().filter_map(charge).collect();
        keys.extend(
            self.quotas
                .iter()
                .map(|quota| (quota.pool, quota.tenant.clone())),
        );
        keys.sort();
        keys.dedup();
        let tenancy = |(pool, tenant): Charge| Tenancy {
            pool,
            used: self.used(pool, &tenant),
            limit: self.most(pool, &tenant),
            tenant,
        };
        keys.into_iter().map(tenancy).collect()
    }

    /// How much more each quota allows; below 0 where it is exceeded.
    pub fn room(&self) -> Vec<(Charge, i64)> {
        let room = |quota: &Quota| {
            let used = self.used(quota.pool, &quota.tenant);
            let charge = (quota.pool, quota.tenant.clone());
            (charge, quota.limit as i64 - used as i64)
        };
        self.quotas.iter().map(room).collect()
    }
}
