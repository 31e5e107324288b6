//! The status of a claim.

use fipd_crds::fipd_io::AddressClaimStatus;
use k8s_openapi::jiff;

use super::observe::ClaimView;
use crate::{
    clock,
    controller::{
        address_user::outcome::{AddressOutcome, refused_ready, set_conditions},
        conditions::{CONFLICT, ConditionUpdate},
        unserved::Unserved,
    },
};

/// The lease is still charged to the tenant that the claim was of before.
pub const CHARGED: &str = "TenantCharged";

/// The status to write.
pub fn desired(
    claim: &ClaimView,
    outcome: &AddressOutcome,
    now: jiff::Timestamp,
) -> AddressClaimStatus {
    let conditions = claim.status.conditions.clone();
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
        Err(problem) if stays(problem) => claim.status.clone(),
        Err(_) => AddressClaimStatus {
            conditions,
            ..AddressClaimStatus::default()
        },
    };
    let generation = claim.meta.generation;
    let says = (ready(outcome), CHARGED);
    set_conditions(&mut status.conditions, outcome, says, generation, now);
    status
}

/// Whether the address in the status may be in use all the same: it is not known yet, or another holds it too.
fn stays(problem: &Unserved) -> bool {
    [CONFLICT, "WaitingForAdoption", "RestoreHold"].contains(&problem.reason)
}

fn ready(outcome: &AddressOutcome) -> ConditionUpdate {
    match outcome {
        Ok(shown) => refused_ready(shown).unwrap_or_else(|| {
            let message = format!("{} is the claim's", shown.address());
            ConditionUpdate::ready(true, "Allocated", message)
        }),
        Err(problem) => ConditionUpdate::ready(false, problem.reason, &*problem.message),
    }
}

#[cfg(test)]
mod tests {
    use fipd_crds::fipd_io::AddressClaim;

    use super::*;
    use crate::controller::address_user::outcome::{ShownLease, testing::shown};

    fn now() -> jiff::Timestamp {
        jiff::Timestamp::from_second(1_000).expect("a time")
    }

    #[test]
    fn an_address_is_shown_until_it_is_known_to_be_gone() {
        let mut claim = ClaimView::of(AddressClaim::default());
        claim.status = desired(&claim, &Ok(shown()), now());
        assert_eq!(claim.status.address, "10.0.0.5");
        assert_eq!(claim.status.since, "1970-01-01T00:00:01.000Z");
        assert_eq!(
            desired(&claim, &Ok(shown()), now()),
            claim.status,
            "nothing more to write"
        );
        let err = |reason| Err(Unserved::new(reason, "", None));
        for (reason, address, conditions) in [
            ("WaitingForAdoption", "10.0.0.5", 1),
            (CONFLICT, "10.0.0.5", 2),
            ("PoolExhausted", "", 1),
        ] {
            let status = desired(&claim, &err(reason), now());
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
        assert_eq!(desired(&claim, &Ok(both), now()).conditions.len(), 2);
    }
}
