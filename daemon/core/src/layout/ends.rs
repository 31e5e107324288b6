//! Reserved ends of a pool's links.

use rangemap::RangeInclusiveSet;

use super::valid::error;
use crate::{AddressSpec, Ends, EndsOf, Family, PoolError, PoolSpec, Span};

/// The spans reserved at the ends of the pool's links.
pub(super) fn reserved_ends(
    spec: &PoolSpec,
    family: Family,
    listed: &RangeInclusiveSet<u128>,
    cidrs: &[(u128, u128, u8)],
) -> Result<Vec<Span>, PoolError> {
    let ends = spec.ends;
    if ends.first == 0 && ends.last == 0 {
        return Ok(Vec::new());
    }
    let of_cidrs = || {
        cidrs.iter().map(|(first, last, _)| Span {
            family,
            first: *first,
            last: *last,
        })
    };
    match (ends.of, spec.subnet, spec.prefix_len) {
        (EndsOf::EachCidr, ..) => {
            let cidrs = spec
                .addresses
                .iter()
                .filter(|entry| matches!(entry, AddressSpec::Cidr(_)));
            cut(ends, cidrs.map(AddressSpec::span))
        }
        (EndsOf::Prefix, None, None) => cut(ends, of_cidrs()),
        (EndsOf::Prefix, Some(subnet), _) => cut(ends, std::iter::once(Span::of_net(subnet))),
        (EndsOf::Prefix, None, Some(len)) => cut(ends, links(family, len, listed)?.into_iter()),
    }
}

/// All networks of `len` bits that have listed addresses.
fn links(
    family: Family,
    len: u8,
    listed: &RangeInclusiveSet<u128>,
) -> Result<Vec<Span>, PoolError> {
    let host_bits = u32::from(family.bits().saturating_sub(len));
    // Links of one or two addresses have no ends, so their number does not matter.
    if host_bits <= 1 {
        return Ok(Vec::new());
    }
    let mut found: Vec<Span> = Vec::new();
    for run in listed.iter() {
        let number_of = |at: &u128| at.checked_shr(host_bits).unwrap_or(0);
        let more = number_of(run.end()) - number_of(run.start());
        if more.saturating_add(found.len() as u128) >= PoolSpec::MAX_LINKS {
            return Err(error(
                "prefix",
                len,
                format!(
                    "a prefix length that cuts the pool into at most {} links, or no reserved ends",
                    PoolSpec::MAX_LINKS
                ),
            ));
        }
        let mut link = family.network(*run.start(), len);
        loop {
            if found.last() != Some(&link) {
                found.push(link);
            }
            if link.last >= *run.end() {
                break;
            }
            link = family.network(link.last + 1, len);
        }
    }
    Ok(found)
}

/// The first and last addresses of each network that has more than two.
fn cut(ends: Ends, networks: impl Iterator<Item = Span>) -> Result<Vec<Span>, PoolError> {
    let mut spans = Vec::new();
    for network in networks.filter(|network| network.len() > 2) {
        let (first, last) = (u128::from(ends.first), u128::from(ends.last));
        if first + last >= network.len() {
            return Err(error(
                "ends",
                format!("{} and {}", ends.first, ends.last),
                format!(
                    "fewer than the {} addresses of {}-{}",
                    network.len(),
                    network.first_address(),
                    network.last_address()
                ),
            ));
        }
        if first > 0 {
            spans.push(Span {
                last: network.first + first - 1,
                ..network
            });
        }
        if last > 0 {
            spans.push(Span {
                first: network.last - (last - 1),
                ..network
            });
        }
    }
    Ok(spans)
}
