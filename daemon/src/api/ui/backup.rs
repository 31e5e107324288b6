//! Where copies of the address book are taken, and how they are brought back.

use std::sync::Arc;

use axum::extract::State;
use fipd_web_ui::{BackupPage, Nav};

use super::{
    dashboard::size,
    fields::with_query,
    page::{Answered, page},
    visit::Visitor,
};
use crate::{api::Api, clock, ipam::DATABASE};

/// What is exported: label and name.
const EXPORTS: [(&str, &str); 4] = [
    ("Leases", "leases"),
    ("Pools", "pools"),
    ("Networks", "networks"),
    ("Audit log", "audit"),
];

pub async fn show(State(api): State<Arc<Api>>, visitor: Visitor) -> Answered {
    visitor.must_administer()?;
    let now = clock::rfc3339(clock::now());
    let day = now.split('T').next().unwrap_or_default();
    let disk = api.ipam.reader().disk().ok();
    let formats = [("CSV", "csv"), ("JSON Lines", "jsonl")];
    let exports = EXPORTS.iter().flat_map(|(label, what)| {
        formats.map(|(name, format)| {
            let pairs = [("what", *what), ("format", format)];
            (*label, name, with_query("/api/v1/export", &pairs))
        })
    });
    Ok(page(&BackupPage {
        shell: visitor.shell(Nav::Backup),
        file: format!("fipd-{day}.redb"),
        database: api.data_dir.join(DATABASE).display().to_string(),
        room: disk.map_or_else(String::new, |(used, _)| size(used)),
        exports: exports.collect(),
    }))
}
