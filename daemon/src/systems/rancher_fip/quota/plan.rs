//! What to ask the address book so that it has the quotas of a project, no more and no fewer.

use std::collections::BTreeMap;

use fipd_core::{PoolId, Quota, Request, Tenant, Text};

/// The requests that turn `rows`, the project's quotas in pools of the cluster, into the limits.
pub fn changes(
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
