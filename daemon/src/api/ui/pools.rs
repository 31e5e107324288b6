//! The list of pools.

use std::{cmp::Reverse, sync::Arc};

use axum::extract::State;
use fipd_web_ui::{Column, Form, Input, Nav, PoolRow, PoolsPage, links};

use super::{
    dashboard::rows,
    list::{Listing, Order},
    page::{Answered, page},
    visit::{Query, Visitor},
};
use crate::{api::Api, ipam::Ipam};

/// Pools of one page.
const PAGE: usize = 100;
const ORDERS: &[Order] = &[
    Order::up("name", "by name"),
    Order::down("name", "by name, from the end"),
    Order::down("use", "fullest first"),
    Order::up("use", "emptiest first"),
    Order::up("free", "least free first"),
    Order::down("free", "most free first"),
    Order::up("network", "by network"),
    Order::down("network", "by network, from the end"),
    Order::up("family", "IPv4 first"),
    Order::down("family", "IPv6 first"),
];

/// Pools with the text in their name, by name.
pub async fn rows_named(ipam: &Ipam, text: &str, most: usize) -> Vec<PoolRow> {
    let mut pools = rows(ipam).await;
    pools.retain(|row| row.name.contains(text));
    pools.sort_by(|left, right| left.name.cmp(&right.name));
    pools.truncate(most);
    pools
}

pub async fn list(State(api): State<Arc<Api>>, visitor: Visitor, Query(query): Query) -> Answered {
    let families = ["IPv4", "IPv6"].map(|name| (name.to_owned(), name.to_owned()));
    let inputs = vec![
        Input::new("filter", "Name contains"),
        Input::new("network", "Network"),
        Input::new("family", "Family").kind(Form::any_of(families)),
    ];
    let list = Listing::new(links::POOLS, inputs, ORDERS, &query);
    let mut pools = rows(&api.ipam).await;
    let total = pools.len();
    let (name, network, family) = (
        list.filter("filter"),
        list.filter("network"),
        list.filter("family"),
    );
    pools.retain(|row| {
        row.name.contains(name)
            && (network.is_empty() || row.network == network)
            && (family.is_empty() || row.family == family)
    });
    in_order(&list, &mut pools);
    let pager = list.page(&mut pools, PAGE, &query);
    Ok(page(&PoolsPage {
        shell: visitor.shell(Nav::Pools),
        columns: columns(&list),
        filters: list.filters,
        total,
        pools,
        pager,
    }))
}

/// Puts pools in one of the orders above.
pub fn in_order(list: &Listing<'_>, pools: &mut [PoolRow]) {
    match list.order.key {
        "use" => list.sort(pools, fill),
        "free" => list.sort(pools, |row| row.usage.free),
        "network" => list.sort_by(pools, |left, right| {
            (&left.network, &left.name).cmp(&(&right.network, &right.name))
        }),
        "family" => list.sort_by(pools, |left, right| {
            (left.family, &left.name).cmp(&(right.family, &right.name))
        }),
        _ => list.sort_by(pools, |left, right| left.name.cmp(&right.name)),
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

/// How near a pool is to having nothing left: by share, then who waits, then by what is left.
pub fn fill(row: &PoolRow) -> (bool, u32, usize, Reverse<u128>) {
    let open = !row.closed && row.usage.size > 0;
    (
        open,
        row.usage.permille(),
        row.waiting,
        Reverse(row.usage.free),
    )
}
