//! Where the leases of an IPv6 pool lie: the blocks that have some. Those of a pool of prefixes are its prefixes.
//!
//! Goes from lease to lease, never from address to address, and counts no block to its end that is crowded. So the blocks
//! come by address alone, from the one that is asked for: another order would have to count all leases of the pool first.

use std::net::IpAddr;

use fipd_core::{Family, Ledger, Pool, Span};
use fipd_web_ui::{BlockRow, Blocks, Field, Pager, links};

use super::fields::{Fields, with_query};
use crate::ipam::Ipam;

/// Blocks of one page.
const PAGE: usize = 24;
/// Leases of one block that are counted.
const COUNTED: usize = Ledger::SCAN;
/// Blocks are no larger.
const LARGEST: u8 = 64;
/// How much longer their prefix is than that of a pool that is smaller.
const FINER: u8 = 8;

/// `None` for a pool of IPv4 addresses, which has a map.
pub fn blocks(ipam: &Ipam, pool: &Pool, query: &Fields) -> Option<Blocks> {
    let family = pool.spec.family()?;
    let length = match (pool.spec.allocation_length, family) {
        (Some(length), _) => length,
        (None, Family::V4) => return None,
        (None, Family::V6) => {
            let spans = pool.spec.addresses.iter().map(|spec| spec.span());
            let first = spans.clone().map(|span| span.first).min()?;
            length(first, spans.map(|span| span.last).max()?)
        }
    };
    let here = links::pool(pool.id.0);
    let (goto, from) = wanted(query.get("at"), family);
    let mut found = Vec::new();
    let mut at = family.network(from.unwrap_or(0), length).first;
    while found.len() <= PAGE {
        let Some((block, leases)) = ipam.read(|ledger| next(ledger, pool, at, length)) else {
            break;
        };
        found.push((block.first, leases));
        match block
            .last
            .checked_add(1)
            .filter(|next| *next <= family.max())
        {
            Some(behind) => at = behind,
            None => break,
        }
    }
    let more = (found.len() > PAGE).then(|| found.pop()).flatten();
    let text = |base: u128| family.address(base).to_string();
    let lowest = pool.spec.addresses.iter().map(|spec| spec.span().first);
    let example = lowest.min().map(text).unwrap_or_default();
    let name = pool.spec.name.to_string();
    let row = |(base, leases): &(u128, usize)| {
        let block = format!("{}/{length}", text(*base));
        BlockRow {
            link: with_query(links::LEASES, &[("pool", &name), ("within", &block)]),
            leases: (*leases).min(COUNTED),
            more: *leases > COUNTED,
            block,
        }
    };
    Some(Blocks {
        length,
        rows: found.iter().map(row).collect(),
        pager: Pager::onward(
            from.map(|_| here.clone()),
            more.map(|(base, _)| with_query(&here, &[("at", &text(base))])),
        ),
        goto,
        target: here.clone(),
        example,
    })
}

/// The first block from `at` on that has a lease of the pool, and how many, up to one more than are counted.
fn next(ledger: &Ledger, pool: &Pool, at: u128, length: u8) -> Option<(Span, usize)> {
    let family = pool.spec.family()?;
    let after = at.checked_sub(1).map(|before| family.address(before));
    let leases = ledger.pool_leases(pool.id, after, COUNTED + 1);
    let block = Span::of_prefix(leases.first()?.key.address, length);
    let inside = leases
        .iter()
        .take_while(|lease| block.contains(lease.key.address));
    Some((block, inside.count()))
}

/// The box's field, and the address to begin at.
fn wanted(at: &str, family: Family) -> (Field, Option<u128>) {
    let value: String = at.chars().take(64).collect();
    if value.is_empty() {
        return (Field::default(), None);
    }
    let address: Option<IpAddr> = value.parse().ok();
    match address.filter(|address| Family::of(*address) == family) {
        Some(address) => (Field::default(), Some(Span::single(address).first)),
        None => {
            let example = match family {
                Family::V4 => "10.0.0.7",
                Family::V6 => "2001:db8::7",
            };
            let error = Some(format!("That is no {family} address, such as {example}."));
            (Field { value, error }, None)
        }
    }
}

/// Blocks of /64 where the pool has several of them, else some 256 that cover it.
fn length(first: u128, last: u128) -> u8 {
    let common = u8::try_from((first ^ last).leading_zeros()).unwrap_or(128);
    match common < LARGEST {
        true => LARGEST,
        false => common.saturating_add(FINER).min(128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fit_the_pool() {
        let bits = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().to_bits();
        for (first, last, expected) in [
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", 64),
            ("2001:db8::", "2001:db8::ffff:ffff:ffff:ffff", 72),
            ("2001:db8::1:0", "2001:db8::1:ffff", 120),
            ("2001:db8::7", "2001:db8::7", 128),
            ("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 64),
        ] {
            assert_eq!(length(bits(first), bits(last)), expected, "{first}");
        }
    }

    #[test]
    fn the_box_takes_ipv6_and_says_why_not() {
        assert_eq!(wanted("", Family::V6), (Field::default(), None));
        assert_eq!(wanted("::7", Family::V6).1, Some(7));
        assert_eq!(wanted("0.0.0.7", Family::V4).1, Some(7));
        for at in ["10.0.0.7", "<b>"] {
            let (field, from) = wanted(at, Family::V6);
            assert_eq!((field.value.as_str(), from), (at, None));
            assert!(field.error.unwrap().contains("no IPv6"));
        }
    }
}
