//! The status of a FlatNetworkIP. Pure.

use fipd_crds::flat_network::FlatNetworkIPStatus;
use k8s_openapi::jiff;

use super::FlatIpView;
use crate::{
    controller::{
        address_user::outcome::{AddressOutcome, READY, refused_ready, set_conditions},
        conditions::ConditionUpdate,
    },
    systems::flat_network::names::{ACTIVE, FAILED, PENDING},
};

/// Type of the condition while another tenant is charged.
const CHARGED: &str = "Charged";

/// The status to write. It is `Active` once its pod has the address, which the node says.
pub(super) fn desired(
    ip: &FlatIpView,
    outcome: &AddressOutcome,
    now: jiff::Timestamp,
) -> FlatNetworkIPStatus {
    let mut status = ip.status.clone();
    match outcome {
        Ok(shown) => {
            let address = shown.address().to_string();
            let same = status.addr == address;
            if !same {
                status.mac = String::new();
            }
            // From then on the pod has a while to use it.
            if !same || ![ACTIVE, PENDING].contains(&&*status.phase) {
                status.allocated_time_stamp = to_the_second(now);
                PENDING.clone_into(&mut status.phase);
            }
            status.addr = address;
            if let Some(mac) = ip.mac.as_ref().filter(|_| status.mac.is_empty()) {
                status.mac.clone_from(mac);
            }
            status.failure_message.clear();
        }
        Err(problem) => {
            // A pod that has its address goes on with it: the node would not say so again.
            if status.addr.is_empty() {
                FAILED.clone_into(&mut status.phase);
            }
            status.failure_message.clone_from(&problem.message);
        }
    }
    let ready = match outcome {
        Ok(shown) => refused_ready(shown).unwrap_or_else(|| {
            let message = format!("{} of pool {}", shown.address(), shown.pool);
            ConditionUpdate::ready(true, "Allocated", message)
        }),
        Err(problem) => ConditionUpdate::ready(false, problem.reason, problem.message.clone()),
    };
    debug_assert_eq!(ready.kind, READY, "there is one such condition");
    let generation = ip.meta.generation;
    set_conditions(
        &mut status.conditions,
        outcome,
        (ready, CHARGED),
        generation,
        now,
    );
    status
}

/// As the original writes times.
pub fn to_the_second(now: jiff::Timestamp) -> String {
    let second = jiff::Timestamp::from_second(now.as_second());
    second.map_or_else(|_| String::new(), |second| second.to_string())
}

#[cfg(test)]
mod tests {
    use fipd_crds::flat_network::{FlatNetworkIP, FlatNetworkIPSpec};

    use super::*;
    use crate::controller::{address_user::outcome::testing::shown, unserved::Unserved};

    fn now() -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(1_000_250).expect("a time")
    }

    fn ip(status: FlatNetworkIPStatus) -> FlatIpView {
        let mut object = FlatNetworkIP::new("web-0", FlatNetworkIPSpec::default());
        object.status = Some(status);
        FlatIpView::of(object)
    }

    /// Rows 54 and 55 of the contract.
    #[test]
    fn an_address_is_pending_until_its_pod_has_it_and_failed_without_one() {
        let first = desired(&ip(FlatNetworkIPStatus::default()), &Ok(shown()), now());
        assert_eq!((&*first.phase, &*first.addr), (PENDING, "10.0.0.5"));
        assert_eq!(first.allocated_time_stamp, "1970-01-01T00:16:40Z");
        assert_eq!(first.mac, "");
        let used = FlatNetworkIPStatus {
            phase: ACTIVE.into(),
            mac: "aa:bb:cc:dd:ee:ff".into(),
            ..first
        };
        assert_eq!(desired(&ip(used.clone()), &Ok(shown()), now()), used);
        let full = Err(Unserved::new(
            "PoolExhausted",
            "no available IP address",
            None,
        ));
        let failed = desired(&ip(FlatNetworkIPStatus::default()), &full, now());
        assert_eq!((&*failed.phase, &*failed.addr), (FAILED, ""));
        assert_eq!(failed.failure_message, "no available IP address");
        let taken = Err(Unserved::new("AddressConflict", "another has it", None));
        let contended = desired(&ip(used.clone()), &taken, now());
        assert_eq!(
            (&*contended.phase, &*contended.failure_message),
            (ACTIVE, "another has it")
        );
        let mended = desired(&ip(contended), &Ok(shown()), now());
        assert_eq!((&*mended.phase, &*mended.failure_message), (ACTIVE, ""));
        let mut chosen = ip(FlatNetworkIPStatus::default());
        chosen.mac = Some("aa:bb:cc:dd:ee:01".into());
        let status = desired(&chosen, &Ok(shown()), now());
        assert_eq!(status.mac, "aa:bb:cc:dd:ee:01");
    }
}
