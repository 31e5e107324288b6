//! Addresses for a holder that comes later: an allocation whose leases are not in use yet.

use std::sync::Arc;

use super::{Ledger, plan::Draw, plan_adopt::renew};
use crate::{Action, Holder, Lease, LeaseState, Member, Refusal, Reserve, Timestamp};

/// What the addresses are for.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Use,
    /// Kept until then.
    Keep(Option<Timestamp>),
}

impl Ledger {
    pub(super) fn plan_reserve(&mut self, ask: &Reserve, now: Timestamp) -> Draw {
        if let Some(until) = ask.until.filter(|until| *until <= now) {
            return Err(Refusal::Invalid {
                field: "until",
                value: until.0.to_string(),
                allowed: "a time in the future".to_owned(),
            }
            .into());
        }
        if let Some(share) = &ask.ask.share {
            return Err(Refusal::Invalid {
                field: "share",
                value: share.key.to_string(),
                allowed: "nothing: what is reserved is not shared".to_owned(),
            }
            .into());
        }
        self.plan_allocate(&ask.ask, Purpose::Keep(ask.until), now)
    }
}

impl Purpose {
    /// What becomes of a lease that the holder's identity has already; `None` if it stays as it is.
    pub fn again(self, lease: &Arc<Lease>, holder: &Holder) -> Option<(Arc<Lease>, Action)> {
        let until = match self {
            Self::Keep(until) if lease.state == LeaseState::Reserved => until,
            // In use, which is more than kept.
            Self::Keep(_) => return None,
            Self::Use => {
                let (next, revived) = renew(lease, holder, false)?;
                let action = if revived {
                    Action::Allocated
                } else {
                    Action::InstanceChanged
                };
                return Some((next, action));
            }
        };
        let mut next = Lease::clone(lease);
        next.until = until;
        let mine = |member: &&mut Member| member.holder.identity == holder.identity;
        for member in next.members.iter_mut().filter(mine) {
            member.holder.instance = Arc::clone(&holder.instance);
        }
        (next != **lease).then(|| (Arc::new(next), Action::Reserved))
    }

    /// Makes a new lease what it is for.
    pub fn dedicate(self, lease: &mut Lease) -> Action {
        match self {
            Self::Use => Action::Allocated,
            Self::Keep(until) => {
                lease.state = LeaseState::Reserved;
                lease.until = until;
                Action::Reserved
            }
        }
    }
}
