//! Objects that went to another cluster, as `clusterctl move` takes them: what one had here passes to the same object there.
//!
//! ```text
//!  here: object ----------------------------------> gone --+
//!  there:         object that shows the address            +--> lease of the object there
//!                   --> contender of the lease here -------+
//! ```
//!
//! The lease changes hands in one decision, so the address is free at no moment, and it is not left to the sweep of the cluster,
//! which waits and releases only so many.

use std::fmt::Debug;

use fipd_core::{Holder, Identity, LeaseKey, Ledger};
use serde::de::IgnoredAny;

use super::{Reconciled, context::Context, store::Key};

const REASON: &str = "the object moved to another cluster";

/// A lease that passes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PassingLease {
    key: LeaseKey,
    from: Holder,
    to: Holder,
}

/// What the same object of another cluster was found using of what this one has.
fn passing(ledger: &Ledger, here: &Identity) -> Vec<PassingLease> {
    let leases = ledger.leases_of(here);
    let passing = leases.iter().filter_map(|lease| {
        let mut contenders = lease.contenders.iter();
        let to = contenders
            .find(|one| one.uses.is_empty() && one.holder.identity.is_same_elsewhere(here))?;
        Some(PassingLease {
            key: lease.key,
            from: lease.member(here)?.holder.clone(),
            to: to.holder.clone(),
        })
    });
    passing.collect()
}

impl<V: PartialEq + Debug> Context<V> {
    /// Whether the same object of another cluster uses what the object has.
    pub fn is_used_elsewhere(&self, key: &Key) -> bool {
        let identity = self.identity(key);
        self.read(|ledger| !passing(ledger, &identity).is_empty())
    }

    /// The same of an object that is gone, by a fresh read.
    pub async fn moved_away(&self, key: &Key) -> Reconciled<bool> {
        if !self.is_used_elsewhere(key) {
            return Ok(false);
        }
        let target = self.kind().target(key);
        let found: Option<IgnoredAny> = self.remote.get(&target).await?;
        Ok(found.is_none())
    }

    /// Passes it to that object.
    pub async fn pass_to_moved(&self, key: &Key) -> Reconciled<()> {
        let identity = self.identity(key);
        for lease in self.read(|ledger| passing(ledger, &identity)) {
            let PassingLease { key, from, to } = lease;
            self.site.transfer(from, to, key, REASON).await?;
        }
        Ok(())
    }
}
