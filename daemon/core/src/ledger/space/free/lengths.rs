//! Spaces of prefixes: made with the first pool that gives them, from what is leased and taken then, and dropped with the last.

use std::collections::BTreeMap;

use super::{Free, Leases, keys};
use crate::{
    Family, LeaseKey, LeasePrefix, NetworkId, Span,
    layout::{rounded, units},
    ledger::space::{
        runs::Runs,
        segments::{FamilySpaces, Occupancy, Space},
    },
};

impl Free {
    /// Makes the space if there is none. Looks at all leases of the network and family then.
    pub(super) fn open_space(&mut self, at: (NetworkId, Family), length: u8, leases: &Leases) {
        let spaces = self
            .spaces
            .entry(at)
            .or_insert_with(|| FamilySpaces::new(at.1));
        if spaces.get(length).is_some() {
            return;
        }
        let mut space = Space::new(Runs::new(at.1), length);
        let all = at.1.network(0, 0);
        for (_, lease) in leases.range(keys(at.0, all)) {
            space.turn(lease.prefix(), Occupancy::Free, Occupancy::Leased);
        }
        for prefix in prefixes_in(&self.taken, at.0, all) {
            space.turn(prefix, Occupancy::Free, Occupancy::Taken);
        }
        if let Some(spaces) = self.spaces.get_mut(&at) {
            spaces.prefixes.insert(length, space);
        }
    }

    /// Drops spaces of prefixes that no pool gives any more.
    pub(super) fn close_spaces(&mut self, at: (NetworkId, Family)) {
        if let Some(spaces) = self.spaces.get_mut(&at) {
            spaces
                .prefixes
                .retain(|_, space| !space.segments.is_empty());
        }
    }

    /// How many prefixes of `length` bits of the spans have leases on, in or around them.
    pub(super) fn count_leased(
        &self,
        network: NetworkId,
        spans: &[Span],
        length: u8,
        leases: &Leases,
    ) -> u128 {
        let touching = |span: &Span| {
            let range = keys(network, *span);
            let before = leases.range(..*range.start()).next_back();
            let around =
                before.filter(|(key, lease)| key.network == network && lease.span().overlaps(span));
            let all = around.into_iter().chain(leases.range(range));
            touched(*span, length, all.map(|(_, lease)| lease.span()))
        };
        spans.iter().map(touching).sum()
    }

    /// How many of them decisions in flight take, and have no lease.
    pub(super) fn count_taken(&self, network: NetworkId, spans: &[Span], length: u8) -> u128 {
        let family = spans.first().map(|span| span.family);
        let space = family
            .and_then(|family| self.spaces.get(&(network, family)))
            .and_then(|spaces| spaces.get(length));
        let leased = |span: &Span| space.is_some_and(|space| space.is_leased_within(span.first));
        let takes = |span: &Span| {
            let taken = prefixes_in(&self.taken, network, *span).map(|one| one.span());
            let fresh = taken.filter(|one| !leased(&rounded(*one, length)));
            touched(*span, length, fresh)
        };
        spans.iter().map(takes).sum()
    }
}

/// How many prefixes of `length` bits of the span the others touch, which are sorted and disjoint.
fn touched(span: Span, length: u8, others: impl Iterator<Item = Span>) -> u128 {
    let mut from = Some(span.first);
    let mut sum = 0;
    for other in others {
        let whole = rounded(other, length);
        let Some(first) = from.map(|from| from.max(whole.first)) else {
            break;
        };
        let last = whole.last.min(span.last);
        if first <= last {
            sum += units(
                Span {
                    first,
                    last,
                    ..span
                },
                length,
            );
            from = last.checked_add(1);
        }
    }
    sum
}

/// What of these touches the span.
pub(in crate::ledger) fn prefixes_in(
    taken: &BTreeMap<LeaseKey, u8>,
    network: NetworkId,
    span: Span,
) -> impl Iterator<Item = LeasePrefix> {
    let prefix = |(key, length): (&LeaseKey, &u8)| LeasePrefix {
        key: *key,
        length: *length,
    };
    let range = keys(network, span);
    let before = taken.range(..*range.start()).next_back().map(prefix);
    let around = before.filter(move |one| one.key.network == network && one.span().overlaps(&span));
    around.into_iter().chain(taken.range(range).map(prefix))
}
