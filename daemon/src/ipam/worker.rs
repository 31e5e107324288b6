//! The two threads of the writer. Both do the same: plan a batch while the other commits, commit it when the store is
//! free, answer while the other goes on. A batch stays with its thread, so that a lone caller waits for one wake-up
//! and the disk only.

use std::{collections::VecDeque, sync::atomic::Ordering, time::Instant};

use fipd_core::{Authority as _, Outcome, Planned, Refused};
use parking_lot::MutexGuard;

use super::{
    IpamError, Shared,
    mailbox::{Batch, Next, Tentative, Waiting},
};

/// Requests that stand on a decision in flight, oldest first.
pub(super) type Busy = VecDeque<Waiting>;

/// Says that a worker is gone, also when it panics: nobody must wait for it then. The last one closes the store.
struct Gone<'a>(&'a Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.mailbox.die();
        }
        if self.0.workers.fetch_sub(1, Ordering::AcqRel) == 1 {
            if !self.0.asked.load(Ordering::Acquire) {
                self.0
                    .stop
                    .note_end("the writer of the address book ended unasked");
            }
            self.0.places.close();
            self.0.mailbox.die();
            self.0.planning.lock().clear();
            drop(self.0.store.lock().take());
            self.0.ended.send_replace(true);
        }
    }
}

/// Works until the mailbox is closed and empty.
pub(super) fn run(shared: &Shared) {
    let _gone = Gone(shared);
    loop {
        let mut busy = shared.planning.lock();
        let Some(batch) = prepare(shared, &mut busy) else {
            return;
        };
        MutexGuard::unlock_fair(busy);
        commit(shared, batch);
    }
}

/// Plans until the store is free for the batch. `None` at the end.
fn prepare(shared: &Shared, busy: &mut Busy) -> Option<Batch> {
    let mut batch = Batch::default();
    loop {
        match shared.mailbox.next(batch.decisions.len(), !busy.is_empty()) {
            Next::Commit => return Some(batch),
            Next::End => {
                abandon(batch.tentative);
                busy.clear();
                return None;
            }
            Next::Plan { fresh, again, idle } => {
                if again {
                    for waiting in std::mem::take(busy) {
                        plan(shared, waiting, &mut batch, busy);
                    }
                }
                for waiting in fresh {
                    plan(shared, waiting, &mut batch, busy);
                }
                if idle && batch.decisions.is_empty() {
                    // Busy with nothing in flight would wait for ever; the ledger promises that it does not happen.
                    give_up(busy);
                }
            }
        }
    }
}

/// Plans one request: answered, put into the batch, or kept as busy.
fn plan(shared: &Shared, waiting: Waiting, batch: &mut Batch, busy: &mut Busy) {
    let now = shared.now();
    let (planned, changed) = {
        let mut ledger = shared.ledger.write();
        let before = ledger.revision();
        (
            ledger.plan(&waiting.request, now),
            ledger.revision() != before,
        )
    };
    // A release without a lease may still have left a queue.
    if changed {
        shared.publish();
    }
    match planned {
        Planned::Answer(answer) => waiting.answer(Ok(answer)),
        Planned::Refused(refusal) => waiting.answer(Err(IpamError::Refused(refusal))),
        Planned::Busy => busy.push_back(waiting),
        Planned::Tentative {
            ticket,
            decision,
            answer,
        } => {
            batch.decisions.push(decision);
            batch.tentative.push(Tentative {
                waiting,
                ticket,
                answer,
            });
        }
    }
}

fn give_up(busy: &mut Busy) {
    for waiting in busy.drain(..) {
        tracing::error!(request = ?waiting.request, "busy with nothing in flight");
        let refused =
            Refused::Failed("the request waits for a decision that does not exist".to_owned());
        waiting.answer(Err(IpamError::Store(refused)));
    }
}

/// Makes a batch durable, ends it in the ledger and answers.
fn commit(shared: &Shared, batch: Batch) {
    let Batch {
        decisions,
        tentative,
    } = batch;
    let began = Instant::now();
    let outcomes = match shared.store.lock().as_mut() {
        Some(store) => store.commit(&decisions),
        None => Vec::new(),
    };
    let took = began.elapsed();
    let known = outcomes.len() == decisions.len();
    let mut tentative = tentative.into_iter();
    let ended = outcomes.into_iter().zip(tentative.by_ref());
    let answers: Vec<_> = ended
        .map(|(outcome, decision)| end(shared, outcome, decision))
        .collect();
    if known {
        shared.mailbox.batch_ended(answers.len(), took);
    } else {
        // What comes after an unknown outcome would stand on it.
        shared.mailbox.die();
    }
    shared.publish();
    for (waiting, answer) in answers {
        waiting.answer(answer);
    }
    abandon(tentative.collect());
}

type Ended = (Waiting, Result<fipd_core::Answer, IpamError>);

/// The lock is taken for each, so that readers get in between.
fn end(shared: &Shared, outcome: Outcome, decision: Tentative) -> Ended {
    let Tentative {
        waiting,
        ticket,
        answer,
    } = decision;
    let mut ledger = shared.ledger.write();
    match outcome {
        Outcome::Committed => {
            ledger.confirm(ticket);
            (waiting, Ok(answer))
        }
        Outcome::Refused(refused) => {
            ledger.abort(ticket);
            (waiting, Err(IpamError::Store(refused)))
        }
    }
}

/// Nobody can tell what became of these. The ledger keeps them locked: this process decides nothing more.
fn abandon(tentative: Vec<Tentative>) {
    for Tentative {
        waiting, ticket, ..
    } in tentative
    {
        drop(ticket);
        waiting.answer(Err(IpamError::Stopping));
    }
}
