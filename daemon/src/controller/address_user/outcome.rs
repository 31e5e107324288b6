//! What became of an object that uses an address, and the conditions that say so.

use std::net::IpAddr;

use fipd_core::{Lease, LeaseKey, Ledger, PoolId, Timestamp};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};

use crate::controller::{
    conditions::{CONFLICT, ConditionUpdate, also_used, note_condition, set, unset},
    unserved::Unserved,
    waiters::Cause,
};

pub use crate::controller::conditions::READY;

/// What became of an object.
pub type AddressOutcome = Result<ShownLease, Unserved>;

/// The lease that an object shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownLease {
    pub key: LeaseKey,
    pub pool_id: Option<PoolId>,
    pub prefix_len: u8,
    pub gateway: Option<IpAddr>,
    /// Empty while no pool has the address.
    pub pool: String,
    pub network: String,
    pub since: Timestamp,
    /// Who else was found using the address.
    pub contenders: Vec<String>,
    /// Why the tenant that the object names is not charged.
    pub uncharged: Option<Unserved>,
    /// What is not applied of the object's specification: the last accepted one stays in force.
    pub refused: Option<Unserved>,
    /// Why a new address was not checked on the wire, where it was to be.
    pub unchecked: Option<String>,
    /// What the object has or contends for beside it; given up once this one is shown.
    pub surplus: Vec<LeaseKey>,
}

impl ShownLease {
    pub fn of(ledger: &Ledger, lease: &Lease) -> Self {
        let pool = lease.pool.and_then(|id| ledger.pool(id));
        let network = ledger.network(lease.key.network);
        let contenders = lease.contenders.iter();
        Self {
            key: lease.key,
            pool_id: lease.pool,
            prefix_len: ledger.prefix_len(lease),
            gateway: pool.and_then(|pool| pool.spec.gateway),
            pool: pool.map_or_else(String::new, |pool| pool.spec.name.to_string()),
            network: network.map_or_else(String::new, |network| network.name.to_string()),
            since: lease.since,
            contenders: contenders
                .map(|one| one.holder.identity.to_string())
                .collect(),
            uncharged: None,
            refused: None,
            unchecked: None,
            surplus: Vec::new(),
        }
    }

    /// The same of one that stays because the object cannot have what it asks for.
    pub fn staying(self, problem: &Unserved) -> Self {
        let message = format!("{} stays: {}", self.address(), problem.message);
        let refused = Unserved::new(problem.reason, message, problem.cause.clone());
        Self {
            refused: Some(refused),
            surplus: Vec::new(),
            ..self
        }
    }

    pub fn address(&self) -> IpAddr {
        self.key.address
    }
}

/// What the object waits for.
pub fn cause(outcome: &AddressOutcome) -> Option<Cause> {
    let problem = match outcome {
        Ok(shown) => shown.refused.as_ref().or(shown.uncharged.as_ref()),
        Err(problem) => Some(problem),
    };
    problem.and_then(|problem| problem.cause.clone())
}

/// What is to be said of others on the same address.
pub fn conflict(outcome: &AddressOutcome) -> Option<String> {
    match outcome {
        Ok(shown) => also_used(shown.address(), &shown.contenders),
        Err(problem) if problem.reason == CONFLICT => Some(problem.message.clone()),
        Err(_) => None,
    }
}

/// What [`READY`] says where an edit is refused.
pub fn refused_ready(shown: &ShownLease) -> Option<ConditionUpdate> {
    shown.refused.as_ref().map(|problem| no(READY, problem))
}

/// Sets what all kinds say: `ready`, `charged` while another tenant is charged, and the conflict.
pub fn set_conditions(
    conditions: &mut Vec<Condition>,
    outcome: &AddressOutcome,
    (ready, charged): (ConditionUpdate, &'static str),
    generation: Option<i64>,
    now: jiff::Timestamp,
) {
    set(conditions, &ready, generation, now);
    let shown = outcome.as_ref().ok();
    match shown.and_then(|shown| shown.uncharged.as_ref()) {
        Some(problem) => set(conditions, &no(charged, problem), generation, now),
        None => unset(conditions, charged),
    }
    let kind = (CONFLICT, "AlsoUsedBy");
    note_condition(conditions, kind, conflict(outcome), generation, now);
}

fn no(kind: &'static str, problem: &Unserved) -> ConditionUpdate {
    ConditionUpdate {
        kind,
        status: false,
        reason: problem.reason,
        message: problem.message.clone(),
    }
}

#[cfg(any(test, feature = "fuzz"))]
pub mod testing {
    use fipd_core::NetworkId;

    use super::*;

    /// A lease of 10.0.0.5 from pool `lab`.
    pub fn shown() -> ShownLease {
        ShownLease {
            key: LeaseKey {
                network: NetworkId::DEFAULT,
                address: [10, 0, 0, 5].into(),
            },
            pool_id: Some(PoolId(1)),
            prefix_len: 24,
            gateway: None,
            pool: "lab".into(),
            network: "default".into(),
            since: Timestamp(1_000),
            contenders: vec![],
            uncharged: None,
            refused: None,
            unchecked: None,
            surplus: vec![],
        }
    }
}
