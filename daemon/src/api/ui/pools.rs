//! The list of pools.

use std::{cmp::Reverse, sync::Arc};

use fipd_core::{AddressSpec, Ledger, Pool, PoolStanding, Text, Timestamp};
use fipd_web_ui::{
    Column, Direction, Input, InputKind, Nav, Pager, PoolRow, PoolsPage, Usage, links,
};

use super::{
    fields::Fields,
    forms::parsed,
    list::{Listing, Order, all},
    page::{Answered, page},
    views,
};
use crate::api::ui::session_extract::{Query, Visitor};
use crate::{api::page::Ask, ipam::Ipam};

/// Pools of one page.
const PAGE: usize = 100;
const ORDERS: &[[Order; 2]] = &[
    Order::up_first("name", "by name", "by name, from the end"),
    Order::down_first("use", "fullest first", "emptiest first"),
    Order::up_first("free", "least free first", "most free first"),
    Order::up_first("network", "by network", "by network, from the end"),
    Order::up_first("family", "IPv4 first", "IPv6 first"),
];

type Fill = (bool, u32, usize, Reverse<u128>);

/// What pools are chosen and ordered by; the texts of a row are written for those that are shown.
pub struct Figures {
    pub pool: Arc<Pool>,
    pub network: Text,
    /// It is not closed, and has addresses to give.
    pub open: bool,
    pub permille: u32,
    pub free: u128,
    pub waiting: usize,
    /// Some of its addresses are not given because another network may mean the same ones.
    pub doubtful: bool,
    /// Hours until it is full, where that was asked for and can be said.
    pub full_in: Option<u32>,
}

pub async fn list(visitor: Visitor, Query(query): Query) -> Answered {
    let mut list = listing(&query);
    let (pools, pager) = found(&visitor.ipam, &mut list, PAGE).await;
    Ok(page(&PoolsPage {
        shell: visitor.shell(Nav::Pools),
        columns: columns(&list),
        filters: list.filters,
        total: visitor.read(|ledger| ledger.pools().len()),
        pools,
        pager,
    }))
}

/// The first pools that the filter of that name lets through, by name; where there are more, the list of them.
pub async fn first(
    ipam: &Ipam,
    filter: &str,
    value: &str,
    most: usize,
) -> (Vec<PoolRow>, Option<String>) {
    let mut query = Fields::default();
    query.add(filter.to_owned(), value.to_owned());
    let mut list = listing(&query);
    let (pools, pager) = found(ipam, &mut list, most).await;
    (pools, pager.next.map(|_| list.link(&[])))
}

fn listing(query: &Fields) -> Listing<'static> {
    let inputs = vec![
        Input::new("filter", "Name contains"),
        Input::new("within", "On addresses").note("10.0.0.0/24"),
        Input::new("network", "Network"),
        Input::new("family", "Family").kind(InputKind::any_word(["IPv4", "IPv6"])),
    ];
    Listing::new(links::POOLS, inputs, ORDERS.as_flattened(), query)
}

/// The rows of one page of what the filters let through; none with a mistake noted beside its filter.
async fn found(ipam: &Ipam, list: &mut Listing<'_>, most: usize) -> (Vec<PoolRow>, Pager) {
    let Some(within) = parsed(&mut list.filters, "within", str::parse::<AddressSpec>) else {
        return (Vec::new(), Pager::default());
    };
    let within = within.map(|spec| spec.span());
    let name = list.filter("filter");
    let network = list.filter("network");
    let family = list.filter("family");
    let wanted = |ledger: &Ledger, pool: &Pool| {
        let known = || ledger.network(pool.spec.network);
        pool.spec.name.contains(name)
            && (network.is_empty() || known().is_some_and(|known| *known.name == *network))
            && (family.is_empty() || views::family(pool) == family)
            && within.is_none_or(|within| {
                let spans = ledger.pool_spans(pool.id, within);
                spans.is_some_and(|spans| !spans.listed.is_empty())
            })
    };
    let pools = figures(ipam, wanted, None).await;
    let (shown, pager) = in_order(list, &pools, most);
    let now = ipam.now();
    let rows = ipam.read(|ledger| {
        let rows = shown.iter();
        rows.map(|one| views::pool_row(ledger, &one.pool, now))
            .collect()
    });
    (rows, pager)
}

/// The pools that are wanted, read step by step; as of `now` it is known as well when they are full.
pub async fn figures(
    ipam: &Ipam,
    wanted: impl Fn(&Ledger, &Pool) -> bool,
    now: Option<Timestamp>,
) -> Vec<Figures> {
    all(ipam, |ledger, after| {
        let figures = |one: &PoolStanding<'_>| {
            wanted(ledger, one.pool).then(|| Figures::new(ledger, one, now))
        };
        Ask::step().of(ledger.standings_after(after), |one| one.pool.id, figures)
    })
    .await
}

/// One page of pools, in one of the orders above or in that of the first page.
pub fn in_order<'a>(
    list: &Listing<'_>,
    pools: &'a [Figures],
    most: usize,
) -> (Vec<&'a Figures>, Pager) {
    let pools: Vec<&'a Figures> = pools.iter().collect();
    match list.order.key {
        "outlook" => list.page_by(pools, most, |one| (one.outlook(), one.name())),
        // What gives nothing comes last, whichever way.
        "use" => {
            let down = list.order.direction == Direction::Down;
            list.page_by(pools, most, |one| (one.open == down, one.fill()))
        }
        "free" => list.page_by(pools, most, |one| one.free),
        "network" => list.page_by(pools, most, |one| (&*one.network, one.name())),
        "family" => list.page_by(pools, most, |one| (views::family(&one.pool), one.name())),
        _ => list.page_by(pools, most, |one| one.name()),
    }
}

/// The heads of the table of pools.
pub fn columns(list: &Listing<'_>) -> Vec<Column> {
    vec![
        list.column("name", "Pool"),
        list.column("network", "Network"),
        list.column("family", "Family"),
        list.column("use", "Use"),
        list.numbers("free", "Free"),
    ]
}

impl Figures {
    fn new(ledger: &Ledger, standing: &PoolStanding<'_>, now: Option<Timestamp>) -> Self {
        let pool = standing.pool;
        let usage = standing.usage().unwrap_or_default();
        let network = ledger.network(pool.spec.network);
        Self {
            pool: Arc::clone(pool),
            network: network.map_or_else(Text::default, |network| Text::clone(&network.name)),
            open: !pool.spec.closed && usage.size > 0,
            permille: Usage(usage).permille(),
            free: usage.free,
            waiting: ledger.waiter_count(pool.id),
            doubtful: usage.withheld > 0,
            full_in: now.and_then(|now| standing.forecast(now).hours()),
        }
    }

    pub fn is_full(&self) -> bool {
        self.open && self.free == 0
    }

    /// Whether it still gives addresses, and is full within so many hours.
    pub fn fills_within(&self, hours: u32) -> bool {
        let full_in = self.full_in.filter(|full_in| (1..=hours).contains(full_in));
        self.open && self.free > 0 && full_in.is_some()
    }

    fn name(&self) -> &str {
        &self.pool.spec.name
    }

    /// How near it is to having nothing left: by share, then who waits, then by what is left.
    fn fill(&self) -> Fill {
        (self.open, self.permille, self.waiting, Reverse(self.free))
    }

    /// The sooner it is full the less, then the fuller; what gives nothing comes last.
    fn outlook(&self) -> (bool, u32, Reverse<Fill>) {
        let full_in = self.full_in.unwrap_or(u32::MAX);
        (!self.open, full_in, Reverse(self.fill()))
    }
}
