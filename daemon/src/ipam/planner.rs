//! The thread that lets the ledger decide.

use std::collections::VecDeque;

use fipd_core::{Planned, Refused};

use super::{
    IpamError, Shared,
    mailbox::{Batch, Plan, Tentative, Waiting},
};

/// Tells the mailbox that the planner is gone, also when it panics: nobody must wait for it then.
struct Gone<'a>(&'a Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.mailbox.planner_ends();
    }
}

/// Plans until the mailbox is closed and empty.
pub(super) fn run(shared: &Shared) {
    let _gone = Gone(shared);
    // Requests that stand on a decision in flight, oldest first.
    let mut busy: VecDeque<Waiting> = VecDeque::new();
    loop {
        let Plan::Work { fresh, again, idle } = shared.mailbox.next_plan(!busy.is_empty()) else {
            return;
        };
        let mut batch = Batch::default();
        if again {
            for waiting in std::mem::take(&mut busy) {
                plan(shared, waiting, &mut batch, &mut busy);
            }
        }
        for waiting in fresh {
            plan(shared, waiting, &mut batch, &mut busy);
        }
        if !batch.decisions.is_empty() {
            shared.mailbox.hand_over(batch);
        } else if idle {
            // Busy with nothing in flight would wait for ever; the ledger promises that it does not happen.
            give_up(&mut busy);
        }
    }
}

/// Plans one request: answered, put into the batch, or kept as busy.
fn plan(shared: &Shared, waiting: Waiting, batch: &mut Batch, busy: &mut VecDeque<Waiting>) {
    let now = shared.now();
    let planned = shared.ledger.write().plan(&waiting.request, now);
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

fn give_up(busy: &mut VecDeque<Waiting>) {
    for waiting in busy.drain(..) {
        tracing::error!(request = ?waiting.request, "busy with nothing in flight");
        let refused =
            Refused::Failed("the request waits for a decision that does not exist".to_owned());
        waiting.answer(Err(IpamError::Store(refused)));
    }
}
