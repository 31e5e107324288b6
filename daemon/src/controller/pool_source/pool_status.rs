//! The status of a Pool object, and of other kinds that show as much.

use fipd_crds::fipd_io::PoolStatus;
use k8s_openapi::jiff;

use super::PoolReport;

/// The status to write in the place of `before`. What an object without pool showed last stays.
pub fn desired(
    before: &PoolStatus,
    generation: Option<i64>,
    report: &PoolReport,
    now: jiff::Timestamp,
) -> PoolStatus {
    let mut status = before.clone();
    if let Some(state) = &report.state {
        let usage = &state.usage;
        status = PoolStatus {
            pool: state.pool.spec.name.to_string(),
            total: count(usage.size),
            used: count(usage.used),
            free: count(usage.free),
            reserved: count(usage.reserved),
            quarantined: count(usage.quarantined),
            conditions: status.conditions,
        };
    }
    report.set_conditions(&mut status.conditions, generation, now);
    status
}

/// A count as the API can hold it.
pub fn count(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::{Pool, PoolId, PoolSpec, PoolUsage, Timestamp};

    use super::*;
    use crate::controller::pool_source::{PoolState, not_ready};

    fn state() -> PoolState {
        PoolState {
            pool: Arc::new(Pool {
                id: PoolId(1),
                spec: PoolSpec::own("lab", Vec::new()),
                created: Timestamp(1),
                generation: 1,
            }),
            usage: PoolUsage {
                size: u128::MAX,
                used: 3,
                free: 4,
                quarantined: 1,
                excluded: 0,
                reserved: 2,
                withheld: 0,
                withheld_in_use: 0,
                out_of_range: 0,
                attributed: 0,
            },
            network: "default".into(),
            waiting: vec![],
            doubt: None,
            overlap: None,
            shared: None,
            unread: None,
            entries: vec![],
            texts: None,
        }
    }

    #[test]
    fn counts_and_why_nothing_is_given() {
        let now = jiff::Timestamp::from_second(1_000).expect("a time");
        let mut state = state();
        let shown = |before: &PoolStatus, state: &PoolState| {
            let report = PoolReport {
                ready: state.ready(None),
                state: Some(state.clone()),
            };
            desired(before, Some(1), &report, now)
        };
        let mut status = shown(&PoolStatus::default(), &state);
        assert_eq!(
            (
                status.total,
                status.used,
                status.free,
                status.reserved,
                status.quarantined
            ),
            (i64::MAX, 3, 4, 2, 1)
        );
        assert_eq!(
            (&*status.pool, &*status.conditions[0].reason),
            ("lab", "Mirrored")
        );
        assert_eq!(shown(&status, &state), status, "nothing more to write");
        let both = "10.0.0.1-10.0.0.2 with IPAddressPool m/a of cluster c".to_owned();
        state.shared = Some(both.clone());
        status = shown(&status, &state);
        let [_, shared] = &status.conditions[..] else {
            panic!("{:?}", status.conditions);
        };
        assert_eq!((&*shared.type_, &*shared.message), ("SharedRange", &*both));
        state.shared = None;
        assert_eq!(shown(&status, &state).conditions.len(), 1);
        let pool = Arc::make_mut(&mut state.pool);
        pool.spec.closed = true;
        assert_eq!(shown(&status, &state).conditions[0].reason, "Closed");
        state.waiting = vec!["x".into()];
        let waits = shown(&status, &state);
        assert_eq!(waits.conditions[0].reason, "WaitingForAdoption");
        let report = PoolReport {
            ready: not_ready("Unknown", "no pool"),
            state: None,
        };
        let orphan = desired(&status, Some(1), &report, now);
        assert_eq!(orphan.total, i64::MAX, "the last that is known");
        assert_eq!(orphan.conditions.len(), 1, "{:?}", orphan.conditions);
    }
}
