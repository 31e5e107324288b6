//! What the client hears of a refusal. It does not ask again after `denied the request`, so only what does not pass by
//! itself says so; and it hears nothing of other projects.

use fipd_core::{NetworkId, Refusal};
use http::StatusCode;

use super::decide::{TAKEN, denied};
use crate::{controllers::problem, fip_v1::Denied, ipam::IpamError};

/// The address book said no, or nothing.
pub fn error(error: &IpamError) -> Denied {
    match error {
        IpamError::Refused(refusal) => refused(refusal),
        IpamError::Store(_)
        | IpamError::Forbidden(_)
        | IpamError::Stale(_)
        | IpamError::Stopping => {
            tracing::warn!(%error, "a request of an LB controller was not decided");
            Denied::late()
        }
    }
}

fn refused(refusal: &Refusal) -> Denied {
    match problem::refused(refusal, NetworkId::DEFAULT).reason {
        "AddressTaken" => Denied::new(StatusCode::CONFLICT, TAKEN),
        "WaitingForAdoption" | "RestoreHold" => {
            tracing::info!(why = %refusal, "an LB controller is told to ask later");
            Denied::late()
        }
        "PoolExhausted" => Denied::new(StatusCode::INTERNAL_SERVER_ERROR, refusal.to_string()),
        _ => denied(refusal),
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::Tenant;

    use super::*;

    #[test]
    fn what_passes_by_itself_is_asked_again() {
        let heard = |refusal| refused(&refusal);
        let quota = heard(Refusal::QuotaExceeded {
            tenant: Tenant("p-a".into()),
            pool: "net".into(),
            used: 2,
            limit: 2,
        });
        assert_eq!(quota.code, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(
            quota.message.contains("denied the request: quota exceeded"),
            "{quota}"
        );
        let full = heard(Refusal::Exhausted {
            pool: "net".into(),
            used: 2,
            size: 2,
        });
        assert!(!full.message.contains("denied the request"), "{full}");
        let taken = heard(Refusal::AddressTaken {
            address: [10, 0, 0, 5].into(),
            owner: "FloatingIP of another project".into(),
        });
        assert_eq!(taken, Denied::new(StatusCode::CONFLICT, TAKEN));
        let held = heard(Refusal::NetworkHeld {
            network: "default".into(),
            waiting: vec![],
        });
        assert_eq!(held, Denied::late());
    }
}
