//! Reading which addresses pools have, for maps and pages of single addresses.

use crate::{LeaseKey, PoolId, Span, ledger::Ledger};

/// A part of a pool's addresses. Each list is sorted and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSpans {
    /// What the pool names.
    pub listed: Vec<Span>,
    /// Of these, what it gives: less exclusions, gateway and reserved ends.
    pub assignable: Vec<Span>,
    /// What it would give, but for a pool of another network that may mean the same.
    pub withheld: Vec<Span>,
}

impl Ledger {
    /// How many leases there are in all networks.
    pub fn lease_count(&self) -> usize {
        self.rows.leases.len()
    }

    /// The addresses of the pool that lie in `within`; nothing where that is of the other family.
    pub fn pool_spans(&self, id: PoolId, within: Span) -> Option<PoolSpans> {
        let layout = &self.free.room(id)?.layout;
        if layout.family != within.family {
            return Some(PoolSpans::default());
        }
        let cut = |spans: &[Span]| {
            let from = spans.partition_point(|span| span.last < within.first);
            let near = spans
                .iter()
                .skip(from)
                .take_while(|span| span.first <= within.last);
            let clip = |span: &Span| Span {
                first: span.first.max(within.first),
                last: span.last.min(within.last),
                ..*span
            };
            near.map(clip).collect()
        };
        Some(PoolSpans {
            listed: cut(&layout.listed),
            assignable: cut(&layout.assignable),
            withheld: cut(&layout.withheld),
        })
    }

    /// The pools that list the address, and whether they give it, or the prefix around it.
    pub fn pools_at(&self, key: LeaseKey) -> Vec<(PoolId, bool)> {
        let parts = self.free.stabs(key);
        parts
            .map(|part| (part.pool, part.is_assignable()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Ledger, Op, PoolId, PoolSpec, Span, testing};

    fn ledger() -> Ledger {
        let spec = PoolSpec {
            exclusions: vec!["10.0.1.100-10.0.1.110".parse().unwrap()],
            ..PoolSpec::own(
                "p",
                vec![
                    "10.0.0.0/22".parse().unwrap(),
                    "10.9.0.0/24".parse().unwrap(),
                ],
            )
        };
        let pool = testing::pool(spec);
        let mut ledger = Ledger::new();
        ledger.apply(&Op::PutPool(pool.into()));
        ledger
    }

    fn span(first: &str, last: &str) -> Span {
        let (first, last): (crate::AddressSpec, crate::AddressSpec) =
            (first.parse().unwrap(), last.parse().unwrap());
        Span {
            last: last.span().last,
            ..first.span()
        }
    }

    #[test]
    fn spans_are_cut_to_what_is_asked_for() {
        let ledger = ledger();
        let spans = ledger
            .pool_spans(PoolId(1), span("10.0.1.0", "10.0.1.255"))
            .unwrap();
        assert_eq!(spans.listed, [span("10.0.1.0", "10.0.1.255")]);
        assert_eq!(
            spans.assignable,
            [
                span("10.0.1.0", "10.0.1.99"),
                span("10.0.1.111", "10.0.1.255")
            ]
        );
        let nothing = ledger
            .pool_spans(PoolId(1), span("10.5.0.0", "10.5.0.255"))
            .unwrap();
        assert!(nothing.listed.is_empty() && nothing.assignable.is_empty());
        let other = ledger.pool_spans(PoolId(1), span("::", "::ffff")).unwrap();
        assert!(other.listed.is_empty());
        assert!(
            ledger
                .pool_spans(PoolId(2), span("10.0.1.0", "10.0.1.255"))
                .is_none()
        );
    }

    #[test]
    fn the_pools_of_an_address_say_whether_they_give_it() {
        let ledger = ledger();
        let at = |text: &str| ledger.pools_at(testing::key_of(text));
        assert_eq!(at("10.0.1.99"), [(PoolId(1), true)]);
        assert_eq!(at("10.0.1.100"), [(PoolId(1), false)]);
        assert_eq!(at("10.0.4.0"), []);
        assert_eq!(ledger.lease_count(), 0);
    }
}
