//! A week of random life with the naive model alongside: hours pass, the wall clock jumps, fipd is killed with decisions in
//! flight, and an old file is restored while the world goes on with what it was given since.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use super::{
    Adopt, Allocate, Choice, Epoch, History, Identity, Lease, LeaseKey, LeasePrefix, LeaseState,
    Ledger, Model, NOWHERE, NetworkId, Op, PoolEdit, PoolId, PoolSpec, Quota, Release,
    ReleaseScope, Request, Reserve, RestoreHold, Step, Timestamp, model, spec, step,
};

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const WEEK: u64 = 7 * 24 * HOUR;
/// 2026-01-05, a Monday.
const MONDAY: u64 = 1_767_571_200_000;

/// What the addresses are used for outside, whatever the file says.
type Users = BTreeMap<LeasePrefix, BTreeSet<Identity>>;

struct Week {
    history: History,
    runner: TestRunner,
    /// Time that really passes; the wall clock differs from it by `off`.
    at: u64,
    off: i64,
    /// The latest time of a decision, which the store keeps.
    last: u64,
    backup: Vec<Op>,
    /// Given after the backup that was restored last.
    newer: Users,
    told: Told,
}

/// What happened, so that a week in which nothing happens is noticed.
#[derive(Debug, Default)]
struct Told {
    steps: u64,
    granted: u64,
    expired: u64,
    jumps: u64,
    kills: u64,
    lost: u64,
    restores: u64,
    held_back: u64,
}

impl Week {
    fn new(seed: u8) -> Self {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        Self {
            history: History::new(Vec::new(), None),
            runner: TestRunner::new_with_rng(super::Config::default(), rng),
            at: MONDAY,
            off: 0,
            last: 0,
            backup: Vec::new(),
            newer: Users::new(),
            told: Told::default(),
        }
    }

    fn dice(&mut self, below: u64) -> u64 {
        let drawn = (0..below).new_tree(&mut self.runner);
        drawn.unwrap().current()
    }

    /// max(wall clock, last decision).
    fn now(&self) -> u64 {
        self.at.saturating_add_signed(self.off).max(self.last)
    }

    fn live(mut self) -> Told {
        while self.at < MONDAY + WEEK {
            // Much happens at once, and then nothing for minutes.
            let passes = match self.dice(4) {
                0 => 0,
                1 | 2 => self.dice(5 * SECOND),
                _ => self.dice(300 * SECOND),
            };
            self.pass(passes);
            self.copies();
            match self.dice(4_000) {
                0..8 => self.jump(),
                8..16 => self.kill(),
                16..40 => self.step(&Step::Expect(Vec::new())),
                40..340 => self.tick(Request::Expire {
                    most: 3,
                    actor: "fipd".into(),
                }),
                340..840 => self.leave(),
                840..900 => self.open(),
                900..1_200 => self.keep(),
                _ => self.random(),
            }
        }
        self.history.end();
        self.told
    }

    /// The hold of a restore is shortened by the time that fipd runs, about every hour here.
    fn pass(&mut self, millis: u64) {
        let hours = |at: u64| at / HOUR;
        let before = hours(self.at);
        self.at += millis;
        let elapsed = (hours(self.at) - before) * HOUR;
        if elapsed > 0 {
            self.tick(Request::PassHold {
                elapsed,
                actor: "fipd".into(),
            });
            if self.history.ledger.restore_hold().is_none() {
                self.newer.clear();
            }
        }
    }

    fn tick(&mut self, request: Request) {
        let expires = matches!(request, Request::Expire { .. });
        let before = self.history.flights.len();
        self.step(&super::asks(request));
        if self.history.flights.len() > before {
            self.told.expired += u64::from(expires);
            self.step(&Step::Confirm(before));
        }
    }

    /// A copy of the file is made early each day; on the third and the sixth one it is needed.
    fn copies(&mut self) {
        let (day, hour) = ((self.at - MONDAY) / (24 * HOUR), self.at / HOUR % 24);
        if hour == 4 {
            self.backup = self.history.ledger.dump().collect();
        }
        if hour == 12 && self.told.restores < [0, 0, 1, 1, 1, 2, 2][day as usize] {
            self.restore();
        }
    }

    /// Who has an address goes.
    fn leave(&mut self) {
        let all = self.history.model.leases.len() as u64;
        if all == 0 {
            return;
        }
        let at = usize::try_from(self.dice(all)).unwrap();
        let lease = &self.history.model.leases[at];
        let scope = match lease.members.first() {
            Some(member) => ReleaseScope::Holder(member.holder.clone()),
            None => ReleaseScope::Quarantine(lease.key),
        };
        self.tick(Request::Release(Release {
            scope,
            actor: "fipd".into(),
            reason: "gone".into(),
        }));
    }

    /// Pools are deleted and closed by chance; one more.
    fn open(&mut self) {
        let spec = spec().new_tree(&mut self.runner).unwrap().current();
        self.tick(Request::CreatePool {
            spec: PoolSpec {
                network: NetworkId::DEFAULT,
                closed: false,
                ..spec
            },
            actor: "admin".into(),
        });
    }

    /// Somebody keeps addresses, mostly for a while.
    fn keep(&mut self) {
        let request = super::reserve().new_tree(&mut self.runner).unwrap();
        self.ask(super::asks(request.current()));
    }

    fn random(&mut self) {
        let step = step().new_tree(&mut self.runner).unwrap().current();
        self.ask(step);
    }

    /// The step, at this time and of the pools that are there.
    fn ask(&mut self, mut step: Step) {
        let now = self.now();
        if let Step::Ask(request) = &mut step {
            // Restores are made here, and their hold ends by time only.
            if matches!(
                **request,
                Request::PassHold { .. } | Request::LiftHold { .. }
            ) {
                return;
            }
            from_now(request, now);
            let pools: Vec<_> = self
                .history
                .model
                .pools
                .iter()
                .map(|pool| pool.id)
                .collect();
            of_these(request, &pools);
        }
        self.step(&step);
    }

    fn step(&mut self, step: &Step) {
        let now = Timestamp(self.now());
        let before = self.history.flights.len();
        self.history.step(step, now);
        self.told.steps += 1;
        if self.history.flights.len() > before {
            self.last = now.0;
            self.given(step);
        } else if matches!(step, Step::Ask(_)) && !self.newer.is_empty() {
            self.told.held_back += 1;
        }
    }

    /// Nothing that the world was given after the backup comes to somebody else while the hold lasts.
    fn given(&mut self, step: &Step) {
        let Step::Ask(request) = step else { return };
        if !matches!(**request, Request::Allocate(_) | Request::Reserve(_)) {
            return;
        }
        self.told.granted += 1;
        let number = self.history.flights.last().unwrap().1;
        for op in &self.history.decisions[&number] {
            let Op::PutLease(lease) = op else { continue };
            let known = self.history.ledger.lease(lease.key);
            let used = |identity: &Identity| {
                let mut newer = self.newer.iter();
                newer.all(|(prefix, users)| {
                    users.contains(identity) || !model::touch(*prefix, lease.prefix())
                })
            };
            let new = lease.members.iter().filter(|member| {
                let identity = &member.holder.identity;
                !used(identity) && !known.is_some_and(|lease| lease.held_by(identity))
            });
            assert_eq!(
                new.count(),
                0,
                "{:?} was given after the backup: {lease:?}",
                lease.key
            );
        }
    }

    /// Up to two days to either side; back to the right time at last.
    fn jump(&mut self) {
        let far = 96 * HOUR;
        self.off = match self.dice(3) {
            0 => 0,
            _ => i64::try_from(self.dice(far)).unwrap() - i64::try_from(far / 2).unwrap(),
        };
        self.told.jumps += 1;
    }

    /// Of what is in flight each is on the disk or not; what is only in memory is gone.
    fn kill(&mut self) {
        for _ in 0..self.history.flights.len() {
            let end = match self.dice(2) {
                0 => Step::Confirm(0),
                _ => Step::Abort(0),
            };
            self.told.lost += 1;
            self.step(&end);
        }
        let rows = self.history.stored.values().cloned().collect();
        self.load(rows);
        self.told.kills += 1;
    }

    fn load(&mut self, rows: Vec<Op>) {
        let mut model = Model::new();
        let mut history = History::new(Vec::new(), None);
        history.hour = self.history.hour;
        history.stored.clear();
        history.store(&rows);
        rows.iter().cloned().for_each(|row| model.apply(row));
        model.networks.dedup();
        // As after any start, until the configuration is read.
        history.ledger = Ledger::load(rows.into_iter(), 0).unwrap();
        history.model = model;
        history.compare();
        self.history = history;
    }

    /// The file of some hours ago in place of this one, as `fipd restore` does it.
    fn restore(&mut self) {
        let mut rows = self.backup.clone();
        self.kill();
        let known: BTreeMap<LeaseKey, Lease> = leases(&rows);
        let used = leases(&self.history.ledger.dump().collect::<Vec<_>>());
        self.newer = used
            .into_values()
            // What cooled in the copy may have been given to others since.
            .filter(|lease| {
                let known = known.get(&lease.key);
                known.is_none_or(|known| {
                    known.state == LeaseState::Quarantined || known.length != lease.length
                })
            })
            .filter(|lease| lease.state == LeaseState::Allocated)
            .map(|lease| {
                let members = lease.members.iter();
                (
                    lease.prefix(),
                    members.map(|one| one.holder.identity.clone()).collect(),
                )
            })
            .collect();
        rows.retain(|row| !matches!(row, Op::PutEpoch(_) | Op::PutAdoption(_)));
        let began = Timestamp(self.now());
        rows.push(Op::PutEpoch(Epoch {
            number: self.told.restores + 1,
            began,
            hold: Some(RestoreHold::starting(began)),
        }));
        self.load(rows);
        self.last = began.0;
        self.told.restores += 1;
    }
}

fn leases(rows: &[Op]) -> BTreeMap<LeaseKey, Lease> {
    let leases = rows.iter().filter_map(|row| match row {
        Op::PutLease(lease) => Some((lease.key, Lease::clone(lease))),
        _ => None,
    });
    leases.collect()
}

/// Points in time of the request, which are counted from zero, count from `now`.
fn from_now(request: &mut Request, now: u64) {
    let shift = |at: &mut Timestamp| at.0 += now - 500;
    match request {
        Request::Allocate(Allocate { waiting_since, .. }) => {
            waiting_since.iter_mut().for_each(shift);
        }
        Request::Reserve(Reserve { until, ask }) => {
            until.iter_mut().for_each(shift);
            ask.waiting_since.iter_mut().for_each(shift);
        }
        Request::Adopt(Adopt { since, .. }) => shift(since),
        _ => {}
    }
}

/// Low numbers of pools, which soon are of none, become those of pools that are there.
pub fn of_these(request: &mut Request, pools: &[PoolId]) {
    let there = |id: &mut PoolId| {
        if *id == NOWHERE {
            return;
        }
        let nth = pools.get(id.0 as usize % pools.len().max(1));
        *id = nth.copied().unwrap_or(*id);
    };
    match request {
        Request::Allocate(ask) | Request::Reserve(Reserve { ask, .. }) => {
            for want in &mut ask.wants {
                if let Choice::Pool(id) = &mut want.pool {
                    there(id);
                }
            }
        }
        Request::UpdatePool(PoolEdit { pool, .. })
        | Request::DeletePool { pool, .. }
        | Request::MoveNetwork { pool, .. }
        | Request::SetQuota {
            quota: Quota { pool, .. },
            ..
        }
        | Request::DeleteQuota { pool, .. } => there(pool),
        _ => {}
    }
}

/// `FIPD_WEEKS` asks for another number of them than two.
#[test]
fn a_week_of_random_life() {
    let weeks = std::env::var("FIPD_WEEKS").ok();
    let weeks: u8 = weeks.and_then(|text| text.parse().ok()).unwrap_or(2);
    let (mut held_back, mut expired) = (0, 0);
    for seed in 1..=weeks {
        let told = Week::new(seed).live();
        println!("week {seed}: {told:?}");
        assert!(told.steps > 5_000 && told.granted > 100, "{told:?}");
        assert!(told.expired > 0 && told.jumps > 5, "{told:?}");
        assert!(told.kills > 5 && told.lost > 5, "{told:?}");
        assert_eq!(told.restores, 2, "{told:?}");
        held_back += told.held_back;
        expired += told.expired;
    }
    // In a week it may be that nobody was given anything between a copy and its restore, and that few leases ended.
    assert!(held_back > 50 && expired > 20, "{held_back} {expired}");
}
