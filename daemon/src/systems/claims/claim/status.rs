//! The status of a claim.

use std::net::IpAddr;

use fipd_core::{Lease, Ledger, Timestamp};
use fipd_crds::fipd_io::AddressClaimStatus;
use k8s_openapi::jiff;

use super::observe::Claim;
use crate::{
    clock,
    controller::{
        conditions::{CONFLICT, ConditionUpdate, also_used, set, set_conflict},
        unserved::Unserved,
    },
};

pub const READY: &str = "Ready";

/// What became of a claim.
pub type Outcome = Result<Shown, Unserved>;

/// The lease that it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub address: IpAddr,
    pub prefix_len: u8,
    pub gateway: Option<IpAddr>,
    /// Empty while no pool has the address.
    pub pool: String,
    pub network: String,
    pub since: Timestamp,
    /// Who else was found using the address.
    pub contenders: Vec<String>,
}

impl Shown {
    pub fn of(ledger: &Ledger, lease: &Lease) -> Self {
        let pool = lease.pool.and_then(|id| ledger.pool(id));
        let contenders = lease.contenders.iter();
        Self {
            address: lease.key.address,
            prefix_len: ledger.prefix_len(lease),
            gateway: pool.and_then(|pool| pool.spec.gateway),
            pool: pool.map_or_else(String::new, |pool| pool.spec.name.to_string()),
            network: ledger
                .network(lease.key.network)
                .map_or_else(String::new, |network| network.name.to_string()),
            since: lease.since,
            contenders: contenders
                .map(|one| one.holder.identity.to_string())
                .collect(),
        }
    }
}

/// The status to write.
pub fn desired(claim: &Claim, outcome: &Outcome, now: jiff::Timestamp) -> AddressClaimStatus {
    let conditions = claim.status.conditions.clone();
    let mut status = match outcome {
        Ok(shown) => AddressClaimStatus {
            address: shown.address.to_string(),
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
    set(
        &mut status.conditions,
        &ready(outcome),
        claim.meta.generation,
        now,
    );
    set_conflict(
        &mut status.conditions,
        conflict(outcome),
        claim.meta.generation,
        now,
    );
    status
}

/// What is to be said of others on the same address.
pub fn conflict(outcome: &Outcome) -> Option<String> {
    match outcome {
        Ok(shown) => also_used(shown.address, &shown.contenders),
        Err(problem) if problem.reason == CONFLICT => Some(problem.message.clone()),
        Err(_) => None,
    }
}

/// Whether the address in the status may be in use all the same: it is not known yet, or another holds it too.
fn stays(problem: &Unserved) -> bool {
    [CONFLICT, "WaitingForAdoption", "RestoreHold"].contains(&problem.reason)
}

fn ready(outcome: &Outcome) -> ConditionUpdate {
    match outcome {
        Ok(shown) => ConditionUpdate {
            kind: READY,
            status: true,
            reason: "Allocated",
            message: format!("{} is the claim's", shown.address),
        },
        Err(problem) => ConditionUpdate {
            kind: READY,
            status: false,
            reason: problem.reason,
            message: problem.message.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use fipd_crds::fipd_io::AddressClaim;

    use super::*;
    use crate::systems::claims::claim::observe::slim;

    fn now() -> jiff::Timestamp {
        jiff::Timestamp::from_second(1_000).expect("a time")
    }

    fn shown() -> Shown {
        Shown {
            address: [10, 0, 0, 5].into(),
            prefix_len: 24,
            gateway: None,
            pool: "lab".into(),
            network: "default".into(),
            since: Timestamp(1_000),
            contenders: vec![],
        }
    }

    #[test]
    fn an_address_is_shown_until_it_is_known_to_be_gone() {
        let mut claim = slim(AddressClaim::default());
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
        let both = Shown {
            contenders: vec!["x/y".into()],
            ..shown()
        };
        assert_eq!(desired(&claim, &Ok(both), now()).conditions.len(), 2);
    }
}
