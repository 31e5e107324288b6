//! Looking for entries of the audit log.

use fipd_core::{Action, AddressSpec, Authority as _, NetworkId, PoolId, Span, Timestamp};

use super::file::decision;
use crate::store::{AuditFilter, Store, StoreOptions};

/// Hundred entries at the times 10, 20, ... 1000; every tenth is of the address 10.0.0.7.
fn store(dir: &tempfile::TempDir) -> Store {
    let path = dir.path().join("fipd.redb");
    let (mut store, _) = Store::open(&path, StoreOptions::default()).unwrap();
    let decisions: Vec<_> = (1..=100)
        .map(|number| {
            let mut decision = decision(number);
            let entry = &mut decision.audit[0];
            entry.at = Timestamp(number * 10);
            if number % 10 == 0 {
                entry.address = Some("10.0.0.7".parse().unwrap());
                entry.network = Some(NetworkId::DEFAULT);
                entry.pool = Some(PoolId(3));
                entry.action = Action::Allocated;
                entry.actor = "user:ann".into();
            }
            decision
        })
        .collect();
    store.commit(&decisions);
    store
}

fn span(text: &str) -> Span {
    text.parse::<AddressSpec>().unwrap().span()
}

fn numbers(store: &Store, filter: &AuditFilter, before: Option<u64>, limit: usize) -> Vec<u64> {
    let found = store.reader().audit_search(filter, before, limit, 1_000);
    let entries = found.unwrap().entries;
    entries.iter().map(|(number, _)| *number).collect()
}

#[test]
fn each_filter_is_obeyed() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let tens: Vec<u64> = (1..=10).rev().map(|ten| ten * 10).collect();
    let all = AuditFilter::default();
    for filter in [
        AuditFilter {
            touches: Some(span("10.0.0.7")),
            ..all.clone()
        },
        AuditFilter {
            pool: Some(PoolId(3)),
            ..all.clone()
        },
        AuditFilter {
            action: Some(Action::Allocated),
            ..all.clone()
        },
        AuditFilter {
            actor: Some("ann".into()),
            ..all.clone()
        },
        AuditFilter {
            network: Some(NetworkId::DEFAULT),
            ..all.clone()
        },
    ] {
        assert_eq!(numbers(&store, &filter, None, 100), tens, "{filter:?}");
    }
    let other = AuditFilter {
        touches: Some(span("10.0.0.8")),
        ..all
    };
    assert_eq!(numbers(&store, &other, None, 100), Vec::<u64>::new());
}

#[test]
fn the_octets_of_an_address_lie_in_its_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    let (mut store, _) = Store::open(&path, StoreOptions::default()).unwrap();
    let texts = [
        "0.0.0.0",
        "255.255.255.255",
        "10.0.0.200",
        "::",
        "2001:db8::7",
        "ff00::ff",
    ];
    for (number, text) in (1..).zip(texts) {
        let mut decision = decision(number);
        decision.audit[0].address = Some(text.parse().unwrap());
        store.commit(&[decision]);
    }
    for (number, text) in (1..).zip(texts) {
        let filter = AuditFilter {
            touches: Some(span(text)),
            ..AuditFilter::default()
        };
        assert_eq!(numbers(&store, &filter, None, 10), [number], "{text}");
    }
}

#[test]
fn an_address_is_found_in_prefixes_and_a_prefix_around_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    let (mut store, _) = Store::open(&path, StoreOptions::default()).unwrap();
    let rows = [
        ("2001:db8:0:1::", Some(64)),
        ("2001:db8:0:1::7", None),
        ("2001:db8::", Some(48)),
        ("2001:db8:0:2::", Some(64)),
        ("10.0.0.0", Some(28)),
        ("10.0.0.16", Some(28)),
        ("10.0.0.0", None),
    ];
    for (number, (address, length)) in (1..).zip(rows) {
        let mut decision = decision(number);
        decision.audit[0].address = Some(address.parse().unwrap());
        decision.audit[0].length = length;
        store.commit(&[decision]);
    }
    for (asked, expected) in [
        ("2001:db8:0:1::7", &[3, 2, 1][..]),
        ("2001:db8:0:1::/64", &[3, 2, 1]),
        ("2001:db8:0:1::/65", &[3, 2, 1]),
        ("2001:db8:0:1:8000::/65", &[3, 1]),
        ("2001:db8::/47", &[4, 3, 2, 1]),
        ("2001:db8:1::1", &[]),
        ("10.0.0.7", &[5]),
        ("10.0.0.15-10.0.0.16", &[6, 5]),
        ("10.0.0.0/24", &[7, 6, 5]),
        ("0.0.0.0/0", &[7, 6, 5]),
    ] {
        let filter = AuditFilter {
            touches: Some(span(asked)),
            ..AuditFilter::default()
        };
        assert_eq!(numbers(&store, &filter, None, 10), expected, "{asked}");
    }
}

#[test]
fn times_are_found_without_reading_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    for (from, to, expected) in [
        (None, Some(35), vec![3, 2, 1]),
        (Some(975), None, vec![100, 99, 98]),
        (Some(31), Some(60), vec![6, 5, 4]),
        (Some(30), Some(30), vec![3]),
        (None, Some(9), vec![]),
        (Some(1_001), None, vec![]),
    ] {
        let filter = AuditFilter {
            from: from.map(Timestamp),
            to: to.map(Timestamp),
            ..AuditFilter::default()
        };
        let found = store.reader().audit_search(&filter, None, 10, 4).unwrap();
        let numbers: Vec<_> = found.entries.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, expected, "{filter:?}");
        assert_eq!(found.next, None, "{filter:?}");
    }
}

#[test]
fn a_search_goes_on_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let filter = AuditFilter {
        action: Some(Action::Allocated),
        ..AuditFilter::default()
    };
    for (limit, rows) in [(3, 1_000), (100, 7), (1, 1), (2, 13)] {
        let (mut all, mut before) = (Vec::new(), None);
        loop {
            let found = store.reader().audit_search(&filter, before, limit, rows);
            let found = found.unwrap();
            assert!(found.entries.len() <= limit);
            all.extend(found.entries.iter().map(|(number, _)| *number));
            before = found.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(all, (1..=10).rev().map(|ten| ten * 10).collect::<Vec<_>>());
    }
}

#[test]
fn a_search_from_the_oldest_on_finds_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let filter = AuditFilter {
        action: Some(Action::Allocated),
        from: Some(Timestamp(150)),
        to: Some(Timestamp(900)),
        ..AuditFilter::default()
    };
    for (limit, rows) in [(3, 1_000), (100, 7), (1, 1), (2, 13)] {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let found = store.reader().audit_search_up(&filter, after, limit, rows);
            let found = found.unwrap();
            assert!(found.entries.len() <= limit);
            all.extend(found.entries.iter().map(|(number, _)| *number));
            after = found.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(all, (2..=9).map(|ten| ten * 10).collect::<Vec<_>>());
    }
}
