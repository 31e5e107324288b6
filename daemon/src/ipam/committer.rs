//! The thread of the disk: makes batches durable while the planner goes on.

use std::{sync::atomic::Ordering, time::Instant};

use fipd_core::{Authority as _, Decision, Outcome};

use super::{Gone, Shared, mailbox::Committed};

/// Commits what the planner hands over until it is gone.
pub(super) fn run(shared: &Shared) {
    let _gone = Gone(shared);
    let mut due = Some(Instant::now());
    while let Some(decisions) = shared.mailbox.next_batch(|| shared.waiting(), due) {
        if !decisions.is_empty() {
            let outcomes = commit(shared, &decisions);
            let of = decisions.len();
            shared.mailbox.committed(Committed { outcomes, of });
        }
        if due.is_some_and(|due| due <= Instant::now()) {
            due = upkeep(shared);
        }
    }
}

/// What the store has to do beside decisions, and when it has again.
fn upkeep(shared: &Shared) -> Option<Instant> {
    shared.store.lock().as_mut()?.upkeep(Instant::now())
}

/// What became of each; shorter than the question when the rest is unknown.
pub(super) fn commit(shared: &Shared, decisions: &[Decision]) -> Vec<Outcome> {
    shared.beats.commit.beat();
    shared.beats.begun.fetch_add(1, Ordering::AcqRel);
    let outcomes = match shared.store.lock().as_mut() {
        Some(store) => store.commit(decisions),
        None => Vec::new(),
    };
    shared.beats.ended.fetch_add(1, Ordering::AcqRel);
    outcomes
}
