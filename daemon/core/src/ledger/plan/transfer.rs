//! A lease that moves to another holder by an admin's word.

use std::sync::Arc;

use super::adopt::stop_contending;
use crate::{
    Action, Answer, Contender, Holder, Lease, LeaseState, PortClaim, Refusal, Text, Transfer,
    ledger::{
        Ledger,
        draft::{Draft, Draw, Stop},
        intern::fingerprint,
    },
};

impl Ledger {
    /// An address in contention goes to a contender or stays: it is given to no third while one exists.
    pub(super) fn plan_transfer(&self, ask: &Transfer, mut draft: Draft) -> Draw {
        let key = ask.key.canonical();
        self.settled(std::iter::once(key))?;
        self.settled_leases(&ask.to.identity)?;
        let lease = self.rows.leases.get(&key);
        let lease = lease.ok_or(Refusal::NotHeld(key.address))?;
        let (next, giver) = if moved_already(lease, ask) {
            (with_tenant(lease, ask)?, &ask.to)
        } else {
            let giver = giver(lease, ask)?;
            let mut next = with_tenant(lease, ask)?;
            may_get(lease, ask)?;
            self.may_share(lease, giver, ask)?;
            take_place(&mut next, giver, &ask.to);
            (next, giver)
        };
        if next == **lease {
            let lease = Arc::clone(lease);
            return Err(Stop::Answer(Answer::Transferred { lease }));
        }
        let beyond = self.beyond_quota(lease, &next, ask.force)?;
        draft.flight.identities.push(fingerprint(&ask.to.identity));
        let detail = detail(lease, giver, ask, beyond);
        let lease = Arc::new(next);
        draft.put_for(
            Arc::clone(&lease),
            Action::HandedOver,
            &ask.to.identity,
            detail,
        );
        Ok((draft, Answer::Transferred { lease }))
    }
}

impl Ledger {
    /// A place in a shared lease goes to another cluster only where the pool lets clusters share.
    fn may_share(&self, lease: &Lease, giver: &Holder, ask: &Transfer) -> Result<(), Refusal> {
        let to = &ask.to.identity;
        let pool = lease.pool.and_then(|id| self.rows.pools.get(&id));
        let Some(pool) = pool.filter(|pool| !pool.spec.share_across_clusters) else {
            return Ok(());
        };
        let mut stay = lease.members.iter().map(|member| &member.holder);
        let far = stay.find(|one| *one != giver && one.identity.cluster != to.cluster);
        match far.filter(|_| !lease.held_by(to)) {
            None => Ok(()),
            Some(far) => {
                let (far, pool) = (&far.identity, &pool.spec.name);
                let why = format!(
                    "{far} of another cluster shares it, and pool {pool} does not let clusters share an address"
                );
                Err(refused(lease, why))
            }
        }
    }
}

/// Asked again, or for what is so: the new holder has it, and the old one no place in it.
fn moved_already(lease: &Lease, ask: &Transfer) -> bool {
    let given_up = match &ask.from {
        None => lease.members.len() == 1,
        Some(from) => *from == ask.to || !lease.has_member(from),
    };
    given_up && lease.has_member(&ask.to)
}

/// Whose place in the lease is given.
fn giver<'a>(lease: &'a Lease, ask: &'a Transfer) -> Result<&'a Holder, Refusal> {
    let Some(owner) = lease.owner() else {
        return Err(refused(lease, "it is in quarantine and nobody holds it"));
    };
    match &ask.from {
        Some(from) if lease.has_member(from) => Ok(from),
        Some(_) => Err(Refusal::ChangedHands {
            address: lease.prefix(),
            owner: owner.identity.to_string(),
        }),
        None if lease.members.len() == 1 => Ok(owner),
        None => Err(refused(
            lease,
            "several holders share it; say from which one",
        )),
    }
}

/// A contender that uses part of the lease gets that part when it is released, never all of it.
fn may_get(lease: &Lease, ask: &Transfer) -> Result<(), Refusal> {
    let to = &ask.to.identity;
    let uses_all = |one: &Contender| one.uses.is_empty();
    if lease.held_by(to) || lease.contender(to).is_some_and(uses_all) {
        return Ok(());
    }
    let next = lease.contenders.iter().find(|one| uses_all(one));
    match next.or_else(|| lease.contenders.first()) {
        Some(next) => {
            let who = &next.holder.identity;
            let used = next.used_of(lease.prefix()).next();
            let why = match used.filter(|_| !uses_all(next)) {
                None => format!("{who} was found using it and gets it next; transfer it to that"),
                Some(used) => format!(
                    "{who} was found using {used} of it, and gets that next; release it first"
                ),
            };
            Err(refused(lease, why))
        }
        None => Ok(()),
    }
}

fn with_tenant(lease: &Lease, ask: &Transfer) -> Result<Lease, Refusal> {
    let mut next = lease.clone();
    if ask.tenant.is_none() || ask.tenant == lease.tenant {
        return Ok(next);
    }
    if lease.members.len() > 1 {
        let why = "several holders share it and are charged as one tenant";
        return Err(refused(lease, why));
    }
    next.tenant.clone_from(&ask.tenant);
    Ok(next)
}

/// `to` in the place of `giver`; where it shares the lease already, it has both places' ports.
fn take_place(next: &mut Lease, giver: &Holder, to: &Holder) {
    stop_contending(next, to);
    let mut own: Vec<PortClaim> = Vec::new();
    next.members.retain(|member| {
        let also = member.holder.identity == to.identity && member.holder != *giver;
        if also {
            own.append(&mut member.ports);
        }
        !also
    });
    for member in &mut next.members {
        if member.holder == *giver {
            member.holder = to.clone();
            member.ports.append(&mut own);
        }
    }
    // Whose check it was has no part in it any more.
    if matches!(next.state, LeaseState::Orphaned | LeaseState::Probing) {
        (next.state, next.until) = (LeaseState::Allocated, None);
    }
}

fn refused(lease: &Lease, why: impl Into<String>) -> Refusal {
    Refusal::NotTransferable {
        address: lease.prefix(),
        why: why.into(),
    }
}

fn detail(lease: &Lease, giver: &Holder, ask: &Transfer, beyond: bool) -> Text {
    let mut detail = format!("from {}", giver.identity);
    if let Some(tenant) = ask.tenant.as_ref().filter(|_| ask.tenant != lease.tenant) {
        detail.push_str(&format!(", charged to {}", tenant.0));
    }
    if beyond {
        detail.push_str(" beyond its quota");
    }
    if !ask.reason.is_empty() {
        detail.push_str(&format!(": {}", ask.reason));
    }
    detail.into()
}
