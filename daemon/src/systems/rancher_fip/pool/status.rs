//! The status of a FloatingIPPool, exactly as the rancher-fip family reads it.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::{AddressSpec, Lease, Pool};
use fipd_crds::floating_ip::{EXCLUDED, PoolStatus, UNASSIGNED, allocated_text};
use k8s_openapi::jiff;

use crate::controller::{
    conditions::{note_condition, unset},
    pool_source::{OUT_OF_RANGE, PoolReport, pool_status::count},
};

/// The most entries of `status.allocated`; an object has a size limit. Counts stay exact beyond it.
pub const MOST_ENTRIES: usize = 10_000;

/// What [`OUT_OF_RANGE`] means, for an Event.
pub const LEFT_OUT: &str =
    "addresses in use lie outside the pool; they are kept until their holders give them back";
/// Some addresses are not given until an admin says whether two networks are two.
pub const NETWORK_AMBIGUOUS: &str = "NetworkAmbiguous";
/// `status.allocated` does not list everything.
pub const TRUNCATED: &str = "AllocatedTruncated";

/// The value of `status.allocated` for a lease.
pub fn entry(lease: &Lease, display_name: impl Fn(&str) -> Option<String>) -> String {
    match &lease.tenant {
        Some(project) => allocated_text(&project.0, display_name(&project.0).as_deref()),
        None => UNASSIGNED.into(),
    }
}

/// The status to write.
pub fn desired(
    before: &PoolStatus,
    report: &PoolReport,
    generation: Option<i64>,
    now: jiff::Timestamp,
) -> PoolStatus {
    let mut status = PoolStatus {
        conditions: before.conditions.clone(),
        ..PoolStatus::default()
    };
    report.set_conditions(&mut status.conditions, generation, now);
    let Some(state) = &report.state else {
        for kind in [OUT_OF_RANGE, NETWORK_AMBIGUOUS, TRUNCATED] {
            unset(&mut status.conditions, kind);
        }
        return status;
    };
    let excluded = excluded(&state.pool);
    let truncated = excluded.len() + state.entries.len() > MOST_ENTRIES;
    let mut allocated: BTreeMap<IpAddr, String> = excluded
        .into_iter()
        .map(|address| (address, EXCLUDED.into()))
        .collect();
    // A lease on an excluded address (found in use) is shown as what it is.
    allocated.extend(state.entries.iter().cloned());
    status.allocated = allocated
        .into_iter()
        .take(MOST_ENTRIES)
        .map(|(address, text)| (address.to_string(), text))
        .collect();
    status.used = count(state.usage.used.saturating_add(state.usage.excluded));
    status.available = count(state.usage.free);
    let out_of_range = state.out_of_range();
    let truncated = truncated.then(|| {
        format!(
            "status.allocated lists the first {MOST_ENTRIES} addresses; used and available are exact"
        )
    });
    for (kind, reason, message) in [
        (OUT_OF_RANGE, "LeasesKept", out_of_range),
        (NETWORK_AMBIGUOUS, "SameAddresses", state.doubt.clone()),
        (TRUNCATED, "TooMany", truncated),
    ] {
        let kind = (kind, reason);
        note_condition(&mut status.conditions, kind, message, generation, now);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::{PoolId, PoolUsage, Timestamp, testing};

    use super::*;
    use crate::{clusters::ranges::SHARED_RANGE, controller::pool_source::PoolState};

    #[test]
    fn doubts_and_shared_ranges_are_conditions_until_they_are_over() {
        let pool = Pool {
            id: PoolId(1),
            spec: testing::pool_spec("p", &["10.0.0.0/29"]),
            created: Timestamp(1),
            generation: 1,
        };
        let usage = PoolUsage {
            size: 4,
            used: 0,
            free: 4,
            quarantined: 0,
            excluded: 0,
            reserved: 0,
            withheld: 4,
            withheld_in_use: 0,
            out_of_range: 0,
            attributed: 0,
        };
        let mut state = PoolState {
            network: "default".into(),
            pool: Arc::new(pool),
            usage,
            waiting: Vec::new(),
            doubt: Some("4 addresses are not given".to_owned()),
            overlap: None,
            shared: Some("10.0.0.1-10.0.0.2 with IPAddressPool m/a of cluster c".to_owned()),
            unread: None,
            entries: Vec::new(),
            texts: None,
        };
        let now = jiff::Timestamp::from_second(1_000).expect("a time");
        let shown = |before: &PoolStatus, state: &PoolState| {
            let report = PoolReport {
                ready: state.ready(None),
                state: Some(state.clone()),
            };
            desired(before, &report, Some(1), now)
        };
        let of = |status: &PoolStatus, kind: &str| {
            let mut conditions = status.conditions.iter();
            let found = conditions.find(|one| one.type_ == kind);
            found.map(|one| (one.status.clone(), one.message.clone()))
        };
        let status = shown(&PoolStatus::default(), &state);
        let expected = |text: &str| Some(("True".to_owned(), text.to_owned()));
        assert_eq!(
            of(&status, NETWORK_AMBIGUOUS),
            expected("4 addresses are not given")
        );
        assert_eq!(of(&status, "Ready"), expected("the pool gives addresses"));
        let range = "10.0.0.1-10.0.0.2 with IPAddressPool m/a of cluster c";
        assert_eq!(of(&status, SHARED_RANGE), expected(range));
        state.doubt = None;
        let status = shown(&status, &state);
        assert_eq!(of(&status, NETWORK_AMBIGUOUS), None);
        assert_eq!(of(&status, SHARED_RANGE), expected(range));
        state.shared = None;
        assert_eq!(of(&shown(&status, &state), SHARED_RANGE), None);
    }
}
