//! Where the leases of an IPv6 pool lie: the blocks that have some.
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

/// `None` for a pool of IPv4, which has a map.
pub fn blocks(ipam: &Ipam, pool: &Pool, query: &Fields) -> Option<Blocks> {
    let spans = pool.spec.addresses.iter().map(|spec| spec.span());
    let spans: Vec<Span> = spans.filter(|span| span.family == Family::V6).collect();
    let first = spans.iter().map(|span| span.first).min()?;
    let last = spans.iter().map(|span| span.last).max()?;
    let length = length(first, last);
    let here = links::pool(pool.id.0);
    let (goto, from) = wanted(query.get("at"));
    let mut found = Vec::new();
    let mut at = from.unwrap_or(0) & mask(length);
    while found.len() <= PAGE {
        let Some((base, leases)) = ipam.read(|ledger| next(ledger, pool, at, length)) else {
            break;
        };
        found.push((base, leases));
        match (base | !mask(length)).checked_add(1) {
            Some(behind) => at = behind,
            None => break,
        }
    }
    let more = (found.len() > PAGE).then(|| found.pop()).flatten();
    let text = |base: u128| Family::V6.address(base).to_string();
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
        example: text(first),
    })
}

/// The first block from `at` on that has a lease of the pool, and how many, up to one more than are counted.
fn next(ledger: &Ledger, pool: &Pool, at: u128, length: u8) -> Option<(u128, usize)> {
    let after = at.checked_sub(1).map(|before| Family::V6.address(before));
    let leases = ledger.pool_leases(pool.id, after, COUNTED + 1);
    let bits = |address: IpAddr| match address {
        IpAddr::V6(address) => address.to_bits(),
        IpAddr::V4(_) => 0,
    };
    let base = bits(leases.first()?.key.address) & mask(length);
    let inside =
        |lease: &&std::sync::Arc<fipd_core::Lease>| bits(lease.key.address) & mask(length) == base;
    Some((base, leases.iter().take_while(inside).count()))
}

/// The box's field, and the address to begin at.
fn wanted(at: &str) -> (Field, Option<u128>) {
    let value: String = at.chars().take(64).collect();
    if value.is_empty() {
        return (Field::default(), None);
    }
    match value.parse() {
        Ok(IpAddr::V6(address)) => (Field::default(), Some(address.to_bits())),
        Ok(IpAddr::V4(_)) | Err(_) => {
            let error = "That is no IPv6 address, such as 2001:db8::7.".to_owned();
            let error = Some(error);
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

fn mask(length: u8) -> u128 {
    match u32::from(length) {
        0 => 0,
        length => u128::MAX << (128 - length.min(128)),
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
        assert_eq!((mask(0), mask(128), mask(1)), (0, u128::MAX, 1 << 127));
    }

    #[test]
    fn the_box_takes_ipv6_and_says_why_not() {
        assert_eq!(wanted(""), (Field::default(), None));
        assert_eq!(wanted("::7").1, Some(7));
        for at in ["10.0.0.7", "<b>"] {
            let (field, from) = wanted(at);
            assert_eq!((field.value.as_str(), from), (at, None));
            assert!(field.error.unwrap().contains("no IPv6"));
        }
    }
}
