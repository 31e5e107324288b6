//! The status of a pool of the in-cluster provider.

use fipd_crds::cluster_api::{InClusterPoolCounts, InClusterPoolStatus};
use k8s_openapi::jiff;

use crate::controller::{
    conditions::note_condition,
    pool_source::{OUT_OF_RANGE, PoolReport, PoolState, pool_status::count},
};

/// Other pools may give the same addresses.
const OVERLAPPING: &str = "Overlapping";

/// The status to write in the place of `before`.
pub fn desired(
    before: &InClusterPoolStatus,
    generation: Option<i64>,
    report: &PoolReport,
    now: jiff::Timestamp,
) -> InClusterPoolStatus {
    let mut status = before.clone();
    status.observed_generation = generation;
    if let Some(state) = &report.state {
        let usage = &state.usage;
        // What cools is in use to the original as well, whose IPAddress is there until then.
        status.ip_addresses = Some(InClusterPoolCounts {
            total: count(usage.size),
            free: count(usage.free),
            used: count(usage.leased()),
            out_of_range: count(usage.out_of_range),
        });
        status.pool = state.pool.spec.name.to_string();
        status.network.clone_from(&state.network);
        status.quarantined = Some(count(usage.quarantined));
    }
    report.set_conditions(&mut status.conditions, generation, now);
    let state = report.state.as_ref();
    for (kind, reason, text) in [
        (
            OUT_OF_RANGE,
            "LeasesKept",
            state.and_then(PoolState::out_of_range),
        ),
        (
            OVERLAPPING,
            "SameAddresses",
            state.and_then(|state| state.overlap.clone()),
        ),
    ] {
        note_condition(
            &mut status.conditions,
            (kind, reason),
            text,
            generation,
            now,
        );
    }
    status
}
