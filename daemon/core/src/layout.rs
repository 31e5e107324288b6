//! What a pool's specification comes to: spans of addresses, computed on spans and never address by address.
//!
//! A pool of prefixes has spans of whole prefixes, and counts prefixes where another counts addresses.
//!
//! Networks of one or two addresses are fully usable: RFC 3021 (IPv4 /31 links), RFC 6164 (IPv6 /127 links),
//! and single addresses (/32, /128), which have no ends at all.

mod ends;
mod valid;

use std::{net::IpAddr, ops::RangeInclusive};

use ipnet::IpNet;
use rangemap::RangeInclusiveSet;

use crate::{
    AddressSpec, Family, LeasePrefix, PoolError, PoolSpec, Span, address::number,
    select::check_scopes,
};

use valid::{
    check_families, check_link, check_name, check_prefixes, check_quarantine, check_sticky,
};

/// The spans of a valid specification, each list sorted, disjoint and not adjacent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub family: Family,
    /// Bits of what is given: those of an address, or fewer in a pool of prefixes.
    pub length: u8,
    /// What `addresses` names.
    pub listed: Vec<Span>,
    /// What is given: listed, less exclusions, gateway and reserved ends.
    pub assignable: Vec<Span>,
    /// What would be given, but for a pool of another network that may mean the same addresses.
    pub withheld: Vec<Span>,
    pub size: PoolSize,
    /// How many there are to give below each of those spans.
    below: Vec<u128>,
    /// The outermost CIDRs as (first, last, prefix length), disjoint and sorted.
    cidrs: Vec<(u128, u128, u8)>,
}

impl Layout {
    /// Validates `spec` and lays it out.
    pub fn new(spec: &PoolSpec) -> Result<Self, PoolError> {
        let family = check_families(spec)?;
        check_name(spec)?;
        check_quarantine(spec)?;
        check_sticky(spec)?;
        check_scopes(spec)?;
        let listed = set(spec.addresses.iter().map(AddressSpec::span));
        let cidrs = outermost_cidrs(&spec.addresses);
        check_prefixes(spec, family)?;
        check_link(spec, family, &listed)?;
        let length = spec.lease_length();
        let mut assignable = listed.clone();
        for exclusion in &spec.exclusions {
            let span = rounded(exclusion.span(), length);
            assignable.remove(span.first..=span.last);
        }
        let count = |set: &RangeInclusiveSet<u128>| total(&spans(family, set), length);
        let excluded = count(&listed).saturating_sub(count(&assignable));
        for span in ends::reserved_ends(spec, family, &listed, &cidrs)? {
            assignable.remove(span.first..=span.last);
        }
        if let Some(gateway) = spec.gateway.filter(|_| spec.allocation_length.is_none()) {
            assignable.remove(number(gateway)..=number(gateway));
        }
        if family == Family::V6 {
            let mapped = rounded(Span::MAPPED, length);
            assignable.remove(mapped.first..=mapped.last);
        }
        let size = PoolSize {
            listed: count(&listed),
            excluded,
            reserved: count(&listed)
                .saturating_sub(excluded)
                .saturating_sub(count(&assignable)),
            assignable: count(&assignable),
        };
        let assignable = spans(family, &assignable);
        Ok(Self {
            family,
            length,
            listed: spans(family, &listed),
            below: below(&assignable, length),
            assignable,
            withheld: Vec::new(),
            size,
            cidrs,
        })
    }

    /// The same, but that the spans are withheld.
    pub fn without(&self, spans: &[Span]) -> Self {
        let whole = spans.iter().map(|span| rounded(*span, self.length));
        let assignable = minus(&self.assignable, &whole.collect::<Vec<_>>());
        Self {
            below: below(&assignable, self.length),
            withheld: minus(&self.assignable, &assignable),
            size: PoolSize {
                assignable: total(&assignable, self.length),
                ..self.size
            },
            assignable,
            ..self.clone()
        }
    }

    /// How many addresses or prefixes are withheld.
    pub fn withheld_count(&self) -> u128 {
        total(&self.withheld, self.length)
    }

    /// Whether the specification gives `number`, withheld or not.
    pub fn in_range(&self, number: u128) -> bool {
        self.assigns(number) || holds(&self.withheld, number)
    }

    /// Whether the specification names `number`.
    pub fn lists(&self, number: u128) -> bool {
        holds(&self.listed, number)
    }

    /// Whether `number` may be given.
    pub fn assigns(&self, number: u128) -> bool {
        holds(&self.assignable, number)
    }

    /// The first number of the address or prefix to give that has `below` others below it.
    pub fn nth(&self, below: u128) -> Option<u128> {
        let at = self.below.partition_point(|before| *before <= below);
        let at = at.checked_sub(1)?;
        let further = (below - self.below.get(at)?).checked_mul(self.unit())?;
        let number = (self.assignable.get(at)?.first).checked_add(further)?;
        self.assigns(number).then_some(number)
    }

    /// How many addresses are in what is given.
    pub fn unit(&self) -> u128 {
        self.family.prefix_size(self.length)
    }

    /// The prefix length of the outermost CIDR around `number`.
    pub fn cidr_prefix(&self, number: u128) -> Option<u8> {
        let at = self.cidrs.partition_point(|(first, ..)| *first <= number);
        let (_, last, len) = self.cidrs.get(at.checked_sub(1)?)?;
        (number <= *last).then_some(*len)
    }
}

/// What of the spans is in none of the others.
pub(crate) fn minus(from: &[Span], others: &[Span]) -> Vec<Span> {
    let Some(family) = from.first().map(|span| span.family) else {
        return Vec::new();
    };
    let mut rest = set(from.iter().copied());
    for span in others {
        rest.remove(span.first..=span.last);
    }
    spans(family, &rest)
}

fn spans(family: Family, set: &RangeInclusiveSet<u128>) -> Vec<Span> {
    let span = |run: &RangeInclusive<u128>| Span {
        family,
        first: *run.start(),
        last: *run.end(),
    };
    set.iter().map(span).collect()
}

/// How many prefixes of `length` bits the span touches.
pub(crate) fn units(span: Span, length: u8) -> u128 {
    let spare = u32::from(span.family.bits().saturating_sub(length));
    let unit = |number: u128| number.checked_shr(spare).unwrap_or(0);
    (unit(span.last) - unit(span.first)).saturating_add(1)
}

/// The whole prefixes of `length` bits that the span touches.
pub(crate) fn rounded(span: Span, length: u8) -> Span {
    Span {
        first: span.family.network(span.first, length).first,
        last: span.family.network(span.last, length).last,
        ..span
    }
}

/// How many prefixes of `length` bits the spans have, which are disjoint.
fn total(spans: &[Span], length: u8) -> u128 {
    let sizes = spans.iter().map(|span| units(*span, length));
    sizes.fold(0, u128::saturating_add)
}

/// How many of them are below each of the spans.
fn below(spans: &[Span], length: u8) -> Vec<u128> {
    let below = spans.iter().scan(0_u128, |sum, span| {
        let below = *sum;
        *sum = sum.saturating_add(units(*span, length));
        Some(below)
    });
    below.collect()
}

fn holds(spans: &[Span], number: u128) -> bool {
    let at = spans.partition_point(|span| span.first <= number);
    at.checked_sub(1)
        .and_then(|at| spans.get(at))
        .is_some_and(|span| number <= span.last)
}

fn set(spans: impl Iterator<Item = Span>) -> RangeInclusiveSet<u128> {
    spans.map(|span| span.first..=span.last).collect()
}

/// CIDRs that lie in no wider one. CIDRs are nested or disjoint, so one pass over the sorted list is enough.
fn outermost_cidrs(specs: &[AddressSpec]) -> Vec<(u128, u128, u8)> {
    let mut cidrs: Vec<_> = specs
        .iter()
        .filter_map(|spec| match spec {
            AddressSpec::Cidr(net) => {
                let span = Span::of_net(*net);
                Some((span.first, span.last, net.prefix_len()))
            }
            AddressSpec::Single(_) | AddressSpec::Range(..) => None,
        })
        .collect();
    cidrs.sort_unstable_by_key(|(first, _, len)| (*first, *len));
    let mut end: Option<u128> = None;
    cidrs.retain(|(_, last, _)| {
        let outermost = end.is_none_or(|end| *last > end);
        if outermost {
            end = Some(*last);
        }
        outermost
    });
    cidrs
}

/// What a specification comes to, in addresses, or prefixes of a pool of those. Counts saturate at `u128::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// Named by `addresses`.
    pub listed: u128,
    /// Of these, taken away by `exclusions`.
    pub excluded: u128,
    /// Of the rest, taken away as gateway or reserved end.
    pub reserved: u128,
    /// What is left to give.
    pub assignable: u128,
}

impl PoolSpec {
    /// Checks everything that can be checked without a ledger.
    pub fn validate(&self) -> Result<(), PoolError> {
        Layout::new(self).map(|_| ())
    }

    /// Those of the leases that a pool of this specification would not give.
    ///
    /// # Errors
    /// The specification makes no pool.
    pub fn outside(
        &self,
        leases: impl Iterator<Item = LeasePrefix>,
    ) -> Result<Vec<LeasePrefix>, PoolError> {
        let layout = Layout::new(self)?;
        let lost = |lease: &LeasePrefix| why_not(self, &layout, lease.key.address).is_some();
        Ok(leases.filter(lost).collect())
    }

    /// Counts its addresses.
    pub fn size(&self) -> Result<PoolSize, PoolError> {
        Layout::new(self).map(|layout| layout.size)
    }
}

/// Why `address` may not be given, in the words of [`crate::Refusal::NotAssignable`]; `None` if it may.
pub(crate) fn why_not(spec: &PoolSpec, layout: &Layout, address: IpAddr) -> Option<String> {
    let at = number(address);
    if Family::of(address) != layout.family {
        return Some(format!("the pool is {}", layout.family));
    }
    let given = Span::of_prefix(address, layout.length);
    if given.first != at {
        let (first, length) = (given.first_address(), layout.length);
        return Some(format!(
            "the pool gives prefixes of /{length}, and the one around it is {first}/{length}"
        ));
    }
    if !layout.lists(at) {
        return Some("the pool does not list it".to_owned());
    }
    if let Some(exclusion) = spec
        .exclusions
        .iter()
        .find(|spec| spec.span().overlaps(&given))
    {
        return Some(format!("{exclusion} is excluded"));
    }
    if layout.assigns(at) {
        return None;
    }
    Some(match spec.gateway == Some(address) {
        true => "it is the gateway".to_owned(),
        false => "it is reserved at the end of its network".to_owned(),
    })
}

/// The prefix length handed out with `address` by this pool.
pub(crate) fn prefix_len(spec: &PoolSpec, layout: &Layout, address: IpAddr) -> u8 {
    spec.allocation_length
        .or(spec.prefix_len)
        .or_else(|| {
            spec.subnet
                .filter(|net| net.contains(&address))
                .map(|net: IpNet| net.prefix_len())
        })
        .or_else(|| layout.cidr_prefix(number(address)))
        .unwrap_or(Family::of(address).bits())
}

#[cfg(test)]
mod tests;
