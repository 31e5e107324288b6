//! Giving back: compare-and-release, and what becomes of a lease whose last member goes.

use std::sync::Arc;

use super::{
    Ledger,
    plan::{Draft, Draw},
};
use crate::{
    Action, Answer, Holder, Lease, LeaseKey, LeaseState, Member, Release, ReleaseScope, Text,
    Timestamp,
};

impl Ledger {
    pub(super) fn plan_release(&self, ask: &Release, now: Timestamp) -> Draw {
        let mut draft = Draft::new(now, &ask.actor);
        let mut released = Vec::new();
        match &ask.scope {
            ReleaseScope::Holder(holder) => {
                for lease in self.settled_leases(&holder.identity)? {
                    released.extend(leave(&mut draft, &lease, holder, &ask.reason));
                }
                let leaves = (holder.identity.clone(), Some(Arc::clone(&holder.instance)));
                draft.flight.leaves = Some(Box::new(leaves));
            }
            ReleaseScope::HolderAddresses(holder, keys) => {
                for lease in self.settled_leases(&holder.identity)? {
                    if keys.iter().any(|key| key.canonical() == lease.key) {
                        released.extend(leave(&mut draft, &lease, holder, &ask.reason));
                    }
                }
            }
            ReleaseScope::Address(key) => {
                let key = key.canonical();
                self.settled(std::iter::once(key))?;
                if let Some(lease) = self.rows.leases.get(&key) {
                    vacate(&mut draft, lease, Action::Released, &ask.reason);
                    released.push(key);
                }
            }
        }
        Ok((draft, Answer::Released { leases: released }))
    }
}

/// Takes the holder out of a lease; the key if the lease changed hands or went, or the member left it.
fn leave(
    draft: &mut Draft,
    lease: &Arc<Lease>,
    holder: &Holder,
    reason: &Text,
) -> Option<LeaseKey> {
    if lease.members.iter().any(|member| member.holder == *holder) {
        if lease.members.len() > 1 {
            let mut rest = Lease::clone(lease);
            rest.members.retain(|member| member.holder != *holder);
            draft.flight.keys.push(lease.key);
            draft.flight.ops.push(crate::Op::PutLease(Arc::new(rest)));
            draft.say_lease(
                lease,
                Action::Released,
                Some(holder.identity.clone()),
                Arc::clone(reason),
            );
        } else {
            vacate(draft, lease, Action::Released, reason);
        }
        return Some(lease.key);
    }
    if lease
        .contenders
        .iter()
        .any(|contender| contender.holder == *holder)
    {
        let mut rest = Lease::clone(lease);
        rest.contenders
            .retain(|contender| contender.holder != *holder);
        draft.flight.keys.push(lease.key);
        draft.flight.ops.push(crate::Op::PutLease(Arc::new(rest)));
        draft.say_lease(
            lease,
            Action::ContenderLeft,
            Some(holder.identity.clone()),
            Arc::clone(reason),
        );
    }
    None
}

/// All members go: the lease passes to the oldest contender, or is deleted with `action` in the audit log.
pub(super) fn vacate(draft: &mut Draft, lease: &Arc<Lease>, action: Action, reason: &Text) {
    let mut contenders = lease.contenders.iter().cloned();
    let Some(next) = contenders.next() else {
        draft.delete(lease, action, Arc::clone(reason));
        return;
    };
    let detail = from_whom(lease.owner(), reason);
    let passed = Lease {
        key: lease.key,
        pool: lease.pool,
        state: LeaseState::Allocated,
        members: std::iter::once(Member {
            holder: next.holder,
            ports: Vec::new(),
        })
        .collect(),
        contenders: contenders.collect(),
        tenant: next.tenant,
        group: None,
        since: draft.now,
        until: None,
    };
    draft.put(&Arc::new(passed), Action::PassedOn, detail);
}

/// What the audit log says of a lease that changes hands.
pub(super) fn from_whom(before: Option<&Holder>, reason: &Text) -> Text {
    let before = before.map_or_else(|| "nobody".to_owned(), |owner| owner.identity.to_string());
    let detail = if reason.is_empty() {
        format!("from {before}")
    } else {
        format!("from {before}: {reason}")
    };
    detail.into()
}
