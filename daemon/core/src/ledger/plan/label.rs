//! What people note about a lease.

use std::sync::Arc;

use crate::{
    Action, Answer, Label, Lease, Refusal,
    ledger::{
        Ledger,
        draft::{Draft, Draw, Stop},
    },
};

impl Ledger {
    /// An address that cools has no labels: nobody holds it.
    pub(super) fn plan_label(&self, ask: &Label, mut draft: Draft) -> Draw {
        let key = ask.key.canonical();
        self.settled(std::iter::once(key))?;
        let lease = self.rows.leases.get(&key);
        let lease = lease.filter(|lease| !lease.members.is_empty());
        let lease = lease.ok_or(Refusal::NotHeld(key.address))?;
        let labels = lease.labels.changed(ask);
        if labels == lease.labels {
            let lease = Arc::clone(lease);
            return Err(Stop::Answer(Answer::Labelled { lease }));
        }
        labels
            .check()
            .map_err(|(value, allowed)| Refusal::invalid("labels", value, allowed))?;
        let detail = labels.difference(&lease.labels);
        let lease = Arc::new(Lease {
            labels,
            ..Lease::clone(lease)
        });
        draft.put(&lease, Action::Labelled, detail);
        Ok((draft, Answer::Labelled { lease }))
    }
}
