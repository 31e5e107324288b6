//! The pages of lists that systems serve: one of each list, and one of each system with all its lists.

use axum::extract::State;
use fipd_core::{Identity, Role};
use fipd_web_ui::{
    Input, Nav, SystemCell, SystemListPage, SystemPage, SystemSection, SystemTable, links,
};
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
        operation::{Column, ColumnLink, Does, SystemOperation},
    },
    system::RunningSystems,
};

/// Rows of one page.
const PAGE: usize = 100;
/// Rows of each list on the page of a system.
const FIRST: usize = 20;
const ORDERS: &[[Order; 2]] = &[Order::up_first("name", "by name", "by name, from the end")];

/// Adds them to the table of routes.
pub fn routes(routes: Routes, known: Systems) -> Routes {
    let routes = lists(known).fold(routes, |routes, list| {
        let pattern = list.here.clone();
        let handler = move |State(systems): State<RunningSystems>, visitor, query| {
            std::future::ready(show(&systems, visitor, query, &list))
        };
        routes.get(&pattern, Access::Page(Role::Viewer), handler)
    });
    systems(known)
        .into_iter()
        .fold(routes, |routes, (system, title)| {
            let all: Vec<_> = lists(known).filter(|list| list.system == system).collect();
            let handler = move |State(systems): State<RunningSystems>, visitor| {
                std::future::ready(show_all(&systems, visitor, title, &all))
            };
            let pattern = links::system(system);
            routes.get(&pattern, Access::Page(Role::Viewer), handler)
        })
}

/// Address and heading of the page of each system that is on.
pub fn links(known: Systems, on: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let all = systems(known).into_iter().filter(|(system, _)| on(system));
    all.map(|(system, title)| (links::system(system), title.to_owned()))
        .collect()
}

/// The rows about an object that holds a lease, where a list has such.
pub fn of_holder(known: Systems, holder: &Identity) -> Option<String> {
    let mut lists = lists(known);
    let list =
        lists.find(|list| list.system == holder.system.as_str() && *list.kind == *holder.kind)?;
    Some(links::rows_like(&list.here, &holder.name))
}

/// Name and heading of each system with a page.
fn systems(known: Systems) -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = lists(known).map(|list| (list.system, list.title)).collect();
    all.dedup();
    all
}

#[derive(Clone)]
struct List {
    system: &'static str,
    /// Heading of the page of the system.
    title: &'static str,
    operation: &'static SystemOperation,
    kind: &'static str,
    columns: &'static [Column],
    here: String,
}

fn lists(known: Systems) -> impl Iterator<Item = List> {
    let with = known.0.iter();
    let with = with.filter_map(|one| Some((one.name, one.operations?)));
    with.flat_map(|(system, operations)| {
        operations.all.iter().filter_map(move |operation| {
            let Does::List { columns, kind, .. } = operation.does else {
                return None;
            };
            Some(List {
                system,
                title: operations.title,
                operation,
                kind,
                columns,
                here: operation.page(system)?,
            })
        })
    })
}

fn show(systems: &RunningSystems, visitor: Visitor, Query(query): Query, of: &List) -> Answered {
    let inputs = vec![Input::new("filter", "A row contains")];
    let list = Listing::new(&of.here, inputs, ORDERS.as_flattened(), &query);
    let part = list.filter("filter");
    let all = rows(systems, of.system, of.operation);
    let cells = all.iter().map(|(key, row)| (key, of.cells(row)));
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
        system_title: of.title.to_owned(),
        filters: list.filters,
        table: of.table(shown.into_iter().map(|(_, cells)| cells)),
        total: all.len(),
        pager,
    }))
}

/// The lists of a system, of which there is at least one.
fn show_all(systems: &RunningSystems, visitor: Visitor, title: &str, all: &[List]) -> Answered {
    Ok(page(&SystemPage {
        shell: visitor.shell(Nav::Clusters),
        title: title.to_owned(),
        system: all.first().map_or("", |list| list.system).to_owned(),
        sections: all.iter().map(|list| section(systems, list)).collect(),
    }))
}

/// The first rows of a list, before the others those that wait.
fn section(systems: &RunningSystems, of: &List) -> SystemSection {
    let all = rows(systems, of.system, of.operation);
    let mut rows: Vec<&Value> = all.values().collect();
    rows.sort_by_key(|row| row["waiting"] != true);
    SystemSection {
        name: of.operation.name.to_owned(),
        title: of.operation.about.to_owned(),
        here: of.here.clone(),
        table: of.table(rows.into_iter().take(FIRST).map(|row| of.cells(row))),
        total: all.len(),
    }
}

impl List {
    fn table(&self, rows: impl Iterator<Item = Vec<SystemCell>>) -> SystemTable {
        let heads = self.columns.iter().map(|one| one.title.to_owned());
        SystemTable {
            heads: heads.collect(),
            rows: rows.collect(),
        }
    }

    fn cells(&self, row: &Value) -> Vec<SystemCell> {
        let columns = self.columns.iter();
        columns
            .map(|column| SystemCell {
                text: column.cell(row),
                link: self.link(column, row),
            })
            .collect()
    }

    fn link(&self, column: &Column, row: &Value) -> Option<String> {
        let number = |end: &str| {
            let number = row[format!("{}_{end}", column.field)].as_u64()?;
            u32::try_from(number).ok()
        };
        match column.link {
            ColumnLink::None => None,
            ColumnLink::Pool => number("id").map(links::pool),
            ColumnLink::Lease => {
                let address = row[column.field].as_str()?.parse().ok()?;
                Some(links::lease(number("network")?, address))
            }
            ColumnLink::Rows(list) => {
                let text = row[column.field].as_str().filter(|text| !text.is_empty())?;
                let here = format!("{}/{list}", links::system(self.system));
                Some(links::rows_like(&here, text))
            }
        }
    }
}
