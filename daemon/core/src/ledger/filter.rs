//! Pages of leases.

use std::sync::Arc;

use super::Ledger;
use crate::{ClusterId, Identity, Lease, LeaseKey, LeaseState, NetworkId, PoolId, System, Text};

/// Which leases to show; empty fields match all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseFilter {
    pub network: Option<NetworkId>,
    pub pool: Option<PoolId>,
    pub state: Option<LeaseState>,
    pub system: Option<System>,
    pub cluster: Option<ClusterId>,
    pub namespace: Option<Text>,
    /// Part of the address or of an owner's text.
    pub text: Option<Text>,
}

/// Some leases in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeasePage {
    pub leases: Vec<Arc<Lease>>,
    /// Ask again from here; `None` at the end. There may be a next page after an empty one.
    pub next: Option<LeaseKey>,
}

/// The first of `rows` that match.
pub(super) fn page(
    rows: &mut dyn Iterator<Item = &Arc<Lease>>,
    filter: &LeaseFilter,
    limit: usize,
) -> LeasePage {
    let mut page = LeasePage::default();
    let mut rows = rows.peekable();
    let mut scanned = 0;
    while let Some(lease) = rows.next() {
        scanned += 1;
        if filter.matches(lease) {
            page.leases.push(Arc::clone(lease));
        }
        if page.leases.len() >= limit || scanned >= Ledger::SCAN {
            page.next = rows.peek().map(|_| lease.key);
            break;
        }
    }
    page
}

impl LeaseFilter {
    /// Whether the lease is to be shown.
    pub fn matches(&self, lease: &Lease) -> bool {
        let owner = |test: &dyn Fn(&Identity) -> bool| {
            lease
                .members
                .iter()
                .any(|member| test(&member.holder.identity))
        };
        let text = |part: &str| {
            lease.key.address.to_string().contains(part)
                || owner(&|identity| identity.to_string().contains(part))
        };
        self.network
            .is_none_or(|network| lease.key.network == network)
            && self.pool.is_none_or(|pool| lease.pool == Some(pool))
            && self.state.is_none_or(|state| lease.state == state)
            && self
                .system
                .as_ref()
                .is_none_or(|system| owner(&|identity| identity.system == *system))
            && self
                .cluster
                .as_ref()
                .is_none_or(|cluster| owner(&|identity| identity.cluster.as_ref() == Some(cluster)))
            && self
                .namespace
                .as_ref()
                .is_none_or(|name| owner(&|identity| identity.namespace == *name))
            && self.text.as_deref().is_none_or(text)
    }
}
