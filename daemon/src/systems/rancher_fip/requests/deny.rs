//! What the client hears of a refusal. It does not ask again after `denied the request`, so only what does not pass by
//! itself says so; and it hears nothing of other projects.

use fipd_core::{Refusal, RefusalClass};
use http::StatusCode;

use super::decide::{TAKEN, denied};
use crate::{fip_v1::Denied, ipam::IpamError};

/// Why an object has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct No {
    pub said: Denied,
    /// It will get none by what was asked so far; else that may be under way.
    pub certain: bool,
}

impl From<Denied> for No {
    fn from(said: Denied) -> Self {
        let open = [Denied::late(), Denied::elsewhere()];
        let certain = !open.contains(&said);
        Self { said, certain }
    }
}

impl From<&IpamError> for No {
    fn from(why: &IpamError) -> Self {
        Self {
            said: error(why),
            certain: matches!(why, IpamError::Refused(_)),
        }
    }
}

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
    let class = refusal.class();
    if let RefusalClass::AddressTaken(_) = class {
        Denied::new(StatusCode::CONFLICT, TAKEN)
    } else if matches!(class, RefusalClass::Held | RefusalClass::RestoreHeld) {
        tracing::info!(why = %refusal, "an LB controller is told to ask later");
        Denied::late()
    } else if class == RefusalClass::Exhausted {
        Denied::new(StatusCode::INTERNAL_SERVER_ERROR, refusal.to_string())
    } else {
        denied(refusal)
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

    #[test]
    fn a_refusal_is_certain_though_the_client_is_told_to_ask_later() {
        let held = IpamError::Refused(Refusal::NetworkHeld {
            network: "default".into(),
            waiting: vec![],
        });
        let said = Denied::late();
        let no = |certain| No {
            said: said.clone(),
            certain,
        };
        assert_eq!(No::from(&held), no(true));
        assert_eq!(No::from(&IpamError::Stopping), no(false));
        assert_eq!(No::from(Denied::late()), no(false));
        assert!(!No::from(Denied::elsewhere()).certain);
        assert!(No::from(denied("quota exceeded")).certain);
    }
}
