//! What a pool's specification comes to: spans of addresses, computed on spans and never address by address.
//!
//! Networks of one or two addresses are fully usable: RFC 3021 (IPv4 /31 links), RFC 6164 (IPv6 /127 links),
//! and single addresses (/32, /128), which have no ends at all.

mod ends;
mod valid;

use std::{net::IpAddr, ops::RangeInclusive};

use ipnet::IpNet;
use rangemap::RangeInclusiveSet;

use crate::{
    AddressSpec, Family, PoolError, PoolSpec, Span, address::number, select::check_scopes,
};

use valid::{check_families, check_link, check_name, check_quarantine, check_sticky};

/// The spans of a valid specification, each list sorted, disjoint and not adjacent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub family: Family,
    /// What `addresses` names.
    pub listed: Vec<Span>,
    /// What is given: listed, less exclusions, gateway and reserved ends.
    pub assignable: Vec<Span>,
    /// What would be given, but for a pool of another network that may mean the same addresses.
    pub withheld: Vec<Span>,
    pub size: PoolSize,
    /// How many assignable addresses are below each of those spans.
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
        check_link(spec, family, &listed)?;
        let mut assignable = listed.clone();
        for exclusion in &spec.exclusions {
            let span = exclusion.span();
            assignable.remove(span.first..=span.last);
        }
        let excluded = count(&listed).saturating_sub(count(&assignable));
        for span in ends::reserved_ends(spec, family, &listed, &cidrs)? {
            assignable.remove(span.first..=span.last);
        }
        if let Some(gateway) = spec.gateway {
            assignable.remove(number(gateway)..=number(gateway));
        }
        if family == Family::V6 {
            assignable.remove(Span::MAPPED.first..=Span::MAPPED.last);
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
            listed: spans(family, &listed),
            below: below(&assignable),
            assignable,
            withheld: Vec::new(),
            size,
            cidrs,
        })
    }

    /// The same, but that the spans are withheld.
    pub fn without(&self, spans: &[Span]) -> Self {
        let assignable = minus(&self.assignable, spans);
        Self {
            below: below(&assignable),
            withheld: minus(&self.assignable, &assignable),
            size: PoolSize {
                assignable: total(&assignable),
                ..self.size
            },
            assignable,
            ..self.clone()
        }
    }

    /// How many addresses are withheld.
    pub fn withheld_count(&self) -> u128 {
        total(&self.withheld)
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

    /// The assignable number that has `below` others below it.
    pub fn nth(&self, below: u128) -> Option<u128> {
        let at = self.below.partition_point(|before| *before <= below);
        let at = at.checked_sub(1)?;
        let number = (self.assignable.get(at)?.first).checked_add(below - self.below.get(at)?)?;
        self.assigns(number).then_some(number)
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

/// How many addresses the spans have, which are disjoint.
fn total(spans: &[Span]) -> u128 {
    let sizes = spans.iter().map(Span::len);
    sizes.fold(0, u128::saturating_add)
}

/// How many addresses are below each of the spans.
fn below(spans: &[Span]) -> Vec<u128> {
    let below = spans.iter().scan(0_u128, |sum, span| {
        let below = *sum;
        *sum = sum.saturating_add(span.len());
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

fn count(set: &RangeInclusiveSet<u128>) -> u128 {
    set.iter().fold(0, |sum: u128, run| {
        sum.saturating_add((run.end() - run.start()).saturating_add(1))
    })
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

/// What a specification comes to, in addresses. Counts saturate at `u128::MAX`.
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
    if !layout.lists(at) {
        return Some("the pool does not list it".to_owned());
    }
    if let Some(exclusion) = spec
        .exclusions
        .iter()
        .find(|spec| spec.span().contains(address))
    {
        return Some(format!("{exclusion} is excluded"));
    }
    if spec.gateway == Some(address) {
        return Some("it is the gateway".to_owned());
    }
    (!layout.assigns(at)).then(|| "it is reserved at the end of its network".to_owned())
}

/// The prefix length handed out with `address` by this pool.
pub(crate) fn prefix_len(spec: &PoolSpec, layout: &Layout, address: IpAddr) -> u8 {
    spec.prefix_len
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
