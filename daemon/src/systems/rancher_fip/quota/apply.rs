//! Brings the limits of a quota object into the address book, and its finalizer and status into the object.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{Lease, Ledger, Pool, PoolId, Quota, Request, Tenant, Text};
use fipd_crds::{
    floating_ip::{FloatingIPProjectQuota, UNASSIGNED},
    labels::QUOTA_CLEANUP,
};
use k8s_openapi::jiff;
use serde::de::IgnoredAny;

use super::{
    Quotas, observe,
    status::{self, MOST_ENTRIES, PoolShown},
    tenant, validate,
};
use crate::{
    controller::{
        Reconciled,
        conditions::{ConditionUpdate, INVALID, REFUSED},
        meta::View,
        queue::Next,
        store::Key,
    },
    systems::rancher_fip::{
        floating_ip::observe::Fip,
        names::{self, KIND_FLOATING_IP, KIND_SERVICE},
    },
};

/// What became of an object: its limits by pool with the names it has for them, and the verdict on it.
struct QuotaVerdict {
    limits: BTreeMap<PoolId, (String, u64)>,
    says: ConditionUpdate,
}

impl Quotas {
    /// Puts the limits of all objects into the address book and nothing else, for before anything is asked for.
    pub async fn limit_all(&self) -> Reconciled<()> {
        let others = self.data.other_pool_names();
        let called = |name: &str| {
            self.data
                .pools_called_by(name, |name| others.get(name).cloned())
        };
        for (key, quota) in self.data.quotas.all() {
            if quota.metadata.deletion_timestamp.is_none() {
                self.limit(&key, &quota, called).await?;
            }
        }
        Ok(())
    }

    /// An object that is there to stay.
    pub(super) async fn keep(&self, key: &Key, quota: &FloatingIPProjectQuota) -> Reconciled {
        // The finalizer comes before any limit.
        let meta = quota.meta();
        let context = &self.context;
        let add = context.add_finalizer::<IgnoredAny>(key, &meta, QUOTA_CLEANUP);
        add.await?;
        let called = |name: &str| self.data.pools_called(name);
        let verdict = self.limit(key, quota, called).await?;
        self.write_status(key, quota, &verdict).await
    }

    /// Puts the limits of an object into the address book; `called` are the real names of pools by what it calls them.
    async fn limit(
        &self,
        key: &Key,
        quota: &FloatingIPProjectQuota,
        called: impl Fn(&str) -> Vec<String> + Send,
    ) -> Reconciled<QuotaVerdict> {
        let limits = match validate::limits(&quota.spec.floating_ip_quota) {
            Ok(limits) => limits,
            Err(wrong) => {
                let texts: Vec<String> = wrong.iter().map(ToString::to_string).collect();
                return Ok(self.refused(key, quota, &texts.join("; ")));
            }
        };
        let find = |name: &str| match self.mirror(name) {
            Some(own) => vec![own],
            None => {
                let names = called(name).into_iter();
                names.filter_map(|name| self.mirror(&name)).collect()
            }
        };
        let wanted = validate::wanted(limits, find);
        if let Some(message) = wanted.ambiguous() {
            return Ok(self.refused(key, quota, &message));
        }
        self.set_limits(key, &wanted.rows(&self.rows(key))).await?;
        let says = match wanted.unnamed() {
            None => ConditionUpdate::ready(true, "Applied", "the limits count for the project"),
            Some(message) => {
                let says = ConditionUpdate::ready(false, "PoolNotFound", message);
                self.warn(key, quota, &says);
                says
            }
        };
        Ok(QuotaVerdict {
            limits: wanted.limits,
            says,
        })
    }

    /// Makes these the project's only quotas in pools of the cluster.
    pub(super) async fn set_limits(
        &self,
        key: &Key,
        limits: &BTreeMap<PoolId, u64>,
    ) -> Reconciled<()> {
        let tenant = tenant(key);
        let rows = self.rows(key);
        let actor = self.context.site.actor();
        for request in changes(&tenant, limits, &rows, &actor) {
            self.context.site.ipam.submit(request).await?;
        }
        Ok(())
    }

    /// The project's quotas in pools of the cluster, as the address book has them.
    pub(super) fn rows(&self, key: &Key) -> BTreeMap<PoolId, u64> {
        let site = &self.context.site;
        let all = observe::tenancies(&site.ipam, &tenant(key), |pool| site.is_mirror(pool));
        all.into_iter()
            .filter_map(|(pool, _, limit)| Some((pool.id, limit?)))
            .collect()
    }

    fn mirror(&self, pool: &str) -> Option<PoolId> {
        let site = &self.context.site;
        let id = |ledger: &Ledger| Some(site.mirror_in(ledger, pool)?.id);
        site.ipam.read(id)
    }

    /// Nothing of the object is taken; what it said last goes on.
    fn refused(&self, key: &Key, quota: &FloatingIPProjectQuota, why: &str) -> QuotaVerdict {
        let rows = self.rows(key);
        let reason = if rows.is_empty() { INVALID } else { REFUSED };
        let message = format!("{why}. Nothing of this object is applied; its last limits stay");
        let says = ConditionUpdate::ready(false, reason, message);
        self.warn(key, quota, &says);
        let named = quota.spec.floating_ip_quota.keys();
        let known = named.filter_map(|name| Some((self.mirror(name)?, name.clone())));
        let limits = known.filter_map(|(pool, name)| Some((pool, (name, *rows.get(&pool)?))));
        QuotaVerdict {
            limits: limits.collect(),
            says,
        }
    }

    fn warn(&self, key: &Key, quota: &FloatingIPProjectQuota, says: &ConditionUpdate) {
        self.context
            .warn(key, &quota.meta().uid, says.reason, &*says.message);
    }

    async fn write_status(
        &self,
        key: &Key,
        quota: &FloatingIPProjectQuota,
        verdict: &QuotaVerdict,
    ) -> Reconciled {
        if let Some(rest) = self.context.status_rests(key) {
            return Ok(rest);
        }
        let shown = self.shown(key, &verdict.limits);
        let before = quota.status.clone().unwrap_or_default();
        let generation = quota.metadata.generation;
        let now = jiff::Timestamp::now();
        let after = status::desired(&before, &verdict.says, &shown, generation, now);
        let uid = quota.metadata.uid.as_deref().unwrap_or_default();
        let write = self.context.write_status(key, uid, (&before, &after));
        write.await.map(|()| Next::Done)
    }

    /// What the status shows: the pools that the quota names, and all others that the project holds something of.
    fn shown(&self, key: &Key, limits: &BTreeMap<PoolId, (String, u64)>) -> Vec<PoolShown> {
        let (ipam, tenant) = (&self.context.site.ipam, tenant(key));
        let held = observe::tenancies(ipam, &tenant, |pool| self.context.site.is_mirror(pool));
        let user = |lease: &Lease| self.user(lease);
        let (mut shown, mut unlimited) = (Vec::new(), Vec::new());
        for (pool, used, _) in held {
            let (named, limit) = match limits.get(&pool.id) {
                Some((name, limit)) => (Some(name.clone()), Some(*limit)),
                None if used > 0 => (None, None),
                None => continue,
            };
            if limit.is_none() {
                unlimited.push(pool.id);
            }
            let own = self.context.site.object_of(&pool).unwrap_or_default();
            let (used, allocated) = observe::holdings(ipam, pool.id, &tenant, MOST_ENTRIES, user);
            shown.push(PoolShown {
                family: self.family(&own, &pool),
                name: named.unwrap_or(own),
                limit,
                used,
                allocated,
            });
        }
        self.note_unlimited(key, &unlimited);
        shown
    }

    pub(super) fn note_unlimited(&self, key: &Key, pools: &[PoolId]) {
        let mut unlimited = self.unlimited.lock();
        unlimited.retain(|pool, keys| {
            if !pools.contains(pool) {
                keys.remove(key);
            }
            !keys.is_empty()
        });
        for pool in pools {
            unlimited.entry(*pool).or_default().insert(key.clone());
        }
    }

    /// The text of the pool object, or what its addresses are.
    fn family(&self, name: &str, pool: &Pool) -> String {
        let object = self.data.pools.get(&Key::new("", name));
        let written = object.and_then(|pool| Some(pool.spec.ip_config.as_ref()?.family.clone()));
        let plain = || pool.spec.family().map(|family| family.to_string());
        let written = written.filter(|text| !text.is_empty());
        written.or_else(plain).unwrap_or_default()
    }

    /// Rancher's id of the cluster that has the address.
    fn user(&self, lease: &Lease) -> String {
        let Some(identity) = lease.owner().map(|owner| &owner.identity) else {
            return UNASSIGNED.into();
        };
        let key = names::key(identity);
        let label = |fip: Arc<Fip>| fip.cluster.clone();
        let user = match (&*identity.kind, &identity.cluster) {
            (KIND_FLOATING_IP, _) => self.data.fips.get(&key).and_then(label),
            (KIND_SERVICE, Some(cluster)) => {
                let shown = self.data.fips_of(cluster, &key).into_iter();
                let shown = shown.filter_map(|(_, fip)| label(fip)).next();
                let id = shown.or_else(|| self.rancher.id_of(cluster));
                Some(id.unwrap_or_else(|| cluster.to_string()))
            }
            _ => None,
        };
        user.unwrap_or_else(|| UNASSIGNED.into())
    }
}

/// The requests that turn `rows`, the project's quotas in pools of the cluster, into the limits.
fn changes(
    tenant: &Tenant,
    limits: &BTreeMap<PoolId, u64>,
    rows: &BTreeMap<PoolId, u64>,
    actor: &Text,
) -> Vec<Request> {
    let set = limits
        .iter()
        .filter(|(pool, limit)| rows.get(pool) != Some(limit))
        .map(|(pool, limit)| Request::SetQuota {
            quota: Quota {
                pool: *pool,
                tenant: tenant.clone(),
                limit: *limit,
            },
            actor: Text::clone(actor),
        });
    let left = rows.keys().filter(|pool| !limits.contains_key(pool));
    let delete = left.map(|pool| Request::DeleteQuota {
        pool: *pool,
        tenant: tenant.clone(),
        actor: Text::clone(actor),
    });
    set.chain(delete).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(pairs: &[(u32, u64)]) -> BTreeMap<PoolId, u64> {
        pairs
            .iter()
            .map(|(pool, limit)| (PoolId(*pool), *limit))
            .collect()
    }

    #[test]
    fn only_what_differs_is_asked_for() {
        let tenant = Tenant("p-1".into());
        let plan = |wanted: &[(u32, u64)], rows: &[(u32, u64)]| {
            let requests = changes(&tenant, &limits(wanted), &limits(rows), &"a".into());
            let said = requests.into_iter().map(|request| {
                if let Request::SetQuota { quota, .. } = request {
                    (quota.pool.0, Some(quota.limit))
                } else if let Request::DeleteQuota { pool, .. } = request {
                    (pool.0, None)
                } else {
                    panic!("{request:?}")
                }
            });
            said.collect::<Vec<_>>()
        };
        assert_eq!(plan(&[(1, 5)], &[(1, 5)]), []);
        assert_eq!(
            plan(&[(1, 5), (2, 0), (3, 7)], &[(1, 4), (3, 7), (4, 1)]),
            [(1, Some(5)), (2, Some(0)), (4, None)]
        );
    }
}
