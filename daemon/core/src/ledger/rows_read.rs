//! How many rows a reader looks at, counted in debug builds: who holds the ledger keeps its writer waiting.

use std::cell::Cell;

thread_local! {
    static READ: Cell<usize> = const { Cell::new(0) };
}

/// Counts the rows of ledgers that `look` reads on this thread; 0 in release builds.
pub fn count_rows<R>(look: impl FnOnce() -> R) -> (R, usize) {
    if !cfg!(debug_assertions) {
        return (look(), 0);
    }
    let outer = READ.replace(0);
    let result = look();
    (result, READ.replace(outer))
}

/// Counts each row that is taken.
pub(super) trait CountedRows: Iterator + Sized {
    fn counted(self) -> std::iter::Inspect<Self, fn(&Self::Item)> {
        self.inspect(|_| count(1))
    }
}

impl<I: Iterator> CountedRows for I {}

pub(super) fn count(rows: usize) {
    if cfg!(debug_assertions) {
        READ.set(READ.get() + rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeaseFilter, LeaseKey, Ledger, Network, NetworkId, Op, testing};

    fn networks(numbers: std::ops::Range<u32>) -> Ledger {
        let mut ledger = Ledger::new();
        for number in numbers {
            ledger.apply(&Op::PutNetwork(Network {
                id: NetworkId(number),
                name: format!("n{number}").into(),
                hold: None,
            }));
        }
        ledger
    }

    #[test]
    fn a_walk_is_counted_and_a_look_up_is_not() {
        let ledger = networks(1..5);
        let ((), rows) = count_rows(|| {
            assert_eq!(ledger.networks().len(), 5);
            assert!(ledger.network_by_name("n3").is_some());
            let (first, inner) = count_rows(|| ledger.networks().take(2).count());
            assert_eq!((first, inner), (2, 2));
            assert_eq!(ledger.networks_after(None).count(), 5);
        });
        assert_eq!(rows, 5, "inner looks count for themselves");
    }

    #[test]
    fn leases_of_an_address_are_looked_for_in_some_networks_at_a_time() {
        let mut ledger = networks(1..2_500);
        let all = [0, 999, 1_000, 2_499].map(|number| LeaseKey {
            network: NetworkId(number),
            ..testing::key([10, 0, 0, 7])
        });
        for key in all {
            ledger.apply(&Op::PutLease(testing::lease(key, None, None).into()));
        }
        let find = |network, limit| {
            let filter = LeaseFilter {
                address: Some(all[0].address),
                network,
                ..LeaseFilter::default()
            };
            let (mut found, mut steps) = (Vec::new(), Vec::new());
            let mut after = None;
            loop {
                let (page, rows) = count_rows(|| ledger.leases(&filter, after, limit));
                steps.push(rows);
                found.extend(page.leases.iter().map(|lease| lease.key));
                after = page.next;
                if after.is_none() {
                    return (found, steps);
                }
            }
        };
        // Four leases and 2,500 networks, of which each step begins with the last one of the step before.
        assert_eq!(find(None, 9), (all.to_vec(), vec![1_000, 1_000, 506]));
        let (found, steps) = find(None, 1);
        assert_eq!(found, all);
        assert!(steps.iter().all(|rows| *rows <= Ledger::SCAN), "{steps:?}");
        assert_eq!(find(Some(NetworkId(999)), 1), (vec![all[1]], vec![2]));
        assert_eq!(find(Some(NetworkId(998)), 1), (vec![], vec![1]));
    }

    #[test]
    fn leases_with_an_identity_come_in_parts() {
        let mut ledger = Ledger::new();
        let holder = testing::holder("fipd/vm/lab/a", "1");
        let lease = |at: u32| {
            let key = testing::key((0x0a00_0000 + at).to_be_bytes());
            testing::lease(key, None, [holder.clone()])
        };
        for at in 0..2_500 {
            ledger.apply(&Op::PutLease(lease(at).into()));
        }
        let (mut after, mut steps) = (None, Vec::new());
        loop {
            let (page, rows) =
                count_rows(|| ledger.leases_with(&holder.identity, after, Ledger::SCAN));
            steps.push((page.len(), rows));
            let Some(last) = page.last() else { break };
            after = Some(last.key);
        }
        let whole = (1_000, 1_000);
        assert_eq!(steps, [whole, whole, (500, 500), (0, 0)]);
    }
}
