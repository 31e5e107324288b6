use std::{cell::Cell, convert::Infallible, net::IpAddr};

use fipd_core::{Holder, Identity, Op, System, Timestamp, testing};

use super::*;

fn key(number: u32) -> LeaseKey {
    testing::key(IpAddr::from((0x0a00_0000 + number).to_be_bytes()))
}

fn lease(number: u32, since: u64) -> Op {
    let identity = Identity {
        system: System::rancher_fip(),
        cluster: None,
        kind: "vm".into(),
        namespace: "lab".into(),
        name: format!("web-{number}").into(),
        interface: "".into(),
    };
    let holder = Holder {
        identity,
        instance: "u".into(),
    };
    let member = testing::member(holder);
    Op::PutLease(Arc::new(Lease {
        members: [member].into_iter().collect(),
        since: Timestamp(since),
        ..testing::lease(key(number), None, None)
    }))
}

fn ledger(numbers: impl IntoIterator<Item = u32>) -> Ledger {
    let ops = numbers.into_iter().map(|number| lease(number, 1));
    Ledger::load(ops, 1).unwrap()
}

/// All that differs, over all pages.
fn compared(file: &Ledger, live: &Ledger) -> Vec<LeaseKey> {
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let page = live.check_page(after);
        assert!(page.leases.len() <= 1_000);
        found.extend(differing(file, after, &page));
        after = page.next;
        if after.is_none() {
            found.sort();
            return found;
        }
    }
}

#[test]
fn equal_ledgers_do_not_differ_whatever_the_pages() {
    for size in [0, 1, 999, 1_000, 1_001, 2_500] {
        assert_eq!(compared(&ledger(0..size), &ledger(0..size)), [], "{size}");
    }
}

#[test]
fn rows_that_only_one_has_or_that_say_something_else_differ() {
    let file = ledger((0..2_500).filter(|one| ![0, 1_200].contains(one)));
    let mut live = ledger((0..2_500).filter(|one| ![999, 2_499].contains(one)));
    live.apply(&lease(1_000, 2));
    let expected = [0, 999, 1_000, 1_200, 2_499].map(key);
    assert_eq!(compared(&file, &live), expected);
    assert_eq!(compared(&file, &ledger([])).len(), 2_498);
    assert_eq!(compared(&ledger([]), &live).len(), 2_498);
}

#[test]
fn only_what_never_agrees_is_wrong() {
    let looks = Cell::new(0);
    let look = |rows: &[LeaseKey]| {
        looks.set(looks.get() + 1);
        let late = looks.get() < 5;
        let left = rows.iter().filter(|row| late || **row == key(7));
        Ok::<_, Infallible>(left.copied().collect())
    };
    let rows = vec![key(6), key(7), key(8)];
    assert_eq!(settle(rows, Duration::ZERO, look), Ok(vec![key(7)]));
    assert_eq!(looks.get(), LOOKS);
    let none = settle(Vec::new(), Duration::ZERO, look);
    assert_eq!((none, looks.get()), (Ok(Vec::new()), LOOKS));
}
