//! The pages of lists that systems serve.

use axum::extract::State;
use fipd_core::Role;
use fipd_web_ui::{Input, Nav, SystemCell, SystemListPage, links};
use serde_json::Value;

use super::{
    list::{Listing, Order},
    page::{Answered, page},
    session_extract::{Query, Visitor},
};
use crate::{
    api::{
        access::{Access, Routes},
        rest::operations::rows,
    },
    config::{
        Systems,
        operation::{Column, Does, SystemOperation},
    },
    system::RunningSystems,
};

/// Rows of one page.
const PAGE: usize = 100;
const ORDERS: &[[Order; 2]] = &[Order::up_first("name", "by name", "by name, from the end")];

/// Adds them to the table of routes.
pub fn routes(routes: Routes, known: Systems) -> Routes {
    lists(known).fold(routes, |routes, list| {
        let pattern = list.here.clone();
        let handler = move |State(systems): State<RunningSystems>, visitor, query| {
            std::future::ready(show(&systems, visitor, query, &list))
        };
        routes.get(&pattern, Access::Page(Role::Viewer), handler)
    })
}

/// Address and description of each whose system is on.
pub fn links(known: Systems, on: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let all = lists(known).filter(|list| on(list.system));
    all.map(|list| (list.here, list.operation.about.to_owned()))
        .collect()
}

#[derive(Clone)]
struct List {
    system: &'static str,
    operation: &'static SystemOperation,
    columns: &'static [Column],
    here: String,
}

fn lists(known: Systems) -> impl Iterator<Item = List> {
    known.operations().filter_map(|(system, operation)| {
        let Does::List { columns, .. } = operation.does else {
            return None;
        };
        Some(List {
            system,
            operation,
            columns,
            here: operation.page(system)?,
        })
    })
}

fn show(systems: &RunningSystems, visitor: Visitor, Query(query): Query, of: &List) -> Answered {
    let inputs = vec![Input::new("filter", "A row contains")];
    let list = Listing::new(&of.here, inputs, ORDERS.as_flattened(), &query);
    let part = list.filter("filter");
    let all = rows(systems, of.system, of.operation);
    let cells = all.iter().map(|(key, row)| {
        let cells = of.columns.iter().map(|column| cell(column, row));
        (key, cells.collect::<Vec<_>>())
    });
    let wanted = |(_, cells): &(&String, Vec<SystemCell>)| {
        let mut cells = cells.iter();
        cells.any(|cell| cell.text.contains(part))
    };
    let found = cells.filter(wanted).collect();
    let (shown, pager) = list.page_by(found, PAGE, |(key, _)| (*key).clone());
    Ok(page(&SystemListPage {
        shell: visitor.shell(Nav::Clusters),
        title: of.operation.about.to_owned(),
        system: of.system.to_owned(),
        filters: list.filters,
        heads: of.columns.iter().map(|one| one.title.to_owned()).collect(),
        rows: shown.into_iter().map(|(_, cells)| cells).collect(),
        total: all.len(),
        pager,
    }))
}

/// The name of a pool leads to its page.
fn cell(column: &Column, row: &Value) -> SystemCell {
    let pool = row["pool_id"].as_u64().filter(|_| column.field == "pool");
    let pool = pool.and_then(|id| u32::try_from(id).ok());
    SystemCell {
        text: column.cell(row),
        link: pool.map(links::pool),
    }
}
