//! What this program is and what it is made of.

use axum::extract::State;
use fipd_web_ui::{
    AboutPage, Input, Nav,
    licences::{self, Licence},
    links,
};

use super::{
    list::{Listing, Order},
    page::{Answered, page},
};
use crate::api::ui::session_extract::{Query, Visitor};
use crate::ipam::Ipam;

/// Packages of one page.
const PAGE: usize = 50;
const ORDERS: &[Order] = &[
    Order::up("name", "by name"),
    Order::down("name", "by name, from the end"),
    Order::up("licence", "by licence"),
    Order::down("licence", "by licence, from the end"),
];

pub async fn show(State(ipam): State<Ipam>, visitor: Visitor, Query(query): Query) -> Answered {
    let inputs = vec![
        Input::new("filter", "Name contains"),
        Input::new("licence", "Licence contains"),
    ];
    let list = Listing::new(links::ABOUT, inputs, ORDERS, &query);
    let mut packages: Vec<Licence> = licences::all().collect();
    let total = packages.len();
    packages.retain(|one| {
        one.name.contains(list.filter("filter")) && one.licence.contains(list.filter("licence"))
    });
    let (packages, pager) = match list.order.key {
        "licence" => list.page_by(packages, |one| (one.licence, *one), PAGE, &query),
        _ => list.page_by(packages, |one| *one, PAGE, &query),
    };
    let epoch = ipam.read(|ledger| ledger.revision());
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
            (
                "Build",
                if cfg!(debug_assertions) {
                    "for tests, with checks"
                } else {
                    "release"
                }
                .to_owned(),
            ),
            ("Licence", env!("CARGO_PKG_LICENSE").to_owned()),
            (
                "Revision of the address book",
                fipd_web_ui::count(epoch.into()),
            ),
        ],
        columns: vec![
            list.column("name", "Package"),
            fipd_web_ui::Column::plain("Version"),
            list.column("licence", "Licence"),
        ],
        filters: list.filters,
        total,
        packages,
        pager,
    }))
}
