//! Addresses for a holder that comes later: an allocation whose leases are not in use yet.

use std::sync::Arc;

use super::adopt::renew;
use crate::{
    Action, Allocate, Holder, Lease, LeaseState, Member, Refusal, Reserve, Timestamp,
    ledger::{
        Ledger,
        draft::{Draft, Draw},
    },
};

/// What the addresses are for.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Use,
    /// Checked on the wire first, until then.
    Probe(Timestamp),
    /// Kept until then.
    Keep(Option<Timestamp>),
}

impl Ledger {
    pub(super) fn plan_reserve(&mut self, ask: &Reserve, draft: Draft) -> Draw {
        if let Some(until) = ask.until.filter(|until| *until <= draft.now) {
            return Err(Refusal::invalid("until", until.0, "a time in the future").into());
        }
        if let Some(share) = &ask.ask.share {
            let allowed = "nothing: what is reserved is not shared";
            return Err(Refusal::invalid("share", &share.key, allowed).into());
        }
        if ask.ask.probe {
            let allowed = "false: what is reserved is checked when it is allocated";
            return Err(Refusal::invalid("probe", true, allowed).into());
        }
        self.plan_allocate(&ask.ask, Some(Purpose::Keep(ask.until)), draft)
    }
}

impl Purpose {
    /// What an allocation is for.
    pub fn of(ask: &Allocate, now: Timestamp) -> Self {
        if ask.probe {
            Self::Probe(Timestamp(now.0.saturating_add(Allocate::PROBE_TIME)))
        } else {
            Self::Use
        }
    }

    /// What becomes of a lease that the holder's identity has already; `None` if it stays as it is.
    pub fn again(self, lease: &Arc<Lease>, holder: &Holder) -> Option<(Arc<Lease>, Action)> {
        let (state, until, action) = match self {
            Self::Keep(until) if lease.state == LeaseState::Reserved => {
                (LeaseState::Reserved, until, Action::Reserved)
            }
            Self::Probe(until) if lease.state == LeaseState::Reserved => {
                (LeaseState::Probing, Some(until), Action::Probing)
            }
            // In use, which is more than kept.
            Self::Keep(_) => return None,
            Self::Use | Self::Probe(_) => {
                // Who does not check the address uses it from here on.
                let (next, revived) = renew(lease, holder, matches!(self, Self::Use))?;
                let action = if revived {
                    Action::Allocated
                } else {
                    Action::InstanceChanged
                };
                return Some((next, action));
            }
        };
        let mut next = Lease::clone(lease);
        (next.state, next.until) = (state, until);
        let mine = |member: &&mut Member| member.holder.identity == holder.identity;
        for member in next.members.iter_mut().filter(mine) {
            member.holder.instance = Arc::clone(&holder.instance);
        }
        (next != **lease).then(|| (Arc::new(next), action))
    }

    /// Makes a new lease what it is for.
    pub fn dedicate(self, lease: &mut Lease) -> Action {
        match self {
            Self::Use => Action::Allocated,
            Self::Probe(until) => {
                lease.state = LeaseState::Probing;
                lease.until = Some(until);
                Action::Probing
            }
            Self::Keep(until) => {
                lease.state = LeaseState::Reserved;
                lease.until = until;
                Action::Reserved
            }
        }
    }
}
