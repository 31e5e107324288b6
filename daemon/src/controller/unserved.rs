//! Why an object cannot be served, and what it waits for.

use fipd_core::{Lease, Ledger, NetworkId, Refusal, RefusalClass};

use super::conditions::CONFLICT;
use crate::controller::waiters::{self, Cause};

/// Reason of an object whose address is being checked on the wire.
pub const PROBING: &str = "AddressProbing";

/// Reason of one whose address somebody else has.
pub const TAKEN: &str = "AddressTaken";

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
        RefusalClass::AddressTaken(_) => TAKEN,
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

/// A pool that withholds all that it has is not full: somebody has to say which network it is in.
pub fn withheld(ledger: &Ledger, refusal: &Refusal) -> Option<Unserved> {
    let Refusal::Exhausted { pool, size: 0, .. } = refusal else {
        return None;
    };
    let doubt = ledger.ambiguity(ledger.find_pool(pool).ok()?.id)?;
    let cause = Some(Cause::Networks);
    Some(Unserved::new("NetworkAmbiguous", doubt, cause))
}

/// Another holds the address that the object uses.
pub fn contended(lease: &Lease) -> Unserved {
    let prefix = lease.prefix();
    let gets = match prefix.is_address() {
        true => "gets it",
        false => "gets what it uses of it",
    };
    let message = match lease.owner().map(|holder| &holder.identity) {
        Some(owner) => format!(
            "{prefix} is held by {owner}; this one {gets} when that is released, end one of the two uses"
        ),
        None => {
            format!("{prefix} is in quarantine after a release; this one {gets} when that ends")
        }
    };
    Unserved::new(CONFLICT, message, Some(Cause::Address(lease.key)))
}

/// Somebody gave the object a prefix.
pub fn has_prefix(lease: &Lease) -> Unserved {
    let message = format!(
        "it holds all of {}, which it cannot show: release that lease (`fipd lease release`)",
        lease.prefix()
    );
    Unserved::new(CONFLICT, message, Some(Cause::Address(lease.key)))
}

#[cfg(test)]
mod tests {
    use fipd_core::testing;

    use super::*;

    #[test]
    fn a_prefix_that_another_holds_is_named_with_its_length() {
        let owner = testing::holder("rancher-fip/Y/Service/ns/web", "1");
        let key = testing::key_of("2001:db8::");
        let lease = Lease {
            length: 64,
            ..testing::lease(key, None, [owner])
        };
        let problem = contended(&lease);
        let start = "2001:db8::/64 is held by rancher-fip/Y/Service/ns/web;";
        assert!(problem.message.starts_with(start), "{}", problem.message);
        assert_eq!(problem.cause, Some(Cause::Address(key)));
    }
}
