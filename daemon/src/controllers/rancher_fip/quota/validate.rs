//! What a FloatingIPProjectQuota allows, as typed values, and what is wrong with it.

use std::{collections::BTreeMap, fmt};

/// A value that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The pool, as the object names it.
    pub pool: String,
    pub value: i64,
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
    let (mut limits, mut wrong) = (BTreeMap::new(), Vec::new());
    for (pool, &value) in raw {
        match u32::try_from(value) {
            Ok(limit) => {
                limits.insert(pool.clone(), u64::from(limit));
            }
            Err(_) => wrong.push(Wrong {
                pool: pool.clone(),
                value,
            }),
        }
    }
    if wrong.is_empty() {
        Ok(limits)
    } else {
        Err(wrong)
    }
}

#[cfg(test)]
mod tests {
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
}
