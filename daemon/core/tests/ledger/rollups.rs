//! Hourly roll-ups: what their rows say is what happened, whatever is in flight and however the clock goes.
#![expect(
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use fipd_core::{
    Answer, Decision, Forecast, Holder, Hour, Ledger, NetworkId, Op, Planned, PoolEdit, PoolId,
    PoolSpec, Request, Rollup, Ticket, Timestamp, testing,
};
use proptest::{prelude::*, sample::select};

const POOL: PoolId = PoolId(1);

fn holder(number: u32) -> Holder {
    Holder {
        identity: format!("fipd/Host//h{number}")
            .parse()
            .expect("an identity"),
        instance: "1".into(),
    }
}

fn allocate(number: u32) -> Request {
    Request::Allocate(testing::allocate(
        holder(number),
        [testing::want(POOL, None)],
    ))
}

fn release(number: u32) -> Request {
    testing::release(holder(number))
}

fn roll_up() -> Request {
    Request::RollUp {
        after: None,
        most: 10,
        actor: "fipd".into(),
    }
}

fn spec(addresses: &str, quarantine: u32) -> PoolSpec {
    let addresses = vec![addresses.parse().expect("addresses")];
    PoolSpec {
        quarantine,
        ..PoolSpec::own("p", addresses)
    }
}

fn hour(number: u32) -> Timestamp {
    Hour(number).begin()
}

/// A ledger and the rows of its store.
struct Book {
    ledger: Ledger,
    rows: BTreeMap<Hour, Rollup>,
    refused: u64,
}

impl Book {
    fn new(addresses: &str, quarantine: u32) -> Self {
        let mut book = Self {
            ledger: Ledger::new(),
            rows: BTreeMap::new(),
            refused: 0,
        };
        let create = Request::CreatePool {
            spec: spec(addresses, quarantine),
            actor: "test".into(),
        };
        book.ask(&create, Timestamp(1));
        book
    }

    fn plan(&mut self, request: &Request, now: Timestamp) -> Option<(Ticket, Decision)> {
        match self.ledger.plan(request, now) {
            Planned::Tentative {
                ticket, decision, ..
            } => Some((ticket, decision)),
            Planned::Refused(_) => {
                self.refused += 1;
                None
            }
            Planned::Answer(_) | Planned::Busy => None,
        }
    }

    fn confirm(&mut self, (ticket, decision): (Ticket, Decision)) {
        for op in &decision.ops {
            if let Op::PutRollup(row) = op {
                let same = self.rows.insert(row.hour, *row);
                assert_eq!(same, None, "an hour was written twice");
                let (last, _) = self.rows.last_key_value().expect("a row");
                assert_eq!(*last, row.hour, "a row before the last one");
            }
        }
        let _ = self.ledger.confirm(ticket);
    }

    /// Whether something was written.
    fn ask(&mut self, request: &Request, now: Timestamp) -> bool {
        let planned = self.plan(request, now);
        let written = planned.is_some();
        planned
            .into_iter()
            .for_each(|planned| self.confirm(planned));
        written
    }

    fn last(&self) -> Rollup {
        *self.rows.last_key_value().expect("a row").1
    }
}

#[test]
fn a_lease_that_goes_to_another_network_is_neither_given_nor_released() {
    let mut book = Book::new("10.0.0.0/29", 0);
    let (name, actor) = ("blue".into(), "test".into());
    book.ask(&Request::CreateNetwork { name, actor }, hour(50));
    (0..3).for_each(|number| assert!(book.ask(&allocate(number), hour(50))));
    assert!(book.ask(&release(0), hour(50)));
    for network in [NetworkId(1), NetworkId::DEFAULT] {
        let (pool, actor) = (POOL, "test".into());
        let moves = Request::MoveNetwork {
            pool,
            network,
            actor,
        };
        assert!(book.ask(&moves, hour(50)));
    }
    assert!(book.ask(&roll_up(), hour(51)));
    let row = book.last();
    assert_eq!((row.used, row.given, row.released), (2, 3, 1));
}

#[test]
fn a_row_says_how_the_hour_ended_and_what_happened_in_it() {
    let mut book = Book::new("10.0.0.1-10.0.0.2", 7_200);
    for number in 0..5 {
        book.ask(&allocate(number), hour(50));
    }
    book.ask(&release(0), hour(50));
    assert!(book.ask(&roll_up(), hour(51)));
    let row = Rollup {
        pool: POOL,
        hour: Hour(50),
        size: 2,
        used: 2,
        quarantined: 1,
        highest: 2,
        given: 2,
        released: 1,
        refused: 3,
    };
    assert_eq!(book.last(), row);
    assert!(!book.ask(&roll_up(), hour(52)), "nothing happened");
    let expire = Request::Expire {
        most: 9,
        actor: "fipd".into(),
    };
    book.ask(&expire, hour(53));
    assert!(book.ask(&roll_up(), hour(54)));
    let row = Rollup {
        hour: Hour(53),
        used: 1,
        quarantined: 0,
        given: 0,
        released: 0,
        refused: 0,
        ..row
    };
    assert_eq!(book.last(), row);
}

#[test]
fn an_hour_is_written_once_however_the_clock_goes() {
    let mut book = Book::new("10.0.0.0/24", 0);
    assert!(book.ask(&roll_up(), hour(100)), "the first row");
    book.ask(&allocate(1), hour(100));
    assert!(!book.ask(&roll_up(), hour(100)), "it is not over");
    // The wall clock was set back: the time of the address book stands still.
    book.ask(&allocate(2), hour(100));
    assert!(!book.ask(&roll_up(), hour(100)));
    // And forward.
    assert!(book.ask(&roll_up(), hour(5_000)));
    assert_eq!((book.last().hour, book.last().given), (Hour(4_999), 2));
    let hours: Vec<_> = book.rows.keys().copied().collect();
    assert_eq!(hours, [Hour(99), Hour(4_999)]);
    // A start behind the last row, as after a restore of time: nothing until time has come there.
    let rows: Vec<_> = book.ledger.dump().collect();
    let mut book = Book {
        ledger: Ledger::load(rows.into_iter(), 0).expect("rows"),
        ..book
    };
    book.ask(&allocate(3), hour(200));
    assert!(!book.ask(&roll_up(), hour(200)));
    assert!(book.ask(&roll_up(), hour(5_001)));
    assert_eq!((book.last().used, book.last().given), (3, 1));
}

#[test]
fn one_roll_up_is_in_flight_and_none_for_a_pool_that_is_being_deleted() {
    let mut book = Book::new("10.0.0.0/24", 0);
    book.ask(&allocate(1), hour(9));
    let flight = book.plan(&roll_up(), hour(10)).expect("a row");
    assert_eq!(book.ledger.plan(&roll_up(), hour(10)), Planned::Busy);
    // What happens before the row is durable belongs to the next one.
    book.ask(&allocate(2), hour(10));
    book.confirm(flight);
    assert!(book.ask(&roll_up(), hour(11)));
    assert_eq!((book.last().used, book.last().given), (2, 1));
    let flight = book.plan(&roll_up(), hour(12));
    assert!(flight.is_none(), "nothing happened");
    book.ask(&release(1), hour(12));
    book.ask(&release(2), hour(12));
    let delete = Request::DeletePool {
        pool: POOL,
        actor: "test".into(),
    };
    let flight = book.plan(&delete, hour(13)).expect("an empty pool");
    assert_eq!(book.ledger.plan(&roll_up(), hour(13)), Planned::Busy);
    book.confirm(flight);
    assert!(!book.ask(&roll_up(), hour(13)));
    assert_eq!(
        book.ledger.forecast(POOL, hour(14)),
        Forecast::FullIn { hours: 0 }
    );
    assert!(!book.ledger.dump().any(|op| matches!(op, Op::PutRollup(_))));
}

#[test]
fn pools_are_rolled_up_some_at_a_time() {
    let mut book = Book::new("10.0.0.0/24", 0);
    for number in 1..5 {
        let addresses = vec![format!("10.0.{number}.0/24").parse().expect("a CIDR")];
        let spec = PoolSpec::own(format!("p{number}"), addresses);
        book.ask(&testing::create_pool(spec), hour(1));
    }
    let (mut after, mut found) = (None, Vec::new());
    for _ in 0..3 {
        let request = Request::RollUp {
            after,
            most: 2,
            actor: "fipd".into(),
        };
        let Planned::Tentative { ticket, answer, .. } = book.ledger.plan(&request, hour(2)) else {
            panic!("no rows")
        };
        let _ = book.ledger.confirm(ticket);
        let Answer::RolledUp { rows, next } = answer else {
            panic!("{answer:?}")
        };
        found.push(rows);
        after = next;
    }
    assert_eq!((found, after), (vec![2, 2, 1], None));
    assert_eq!(book.ledger.rolled_up(), Some((Hour(1), 5)));
    let delete = |number| Request::DeletePool {
        pool: PoolId(number),
        actor: "test".into(),
    };
    assert!(book.ask(&delete(2), hour(2)));
    assert_eq!(book.ledger.rolled_up(), Some((Hour(1), 4)));
    assert!(book.ask(&allocate(1), hour(2)));
    assert_eq!(book.ledger.running_hour(), (1, 0));
    assert!(book.ask(&roll_up(), hour(3)));
    assert_eq!(book.ledger.rolled_up(), Some((Hour(2), 1)));
    assert!(book.ask(&release(1), hour(3)));
    assert_eq!(book.ledger.running_hour(), (0, 1));
    assert!(book.ask(&delete(1), hour(3)));
    assert_eq!(book.ledger.rolled_up(), Some((Hour(1), 3)));
    assert_eq!(book.ledger.running_hour(), (0, 0));
}

#[test]
fn a_forecast_follows_the_pool_as_it_is() {
    let mut book = Book::new("10.0.0.0/24", 0);
    for number in 0..48 {
        book.ask(&allocate(number), hour(1_000 + number));
        book.ask(&roll_up(), hour(1_001 + number));
    }
    let now = hour(1_048);
    assert_eq!(
        book.ledger.forecast(POOL, now),
        Forecast::FullIn { hours: 256 - 48 }
    );
    let loaded: Vec<_> = book.ledger.dump().collect();
    let loaded = Ledger::load(loaded.into_iter().rev(), 0).expect("rows");
    assert_eq!(
        loaded.forecast(POOL, now),
        Forecast::FullIn { hours: 256 - 48 }
    );
    let edit = Request::UpdatePool(PoolEdit {
        pool: POOL,
        spec: spec("10.0.0.0/25", 0),
        if_generation: None,
        force: false,
        actor: "test".into(),
        reason: "".into(),
    });
    book.ask(&edit, now);
    assert_eq!(
        book.ledger.forecast(POOL, now),
        Forecast::FullIn { hours: 128 - 48 }
    );
    assert_eq!(
        book.ledger.forecast(POOL, hour(3_000)),
        Forecast::NotAtThisPace
    );
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate(u32),
    Release(u32),
    RollUp,
    Expire,
    Confirm(usize),
    Abort(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..9_u32).prop_map(Step::Allocate),
        4 => (0..9_u32).prop_map(Step::Release),
        4 => Just(Step::RollUp),
        1 => Just(Step::Expire),
        9 => (0..3_usize).prop_map(Step::Confirm),
        2 => (0..3_usize).prop_map(Step::Abort),
    ]
}

proptest! {
    /// Rows add up to what was confirmed, whatever is in flight when they are made.
    #[test]
    fn rows_add_up(
        steps in prop::collection::vec((step(), select(vec![0, 0, 0, 1, 1, 30])), 1..80),
        quarantine in select(vec![0, 3_600]),
    ) {
        let mut book = Book::new("10.0.0.0/29", quarantine);
        let mut flights = Vec::new();
        let (mut given, mut released, mut at) = (0, 0, 500);
        for (step, passes) in steps {
            at += passes;
            let request = match step {
                Step::Allocate(number) => allocate(number),
                Step::Release(number) => release(number),
                Step::RollUp => roll_up(),
                Step::Expire => Request::Expire { most: 9, actor: "fipd".into() },
                Step::Confirm(_) | Step::Abort(_) if flights.is_empty() => continue,
                Step::Confirm(which) => {
                    let flight: (Ticket, Decision) = flights.swap_remove(which % flights.len());
                    let freed = flight.1.ops.iter().any(|op| matches!(op, Op::DeleteLease(_)));
                    for entry in &flight.1.audit {
                        match entry.action {
                            fipd_core::Action::Allocated => given += 1,
                            fipd_core::Action::Released => released += 1,
                            other => prop_assert!(freed, "{other:?}"),
                        }
                    }
                    book.confirm(flight);
                    let noted = |count: fn(&Rollup) -> u64| book.rows.values().map(count).sum::<u64>();
                    let running = (given - noted(|row| row.given), released - noted(|row| row.released));
                    prop_assert_eq!(book.ledger.running_hour(), running);
                    continue;
                }
                Step::Abort(which) => {
                    let (ticket, _) = flights.swap_remove(which % flights.len());
                    book.ledger.abort(ticket);
                    continue;
                }
            };
            flights.extend(book.plan(&request, hour(at)));
        }
        for flight in flights {
            book.ledger.abort(flight.0);
        }
        book.ask(&roll_up(), hour(at + 1));
        let sum = |count: fn(&Rollup) -> u64| book.rows.values().map(count).sum::<u64>();
        prop_assert_eq!(sum(|row| row.given), given);
        prop_assert_eq!(sum(|row| row.released), released);
        prop_assert_eq!(sum(|row| row.refused), book.refused);
        let usage = book.ledger.usage(POOL).expect("the pool");
        let last = book.last();
        prop_assert_eq!((u128::from(last.used), u128::from(last.quarantined)), (usage.used, usage.quarantined));
        prop_assert!(book.rows.values().all(|row| row.highest >= row.used && u128::from(row.highest) <= row.size));
    }
}
