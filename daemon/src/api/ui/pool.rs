//! The page of one pool: figures, the /24 of the map that was asked for, one page of leases.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use axum::extract::State;
use fipd_core::{Family, Ledger, Origin, Pool, PoolId, QuotaUnit, Span};
use fipd_web_ui::{
    AddressMap, AllocateForm, Doubt, Field, Nav, Pager, PoolPage, Waiter, links, map,
};

use super::{
    fields::{Fields, with_query},
    page::{Answered, Failure, page},
    pool_blocks, pool_chart, views,
};
use crate::api::{
    convert::{network_name, owner_text},
    rest::wants,
    ui::session_extract::{PathParam, Query, Visitor},
};
use crate::{clusters::Clusters, ipam::Ipam};

/// Leases of one page.
const PAGE: usize = 50;
/// Entries of address lists and queues that are shown.
const SHOWN: usize = 20;

pub async fn show(
    State(clusters): State<Clusters>,
    visitor: Visitor,
    PathParam(id): PathParam<String>,
    Query(query): Query,
) -> Answered {
    let pool = find(&visitor, &id)?;
    let id = pool.id;
    let after = query.get("after").parse().ok();
    let mut leases =
        visitor.read(|ledger| views::lease_rows(ledger, ledger.pool_leases(id, after, PAGE + 1)));
    let more = leases.len() > PAGE;
    leases.truncate(PAGE);
    let here = links::pool(id.0);
    let link =
        |after: &str| with_query(&here, &[("at", query.get("at")), ("after", after)]) + "#leases";
    let last = leases.last().filter(|_| more);
    let next = last.map(|row| link(&row.address.to_string()));
    let pager = Pager::onward(after.map(|_| link("")), next);
    let map = address_map(&visitor.ipam, &pool, &query);
    let blocks = pool_blocks::blocks(&visitor.ipam, &pool, &query);
    let form = (visitor.may_write() && !pool.spec.closed).then(|| AllocateForm {
        pool: id.0,
        example: visitor.read(|ledger| example(ledger, &pool)),
        ..AllocateForm::default()
    });
    let shell = visitor.shell(Nav::Pools);
    let now = visitor.ipam.now();
    let chart = pool_chart::chart(&visitor.ipam, id, now).await;
    let shared = clusters.shared_ranges(&pool, SHOWN).into_iter();
    let shared = shared.map(|range| range.to_string()).collect();
    let page_of_pool = visitor.read(|ledger| PoolPage {
        shell,
        pool: views::pool_row(ledger, &pool, now),
        addresses: some(&pool.spec.addresses),
        exclusions: some(&pool.spec.exclusions),
        allocation_length: pool.spec.allocation_length,
        quota_of_addresses: pool.spec.quota_unit == QuotaUnit::Address,
        gateway: views::text(pool.spec.gateway),
        prefix_len: views::text(pool.spec.prefix_len),
        origin: origin(ledger, &pool),
        follows: follows(ledger, &pool),
        created: views::moment(pool.created),
        generation: pool.generation,
        quota_required: pool.spec.quota_required,
        quarantine: views::quarantine(&pool),
        remembered: views::remembered(&pool),
        priority: pool.spec.priority,
        scopes: (pool.spec.scopes.iter())
            .map(|scope| wants::scope_view(scope).to_string())
            .collect(),
        forecast: pool_chart::sentence(ledger.forecast(id, now)),
        chart,
        held_by: (ledger.holds(pool.spec.network).iter().take(SHOWN))
            .map(ToString::to_string)
            .collect(),
        doubts: doubts(ledger, id),
        shared,
        waiting: waiting(ledger, id),
        map,
        blocks,
        leases,
        pager,
        form,
    });
    Ok(page(&page_of_pool))
}

/// The networks that may be that of the pool, each once.
fn doubts(ledger: &Ledger, pool: PoolId) -> Vec<Doubt> {
    let mut doubts: Vec<Doubt> = Vec::new();
    for overlap in ledger.ambiguities(pool, SHOWN) {
        let Some(other) = ledger.pool(overlap.pool) else {
            continue;
        };
        let network = network_name(ledger, other.spec.network);
        if doubts.iter().all(|known| known.network != network) {
            let pool = other.spec.name.to_string();
            doubts.push(Doubt { network, pool });
        }
    }
    doubts
}

/// The pool of that number.
pub fn find(visitor: &Visitor, id: &str) -> Result<Arc<Pool>, Failure> {
    let id = id.parse().ok().map(PoolId);
    let pool = id.and_then(|id| visitor.read(|ledger| ledger.pool(id).cloned()));
    pool.ok_or_else(|| visitor.not_found("There is no pool with that number."))
}

/// An address or prefix that could be asked for; empty where nothing is free at the start of the pool.
pub fn example(ledger: &Ledger, pool: &Pool) -> String {
    const TRIED: u128 = 255;
    let unit = pool.spec.prefix_size().unwrap_or(1);
    let spans = pool.spec.addresses.iter().map(|spec| spec.span());
    let near = spans.min_by_key(|span| span.first).map(|first| Span {
        last: first
            .last
            .min(first.first.saturating_add(unit.saturating_mul(TRIED))),
        ..first
    });
    let Some(spans) = near.and_then(|near| ledger.pool_spans(pool.id, near)) else {
        return String::new();
    };
    let at = |family: Family, number: u128| {
        pool.spec.prefix_at(fipd_core::LeaseKey {
            network: pool.spec.network,
            address: family.address(number),
        })
    };
    let mut all = spans.assignable.iter().flat_map(|span| {
        let next = move |number: &u128| number.checked_add(unit).filter(|next| *next <= span.last);
        std::iter::successors(Some(span.first), next).map(|number| at(span.family, number))
    });
    views::text(all.find(|prefix| ledger.lease_over(*prefix).is_none()))
}

fn some<T: ToString>(list: &[T]) -> Vec<String> {
    let mut shown: Vec<String> = list.iter().take(SHOWN).map(ToString::to_string).collect();
    if list.len() > SHOWN {
        shown.push(format!("and {} more", list.len() - SHOWN));
    }
    shown
}

fn origin(ledger: &Ledger, pool: &Pool) -> String {
    match views::mirrored(ledger, pool) {
        None => "own pool".to_owned(),
        Some(object) => format!("follows {object}"),
    }
}

/// Where the cluster of a mirror is shown.
fn follows(ledger: &Ledger, pool: &Pool) -> Option<String> {
    match &pool.spec.origin {
        Origin::Own => None,
        Origin::Mirror { cluster, .. } => {
            let name = views::cluster_name(ledger, cluster);
            Some(with_query(links::CLUSTERS, &[("filter", &name)]))
        }
    }
}

fn waiting(ledger: &Ledger, id: PoolId) -> Vec<Waiter> {
    let waiters = ledger.waiters(id, SHOWN);
    waiters
        .into_iter()
        .map(|(since, identity)| Waiter {
            owner: owner_text(ledger, &identity),
            since: views::moment(since),
        })
        .collect()
}

/// The map of the /24 around `at`, or of the first one.
fn address_map(ipam: &Ipam, pool: &Pool, query: &Fields) -> Option<AddressMap> {
    if pool.spec.family() != Some(Family::V4) || pool.spec.allocation_length.is_some() {
        return None;
    }
    let blocks = map::blocks(pool.spec.addresses.iter().map(|spec| spec.span()));
    let (goto, index) = wanted_block(&blocks, query.get("at"));
    let total = map::block_count(&blocks);
    let at = map::block_at(&blocks, index)?;
    let here = links::pool(pool.id.0);
    let link = |index: u64| {
        let at = views::text(map::block_at(&blocks, index));
        with_query(&here, &[("at", &at)])
    };
    Some(AddressMap {
        cells: cells(ipam, pool, at),
        block: index + 1,
        blocks: total,
        first: (index > 0).then(|| link(0)),
        previous: index.checked_sub(1).map(link),
        next: (index + 1 < total).then(|| link(index + 1)),
        last: (index + 1 < total).then(|| link(total - 1)),
        goto,
        target: here.clone(),
    })
}

/// The box's field and the number of the /24 to show.
fn wanted_block(blocks: &[(u32, u32)], at: &str) -> (Field, u64) {
    let value: String = at.chars().take(64).collect();
    let address: Option<Ipv4Addr> = value.parse().ok();
    let index = address.and_then(|address| map::block_of(blocks, address));
    let error = match (at.is_empty(), address, index) {
        (true, ..) | (false, Some(_), Some(_)) => None,
        (false, Some(_), None) => Some("The pool has no address in that /24.".to_owned()),
        (false, None, _) => Some("That is no IPv4 address, such as 10.0.0.7.".to_owned()),
    };
    let value = if error.is_some() {
        value
    } else {
        String::new()
    };
    (Field { value, error }, index.unwrap_or(0))
}

fn cells(ipam: &Ipam, pool: &Pool, at: Ipv4Addr) -> Vec<fipd_web_ui::Cell> {
    let base = u128::from(at.to_bits() & !0xff);
    let block = Span {
        family: Family::V4,
        first: base,
        last: base + 255,
    };
    let (spans, leases) = ipam.read(|ledger| {
        let leases = ledger.pool_range(pool.id, block, 256);
        let held = leases.iter().flat_map(|lease| {
            let (span, owner) = (lease.span(), views::owner(ledger, lease));
            let numbers = span.first.max(block.first)..=span.last.min(block.last);
            numbers.filter_map(move |number| match span.family.address(number) {
                IpAddr::V4(address) => Some(map::Held {
                    address,
                    state: lease.state,
                    contended: !lease.contenders.is_empty(),
                    owner: owner.clone(),
                }),
                IpAddr::V6(_) => None,
            })
        });
        (ledger.pool_spans(pool.id, block), held.collect::<Vec<_>>())
    });
    let excluded = pool.spec.exclusions.iter().map(|spec| spec.span());
    let near = |span: &Span| span.first <= block.last && span.last >= block.first;
    let excluded: Vec<Span> = excluded.filter(near).collect();
    map::cells(&map::MapPlan {
        network: pool.spec.network.0,
        at,
        spans: &spans.unwrap_or_default(),
        excluded: &excluded,
        gateway: pool.spec.gateway,
        leases: &leases,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_box_goes_to_addresses_of_the_pool_and_says_why_not() {
        let range: fipd_core::AddressSpec = "10.0.0.0-10.0.3.255".parse().unwrap();
        let blocks = map::blocks([range.span()]);
        assert_eq!(wanted_block(&blocks, "").1, 0);
        assert_eq!(wanted_block(&blocks, "10.0.2.77"), (Field::default(), 2));
        for (at, part) in [
            ("10.0.4.0", "no address in that"),
            ("10.0.0", "no IPv4"),
            ("::1", "no IPv4"),
            ("<b>", "no IPv4"),
        ] {
            let (field, index) = wanted_block(&blocks, at);
            assert_eq!((field.value.as_str(), index), (at, 0));
            assert!(field.error.unwrap().contains(part));
        }
    }
}
