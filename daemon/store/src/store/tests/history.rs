//! Random histories of requests, and a book of what they were answered.

use std::collections::BTreeSet;

use fipd_core::{
    Answer, Authority as _, Decision, Epoch, Ledger, Op, Outcome, Planned, RestoreHold, Ticket,
    Timestamp,
};

use crate::store::Store;

/// Random numbers that are the same in every run (xorshift64*).
#[derive(Clone, Copy, Debug)]
pub(super) struct Dice(u64);

impl Default for Dice {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    pub fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// A store, the ledger in memory and what a file may show.
pub(super) struct History {
    pub store: Store,
    pub ledger: Ledger,
    pub(super) dice: Dice,
    pub(super) time: u64,
    /// Decisions answered as durable, of all histories together.
    pub answered: usize,
    pub refused: usize,
    /// What the audit log says of them, each once.
    pub actions: BTreeSet<String>,
}

/// What planning a batch gave.
pub(super) struct Flight {
    decisions: Vec<Decision>,
    tickets: Vec<(Ticket, Answer)>,
    /// The rows before and, if it becomes durable, after it.
    pub before: Vec<Op>,
    pub after: Vec<Op>,
}

impl History {
    pub fn new(store: Store, ledger: Ledger, seed: u64) -> Self {
        Self {
            store,
            ledger,
            dice: Dice::new(seed),
            time: 1_000,
            answered: 0,
            refused: 0,
            actions: BTreeSet::new(),
        }
    }

    /// A history that begins with a restore, after which free addresses are held.
    pub fn restored(store: Store, ledger: Ledger, seed: u64) -> Self {
        let mut history = Self::new(store, ledger, seed);
        let epoch = Op::PutEpoch(Epoch {
            number: 1,
            began: Timestamp(1),
            hold: Some(RestoreHold::starting(Timestamp(1))),
        });
        history.ledger.apply(&epoch);
        let ops = vec![epoch];
        let audit = Vec::new();
        let outcomes = history.store.commit(&[Decision { ops, audit }]);
        assert_eq!(outcomes, [Outcome::Committed]);
        history
    }

    pub fn rows(&self) -> Vec<Op> {
        self.ledger.dump().collect()
    }

    /// Plans one to eight random requests.
    pub fn plan(&mut self) -> Flight {
        let before = self.rows();
        let mut shadow = self.ledger.clone();
        let (mut decisions, mut tickets) = (Vec::new(), Vec::new());
        for _ in 0..=self.dice.below(8) {
            // Now and then a while passes, so that quarantines and reservations end.
            self.time += if self.dice.below(4) == 0 { 700 } else { 1 };
            let request = self.request();
            match self.ledger.plan(&request, Timestamp(self.time)) {
                Planned::Tentative {
                    ticket,
                    decision,
                    answer,
                } => {
                    decision.ops.iter().for_each(|op| shadow.apply(op));
                    decisions.push(decision);
                    tickets.push((ticket, answer));
                }
                Planned::Answer(_) | Planned::Busy | Planned::Refused(_) => {}
            }
        }
        Flight {
            decisions,
            tickets,
            before,
            after: shadow.dump().collect(),
        }
    }

    /// Commits the batch and ends it by what the store says. Returns the rows that the file must hold now.
    pub fn commit(&mut self, flight: Flight) -> Vec<Op> {
        let outcomes = self.store.commit(&flight.decisions);
        assert_eq!(
            outcomes.len(),
            flight.decisions.len(),
            "an outcome is unknown"
        );
        let asked = flight.decisions.iter().zip(flight.tickets);
        for (outcome, (decision, (ticket, answer))) in outcomes.into_iter().zip(asked) {
            match outcome {
                Outcome::Committed => {
                    self.ledger.confirm(ticket);
                    self.answered += 1;
                    let actions = decision.audit.iter().map(|entry| entry.action);
                    self.actions
                        .extend(actions.map(|action| format!("{action:?}")));
                    if let Answer::Granted { leases, .. } = answer {
                        assert!(
                            leases
                                .iter()
                                .all(|lease| self.ledger.lease(lease.key) == Some(lease))
                        );
                    }
                }
                Outcome::Refused(_) => {
                    self.ledger.abort(ticket);
                    self.refused += 1;
                }
            }
        }
        let rows = self.rows();
        assert!(
            rows == flight.before || rows == flight.after,
            "half a batch was committed"
        );
        rows
    }
}
