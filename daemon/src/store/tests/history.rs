//! Random histories of requests, and a book of what they were answered.

use fipd_core::{
    Adopt, Allocate, Answer, Authority as _, Decision, Ends, Family, Holder, LeaseKey, Ledger,
    NetworkId, Op, Order, Origin, Outcome, Planned, PoolId, PoolSpec, Quota, Release, ReleaseScope,
    Request, Reserve, Share, Sticky, Tenant, Ticket, Timestamp, Want,
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
    dice: Dice,
    time: u64,
    /// Decisions answered as durable, of all histories together.
    pub answered: usize,
    pub refused: usize,
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
        }
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
        for (outcome, (ticket, answer)) in outcomes.into_iter().zip(flight.tickets) {
            match outcome {
                Outcome::Committed => {
                    self.ledger.confirm(ticket);
                    self.answered += 1;
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

    fn holder(&mut self) -> Holder {
        let identity = format!("fipd/Service/apps/s{}", self.dice.below(60));
        Holder {
            identity: identity.parse().unwrap(),
            instance: format!("i{}", self.dice.below(2)).into(),
        }
    }

    fn pool(&mut self) -> PoolId {
        let pools: Vec<_> = self.ledger.pools().map(|pool| pool.id).collect();
        match pools.len() as u64 {
            0 => PoolId(1),
            count => pools[self.dice.below(count) as usize],
        }
    }

    fn request(&mut self) -> Request {
        let actor = "test".into();
        let pools = self.ledger.pools().count();
        match self.dice.below(24) {
            _ if pools == 0 => self.new_pool(),
            0 => self.new_pool(),
            1 => Request::DeletePool {
                pool: self.pool(),
                actor,
            },
            2..=6 => {
                let scope = ReleaseScope::Holder(self.holder());
                Request::Release(Release {
                    scope,
                    actor,
                    reason: "done".into(),
                })
            }
            7 => {
                let address = format!("10.0.{}.{}", self.dice.below(4), self.dice.below(64))
                    .parse()
                    .unwrap();
                let key = LeaseKey {
                    network: NetworkId::DEFAULT,
                    address,
                };
                let holder = self.holder();
                Request::Adopt(Adopt {
                    key,
                    holder,
                    tenant: None,
                    since: Timestamp(self.time),
                    actor,
                })
            }
            13 => Request::SetQuota {
                quota: Quota {
                    pool: self.pool(),
                    tenant: self.tenant(),
                    limit: self.dice.below(20),
                },
                actor,
            },
            14 if self.dice.coin() => Request::DeleteQuota {
                pool: self.pool(),
                tenant: self.tenant(),
                actor,
            },
            8 => Request::CreateNetwork {
                name: format!("net-{}", self.dice.below(5)).into(),
                actor,
            },
            9 => Request::Expire { most: 3, actor },
            10..=12 => {
                let until = self.time + 1 + self.dice.below(3_000);
                let until = self.dice.coin().then_some(Timestamp(until));
                let share = None;
                let ask = Allocate {
                    share,
                    ..self.allocate()
                };
                Request::Reserve(Reserve { ask, until })
            }
            _ => Request::Allocate(self.allocate()),
        }
    }

    fn allocate(&mut self) -> Allocate {
        let share = self.share();
        let count = match share {
            Some(_) => 1,
            None => 1 + self.dice.below(3) as u32,
        };
        let wants = vec![Want {
            pool: self.pool().into(),
            address: None,
            count,
        }];
        Allocate {
            holder: self.holder(),
            tenant: Some(self.tenant()),
            wants,
            waiting_since: None,
            by_admin: false,
            share,
            actor: "test".into(),
        }
    }

    fn share(&mut self) -> Option<Share> {
        let port = match self.dice.below(6) {
            0 => "TCP/80",
            1 => "TCP/443",
            2 => "UDP/53",
            _ => return None,
        };
        let port = port.parse().unwrap();
        Some(Share {
            key: "g".into(),
            ports: vec![port],
        })
    }

    fn tenant(&mut self) -> Tenant {
        Tenant(format!("p-{}", self.dice.below(4)).into())
    }

    fn new_pool(&mut self) -> Request {
        let number = self.dice.below(6);
        let (addresses, family) = match number {
            0..4 => (format!("10.0.{number}.0/26"), Family::V4),
            _ => (format!("fd00:{number}::/120"), Family::V6),
        };
        let spec = PoolSpec {
            name: format!("pool-{number}").into(),
            network: NetworkId::DEFAULT,
            addresses: vec![addresses.parse().unwrap()],
            exclusions: Vec::new(),
            gateway: None,
            prefix_len: None,
            subnet: None,
            ends: Ends::own_default(family),
            order: match number % 3 {
                0 => Order::Lowest,
                1 => Order::Random,
                _ => Order::LeastRecentlyUsed,
            },
            sticky: Sticky {
                lasts: (number % 4) as u32,
                most: 3,
            },
            share_across_clusters: number == 1,
            origin: Origin::Own,
            closed: false,
            quarantine: (number % 2) as u32,
            priority: 0,
            scopes: Vec::new(),
        };
        Request::CreatePool {
            spec,
            actor: "test".into(),
        }
    }
}
