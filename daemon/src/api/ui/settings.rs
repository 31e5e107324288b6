//! What fipd runs with.

use std::sync::Arc;

use axum::extract::State;
use fipd_web_ui::{Column, Input, InputKind, Nav, SettingRow, SettingsPage, links};

use super::{
    list::{Listing, Order},
    page::{Answered, page},
    views,
};
use crate::{
    api::{
        listen::tls,
        ui::session_extract::{Query, Visitor},
    },
    backups::Backups,
    config::reference::EXAMPLE,
    reload::Reload,
    settings::effective::{Effective, Setting, ValueOrigin},
};
use fipd_core::Timestamp;
use tokio::sync::watch;

/// Keys of one page.
const PAGE: usize = 100;
const ORDERS: &[[Order; 2]] = &[
    Order::up_first("key", "by key", "by key, from the end"),
    Order::down_first("origin", "what was said first", "defaults first"),
    Order::up_first(
        "taken",
        "what counts at once first",
        "what needs a restart first",
    ),
];

pub async fn show(
    State(backups): State<Backups>,
    State(reload): State<Reload>,
    State(settings): State<Arc<Effective>>,
    State(certificate): State<watch::Receiver<Option<Timestamp>>>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    let origins = InputKind::any_word(ValueOrigin::WORDS);
    let inputs = vec![
        Input::new("filter", "Key or value contains"),
        Input::new("origin", "From").kind(origins),
    ];
    let list = Listing::new(links::SETTINGS, inputs, ORDERS.as_flattened(), &query);
    let (known, standing) = (Arc::clone(&settings), reload.standing());
    let usable = standing.failed.is_none();
    let read = tokio::task::spawn_blocking(move || known.now(usable)).await;
    let mut all = read.unwrap_or_default();
    let pending = all.iter().filter(|one| one.pending.is_some()).count();
    let (part, origin) = (list.filter("filter"), list.filter("origin"));
    all.retain(|one| {
        let named = one.key.contains(part) || one.value.contains(part);
        named && (origin.is_empty() || one.origin.as_str() == origin)
    });
    let (shown, pager) = match list.order.key {
        "origin" => list.page_by(all, PAGE, |one| (one.origin, one.key.clone())),
        "taken" => list.page_by(all, PAGE, |one| (one.taken, one.key.clone())),
        _ => list.page_by(all, PAGE, |one| one.key.clone()),
    };
    let known = &settings;
    let place = |path: &std::path::Path| path.display().to_string();
    Ok(page(&SettingsPage {
        shell: visitor.shell(Nav::Settings),
        file: views::text(known.file.as_deref().map(place)),
        error: views::text(standing.failed),
        started: views::moment(known.started),
        pending,
        places: vec![
            ("Data directory", place(&known.data_dir)),
            ("Socket", place(&known.socket)),
            ("Backups", place(&backups.schedule().directory)),
            ("CA to trust", place(&tls::ca_file(&known.data_dir))),
        ],
        certificate: certificate.borrow().map(views::moment),
        columns: vec![
            list.column("key", "Key"),
            Column::plain("Value"),
            list.column("origin", "From"),
            list.column("taken", "A change counts"),
        ],
        filters: list.filters,
        rows: shown.into_iter().map(row).collect(),
        pager,
        example: EXAMPLE,
    }))
}

fn row(one: Setting) -> SettingRow {
    SettingRow {
        origin: one.origin.as_str(),
        taken: one.taken.as_str(),
        key: one.key,
        value: one.value,
        pending: one.pending,
    }
}
