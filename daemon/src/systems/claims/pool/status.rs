//! The status of a Pool object.

use fipd_crds::fipd_io::PoolStatus;
use k8s_openapi::jiff;

use super::observe::{Facts, Object};
use crate::{
    clusters::ranges::{OTHER_LOAD_BALANCER, SHARED_RANGE},
    controller::conditions::{ConditionUpdate, remark, set, unset},
};

pub const READY: &str = "Ready";

/// The status to write for a pool that is there; `says` where there is more to say than how full it is.
pub fn shown(
    object: &Object,
    name: &str,
    facts: &Facts,
    says: Option<&ConditionUpdate>,
    now: jiff::Timestamp,
) -> PoolStatus {
    let usage = &facts.usage;
    let mut status = PoolStatus {
        pool: name.to_owned(),
        total: count(usage.size),
        used: count(usage.used),
        free: count(usage.free),
        reserved: count(usage.reserved),
        quarantined: count(usage.quarantined),
        conditions: object.status.conditions.clone(),
    };
    let ready = says.cloned().unwrap_or_else(|| ready(facts));
    set(&mut status.conditions, &ready, object.meta.generation, now);
    let (kind, shared) = ((SHARED_RANGE, OTHER_LOAD_BALANCER), facts.shared.clone());
    remark(
        &mut status.conditions,
        kind,
        shared,
        object.meta.generation,
        now,
    );
    status
}

/// The status to write for one that has no pool.
pub fn without_pool(object: &Object, says: &ConditionUpdate, now: jiff::Timestamp) -> PoolStatus {
    let mut status = object.status.clone();
    unset(&mut status.conditions, SHARED_RANGE);
    set(&mut status.conditions, says, object.meta.generation, now);
    status
}

/// What is said of one of ours whose pool is not known.
pub fn orphan() -> ConditionUpdate {
    let message = "fipd has no pool of this name and did not delete one; make or import it again, or delete this object";
    not_ready("Unknown", message)
}

/// Why a pool gives nothing.
pub fn not_ready(reason: &'static str, message: impl Into<String>) -> ConditionUpdate {
    ConditionUpdate {
        kind: READY,
        status: false,
        reason,
        message: message.into(),
    }
}

fn ready(facts: &Facts) -> ConditionUpdate {
    let (status, reason, message) = if !facts.waiting.is_empty() {
        let message = format!(
            "no new address is given until what is in use is known; waiting for {}",
            facts.waiting.join(", ")
        );
        (false, "WaitingForAdoption", message)
    } else if facts.closed {
        (
            false,
            "Closed",
            "the pool is closed and gives no new address".into(),
        )
    } else {
        (true, "Mirrored", "the pool gives addresses".into())
    };
    ConditionUpdate {
        kind: READY,
        status,
        reason,
        message,
    }
}

fn count(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use fipd_core::PoolUsage;
    use fipd_crds::fipd_io;

    use super::*;
    use crate::systems::claims::pool::observe::slim;

    #[test]
    fn counts_and_why_nothing_is_given() {
        let now = jiff::Timestamp::from_second(1_000).expect("a time");
        let mut object = slim(fipd_io::Pool::default());
        let mut facts = Facts {
            usage: PoolUsage {
                size: u128::MAX,
                used: 3,
                free: 4,
                quarantined: 1,
                excluded: 0,
                reserved: 2,
                withheld: 0,
                out_of_range: 0,
            },
            waiting: vec![],
            closed: false,
            shared: None,
        };
        let status = shown(&object, "lab", &facts, None, now);
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
        assert_eq!(status.conditions[0].reason, "Mirrored");
        object.status = status;
        assert_eq!(
            shown(&object, "lab", &facts, None, now),
            object.status,
            "nothing more to write"
        );
        let both = "10.0.0.1-10.0.0.2 with IPAddressPool m/a of cluster c".to_owned();
        facts.shared = Some(both.clone());
        object.status = shown(&object, "lab", &facts, None, now);
        let [_, shared] = &object.status.conditions[..] else {
            panic!("{:?}", object.status.conditions);
        };
        assert_eq!((&*shared.type_, &*shared.message), ("SharedRange", &*both));
        facts.shared = None;
        assert_eq!(shown(&object, "lab", &facts, None, now).conditions.len(), 1);
        facts.closed = true;
        assert_eq!(
            shown(&object, "lab", &facts, None, now).conditions[0].reason,
            "Closed"
        );
        facts.waiting = vec!["x".into()];
        let waits = shown(&object, "lab", &facts, None, now);
        assert_eq!(waits.conditions[0].reason, "WaitingForAdoption");
        assert_eq!(
            without_pool(&object, &orphan(), now).total,
            i64::MAX,
            "the last that is known"
        );
    }
}
