//! The thread of the disk: makes batches durable while the planner goes on.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use fipd_core::{Authority as _, Decision, Op, Outcome};

use super::{Gone, IpamState, mailbox::Committed};

/// How often the store is compared with what was written to it.
const WATCH: Duration = Duration::from_secs(1);

/// How often the time of the address book is kept where nothing is decided: a reboot makes it at most so much older.
const KEEP_TIME: Duration = Duration::from_secs(600);

/// Commits what the planner hands over until it is gone.
pub(super) fn run(shared: &IpamState) {
    let _gone = Gone(shared);
    let mut due = Some(Instant::now());
    let mut watch = Instant::now();
    let mut keep_time = watch + KEEP_TIME;
    loop {
        let next = due.map_or(watch, |due| due.min(watch));
        let batch = shared.mailbox.next_batch(|| shared.waiting(), next);
        let Some(decisions) = batch else {
            keep_time_of(shared);
            return;
        };
        if !decisions.is_empty() {
            let outcomes = commit(shared, &decisions);
            let of = decisions.len();
            shared.mailbox.committed(Committed { outcomes, of });
        }
        let now = Instant::now();
        if due.is_some_and(|due| due <= now) {
            due = upkeep(shared);
        }
        if watch <= now {
            if let Some(store) = shared.store.lock().as_mut() {
                store.watch();
            }
            watch = now + WATCH;
        }
        if keep_time <= now {
            keep_time_of(shared);
            keep_time = now + KEEP_TIME;
        }
    }
}

/// Writes the time of the address book where no decision has it with it. Without it the next boot counts what passed since the
/// last decision as a jump of the clock.
fn keep_time_of(shared: &IpamState) {
    if shared.of_another_host {
        return;
    }
    shared.now();
    let Some(line) = shared.time.lock().lasting() else {
        return;
    };
    let decision = Decision {
        ops: vec![Op::PutClock(line)],
        audit: Vec::new(),
    };
    if commit(shared, &[decision]) == [Outcome::Committed] {
        shared.time.lock().note_saved(line);
    }
}

/// What the store has to do beside decisions, and when it has again.
fn upkeep(shared: &IpamState) -> Option<Instant> {
    shared.store.lock().as_mut()?.upkeep(Instant::now())
}

/// What became of each; shorter than the question when the rest is unknown.
pub(super) fn commit(shared: &IpamState, decisions: &[Decision]) -> Vec<Outcome> {
    shared.beats.commit.beat();
    shared.beats.begun.fetch_add(1, Ordering::AcqRel);
    let outcomes = match shared.store.lock().as_mut() {
        Some(store) => store.commit(decisions),
        None => Vec::new(),
    };
    shared.beats.ended.fetch_add(1, Ordering::AcqRel);
    outcomes
}
