//! Where the leases of an IPv6 pool lie: the blocks that have some. Those of a pool of prefixes are its prefixes, and the
//! leases in them count whatever pool they are of, as each keeps a prefix from being free.
//!
//! Goes from lease to lease, never from address to address, and counts no block to its end that is crowded. So the blocks
//! come by address alone, from the one that is asked for: another order would have to count all leases of the pool first.

use std::{cmp::Reverse, net::IpAddr, sync::Arc};

use fipd_core::{AddressSpec, Family, Lease, Ledger, Pool, Span};
use fipd_web_ui::{BlockRow, Blocks, Field, Pager, links};

use super::{
    fields::{Fields, with_query},
    views,
};
use crate::{api::convert::network_name, ipam::Ipam};

/// Blocks of one page.
const PAGE: usize = 24;
/// Leases of one block that are counted.
const COUNTED: usize = Ledger::SCAN;
/// Blocks and gaps of the pool that one page looks at.
const STEPS: usize = 1_000;
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
    let prefixes = pool.spec.allocation_length.is_some();
    let walk = Walk {
        ipam,
        pool,
        family,
        length,
        spans: if prefixes { listed(pool) } else { Vec::new() },
    };
    let here = links::pool(pool.id.0);
    let (goto, from) = wanted(query.get("at"), family);
    let (rows, next) = walk.page(family.network(from.unwrap_or(0), length).first);
    let text = |number: u128| family.address(number).to_string();
    let lowest = pool.spec.addresses.iter().map(|spec| spec.span().first);
    let example = lowest.min().map(text).unwrap_or_default();
    Some(Blocks {
        length,
        rows,
        pager: Pager::onward(
            from.map(|_| here.clone()),
            next.map(|next| with_query(&here, &[("at", &text(next))])),
        ),
        goto,
        target: here.clone(),
        example: if prefixes {
            format!("{example}/{length}")
        } else {
            example
        },
        prefixes,
    })
}

/// The addresses of a block, and the length of its prefix.
type Block = (Span, u8);

/// What comes next in the pool.
enum Ahead {
    Block(Block),
    /// Nothing before this number.
    Gap(u128),
    End,
}

/// How the blocks of a pool are gone through.
struct Walk<'a> {
    ipam: &'a Ipam,
    pool: &'a Pool,
    family: Family,
    /// Bits of the blocks' prefixes; one of a larger lease has fewer.
    length: u8,
    /// What a pool of prefixes lists, in order and disjoint; empty for a pool of addresses, where only its own leases count.
    spans: Vec<Span>,
}

impl Walk<'_> {
    /// The rows of the page from `at` on, and where the next page begins.
    fn page(&self, mut at: u128) -> (Vec<BlockRow>, Option<u128>) {
        let mut rows = Vec::new();
        for _ in 0..STEPS {
            let block = match self.ipam.read(|ledger| self.ahead(ledger, at)) {
                Ahead::Block(block) => block,
                Ahead::Gap(end) => {
                    at = end;
                    continue;
                }
                Ahead::End => return (rows, None),
            };
            if rows.len() == PAGE {
                return (rows, Some(block.0.first));
            }
            rows.extend(self.ipam.read(|ledger| self.row(ledger, block)));
            let behind = block.0.last.checked_add(1);
            match behind.filter(|behind| *behind <= self.family.max()) {
                Some(behind) => at = behind,
                None => return (rows, None),
            }
        }
        (rows, Some(at))
    }

    /// The first block from `at` on that has leases.
    fn ahead(&self, ledger: &Ledger, at: u128) -> Ahead {
        let own = ledger.pool_leases(self.pool.id, self.before(at), 1);
        let own = own.first().map(|lease| self.block(lease));
        match (own, self.touching(ledger, at)) {
            (Some(own), Ahead::Block(other)) => Ahead::Block(own.min(other)),
            (Some(own), Ahead::Gap(end)) if own.0.first >= end => Ahead::Gap(end),
            (Some(own), Ahead::Gap(_) | Ahead::End) => Ahead::Block(own),
            (None, other) => other,
        }
    }

    /// The first block from `at` on where any lease has some of what the pool lists.
    fn touching(&self, ledger: &Ledger, at: u128) -> Ahead {
        let from = |number: u128| {
            let index = self.spans.partition_point(|span| span.last < number);
            self.spans.get(index)
        };
        let (Some(first), Some(last)) = (from(at), self.spans.last()) else {
            return Ahead::End;
        };
        let rest = Span {
            first: first.first.max(at),
            last: last.last,
            ..*first
        };
        let leases = ledger.pool_range(self.pool.id, rest, 1);
        let Some(lease) = leases.first() else {
            return Ahead::End;
        };
        let has = lease.span();
        match from(has.first.max(rest.first)) {
            Some(span) if span.first <= has.last => Ahead::Block(self.block(lease)),
            Some(span) => Ahead::Gap(span.first),
            None => Ahead::End,
        }
    }

    /// The block around the lease; all of the lease where that is larger.
    fn block(&self, lease: &Lease) -> Block {
        let length = lease.length.min(self.length);
        (Span::of_prefix(lease.key.address, length), length)
    }

    fn row(&self, ledger: &Ledger, (span, length): Block) -> Option<BlockRow> {
        let leases = self.leases(ledger, span);
        let first = leases.first()?;
        let foreign = |lease: &&Arc<Lease>| lease.pool != Some(self.pool.id);
        let foreign = leases.iter().find(foreign);
        let (filter, name) = match foreign {
            None => ("pool", self.pool.spec.name.to_string()),
            Some(_) => ("network", network_name(ledger, self.pool.spec.network)),
        };
        let block = format!("{}/{length}", span.first_address());
        Some(BlockRow {
            link: with_query(links::LEASES, &[(filter, &name), ("within", &block)]),
            leases: leases.len().min(COUNTED),
            more: leases.len() > COUNTED,
            owner: views::owner(ledger, first),
            other: foreign.map_or_else(String::new, |lease| of_pool(ledger, lease)),
            block,
        })
    }

    /// The leases of a block that count, up to one more than are counted.
    fn leases(&self, ledger: &Ledger, span: Span) -> Vec<Arc<Lease>> {
        if !self.spans.is_empty() {
            return ledger.pool_range(self.pool.id, span, COUNTED + 1);
        }
        let before = self.before(span.first);
        let mut leases = ledger.pool_leases(self.pool.id, before, COUNTED + 1);
        leases.retain(|lease| span.contains(lease.key.address));
        leases
    }

    fn before(&self, number: u128) -> Option<IpAddr> {
        let before = number.checked_sub(1);
        before.map(|before| self.family.address(before))
    }
}

/// What the pool lists, in order; an entry that lies in another is left out.
fn listed(pool: &Pool) -> Vec<Span> {
    let spans = pool.spec.addresses.iter().map(|spec| spec.span());
    let mut spans: Vec<Span> = spans.collect();
    spans.sort_unstable_by_key(|span| (span.first, Reverse(span.last)));
    let mut end: Option<u128> = None;
    spans.retain(|span| {
        let outermost = end.is_none_or(|end| span.last > end);
        if outermost {
            end = Some(span.last);
        }
        outermost
    });
    spans
}

fn of_pool(ledger: &Ledger, lease: &Lease) -> String {
    match lease.pool.and_then(|id| ledger.pool(id)) {
        Some(pool) => format!("of pool {}", pool.spec.name),
        None => "of no pool".to_owned(),
    }
}

/// The box's field, and the address to begin at.
fn wanted(at: &str, family: Family) -> (Field, Option<u128>) {
    let value: String = at.chars().take(64).collect();
    if value.is_empty() {
        return (Field::default(), None);
    }
    let first = match value.parse::<AddressSpec>() {
        Ok(spec @ (AddressSpec::Single(_) | AddressSpec::Cidr(_))) => Some(spec.span()),
        Ok(AddressSpec::Range(..)) | Err(_) => None,
    };
    match first.filter(|span| span.family == family) {
        Some(span) => (Field::default(), Some(span.first)),
        None => {
            let examples = match family {
                Family::V4 => "10.0.0.7 or 10.0.0.0/28",
                Family::V6 => "2001:db8::7 or 2001:db8::/64",
            };
            let error = format!("That is no {family} address or prefix, such as {examples}.");
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

#[cfg(test)]
mod tests {
    use fipd_core::testing;

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
    fn what_lies_in_another_entry_is_listed_once() {
        let addresses = [
            "2001:db8:9::/56",
            "2001:db8:0:1::/64",
            "2001:db8::/56",
            "2001:db8::/64",
        ];
        let pool = testing::pool(testing::pool_spec("p", &addresses));
        let outermost = [&addresses[2], &addresses[0]];
        let outermost = outermost.map(|text| text.parse::<AddressSpec>().unwrap().span());
        assert_eq!(listed(&pool), outermost);
    }

    #[test]
    fn the_box_takes_addresses_and_prefixes_and_says_why_not() {
        assert_eq!(wanted("", Family::V6), (Field::default(), None));
        assert_eq!(wanted("::7", Family::V6).1, Some(7));
        assert_eq!(wanted("::40/122", Family::V6).1, Some(0x40));
        assert_eq!(wanted("0.0.0.7", Family::V4).1, Some(7));
        assert_eq!(wanted("0.0.0.8/29", Family::V4).1, Some(8));
        for at in ["10.0.0.7", "10.0.0.0/29", "::7/64", "::1-::7", "<b>"] {
            let (field, from) = wanted(at, Family::V6);
            assert_eq!((field.value.as_str(), from), (at, None));
            assert!(field.error.unwrap().contains("no IPv6"));
        }
    }
}
