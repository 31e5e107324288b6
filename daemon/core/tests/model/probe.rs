//! Checks on the wire of the model.

use std::sync::Arc;

use fipd_core::{Action, Answer, Lease, LeaseState, ProbeVerdict, Probed, Refusal, Timestamp};

use super::{Flight, Model, Plan, Stop, owner, pool::refused};

impl Model {
    pub fn probed(&mut self, ask: &Probed, now: Timestamp) -> Plan {
        let taken = |flight: &Flight| flight.takes_at(ask.key);
        if self.locked(ask.key) || self.flights.iter().any(taken) {
            return Err(Stop::Busy);
        }
        let not = || {
            refused(Refusal::NotProbed {
                address: ask.key.address,
                why: String::new(),
            })
        };
        let Some(mut lease) = self.lease(ask.key).cloned() else {
            return not();
        };
        let free = ask.verdict == ProbeVerdict::Free;
        if lease.state == LeaseState::Quarantined && !free {
            return Err(Stop::Answer(Answer::Released { leases: vec![] }));
        }
        if !lease.held_by(&ask.identity) {
            return not();
        }
        let granted = |lease: Lease, fresh| Answer::Granted {
            leases: vec![Arc::new(lease)],
            fresh,
        };
        if lease.state == LeaseState::Allocated && free {
            return Err(Stop::Answer(granted(lease, false)));
        }
        if lease.state != LeaseState::Probing {
            return not();
        }
        let (who, prefix) = (owner(&lease), lease.prefix());
        let mut flight = Flight::default();
        if free && lease.contenders.is_empty() {
            lease.state = LeaseState::Allocated;
            lease.until = None;
            flight.put(&lease, Action::Allocated, who);
            return Ok((flight, granted(lease, true)));
        }
        if lease.contenders.iter().all(|one| !one.uses.is_empty()) {
            let pool = lease.pool.and_then(|id| self.pool(id));
            let cools = pool.map_or(0, |pool| pool.spec.quarantine).max(3_600);
            lease.state = LeaseState::Quarantined;
            lease.members.clear();
            (lease.tenant, lease.group) = (None, None);
            lease.labels = Default::default();
            lease.since = now;
            lease.until = Some(Timestamp(now.0 + 1_000 * u64::from(cools)));
            flight.put(&lease, Action::FoundInUse, who);
        } else {
            self.vacate(&mut flight, &lease, (Action::FoundInUse, false), now)?;
        }
        let leases = vec![prefix];
        Ok((flight, Answer::Released { leases }))
    }
}
