//! The thread of the ledger: plans, ends what was committed, and answers. Nobody else decides in the ledger, so it hardly
//! ever waits for its lock.
//!
//! A few decisions are committed here and now: a lone caller waits for the disk alone. More go to the committer,
//! and while it is busy the next batch is planned.

use std::{collections::VecDeque, sync::atomic::Ordering, time::Instant};

use fipd_core::{Answer, ClockLine, Decision, Op, Outcome, Planned, Refused, Ticket};

use super::{
    Gone, IpamError, IpamState, LOOK_OUT, committer,
    mailbox::{BATCH, Committed, HANDFUL, PlannerTask, Waiting},
};

/// A planned decision on its way to the disk.
struct Tentative {
    waiting: Waiting,
    ticket: Ticket,
    answer: Answer,
    /// What the decision says of book time.
    line: Option<ClockLine>,
}

struct Planner<'a> {
    shared: &'a IpamState,
    /// Planned, not yet on their way; both run in parallel.
    decisions: Vec<Decision>,
    ready: Vec<Tentative>,
    /// With the committer, oldest first.
    flight: VecDeque<Tentative>,
    /// Requests that stand on a decision in flight, oldest first.
    busy: VecDeque<Waiting>,
}

/// Works until the mailbox is closed and empty.
pub(super) fn run(shared: &IpamState) {
    let _gone = Gone(shared);
    let mut planner = Planner {
        shared,
        decisions: Vec::new(),
        ready: Vec::new(),
        flight: VecDeque::new(),
        busy: VecDeque::new(),
    };
    while planner.turn() {
        shared.beats.turns.fetch_add(1, Ordering::AcqRel);
    }
    abandon(planner.flight);
    abandon(planner.ready);
}

impl Planner<'_> {
    /// Does the next thing; `false` at the end.
    fn turn(&mut self) -> bool {
        // Nobody who came later is planned before those who wait for a commit to end; one is then in flight.
        let room = if self.busy.is_empty() {
            (2 * BATCH).saturating_sub(self.flight.len())
        } else {
            0
        };
        let beat = || self.shared.beats.planner.beat();
        match self
            .shared
            .mailbox
            .next(!self.flight.is_empty(), room, beat)
        {
            PlannerTask::End => return false,
            PlannerTask::Fresh(fresh) => {
                for waiting in fresh {
                    self.plan(waiting);
                }
            }
            PlannerTask::Committed(Committed { outcomes, of }) => {
                let ended: Vec<_> = self.flight.drain(..of.min(self.flight.len())).collect();
                self.end(outcomes, ended);
            }
        }
        while !self.decisions.is_empty() {
            if self.flight.is_empty() && self.decisions.len() < HANDFUL {
                self.commit_here();
            } else {
                self.deliver();
            }
        }
        if self.flight.is_empty() {
            // Busy with nothing in flight would wait for ever; the ledger promises that it does not happen.
            give_up(&mut self.busy);
        }
        true
    }

    /// Plans one request: answered, put into the batch, or kept as busy.
    fn plan(&mut self, waiting: Waiting) {
        let now = self.shared.now();
        let (planned, changed) = {
            let mut ledger = self.shared.ledger.write();
            let guard = waiting.guard.as_ref();
            let refused = guard.and_then(|guard| guard(&ledger, &waiting.request).err());
            if let Some(error) = refused {
                drop(ledger);
                return waiting.answer(Err(error));
            }
            let before = ledger.revision();
            let planned = ledger.plan(&waiting.request, now);
            (planned, ledger.revision() != before)
        };
        // A release without a lease may still have left a queue.
        if changed {
            self.shared.publish();
        }
        match planned {
            Planned::Answer(answer) => waiting.answer(Ok(answer)),
            Planned::Refused(refusal) => waiting.answer(Err(IpamError::Refused(refusal))),
            Planned::Busy => self.busy.push_back(waiting),
            Planned::Tentative {
                ticket,
                mut decision,
                answer,
            } => {
                // What is decided by a time must not be durable without it.
                let line = self.shared.time.lock().unsaved();
                decision.ops.extend(line.map(Op::PutClock));
                self.decisions.push(decision);
                self.ready.push(Tentative {
                    waiting,
                    ticket,
                    answer,
                    line,
                });
            }
        }
    }

    fn deliver(&mut self) {
        self.flight.extend(self.ready.drain(..));
        self.shared
            .mailbox
            .deliver(std::mem::take(&mut self.decisions));
    }

    fn commit_here(&mut self) {
        let began = Instant::now();
        let outcomes = committer::commit(self.shared, &std::mem::take(&mut self.decisions));
        self.shared.beats.planner.beat();
        let quick = began.elapsed() < LOOK_OUT;
        self.shared.quick.store(quick, Ordering::Relaxed);
        let ended = std::mem::take(&mut self.ready);
        self.end(outcomes, ended);
    }

    /// Ends a batch in the ledger, answers, and plans again what waited for it.
    fn end(&mut self, outcomes: Vec<Outcome>, tentative: Vec<Tentative>) {
        if outcomes.len() < tentative.len() {
            // What comes after an unknown outcome would stand on it.
            self.shared.mailbox.die();
        }
        let mut tentative = tentative.into_iter();
        let ended = outcomes.into_iter().zip(tentative.by_ref());
        let answers: Vec<_> = ended
            .map(|(outcome, decision)| end(self.shared, outcome, decision))
            .collect();
        self.shared.publish();
        answer(self.shared, answers);
        abandon(tentative);
        for waiting in std::mem::take(&mut self.busy) {
            self.plan(waiting);
        }
    }
}

type Ended = (Waiting, Result<Answer, IpamError>);

/// Many callers are answered inside the runtime: there a wake-up is no system call and does not take this thread's core.
fn answer(shared: &IpamState, answers: Vec<Ended>) {
    let all = |answers: Vec<Ended>| {
        for (waiting, answer) in answers {
            waiting.answer(answer);
        }
    };
    match &shared.runtime {
        Some(runtime) if answers.len() >= HANDFUL => {
            runtime.spawn(async move { all(answers) });
        }
        Some(_) | None => all(answers),
    }
}

/// The lock is taken for each, so that readers get in between.
fn end(shared: &IpamState, outcome: Outcome, decision: Tentative) -> Ended {
    let Tentative {
        waiting,
        ticket,
        answer,
        line,
    } = decision;
    if let (Outcome::Committed, Some(line)) = (&outcome, line) {
        shared.time.lock().note_saved(line);
    }
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

fn give_up(busy: &mut VecDeque<Waiting>) {
    for waiting in busy.drain(..) {
        tracing::error!(request = ?waiting.request, "busy with nothing in flight");
        let refused =
            Refused::Failed("the request waits for a decision that does not exist".to_owned());
        waiting.answer(Err(IpamError::Store(refused)));
    }
}

/// Nobody can tell what became of these. The ledger keeps them locked: this process decides nothing more.
fn abandon(tentative: impl IntoIterator<Item = Tentative>) {
    for Tentative {
        waiting, ticket, ..
    } in tentative
    {
        drop(ticket);
        waiting.answer(Err(IpamError::Stopping));
    }
}
