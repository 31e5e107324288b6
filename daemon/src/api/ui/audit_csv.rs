//! The audit log as CSV, with the filters of its page, for as long as the reader reads.

use axum::{
    body::{Body, Bytes},
    extract::State,
    response::{IntoResponse as _, Response},
};
use fipd_core::{AuditEntry, Ledger};
use futures::stream;
use http::{HeaderValue, StatusCode, header};

use super::{
    audit::{filter, listing, unreadable},
    page::{Answered, harden},
};
use crate::api::{
    cell::guarded,
    convert,
    rest::audit::search,
    ui::session_extract::{Query, Visitor},
};
use crate::{clock, ipam::Ipam, store::AuditFilter};
use tokio_util::sync::CancellationToken;

/// Rows that are read and written at once.
const STEP: usize = 1_000;
const HEAD: [&str; 9] = [
    "number", "at", "actor", "action", "network", "address", "pool", "owner", "detail",
];

struct Reading {
    ipam: Ipam,
    stop: CancellationToken,
    filter: AuditFilter,
    /// `None` at the end.
    next: Option<Option<u64>>,
}

pub async fn download(
    State(stop): State<CancellationToken>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    let mut form = listing(&query).filters;
    let Some(filter) = visitor.read(|ledger| filter(ledger, &mut form)) else {
        let what = "One of the filters means nothing.";
        let next = "Go back to the audit log, which says which one.";
        return Err(visitor.failure(StatusCode::UNPROCESSABLE_ENTITY, what, next));
    };
    // What fails at once is a page and not half a file.
    let first = search(&visitor.ipam, &filter, None, STEP).await;
    first.map_err(|error| unreadable(&visitor, &error))?;
    let head = Bytes::from(line(HEAD.map(ToOwned::to_owned)));
    let reading = Reading {
        ipam: visitor.ipam,
        stop,
        filter,
        next: Some(None),
    };
    let rows = stream::try_unfold(reading, |mut reading| async move {
        let text = reading.step().await.map_err(std::io::Error::other)?;
        Ok::<_, std::io::Error>(text.map(|text| (text, reading)))
    });
    let head = stream::once(std::future::ready(Ok(head)));
    Ok(as_file(Body::from_stream(futures::StreamExt::chain(
        head, rows,
    ))))
}

impl Reading {
    /// The next rows; `None` at the end.
    async fn step(&mut self) -> Result<Option<Bytes>, String> {
        let Some(before) = self.next else {
            return Ok(None);
        };
        if self.stop.is_cancelled() {
            return Err("fipd is stopping".to_owned());
        }
        let found = search(&self.ipam, &self.filter, before, STEP).await?;
        self.next = found.next.map(Some);
        let text = self.ipam.read(|ledger| {
            let entries = found.entries.iter();
            let lines = entries.map(|(number, entry)| line(cells(ledger, *number, entry)));
            lines.collect::<String>()
        });
        Ok(Some(text.into()))
    }
}

fn as_file(body: Body) -> Response {
    let mut response = body.into_response();
    harden(&mut response);
    let headers = response.headers_mut();
    for (name, value) in [
        (
            header::CONTENT_TYPE,
            "text/csv; charset=utf-8; header=present",
        ),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"fipd-audit.csv\"",
        ),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn cells(ledger: &Ledger, number: u64, entry: &AuditEntry) -> [String; 9] {
    let pool = |id| match ledger.pool(id) {
        Some(pool) => pool.spec.name.to_string(),
        None => format!("#{}", id.0),
    };
    let network = |id| convert::network_name(ledger, id);
    let owner = |identity| convert::owner_text(ledger, identity);
    [
        number.to_string(),
        clock::rfc3339(entry.at),
        entry.actor.to_string(),
        entry.action.to_string(),
        entry.network.map(network).unwrap_or_default(),
        entry.address.map(|at| at.to_string()).unwrap_or_default(),
        entry.pool.map(pool).unwrap_or_default(),
        entry.identity.as_ref().map(owner).unwrap_or_default(),
        entry.detail.to_string(),
    ]
}

/// A line of RFC 4180. A cell that a spreadsheet would take for a formula begins with an apostrophe.
fn line<const N: usize>(cells: [String; N]) -> String {
    let mut out = String::new();
    for (index, cell) in cells.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let text = guarded(cell);
        if text.contains([',', '"', '\n', '\r']) {
            out.push('"');
            out.push_str(&text.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(&text);
        }
    }
    out.push_str("\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_text_for_every_spreadsheet() {
        for (cell, written) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("-2", "'-2"),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("\tx", "'\tx"),
            ("=a,\"b\"", "\"'=a,\"\"b\"\"\""),
        ] {
            assert_eq!(line([cell.to_owned()]), format!("{written}\r\n"));
        }
        assert_eq!(line(["a".to_owned(), String::new()]), "a,\r\n");
    }
}
