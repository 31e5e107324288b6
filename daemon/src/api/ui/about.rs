//! What this program is and what it is made of.

use fipd_web_ui::{
    AboutPage, Column, Input, Nav, count,
    licences::{self, Licence},
    links,
};

use super::{
    list::{Listing, Order},
    page::{Answered, page},
};
use crate::api::ui::session_extract::{Query, Visitor};

/// Packages of one page.
const PAGE: usize = 50;
const ORDERS: &[[Order; 2]] = &[
    Order::up_first("name", "by name", "by name, from the end"),
    Order::up_first("licence", "by licence", "by licence, from the end"),
];

pub async fn show(visitor: Visitor, Query(query): Query) -> Answered {
    let inputs = vec![
        Input::new("filter", "Name contains"),
        Input::new("licence", "Licence contains"),
    ];
    let list = Listing::new(links::ABOUT, inputs, ORDERS.as_flattened(), &query);
    let mut packages: Vec<Licence> = licences::all().collect();
    let total = packages.len();
    packages.retain(|one| {
        one.name.contains(list.filter("filter")) && one.licence.contains(list.filter("licence"))
    });
    let (packages, pager) = match list.order.key {
        "licence" => list.page_by(packages, PAGE, |one| (one.licence, *one)),
        _ => list.page_by(packages, PAGE, |one| *one),
    };
    let revision = visitor.read(|ledger| ledger.revision());
    let build = match cfg!(debug_assertions) {
        true => "for tests, with checks",
        false => "release",
    };
    Ok(page(&AboutPage {
        shell: visitor.shell(Nav::About),
        facts: vec![
            ("Version", env!("CARGO_PKG_VERSION").to_owned()),
            (
                "Commit",
                option_env!("FIPD_COMMIT").unwrap_or("not known").to_owned(),
            ),
            (
                "Built for",
                format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH),
            ),
            ("Build", build.to_owned()),
            ("Licence", env!("CARGO_PKG_LICENSE").to_owned()),
            ("Revision of the address book", count(revision)),
        ],
        columns: vec![
            list.column("name", "Package"),
            Column::plain("Version"),
            list.column("licence", "Licence"),
        ],
        filters: list.filters,
        total,
        packages,
        pager,
    }))
}
