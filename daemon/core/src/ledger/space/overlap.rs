//! Addresses that several pools may give.

use std::net::IpAddr;

use crate::{Family, PoolId, Span, ledger::Ledger};

/// Addresses that another pool of the network may give as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    pub pool: PoolId,
    pub first: IpAddr,
    pub last: IpAddr,
}

impl Ledger {
    /// The most runs of addresses that are looked at for one pool.
    const RUNS: usize = 250;

    /// Where other pools of its network may give what the pool may give, in order; at most `limit`.
    pub fn overlaps(&self, pool: PoolId, limit: usize) -> Vec<Overlap> {
        let mut found: Vec<(PoolId, u128, u128)> = Vec::new();
        let Some(room) = self.free.room(pool) else {
            return Vec::new();
        };
        let (network, layout) = (room.network, &room.layout);
        let mut spans = [layout.assignable.as_slice(), &layout.withheld].concat();
        spans.sort_unstable_by_key(|span| span.first);
        let runs = spans.iter();
        let runs = runs.flat_map(|span| self.free.segments(network, *span));
        for (Span { first, last, .. }, parts) in runs.take(Self::RUNS) {
            let others = parts.iter();
            for part in others.filter(|part| part.in_range() && part.pool != pool) {
                let next = |(other, _, end): &&mut (PoolId, u128, u128)| {
                    *other == part.pool && end.checked_add(1) == Some(first)
                };
                if let Some((.., end)) = found.iter_mut().rev().find(next) {
                    *end = last;
                } else if found.len() < limit {
                    found.push((part.pool, first, last));
                } else {
                    return named(found, layout.family);
                }
            }
        }
        named(found, layout.family)
    }
}

/// Pools of one length were looked at after the other.
fn named(mut found: Vec<(PoolId, u128, u128)>, family: Family) -> Vec<Overlap> {
    found.sort_unstable_by_key(|(pool, first, _)| (*first, *pool));
    let overlap = |(pool, first, last): &(PoolId, u128, u128)| Overlap {
        pool: *pool,
        first: family.address(*first),
        last: family.address(*last),
    };
    found.iter().map(overlap).collect()
}
