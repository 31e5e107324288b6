//! Why an object cannot be served, and what it waits for.

use fipd_core::{Lease, NetworkId, Refusal};

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
    let reason = match refusal {
        Refusal::Exhausted { .. } | Refusal::NoneGives { .. } => "PoolExhausted",
        Refusal::QuotaExceeded { .. } => "QuotaExceeded",
        Refusal::AddressTaken { .. } | Refusal::Quarantined { .. } => "AddressTaken",
        Refusal::NotAssignable { .. } => "AddressNotAssignable",
        Refusal::NetworkAmbiguous { .. } => "NetworkAmbiguous",
        Refusal::NetworkHeld { .. } | Refusal::PoolHeld { .. } => "WaitingForAdoption",
        Refusal::RestoreHeld { .. } => "RestoreHold",
        Refusal::NoPool { .. }
        | Refusal::PoolClosed(_)
        | Refusal::UnknownPool(_)
        | Refusal::UnknownNetwork(_) => "PoolNotFound",
        Refusal::UnknownCluster(_)
        | Refusal::PoolExists(_)
        | Refusal::NoPoolNumber
        | Refusal::PoolInUse { .. }
        | Refusal::WouldOrphan { .. }
        | Refusal::Collisions { .. }
        | Refusal::Stale { .. }
        | Refusal::UnknownAccount(_)
        | Refusal::AccountExists(_)
        | Refusal::TokenNameTaken(_)
        | Refusal::LastAdmin(_)
        | Refusal::NotHeld(_)
        | Refusal::ChangedHands { .. }
        | Refusal::NotTransferable { .. }
        | Refusal::NotShareable { .. }
        | Refusal::NotProbed { .. }
        | Refusal::Invalid { .. }
        | Refusal::Pool(_) => "AllocationFailed",
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
