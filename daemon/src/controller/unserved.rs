//! Why an object cannot be served, and what it waits for.

use fipd_core::{Lease, NetworkId, Refusal, RefusalClass};

use super::conditions::CONFLICT;
use crate::controller::waiters::{self, Cause};

/// Why an object is not served, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// Reason of the Event.
    pub reason: &'static str,
    pub message: String,
    /// `None`: for a change of the object itself.
    pub cause: Option<Cause>,
}

impl Unserved {
    pub fn new(reason: &'static str, message: impl Into<String>, cause: Option<Cause>) -> Self {
        Self {
            reason,
            message: message.into(),
            cause,
        }
    }
}

/// The ledger said no.
pub fn refused(refusal: &Refusal, network: NetworkId) -> Unserved {
    let reason = match refusal.class() {
        RefusalClass::Exhausted => "PoolExhausted",
        RefusalClass::OverQuota(_) => "QuotaExceeded",
        RefusalClass::AddressTaken(_) => "AddressTaken",
        RefusalClass::NotAssignable => "AddressNotAssignable",
        RefusalClass::Ambiguous => "NetworkAmbiguous",
        RefusalClass::Held => "WaitingForAdoption",
        RefusalClass::RestoreHeld => "RestoreHold",
        RefusalClass::PoolClosed | RefusalClass::PoolNotFound => "PoolNotFound",
        RefusalClass::InvalidPool
        | RefusalClass::Invalid
        | RefusalClass::NotFound
        | RefusalClass::Exists
        | RefusalClass::PoolInUse
        | RefusalClass::WouldOrphan
        | RefusalClass::Collision
        | RefusalClass::Stale
        | RefusalClass::ChangedHands
        | RefusalClass::Conflict => "AllocationFailed",
    };
    Unserved::new(
        reason,
        refusal.to_string(),
        waiters::cause(refusal, network),
    )
}

/// Another holds the address that the object uses.
pub fn contended(lease: &Lease) -> Unserved {
    let owner = lease
        .owner()
        .map_or_else(|| "nobody".into(), |holder| holder.identity.to_string());
    let message = format!(
        "{} is held by {owner}; this one gets it when that is released, end one of the two uses",
        lease.key.address
    );
    Unserved::new(CONFLICT, message, Some(Cause::Address(lease.key)))
}
