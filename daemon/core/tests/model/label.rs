//! Labels of the model.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{Action, Answer, Label, LeaseState, Refusal, Text};

use super::{Flight, Model, Plan, Stop, owner, pool::invalid};

impl Model {
    pub fn label(&mut self, ask: &Label) -> Plan {
        let taken = (self.flights.iter()).any(|flight| flight.takes_at(ask.key));
        if self.locked(ask.key) || taken {
            return Err(Stop::Busy);
        }
        let mut lease = match self.lease(ask.key) {
            Some(lease) if lease.state != LeaseState::Quarantined => lease.clone(),
            _ => return Err(Stop::Refused(Refusal::NotHeld(ask.key.address))),
        };
        let mut labels: BTreeMap<Text, Text> = BTreeMap::new();
        for (key, value) in lease.labels.iter() {
            if !ask.remove.contains(key) {
                labels.insert(key.clone(), value.clone());
            }
        }
        for (key, value) in &ask.set {
            labels.insert(key.clone(), value.clone());
        }
        let many = labels.len() > 16;
        let same = lease.labels == labels.clone().into();
        if !same && (many || labels.keys().any(|key| key.contains('='))) {
            return invalid("labels");
        }
        lease.labels = labels.into();
        let answer = Answer::Labelled {
            lease: Arc::new(lease.clone()),
        };
        if same {
            return Err(Stop::Answer(answer));
        }
        let mut flight = Flight::default();
        flight.put(&lease, Action::Labelled, owner(&lease));
        Ok((flight, answer))
    }
}
