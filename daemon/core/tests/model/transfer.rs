//! Transfers of the model.

use std::sync::Arc;

use fipd_core::{Action, Answer, Lease, LeaseState, Refusal, Transfer};

use super::{Flight, Model, Plan, Stop};

impl Model {
    pub fn transfer(&mut self, ask: &Transfer) -> Plan {
        let key = ask.key;
        let taken = self.flights.iter().any(|flight| flight.takes_at(key));
        if self.locked(key) || taken {
            return Err(Stop::Busy);
        }
        self.leases_with(&ask.to.identity)?;
        let Some(lease) = self.lease(key).cloned() else {
            return Err(Stop::Refused(Refusal::NotHeld(key.address)));
        };
        let no = || {
            let (address, why) = (lease.prefix(), String::new());
            Stop::Refused(Refusal::NotTransferable { address, why })
        };
        let has = |lease: &Lease, holder: &fipd_core::Holder| {
            lease.members.iter().any(|one| one.holder == *holder)
        };
        let many = lease.members.len() > 1;
        let mut next = lease.clone();
        let left = match &ask.from {
            Some(from) => from == &ask.to || !has(&lease, from),
            None => !many,
        };
        if !(has(&lease, &ask.to) && left) {
            if lease.state == LeaseState::Quarantined {
                return Err(no());
            }
            if ask.from.as_ref().is_some_and(|from| !has(&lease, from)) {
                let (address, owner) = (lease.prefix(), String::new());
                return Err(Stop::Refused(Refusal::ChangedHands { address, owner }));
            }
            if ask.from.is_none() && many {
                return Err(no());
            }
            let to = &ask.to.identity;
            let third = !lease.held_by(to)
                && lease
                    .contenders
                    .iter()
                    .all(|one| one.holder.identity != *to || !one.uses.is_empty());
            if third && !lease.contenders.is_empty() {
                return Err(no());
            }
            let from = ask.from.clone().unwrap_or(lease.members[0].holder.clone());
            let one_cluster = lease
                .pool
                .and_then(|id| self.pools.iter().find(|pool| pool.id == id))
                .is_some_and(|pool| !pool.spec.share_across_clusters);
            let far = lease
                .members
                .iter()
                .any(|one| one.holder != from && one.holder.identity.cluster != to.cluster);
            if one_cluster && far && !lease.held_by(to) {
                return Err(no());
            }
            let at = lease
                .members
                .iter()
                .position(|one| one.holder == from)
                .unwrap();
            next.members[at].holder = ask.to.clone();
            for (other, member) in lease.members.iter().enumerate() {
                if other != at && member.holder.identity == *to {
                    next.members[at].ports.extend(member.ports.clone());
                    next.members.remove(other);
                    break;
                }
            }
            if lease
                .contenders
                .iter()
                .any(|one| one.holder.identity == *to)
            {
                next.state = LeaseState::Allocated;
                next.until = None;
            }
            next.contenders.retain(|one| one.holder.identity != *to);
            if matches!(next.state, LeaseState::Orphaned | LeaseState::Probing) {
                next.state = LeaseState::Allocated;
                next.until = None;
            }
        }
        if ask.tenant.is_some() && ask.tenant != lease.tenant {
            if many {
                return Err(no());
            }
            next.tenant = ask.tenant.clone();
        }
        let answer = Answer::Transferred {
            lease: Arc::new(next.clone()),
        };
        if next == lease {
            return Err(Stop::Answer(answer));
        }
        self.one_more(Some(&lease), &next, ask.force)?;
        let mut flight = Flight {
            gains: vec![ask.to.identity.clone()],
            ..Flight::default()
        };
        flight.put(&next, Action::HandedOver, Some(ask.to.identity.clone()));
        Ok((flight, answer))
    }
}
