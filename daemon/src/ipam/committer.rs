//! The thread that makes decisions durable, ends them in the ledger and answers.

use fipd_core::{Authority, Outcome};

use super::{
    IpamError, Shared,
    mailbox::{Batch, Tentative},
};

/// Says that the writer is gone, also when it panics.
struct Gone<'a>(&'a Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.places.close();
        self.0.mailbox.close();
        // Batches nobody will commit: their callers learn that nobody can tell.
        while let Some(batch) = self.0.mailbox.next_batch() {
            self.0.mailbox.batch_ended(batch.decisions.len());
            abandon(self.0, batch.tentative);
        }
        self.0.ended.send_replace(true);
    }
}

/// Commits until the planner has ended; closes the store.
pub(super) fn run(shared: &Shared, mut store: impl Authority) {
    let gone = Gone(shared);
    while let Some(batch) = shared.mailbox.next_batch() {
        let count = batch.decisions.len();
        let known = commit(shared, &mut store, batch);
        shared.mailbox.batch_ended(count);
        if !known {
            // What comes after an unknown outcome would stand on it.
            break;
        }
    }
    drop(store);
    drop(gone);
}

/// Whether all outcomes are known.
fn commit(shared: &Shared, store: &mut impl Authority, batch: Batch) -> bool {
    let Batch {
        decisions,
        tentative,
    } = batch;
    let outcomes = store.commit(&decisions);
    let mut tentative = tentative.into_iter();
    let mut answers = Vec::with_capacity(decisions.len());
    for (
        outcome,
        Tentative {
            waiting,
            ticket,
            answer,
        },
    ) in outcomes.into_iter().zip(tentative.by_ref())
    {
        // The lock is taken for each, so that readers get in between.
        let mut ledger = shared.ledger.write();
        match outcome {
            Outcome::Committed => {
                ledger.confirm(ticket);
                answers.push((waiting, Ok(answer)));
            }
            Outcome::Refused(refused) => {
                ledger.abort(ticket);
                answers.push((waiting, Err(IpamError::Store(refused))));
            }
        }
    }
    shared.publish();
    for (waiting, answer) in answers {
        waiting.answer(answer);
    }
    let rest: Vec<_> = tentative.collect();
    let known = rest.is_empty();
    abandon(shared, rest);
    known
}

/// Nobody can tell what became of these. The ledger keeps them locked: this process decides nothing more.
fn abandon(_shared: &Shared, tentative: Vec<Tentative>) {
    for Tentative {
        waiting, ticket, ..
    } in tentative
    {
        drop(ticket);
        waiting.answer(Err(IpamError::Stopping));
    }
}
