//! The status of a FloatingIPPool, exactly as the rancher-fip family reads it.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::{AddressSpec, Lease, Pool, PoolUsage};
use fipd_crds::floating_ip::{EXCLUDED, PoolStatus, UNASSIGNED, allocated_text};
use k8s_openapi::jiff;

use crate::controllers::merge::{Says, set, unset};

/// The most entries of `status.allocated`; an object has a size limit. Counts stay exact beyond it.
pub const MOST_ENTRIES: usize = 10_000;

/// `Ready`: whether the pool serves as it is written.
pub const READY: &str = "Ready";
/// Leases lie outside the pool's addresses.
pub const OUT_OF_RANGE: &str = "OutOfRange";
/// `status.allocated` does not list everything.
pub const TRUNCATED: &str = "AllocatedTruncated";

/// What the address book knows of a pool, as far as its status shows it.
#[derive(Clone, Debug)]
pub struct Facts {
    pub usage: PoolUsage,
    /// Address and holder's text, ascending; up to one more than [`MOST_ENTRIES`].
    pub entries: Vec<(IpAddr, String)>,
}

/// The value of `status.allocated` for a lease.
pub fn entry(lease: &Lease, display_name: impl Fn(&str) -> Option<String>) -> String {
    match &lease.tenant {
        Some(project) => allocated_text(&project.0, display_name(&project.0).as_deref()),
        None => UNASSIGNED.into(),
    }
}

/// The status to write. `ready` is the verdict on the object; `facts` are missing while there is no mirror.
pub fn desired(
    before: &PoolStatus,
    ready: &Says,
    pool: Option<(&Pool, &Facts)>,
    generation: Option<i64>,
    now: jiff::Timestamp,
) -> PoolStatus {
    let mut status = PoolStatus {
        conditions: before.conditions.clone(),
        ..PoolStatus::default()
    };
    set(&mut status.conditions, ready, generation, now);
    let Some((pool, facts)) = pool else {
        unset(&mut status.conditions, OUT_OF_RANGE);
        unset(&mut status.conditions, TRUNCATED);
        return status;
    };
    let excluded = excluded(pool);
    let truncated = excluded.len() + facts.entries.len() > MOST_ENTRIES;
    let mut allocated: BTreeMap<IpAddr, String> = excluded
        .into_iter()
        .map(|address| (address, EXCLUDED.into()))
        .collect();
    // A lease on an excluded address (found in use) is shown as what it is.
    allocated.extend(facts.entries.iter().cloned());
    status.allocated = allocated
        .into_iter()
        .take(MOST_ENTRIES)
        .map(|(address, text)| (address.to_string(), text))
        .collect();
    status.used = count(facts.usage.used.saturating_add(facts.usage.excluded));
    status.available = count(facts.usage.free);
    let conditions = &mut status.conditions;
    if facts.usage.out_of_range > 0 {
        let message = format!(
            "{} leases lie outside the pool's addresses; they are kept until their holders give them back",
            facts.usage.out_of_range
        );
        set(
            conditions,
            &Says {
                kind: OUT_OF_RANGE,
                status: true,
                reason: "LeasesKept",
                message,
            },
            generation,
            now,
        );
    } else {
        unset(conditions, OUT_OF_RANGE);
    }
    if truncated {
        let message = format!(
            "status.allocated lists the first {MOST_ENTRIES} addresses; used and available are exact"
        );
        set(
            conditions,
            &Says {
                kind: TRUNCATED,
                status: true,
                reason: "TooMany",
                message,
            },
            generation,
            now,
        );
    } else {
        unset(conditions, TRUNCATED);
    }
    status
}

/// The excluded addresses. A FloatingIPPool excludes single ones only.
fn excluded(pool: &Pool) -> Vec<IpAddr> {
    pool.spec
        .exclusions
        .iter()
        .filter_map(|exclusion| match exclusion {
            AddressSpec::Single(address) => Some(*address),
            AddressSpec::Cidr(_) | AddressSpec::Range(..) => None,
        })
        .collect()
}

/// A count as the API can hold it.
fn count(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
