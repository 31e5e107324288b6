//! The status of a FloatingIP.

use std::net::IpAddr;

use fipd_crds::floating_ip::{Assigned, FloatingIPStatus, STATE_ALLOCATED, STATE_ERROR};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};
use sha2::{Digest, Sha256};

use super::observe::Fip;
use crate::{
    controller::{
        address_user::outcome::{AddressOutcome, refused_ready, set_conditions},
        conditions::ConditionUpdate,
    },
    systems::rancher_fip::names::hex,
};

pub use crate::controller::address_user::outcome::READY;

/// Reason of [`READY`]: the address is kept for the project. When that began is the time of the condition.
pub const UNASSIGNED: &str = "IPUnassigned";
/// The lease is still charged to the project that the object was of before.
pub const CHARGED: &str = "ProjectCharged";

/// The status to write.
pub fn desired(fip: &Fip, outcome: &AddressOutcome, now: jiff::Timestamp) -> FloatingIPStatus {
    let mut status = fip.status.clone();
    let says = match outcome {
        Ok(shown) => {
            let address = shown.address();
            // An address that means the same keeps the text it has.
            if status.ip_addr.parse() != Ok(address) {
                status.ip_addr = address.to_string();
            }
            status.state = STATE_ALLOCATED.into();
            status.assigned = assigned(fip);
            refused_ready(shown).unwrap_or_else(|| ready(address, status.assigned.is_some()))
        }
        Err(problem) => {
            status.state = STATE_ERROR.into();
            ConditionUpdate::ready(false, "AllocationFailed", &*problem.message)
        }
    };
    // The time is also that of a change between assigned and unassigned, as in the originals' log.
    let changed = |one: &&mut Condition| one.type_ == READY && one.reason != says.reason;
    for one in status.conditions.iter_mut().filter(changed) {
        one.status.clear();
    }
    let (says, generation) = ((says, CHARGED), fip.meta.generation);
    set_conditions(&mut status.conditions, outcome, says, generation, now);
    status
}

fn ready(address: IpAddr, assigned: bool) -> ConditionUpdate {
    let (reason, what) = match assigned {
        true => ("IPAssigned", "is assigned"),
        false => (UNASSIGNED, "is kept for the project and used by no cluster"),
    };
    ConditionUpdate::ready(true, reason, format!("{address} {what}"))
}

/// Who uses the address; `None`: nobody.
pub fn assigned(fip: &Fip) -> Option<Assigned> {
    let cluster_name = fip.cluster.clone()?;
    let before = fip.status.assigned.clone().unwrap_or_default();
    let shared_key = match (&fip.group, before.shared_key.is_empty()) {
        (None, _) => String::new(),
        (Some(_), false) => before.shared_key,
        (Some(_), true) => shared_key(&cluster_name, &fip.meta.uid),
    };
    // A label that was taken away changes nothing.
    let project = fip.project.as_ref().map(|project| project.0.to_string());
    Some(Assigned {
        cluster_name,
        project_name: project.unwrap_or(before.project_name),
        services: fip.services.clone(),
        floating_ip_group: fip.group.clone().unwrap_or_default(),
        shared_key,
    })
}

/// `<cluster>-<12 letters and digits>`, the same for the same object.
fn shared_key(cluster: &str, uid: &str) -> String {
    let hash = Sha256::new_with_prefix(format!("{cluster}/{uid}"));
    format!("{cluster}-{}", hex(hash, 6))
}

#[cfg(test)]
mod tests {
    use fipd_core::Tenant;
    use fipd_crds::floating_ip::FloatingIP;

    use super::*;
    use crate::{
        controller::{
            address_user::outcome::{ShownLease, testing},
            conditions::REFUSED,
            unserved::Unserved,
        },
        systems::rancher_fip::floating_ip::observe::view,
    };

    fn now() -> jiff::Timestamp {
        jiff::Timestamp::from_second(1_000).expect("a time")
    }

    fn shown(contenders: &[&str]) -> AddressOutcome {
        Ok(ShownLease {
            contenders: contenders.iter().map(|one| (*one).to_owned()).collect(),
            ..testing::shown()
        })
    }

    fn fip() -> Fip {
        let mut fip = view(FloatingIP::default());
        fip.project = Some(Tenant("p-1".into()));
        fip
    }

    #[test]
    fn assigned_while_a_cluster_has_it() {
        let mut fip = fip();
        let kept = desired(&fip, &shown(&[]), now());
        assert_eq!(
            (kept.ip_addr.as_str(), kept.state.as_str()),
            ("10.0.0.5", STATE_ALLOCATED)
        );
        assert_eq!(kept.assigned, None);
        assert_eq!(kept.conditions[0].reason, "IPUnassigned");
        fip.cluster = Some("c-m-1".into());
        fip.group = Some("web".into());
        fip.status = kept;
        let used = desired(&fip, &shown(&[]), now());
        let assigned = used.assigned.clone().expect("assigned");
        assert_eq!(
            (
                assigned.cluster_name.as_str(),
                assigned.project_name.as_str()
            ),
            ("c-m-1", "p-1")
        );
        assert_eq!(assigned.shared_key.len(), "c-m-1-".len() + 12);
        assert_eq!(used.conditions[0].reason, "IPAssigned");
        fip.status = used.clone();
        assert_eq!(
            desired(&fip, &shown(&[]), now()),
            used,
            "nothing more to write"
        );
    }

    #[test]
    fn the_time_of_the_condition_is_that_of_the_change_to_unassigned() {
        let at = |second| jiff::Timestamp::from_second(second).expect("a time");
        let mut fip = fip();
        fip.cluster = Some("c-m-1".into());
        let since = |fip: &Fip| fip.status.conditions[0].last_transition_time.0;
        fip.status = desired(&fip, &shown(&[]), at(10));
        fip.status = desired(&fip, &shown(&[]), at(20));
        assert_eq!(since(&fip), at(10));
        fip.cluster = None;
        fip.status = desired(&fip, &shown(&[]), at(30));
        fip.status = desired(&fip, &shown(&[]), at(40));
        assert_eq!(since(&fip), at(30));
        assert_eq!(fip.status.conditions[0].reason, UNASSIGNED);
    }

    #[test]
    fn an_error_ends_and_a_conflict_is_shown() {
        let mut fip = fip();
        let problem = Unserved::new("PoolExhausted", "no free address", None);
        fip.status = desired(&fip, &Err(problem), now());
        assert_eq!(
            (fip.status.state.as_str(), fip.status.ip_addr.as_str()),
            (STATE_ERROR, "")
        );
        fip.status = desired(&fip, &shown(&["x/Service/a/b"]), now());
        assert_eq!(fip.status.state, STATE_ALLOCATED);
        assert_eq!(fip.status.conditions.len(), 2);
        fip.status = desired(&fip, &shown(&[]), now());
        assert_eq!(fip.status.conditions.len(), 1);
    }

    #[test]
    fn a_refused_edit_leaves_the_address_and_says_the_rule() {
        let mut fip = fip();
        fip.status = desired(&fip, &shown(&[]), now());
        let refused = Ok(ShownLease {
            refused: Some(Unserved::new(REFUSED, "the rule", None)),
            ..testing::shown()
        });
        let status = desired(&fip, &refused, now());
        let ready = &status.conditions[0];
        assert_eq!(
            (status.state.as_str(), status.ip_addr.as_str()),
            (STATE_ALLOCATED, "10.0.0.5")
        );
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_str()),
            ("False", REFUSED)
        );
        assert_eq!(ready.message, "the rule");
        fip.status = status;
        let later = jiff::Timestamp::from_second(2_000).expect("a time");
        assert_eq!(
            desired(&fip, &refused, later),
            fip.status,
            "nothing more to write"
        );
    }
}
