//! The status of a claim, and of other objects that show as much.

use fipd_crds::fipd_io::AddressClaimStatus;
use k8s_openapi::jiff;

use super::outcome::{AddressOutcome, refused_ready, set_conditions};
use crate::{
    clock,
    controller::{
        conditions::{CONFLICT, ConditionUpdate},
        unserved::Unserved,
    },
};

/// The lease is still charged to the tenant that the object was of before.
pub const CHARGED: &str = "TenantCharged";

/// The status to write in the place of `before`.
pub fn desired(
    before: &AddressClaimStatus,
    generation: Option<i64>,
    outcome: &AddressOutcome,
    now: jiff::Timestamp,
) -> AddressClaimStatus {
    let conditions = before.conditions.clone();
    let mut status = match outcome {
        Ok(shown) => AddressClaimStatus {
            address: shown.address().to_string(),
            prefix_length: Some(shown.prefix_len.into()),
            gateway: shown
                .gateway
                .map_or_else(String::new, |one| one.to_string()),
            pool: shown.pool.clone(),
            network: shown.network.clone(),
            since: clock::rfc3339(shown.since),
            conditions,
        },
        Err(problem) if stays(problem) => before.clone(),
        Err(_) => AddressClaimStatus {
            conditions,
            ..AddressClaimStatus::default()
        },
    };
    let says = (ready(outcome), CHARGED);
    set_conditions(&mut status.conditions, outcome, says, generation, now);
    status
}

/// Reasons with which the address in the status may be in use all the same: it is not known yet, or another holds it too.
pub const MAY_BE_IN_USE: [&str; 3] = [CONFLICT, "WaitingForAdoption", "RestoreHold"];

fn stays(problem: &Unserved) -> bool {
    MAY_BE_IN_USE.contains(&problem.reason)
}

fn ready(outcome: &AddressOutcome) -> ConditionUpdate {
    match outcome {
        Ok(shown) => refused_ready(shown).unwrap_or_else(|| {
            let message = format!("{} is allocated", shown.address());
            ConditionUpdate::ready(true, "Allocated", message)
        }),
        Err(problem) => ConditionUpdate::ready(false, problem.reason, &*problem.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::address_user::outcome::{ShownLease, testing::shown};

    fn now() -> jiff::Timestamp {
        jiff::Timestamp::from_second(1_000).expect("a time")
    }

    #[test]
    fn an_address_is_shown_until_it_is_known_to_be_gone() {
        let after = |before: &AddressClaimStatus, outcome: &AddressOutcome| {
            desired(before, Some(1), outcome, now())
        };
        let before = after(&AddressClaimStatus::default(), &Ok(shown()));
        assert_eq!(before.address, "10.0.0.5");
        assert_eq!(before.since, "1970-01-01T00:00:01.000Z");
        let again = after(&before, &Ok(shown()));
        assert_eq!(again, before, "nothing more to write");
        let err = |reason| Err(Unserved::new(reason, "", None));
        for (reason, address, conditions) in [
            ("WaitingForAdoption", "10.0.0.5", 1),
            (CONFLICT, "10.0.0.5", 2),
            ("PoolExhausted", "", 1),
        ] {
            let status = after(&before, &err(reason));
            assert_eq!(
                (status.address.as_str(), status.conditions.len()),
                (address, conditions),
                "{reason}"
            );
            assert_eq!(status.conditions[0].reason, reason);
        }
        let both = ShownLease {
            contenders: vec!["x/y".into()],
            ..shown()
        };
        assert_eq!(after(&before, &Ok(both)).conditions.len(), 2);
    }
}
