//! What a FloatingIPProjectQuota allows, as typed values, and what is wrong with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use fipd_core::PoolId;
use serde_json::Value;

/// The most names without a pool that a message lists.
const UNNAMED: usize = 10;

/// A value that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The pool, as the object names it.
    pub pool: String,
    pub value: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "spec.floatingIPQuota[{:?}]: {} is not allowed: a whole number from 0 to {} is",
            self.pool,
            self.value,
            u32::MAX
        )
    }
}

/// The most addresses of each pool, by the names that the object has for them; all of them or what is wrong.
pub fn limits(raw: &BTreeMap<String, i64>) -> Result<BTreeMap<String, u64>, Vec<Wrong>> {
    let values = raw
        .iter()
        .map(|(pool, value)| (pool.clone(), Value::from(*value)));
    limits_of(&values.collect())
}

/// The same of values as they are written, which need not be whole numbers: those that are none come first in what is wrong.
pub fn limits_of(raw: &BTreeMap<String, Value>) -> Result<BTreeMap<String, u64>, Vec<Wrong>> {
    let (mut limits, mut fractions, mut wrong) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (pool, value) in raw {
        let whole = value.as_i64();
        if let Some(limit) = whole.and_then(|whole| u32::try_from(whole).ok()) {
            limits.insert(pool.clone(), u64::from(limit));
            continue;
        }
        let list = if whole.is_some() {
            &mut wrong
        } else {
            &mut fractions
        };
        list.push(Wrong {
            pool: pool.clone(),
            value: value.to_string(),
        });
    }
    fractions.append(&mut wrong);
    match fractions.is_empty() {
        true => Ok(limits),
        false => Err(fractions),
    }
}

/// The limits of a project by pool, and the names that lead to none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectLimits<P = PoolId> {
    /// Pool, the name that the object has for it, and the limit.
    pub limits: BTreeMap<P, (String, u64)>,
    /// No pool goes by these names, so far, or several do.
    pub unknown: Vec<String>,
    /// Pools that one of `unknown` may mean: the limits they have stay until it is known.
    pub unsure: BTreeSet<P>,
    /// Names of one pool: two limits for it, of which none is taken.
    pub twice: Vec<(String, String)>,
}

/// Finds the pools by name.
pub fn wanted<P: Copy + Ord>(
    limits: BTreeMap<String, u64>,
    find: impl Fn(&str) -> Vec<P>,
) -> ProjectLimits<P> {
    let mut wanted = ProjectLimits {
        limits: BTreeMap::new(),
        unknown: Vec::new(),
        unsure: BTreeSet::new(),
        twice: Vec::new(),
    };
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

impl<P: Copy + Ord> ProjectLimits<P> {
    /// The limits to have, where the project has `rows`.
    pub fn rows(&self, rows: &BTreeMap<P, u64>) -> BTreeMap<P, u64> {
        let unsure = rows.iter().filter(|(pool, _)| self.unsure.contains(pool));
        let kept = unsure.map(|(pool, limit)| (*pool, *limit));
        let named = self.limits.iter().map(|(pool, (_, limit))| (*pool, *limit));
        kept.chain(named).collect()
    }

    /// What is wrong where a pool is named twice.
    pub fn ambiguous(&self) -> Option<String> {
        self.twice.first().map(|(one, other)| {
            format!(
                "spec.floatingIPQuota[{other:?}]: it is the same pool as {one:?}; name each pool once"
            )
        })
    }

    /// What is to be said of names that lead to no pool.
    pub fn unnamed(&self) -> Option<String> {
        let fields = self.unknown.iter().take(UNNAMED);
        let mut fields: Vec<String> = fields
            .map(|name| format!("spec.floatingIPQuota[{name:?}]"))
            .collect();
        let more = self.unknown.len().saturating_sub(UNNAMED);
        if more > 0 {
            fields.push(format!("{more} more"));
        }
        (!fields.is_empty()).then(|| {
            format!(
                "{}: no usable FloatingIPPool is called so; allowed are the name of one, or \
                 DISPLAY-NAME-OF-CLUSTER--NETWORK of exactly one. The limit counts as soon as there is one, and all others do",
                fields.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_that_is_no_number_of_addresses_is_named_and_nothing_is_taken() {
        let most = i64::from(u32::MAX);
        let raw = |values: &[(&str, i64)]| {
            let pairs = values.iter();
            limits(
                &pairs
                    .map(|(pool, value)| ((*pool).to_owned(), *value))
                    .collect(),
            )
        };
        let good = raw(&[("a", 0), ("b", most)]).expect("limits");
        assert_eq!(
            good,
            BTreeMap::from([("a".into(), 0), ("b".into(), u64::from(u32::MAX))])
        );
        let wrong = raw(&[("a", 1), ("b", -1), ("c", most + 1)]).expect_err("two mistakes");
        let texts: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts[0],
            "spec.floatingIPQuota[\"b\"]: -1 is not allowed: a whole number from 0 to 4294967295 is"
        );
        assert!(texts.len() == 2 && texts[1].contains("4294967296"));
    }

    #[test]
    fn what_is_no_whole_number_is_named_with_all_others() {
        let raw = |value: Value| serde_json::from_value(value).expect("a map");
        let good = limits_of(&raw(json!({ "a": 0, "b": 7 })));
        assert_eq!(good, Ok(BTreeMap::from([("a".into(), 0), ("b".into(), 7)])));
        let wrong = limits_of(&raw(json!({
            "a": 1.5, "b": "2", "c": null, "d": 18_446_744_073_709_551_615_u64, "e": -3, "f": 1,
        })));
        let wrong = wrong.expect_err("five mistakes");
        let pools: Vec<&str> = wrong.iter().map(|one| &*one.pool).collect();
        assert_eq!(pools, ["a", "b", "c", "d", "e"]);
        assert!(
            wrong
                .first()
                .is_some_and(|one| one.to_string().contains("1.5 is not allowed"))
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
        let rows = rows_of(&[(1, 3), (2, 8), (4, 5)]);
        assert_eq!(found.rows(&rows), rows_of(&[(1, 3), (2, 9)]));
    }

    fn rows_of(pairs: &[(u32, u64)]) -> BTreeMap<PoolId, u64> {
        pairs
            .iter()
            .map(|(pool, limit)| (PoolId(*pool), *limit))
            .collect()
    }
}
