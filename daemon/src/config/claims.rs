//! What a cluster's claims may use of fipd's own pools.

use std::collections::BTreeSet;

use fipd_core::{Origin, Pool, System, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Pattern, ReleaseWait};

/// `[cluster.claims]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Claims {
    /// Own pools that the cluster may use. None, unless it says so.
    pub pools: Vec<Pattern>,
    /// The pool of claims that name none, by the name of its `Pool` object.
    pub default_pool: Option<Text>,
    /// Whether `Pool` and `NamespacedPool` objects that others write become pools. Who may write them decides over addresses.
    pub pool_objects: bool,
    /// How long a finalizer of fipd keeps a pool object that is being deleted while its addresses are in use, from `1s` to
    /// `1h`.
    pub release_wait: ReleaseWait,
}

impl Claims {
    /// Whether the cluster may use this pool as one of fipd's own.
    pub fn offers(&self, pool: &Pool) -> bool {
        let own = matches!(pool.spec.origin, Origin::Own);
        own && self.pools.iter().any(|one| one.matches(&pool.spec.name))
    }
}

/// Settings count only where the system is on.
pub(super) fn checked(
    given: Option<Claims>,
    systems: &BTreeSet<System>,
    place: &str,
) -> Result<Claims, String> {
    if given.is_some() && !systems.contains(&System::claims()) {
        return Err(format!(
            "{place}: these settings do nothing: systems does not have \"claims\""
        ));
    }
    Ok(given.unwrap_or_default())
}
