//! Reads FloatingIPProjectQuotas and what the address book knows of a project.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Lease, LeaseFilter, LeaseKey, LeaseState, Ledger, Pool, PoolId, Tenant};
use fipd_crds::floating_ip::FloatingIPProjectQuota;

use crate::{controller::meta::trim, ipam::Ipam};

/// What is kept of a quota object.
pub fn view(mut quota: FloatingIPProjectQuota) -> FloatingIPProjectQuota {
    trim(&mut quota.metadata);
    quota
}

/// The pools in which the tenant holds something or has a quota: number, how much it holds, and its limit where it has a
/// row. Only those for which `ours` holds.
pub fn tenancies(
    ipam: &Ipam,
    tenant: &Tenant,
    ours: impl Fn(&Pool) -> bool,
) -> Vec<(Arc<Pool>, u64, Option<u64>)> {
    let mut all = Vec::new();
    ipam.in_steps(|ledger, after| {
        let page = ledger.tenancies(Some(tenant), after, Ledger::SCAN);
        all.extend(page.iter().filter_map(|one| {
            let pool = ledger.pool(one.pool).filter(|pool| ours(pool))?;
            let row = ledger.quota(one.pool, tenant).map(|row| row.quota.limit);
            Some((Arc::clone(pool), one.used, row))
        }));
        let last = page.last().filter(|_| page.len() == Ledger::SCAN);
        last.map(|last| (last.pool, tenant.clone()))
    });
    all
}

/// What the tenant holds of a pool: the exact number, and its addresses up to `most`, a page of the ledger at a time.
pub fn holdings(
    ipam: &Ipam,
    pool: PoolId,
    tenant: &Tenant,
    most: usize,
    user: impl Fn(&Lease) -> String,
) -> (u64, Vec<(IpAddr, String)>) {
    let used = ipam.read(|ledger| ledger.charged(pool, tenant));
    let filter = LeaseFilter {
        pool: Some(pool),
        tenant: Some(tenant.clone()),
        ..LeaseFilter::default()
    };
    let mut allocated: Vec<(IpAddr, String)> = Vec::new();
    let mut after: Option<LeaseKey> = None;
    while used > 0 && allocated.len() < most {
        let page = ipam.read(|ledger| ledger.leases(&filter, after, most));
        let charged = page.leases.iter();
        let charged = charged.filter(|lease| lease.state != LeaseState::Quarantined);
        allocated.extend(charged.map(|lease| (lease.key.address, user(lease))));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    allocated.truncate(most);
    (used, allocated)
}
