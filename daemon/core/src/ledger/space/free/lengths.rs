//! Spaces of prefixes: made with the first pool that gives them, from what is leased and taken then, and dropped with
//! the last.

use std::collections::BTreeMap;

use super::{Free, Leases};
use crate::{
    Family, LeaseKey, LeasePrefix, NetworkId, PoolId, Span,
    layout::{rounded, units},
    ledger::space::{
        runs::Runs,
        segments::{FamilySpaces, Occupancy, Space},
    },
};

impl Free {
    /// The space, made if there is none: that looks at all leases of the network and family.
    pub(super) fn open_space(
        &mut self,
        at: (NetworkId, Family),
        length: u8,
        leases: &Leases,
    ) -> Option<&mut Space> {
        let spaces = self
            .spaces
            .entry(at)
            .or_insert_with(|| FamilySpaces::new(at.1));
        if spaces.get(length).is_none() {
            let space = space_of_rows(at, length, leases, &self.taken);
            spaces.prefixes.insert(length, space);
        }
        spaces.get_mut(length)
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
        let count = |span: &Span| {
            let rows = touching(leases, network, *span, |lease| lease.length);
            touched(*span, length, rows.map(|(_, lease)| lease.span()))
        };
        spans.iter().map(count).sum()
    }

    /// How many of them decisions in flight take, and have no lease.
    pub(super) fn count_taken(&self, network: NetworkId, spans: &[Span], length: u8) -> u128 {
        let family = spans.first().map(|span| span.family);
        let space = family.and_then(|family| self.space((network, family), length));
        let leased = |span: &Span| space.is_some_and(|space| space.is_leased_within(span.first));
        let takes = |span: &Span| {
            let taken = prefixes_in(&self.taken, network, *span).map(|one| one.span());
            let fresh = taken.filter(|one| !leased(&rounded(*one, length)));
            touched(*span, length, fresh)
        };
        spans.iter().map(takes).sum()
    }
}

/// A space without pools, as the rows and what is taken make it.
pub(super) fn space_of_rows(
    at: (NetworkId, Family),
    length: u8,
    leases: &Leases,
    taken: &BTreeMap<LeaseKey, u8>,
) -> Space {
    let mut space = Space::new(Runs::new(at.1), length);
    let all = at.1.network(0, 0);
    for (_, lease) in leases.range(LeaseKey::within(at.0, all)) {
        space.turn(lease.prefix(), Occupancy::Free, Occupancy::Leased);
    }
    for prefix in prefixes_in(taken, at.0, all) {
        space.turn(prefix, Occupancy::Free, Occupancy::Taken);
    }
    space
}

/// How many leases on the spans are of this pool and as long as what it gives.
pub(super) fn count_own(
    pool: PoolId,
    network: NetworkId,
    spans: &[Span],
    length: u8,
    leases: &Leases,
) -> u128 {
    let rows = spans
        .iter()
        .flat_map(|span| leases.range(LeaseKey::within(network, *span)));
    let own = rows.filter(|(_, lease)| lease.pool == Some(pool) && lease.length == length);
    own.count() as u128
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
    touching(taken, network, span, |length| *length).map(prefix)
}

/// The rows that touch the span, in order, of such that are disjoint and as long as `length` says.
pub(in crate::ledger) fn touching<V>(
    rows: &BTreeMap<LeaseKey, V>,
    network: NetworkId,
    span: Span,
    length: impl Fn(&V) -> u8,
) -> impl Iterator<Item = (&LeaseKey, &V)> {
    let range = LeaseKey::within(network, span);
    let before = rows.range(..*range.start()).next_back();
    // The one before may reach into the span.
    let around = before.filter(|(key, row)| {
        key.network == network && Span::of_prefix(key.address, length(row)).overlaps(&span)
    });
    around.into_iter().chain(rows.range(range))
}
