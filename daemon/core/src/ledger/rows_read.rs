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
    use crate::{Ledger, Network, NetworkId, Op};

    #[test]
    fn a_walk_is_counted_and_a_look_up_is_not() {
        let mut ledger = Ledger::new();
        for number in 1..5 {
            ledger.apply(&Op::PutNetwork(Network {
                id: NetworkId(number),
                name: format!("n{number}").into(),
                hold: None,
            }));
        }
        let ((), rows) = count_rows(|| {
            assert_eq!(ledger.networks().len(), 5);
            assert!(ledger.network_by_name("n3").is_some());
            let (first, inner) = count_rows(|| ledger.networks().take(2).count());
            assert_eq!((first, inner), (2, 2));
            assert_eq!(ledger.networks_after(None).count(), 5);
        });
        assert_eq!(rows, 5, "inner looks count for themselves");
    }
}
