//! What to ask the address book so that it has the quotas of a project, no more and no fewer.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{PoolId, Quota, Request, Tenant, Text};

/// The limits of a project by pool, and the names that lead to none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Pool, the name that the object has for it, and the limit.
    pub limits: BTreeMap<PoolId, (String, u64)>,
    /// No pool goes by these names, so far, or several do.
    pub unknown: Vec<String>,
    /// Pools that one of `unknown` may mean: the limits they have stay until it is known.
    pub unsure: BTreeSet<PoolId>,
    /// Names of one pool: two limits for it, of which none is taken.
    pub twice: Vec<(String, String)>,
}

/// Finds the pools by name.
pub fn wanted(limits: BTreeMap<String, u64>, find: impl Fn(&str) -> Vec<PoolId>) -> Wanted {
    let mut wanted = Wanted::default();
    for (name, limit) in limits {
        let found = find(&name);
        let [pool] = found[..] else {
            wanted.unknown.push(name);
            wanted.unsure.extend(found);
            continue;
        };
        match wanted.limits.get(&pool) {
            Some((other, _)) => wanted.twice.push((other.clone(), name)),
            None => {
                wanted.limits.insert(pool, (name, limit));
            }
        }
    }
    wanted
}

impl Wanted {
    /// The limits to have, where the project has `rows`.
    pub fn rows(&self, rows: &BTreeMap<PoolId, u64>) -> BTreeMap<PoolId, u64> {
        let unsure = rows.iter().filter(|(pool, _)| self.unsure.contains(pool));
        let kept = unsure.map(|(pool, limit)| (*pool, *limit));
        let named = self.limits.iter().map(|(pool, (_, limit))| (*pool, *limit));
        kept.chain(named).collect()
    }
}

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

    #[test]
    fn pools_are_found_by_name_once_each() {
        let names = BTreeMap::from([
            ("dc--net".to_owned(), 3),
            ("later".to_owned(), 1),
            ("net".to_owned(), 4),
        ]);
        let find = |name: &str| (name != "later").then_some(PoolId(1)).into_iter().collect();
        let found = wanted(names, find);
        assert_eq!(found.unknown, ["later"]);
        assert_eq!(found.twice, [("dc--net".to_owned(), "net".to_owned())]);
        assert_eq!(found.limits.len(), 1);
    }
    #[test]
    fn a_limit_stays_while_its_name_means_two_pools() {
        let names = BTreeMap::from([("dc--net".to_owned(), 3), ("two".to_owned(), 9)]);
        let find = |name: &str| match name {
            "two" => vec![PoolId(2)],
            _ => vec![PoolId(1), PoolId(2), PoolId(3)],
        };
        let found = wanted(names, find);
        assert_eq!(found.unknown, ["dc--net"]);
        let rows = limits(&[(1, 3), (2, 8), (4, 5)]);
        assert_eq!(found.rows(&rows), limits(&[(1, 3), (2, 9)]));
    }
}
