//! Pools by what people call them.

use std::{collections::BTreeSet, sync::Arc};

use super::{Ledger, rows::short, rows_read::count};
use crate::{NetworkId, Pool, PoolId, Scope, Text};

/// Pools that a [`NameError`] names, at the most.
const CANDIDATES: usize = 20;

/// Why a name finds no pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("no pool is named {0}")]
    Unknown(String),
    /// `more` says that the candidates are not all.
    #[error("{name} is the short name of several pools; say {}", full_names(.candidates, *.more))]
    Ambiguous {
        name: String,
        candidates: Vec<Text>,
        more: bool,
    },
}

fn full_names(candidates: &[Text], more: bool) -> String {
    match (candidates, more) {
        (some, true) => format!("one of {} or another full name", some.join(", ")),
        (all, false) => format!("one of {}", all.join(", ")),
    }
}

impl Ledger {
    /// The pool of this full name, or of this short name (the last part) if only one has it.
    pub fn find_pool(&self, name: &str) -> Result<&Arc<Pool>, NameError> {
        self.find_pool_in(name, &Scope::default())
    }

    /// The same among the pools of a scope: what is out of it is not there.
    pub fn find_pool_in(&self, name: &str, scope: &Scope) -> Result<&Arc<Pool>, NameError> {
        let unknown = || NameError::Unknown(name.to_owned());
        if let Some(pool) = self.rows.pool_by_name(name) {
            return Some(pool)
                .filter(|pool| scope.has_pool(pool))
                .ok_or_else(unknown);
        }
        let mut found = self.namesakes(name, scope, CANDIDATES + 1);
        count(found.len());
        match found.as_slice() {
            [] => Err(unknown()),
            [only] => Ok(only),
            _ => {
                let more = found.len() > CANDIDATES;
                found.truncate(CANDIDATES);
                let names = found.iter().map(|pool| Arc::clone(&pool.spec.name));
                Err(NameError::Ambiguous {
                    name: name.to_owned(),
                    candidates: names.collect(),
                    more,
                })
            }
        }
    }

    /// The first pools of a scope with this short name. No pool is looked at but those that have it and those that the scope
    /// names.
    fn namesakes(&self, name: &str, scope: &Scope, most: usize) -> Vec<&Arc<Pool>> {
        let rows = &self.rows;
        if !scope.pools.is_empty() {
            let listed: BTreeSet<PoolId> = scope.pools.iter().copied().collect();
            let pools = listed.iter().filter_map(|id| rows.pools.get(id));
            let has_it = |pool: &&Arc<Pool>| short(&pool.spec.name) == name && scope.has_pool(pool);
            return pools.filter(has_it).take(most).collect();
        }
        if scope.networks.is_empty() {
            return rows.pools_by_short_name(name).take(most).collect();
        }
        let networks: BTreeSet<NetworkId> = scope.networks.iter().copied().collect();
        let pools = networks
            .iter()
            .flat_map(|network| rows.pools_by_short_name_in(name, *network));
        pools.take(most).collect()
    }
}
