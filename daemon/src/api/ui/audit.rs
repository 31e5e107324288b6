//! The audit log, newest first.

use std::sync::Arc;

use axum::extract::State;
use fipd_core::AuditEntry;
use fipd_web_ui::{AuditPage, Nav, Pager, count, links};
use http::StatusCode;

use super::{
    fields::with_query,
    page::{Answered, page},
    views,
    visit::{Query, Visitor},
};
use crate::api::Api;

/// Rows of one page.
const PAGE: usize = 50;

pub async fn list(State(api): State<Arc<Api>>, visitor: Visitor, Query(query): Query) -> Answered {
    let before = query.get("before").parse().ok();
    let mut entries = read_page(&api, before, PAGE + 1).await.map_err(|error| {
        let next = "Everything else works. Try again in a moment.";
        visitor.failure(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("The audit log cannot be read: {error}."),
            next,
        )
    })?;
    let more = entries.len() > PAGE;
    entries.truncate(PAGE);
    let ends = entries
        .first()
        .zip(entries.last())
        .map(|((first, _), (last, _))| (*first, *last));
    let label = |(first, last): (u64, u64)| {
        format!("Rows {} to {}", count(first.into()), count(last.into()))
    };
    let pager = Pager {
        first: before.map(|_| links::AUDIT.to_owned()),
        next: ends
            .filter(|_| more)
            .map(|(_, last)| with_query(links::AUDIT, &[("before", &last.to_string())])),
        label: ends.map_or_else(String::new, label),
    };
    let shell = visitor.shell(Nav::Audit);
    let rows = api.ipam.read(|ledger| {
        entries
            .iter()
            .map(|(_, entry)| views::audit_row(ledger, entry))
            .collect()
    });
    Ok(page(&AuditPage { shell, rows, pager }))
}

/// Reads the file on a thread that may block.
pub async fn read_page(
    api: &Api,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<(u64, AuditEntry)>, String> {
    let reader = api.ipam.reader().clone();
    let read = tokio::task::spawn_blocking(move || reader.audit_page(before, limit));
    match read.await {
        Ok(page) => page.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}
