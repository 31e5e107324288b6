//! Pools that an object names by fipd's own kinds: fipd's pools that the configuration offers to the cluster, and those that
//! `Pool` and `NamespacedPool` objects of the cluster define.

use std::sync::Arc;

use fipd_core::{ClusterId, Ledger, Pool, System};
use fipd_crds::fipd_io::{NAMESPACED_POOL, POOL};

use crate::config::SystemSettings;

/// Where the object is, and what its system may use of fipd's own pools there.
#[derive(Clone, Copy, Debug)]
pub struct OwnPools<'a> {
    pub cluster: &'a ClusterId,
    pub namespace: &'a str,
    pub settings: &'a dyn SystemSettings,
}

impl OwnPools<'_> {
    /// The pool that the object of this kind and name stands for.
    pub fn find(&self, ledger: &Ledger, kind: &str, name: &str) -> Option<Arc<Pool>> {
        let object = match kind {
            POOL => name.to_owned(),
            NAMESPACED_POOL => format!("{}/{name}", self.namespace),
            _ => return None,
        };
        let mirror = ledger.mirror(&System::claims(), self.cluster, &object);
        // Nothing keeps a slash out of a name in a claim, and it must lead into no namespace.
        if let Some(pool) = mirror.filter(|_| !name.contains('/')) {
            return Some(Arc::clone(pool));
        }
        let own = ledger
            .find_pool(name)
            .ok()
            .filter(|pool| kind == POOL && *pool.spec.name == *name && self.settings.offers(pool));
        own.cloned()
    }
}
