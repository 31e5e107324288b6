//! Reads FloatingIPPools and what the address book knows of them.

use std::net::IpAddr;
use std::sync::Arc;

use fipd_core::{Lease, Ledger, Pool, PoolId};
use fipd_crds::floating_ip::FloatingIPPool;

use super::status::{self, Facts};
use crate::ipam::Ipam;

/// Overlaps that are told.
const OVERLAPS: usize = 3;

/// Rows read from the ledger at once; a reader must not hold it for longer.
const PAGE: usize = 1000;

/// What is kept of a pool object.
pub fn slim(mut pool: FloatingIPPool) -> FloatingIPPool {
    pool.metadata.managed_fields = None;
    if let Some(annotations) = &mut pool.metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    // The version changes with every write of the status and says nothing.
    pool.metadata.resource_version = None;
    pool
}

/// What the status shows of a mirror: counts, and entries up to the limit, a page of the ledger at a time.
pub fn facts(
    ipam: &Ipam,
    pool: &Pool,
    display_name: impl Fn(&str) -> Option<String>,
) -> Option<Facts> {
    let (usage, doubt) = ipam.read(|ledger| {
        let usage = ledger.usage(pool.id)?;
        Some((usage, ledger.ambiguity(pool.id)))
    })?;
    let mut entries: Vec<(IpAddr, String)> = Vec::new();
    let mut after: Option<IpAddr> = None;
    while entries.len() <= status::MOST_ENTRIES {
        let page: Vec<Arc<Lease>> = ipam.read(|ledger| page(ledger, pool.id, after));
        let Some(last) = page.last() else { break };
        after = Some(last.key.address);
        entries.extend(
            page.iter()
                .map(|lease| (lease.key.address, status::entry(lease, &display_name))),
        );
        if page.len() < PAGE {
            break;
        }
    }
    Some(Facts {
        usage,
        doubt,
        shared: None,
        entries,
    })
}

/// Which other pools may give addresses of this one.
pub fn overlap(ledger: &Ledger, pool: PoolId) -> Option<String> {
    let overlaps = ledger.overlaps(pool, OVERLAPS);
    let texts = overlaps.iter().filter_map(|overlap| {
        let other = ledger.pool(overlap.pool)?;
        let (first, last, name) = (overlap.first, overlap.last, &other.spec.name);
        (!other.spec.closed).then(|| format!("{first}-{last} are addresses of pool {name} as well"))
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn page(ledger: &Ledger, pool: PoolId, after: Option<IpAddr>) -> Vec<Arc<Lease>> {
    ledger.pool_leases(pool, after, PAGE)
}
