//! What a pool's specification comes to: spans of addresses, computed on spans and never address by address.
//!
//! Networks of one or two addresses are fully usable: RFC 3021 (IPv4 /31 links), RFC 6164 (IPv6 /127 links),
//! and single addresses (/32, /128), which have no ends at all.

mod ends;

use std::{net::IpAddr, ops::RangeInclusive};

use ipnet::IpNet;
use rangemap::RangeInclusiveSet;

use crate::{
    AddressSpec, Family, Origin, PoolError, PoolSpec, Span, address::number, pool::PoolSize,
    select::check_scopes,
};

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

fn error(field: &'static str, value: impl ToString, allowed: impl Into<String>) -> PoolError {
    PoolError {
        field,
        value: value.to_string(),
        allowed: allowed.into(),
    }
}

/// One family throughout, and not too much of it.
fn check_families(spec: &PoolSpec) -> Result<Family, PoolError> {
    let specs = spec.addresses.len() + spec.exclusions.len();
    if specs > PoolSpec::MAX_SPECS {
        return Err(error(
            "addresses",
            format!("{specs} entries"),
            format!(
                "at most {} addresses and exclusions together",
                PoolSpec::MAX_SPECS
            ),
        ));
    }
    let Some(family) = spec.family() else {
        return Err(error(
            "addresses",
            "",
            "at least one CIDR, range or address",
        ));
    };
    let families = [
        ("addresses", &spec.addresses),
        ("exclusions", &spec.exclusions),
    ];
    for (field, specs) in families {
        for entry in specs {
            if entry.family() != family {
                return Err(error(
                    field,
                    entry,
                    format!("{family} only, as the pool's first entry"),
                ));
            }
            if let AddressSpec::Range(first, last) = entry
                && (Family::of(*first) != Family::of(*last) || first > last)
            {
                return Err(error(
                    field,
                    entry,
                    "a range from its lowest to its highest address",
                ));
            }
        }
    }
    Ok(family)
}

fn check_quarantine(spec: &PoolSpec) -> Result<(), PoolError> {
    let most = PoolSpec::MAX_QUARANTINE;
    if spec.quarantine > most {
        let allowed = format!("0 to {most} seconds (30 days)");
        return Err(error("quarantine", spec.quarantine, allowed));
    }
    Ok(())
}

fn check_sticky(spec: &PoolSpec) -> Result<(), PoolError> {
    let (lasts, most) = (spec.sticky.lasts, spec.sticky.most);
    if lasts > PoolSpec::MAX_STICKY {
        let allowed = format!("0 to {} seconds (365 days)", PoolSpec::MAX_STICKY);
        return Err(error("sticky_for", lasts, allowed));
    }
    if most > PoolSpec::MAX_REMEMBERED || (most == 0 && spec.sticky.is_on()) {
        let allowed = format!("1 to {} addresses", PoolSpec::MAX_REMEMBERED);
        return Err(error("sticky_most", most, allowed));
    }
    Ok(())
}

fn check_name(spec: &PoolSpec) -> Result<(), PoolError> {
    let part = |part: &str, most: usize| {
        (1..=most).contains(&part.len())
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    match &spec.origin {
        Origin::Own if part(&spec.name, 63) => Ok(()),
        Origin::Own => Err(error(
            "name",
            &spec.name,
            "1 to 63 letters, digits, '-', '.' and '_', starting with a letter or digit",
        )),
        Origin::Mirror { .. } => {
            let parts = spec.name.split('/').count();
            let fine = spec.name.len() <= PoolSpec::MAX_NAME
                && (3..=4).contains(&parts)
                && spec.name.split('/').all(|text| part(text, 253));
            if fine {
                Ok(())
            } else {
                Err(error("name", &spec.name, "system/cluster/[namespace/]name"))
            }
        }
    }
}

/// Gateway, prefix length and subnet fit the addresses.
fn check_link(
    spec: &PoolSpec,
    family: Family,
    listed: &RangeInclusiveSet<u128>,
) -> Result<(), PoolError> {
    if let Some(len) = spec.prefix_len
        && !(1..=family.bits()).contains(&len)
    {
        return Err(error(
            "prefix",
            len,
            format!("1 to {} for {family}", family.bits()),
        ));
    }
    if let Some(subnet) = spec.subnet {
        let span = Span::of_net(subnet);
        let outside = listed
            .iter()
            .find(|run| *run.start() < span.first || *run.end() > span.last);
        if span.family != family {
            return Err(error(
                "subnet",
                subnet,
                format!("{family} only, as the pool's addresses"),
            ));
        }
        if let Some(run) = outside {
            let end = if *run.start() < span.first {
                run.start()
            } else {
                run.end()
            };
            let address = family.address(*end);
            return Err(error(
                "addresses",
                address,
                format!("addresses of the subnet {subnet}"),
            ));
        }
    }
    let Some(gateway) = spec.gateway else {
        return Ok(());
    };
    if Family::of(gateway) != family {
        return Err(error(
            "gateway",
            gateway,
            format!("{family} only, as the pool's addresses"),
        ));
    }
    match gateway_link(spec, gateway) {
        Some(link) if listed.overlaps(&(link.first..=link.last)) => Ok(()),
        Some(_) => Err(error(
            "gateway",
            gateway,
            "an address on the link of the pool's addresses (say the prefix length or subnet of a wider link)",
        )),
        None => Ok(()),
    }
}

/// The link a gateway must share with the pool's addresses; `None` where nothing says how wide links are.
fn gateway_link(spec: &PoolSpec, gateway: IpAddr) -> Option<Span> {
    let family = Family::of(gateway);
    if let Some(subnet) = spec.subnet {
        return Some(if subnet.contains(&gateway) {
            Span::of_net(subnet)
        } else {
            Span::single(gateway)
        });
    }
    if let Some(len) = spec.prefix_len {
        return Some(family.network(number(gateway), len));
    }
    spec.addresses
        .iter()
        .any(|spec| matches!(spec, AddressSpec::Cidr(_)))
        .then(|| Span::single(gateway))
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
