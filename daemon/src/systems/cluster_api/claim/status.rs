//! What the status of a claim says, in either version of its API.

use fipd_crds::cluster_api::{AddressRef, AnyCondition, IPAddressClaimStatus};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};

use super::observe::IpClaimView;
use crate::{
    controller::{
        address_user::{
            claim_status::CHARGED,
            outcome::{AddressOutcome, refused_ready, set_conditions},
        },
        conditions::{ConditionUpdate, set},
        unserved::{PROBING, Unserved},
    },
    systems::cluster_api::names::{
        ADDRESS_ALLOCATED, ADDRESS_CHECKED, ALLOCATION_FAILED, NO_INTERFACE, POOL_EXHAUSTED,
        POOL_NOT_READY, READY,
    },
};

/// The status to write.
pub fn desired(
    claim: &IpClaimView,
    outcome: &AddressOutcome,
    now: jiff::Timestamp,
) -> IPAddressClaimStatus {
    let mut status = claim.status.clone();
    if outcome.is_ok() {
        // While a claim is there its IPAddress stays, so this is never taken back.
        status.address_ref = Some(AddressRef {
            name: claim.meta.name.to_string(),
        });
    }
    let mut conditions = claim.conditions.clone();
    let says = (ready(outcome), CHARGED);
    set_conditions(&mut conditions, outcome, says, claim.meta.generation, now);
    // It is about the time when the address was given, and stays.
    if let Some(message) = outcome.as_ref().ok().and_then(|one| one.unchecked.clone()) {
        let says = ConditionUpdate {
            kind: ADDRESS_CHECKED,
            status: false,
            reason: NO_INTERFACE,
            message,
        };
        set(&mut conditions, &says, claim.meta.generation, now);
    }
    if claim.is_v1beta1 {
        set_v1beta1(&mut status.conditions, &conditions);
        status.v1beta2.get_or_insert_default().conditions = any(conditions);
    } else {
        status.conditions = any(conditions);
    }
    status
}

fn any(conditions: Vec<Condition>) -> Vec<AnyCondition> {
    conditions.into_iter().map(AnyCondition::from).collect()
}

/// `Ready` as Cluster API's conditions of v1beta1 have it, which know a severity and no generation.
fn set_v1beta1(before: &mut Vec<AnyCondition>, conditions: &[Condition]) {
    let Some(ready) = conditions.iter().find(|one| one.type_ == READY) else {
        return;
    };
    let failed = ready.status != "True";
    let ready = AnyCondition {
        severity: failed.then(|| "Warning".to_owned()),
        observed_generation: None,
        reason: failed.then(|| ready.reason.clone()),
        message: failed.then(|| ready.message.clone()),
        ..AnyCondition::from(ready.clone())
    };
    match before.iter_mut().find(|one| one.type_ == READY) {
        Some(one) => *one = ready,
        None => before.push(ready),
    }
}

fn ready(outcome: &AddressOutcome) -> ConditionUpdate {
    match outcome {
        Ok(shown) => refused_ready(shown).unwrap_or_else(|| {
            let (address, pool) = (shown.address(), &shown.pool);
            let message = format!("{address} of pool {pool} is allocated");
            ConditionUpdate::ready(true, ADDRESS_ALLOCATED, message)
        }),
        Err(problem) => ConditionUpdate::ready(false, reason(problem), &*problem.message),
    }
}

/// Cluster API knows three reasons; the Event has our own. None of them is for what has not failed.
fn reason(problem: &Unserved) -> &'static str {
    match problem.reason {
        "PoolExhausted" => POOL_EXHAUSTED,
        "PoolNotFound" | "PoolPaused" | "NetworkAmbiguous" | "WaitingForAdoption"
        | "RestoreHold" => POOL_NOT_READY,
        PROBING => PROBING,
        _ => ALLOCATION_FAILED,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::address_user::outcome::{ShownLease, testing::shown};

    fn claim(version: &str, status: &Value) -> IpClaimView {
        let object = json!({
            "apiVersion": format!("ipam.cluster.x-k8s.io/{version}"), "kind": "IPAddressClaim",
            "metadata": { "name": "node-0", "namespace": "ns", "generation": 3 },
            "spec": { "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p" } },
            "status": status,
        });
        IpClaimView::of(serde_json::from_value(object).expect("a claim"))
    }

    fn written(claim: &IpClaimView, outcome: &AddressOutcome) -> Value {
        let now = jiff::Timestamp::from_second(1_000).expect("a time");
        serde_json::to_value(desired(claim, outcome, now)).expect("a status")
    }

    #[test]
    fn e_16_both_versions_say_why_a_claim_waits_and_what_it_got() {
        let failed = |reason| Err(Unserved::new(reason, "why", None));
        for (ours, theirs) in [
            ("PoolExhausted", "PoolExhausted"),
            ("PoolNotFound", "PoolNotReady"),
            ("WaitingForAdoption", "PoolNotReady"),
            ("AddressTaken", "AllocationFailed"),
            ("AddressProbing", "AddressProbing"),
            ("AddressProbeFailed", "AllocationFailed"),
            ("Invalid", "AllocationFailed"),
        ] {
            let new = written(&claim("v1beta2", &json!({})), &failed(ours));
            assert_eq!(new["conditions"][0]["reason"], theirs, "{ours}");
            assert_eq!(new["addressRef"], Value::Null);
            let old = written(&claim("v1beta1", &json!({})), &failed(ours));
            let ready = &old["conditions"][0];
            assert_eq!(
                (&ready["reason"], &ready["severity"]),
                (&json!(theirs), &json!("Warning"))
            );
            assert_eq!(ready["observedGeneration"], Value::Null, "v1beta1 has none");
            assert_eq!(old["v1beta2"]["conditions"][0]["reason"], theirs);
        }
        let status = written(&claim("v1beta2", &json!({})), &Ok(shown()));
        assert_eq!(status["addressRef"]["name"], "node-0");
        assert_eq!(status["conditions"][0]["reason"], "AddressAllocated");
        assert_eq!(status["conditions"][0]["observedGeneration"], 3);
        let again = claim("v1beta2", &status);
        assert_eq!(
            written(&again, &Ok(shown())),
            status,
            "nothing more to write"
        );
        let lost = written(&again, &failed("RestoreHold"));
        assert_eq!(
            lost["addressRef"]["name"], "node-0",
            "it stays with its claim"
        );
        let old = written(&claim("v1beta1", &json!({})), &Ok(shown()));
        assert_eq!(written(&claim("v1beta1", &old), &Ok(shown())), old);
        assert_eq!(old["conditions"][0]["status"], "True");
    }

    #[test]
    fn an_address_that_was_not_checked_stays_so() {
        let shown = ShownLease {
            unchecked: Some("why".into()),
            ..shown()
        };
        for version in ["v1beta2", "v1beta1"] {
            let status = written(&claim(version, &json!({})), &Ok(shown.clone()));
            let conditions = |status: &Value| match version {
                "v1beta1" => status["v1beta2"]["conditions"].clone(),
                _ => status["conditions"].clone(),
            };
            let one = &conditions(&status)[1];
            let said = [&one["type"], &one["status"], &one["reason"]];
            assert_eq!(said, ["AddressChecked", "False", "NoInterface"]);
            let checked = ShownLease {
                unchecked: None,
                ..shown.clone()
            };
            let later = written(&claim(version, &status), &Ok(checked));
            assert_eq!(conditions(&later), conditions(&status));
        }
    }

    #[test]
    fn conditions_of_others_stay() {
        let other = json!({
            "type": "Theirs", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({ "conditions": [other], "deprecated": { "v1beta1": { "conditions": [{ "type": "Old", "status": "True" }] } } });
        let after = written(&claim("v1beta2", &status), &Ok(shown()));
        assert_eq!(after["conditions"][0], other);
        assert_eq!(after["conditions"][1]["type"], "Ready");
        assert_eq!(after["deprecated"], status["deprecated"]);
    }
}
