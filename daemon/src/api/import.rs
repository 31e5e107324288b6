//! `/api/v1/import`: rows as an export writes them, all taken or none.

mod parse;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::{Json, body::Bytes, extract::State};
use fipd_core::{Actor, Answer, Import, ImportRow, Ledger, Request, RowFate};
use serde_json::Value;

use super::{
    Api, admin,
    auth::Caller,
    convert,
    extract::Query,
    problem::{Code, Problem},
    wire::{ImportQuery, ImportReport, ImportedRow},
};
use crate::ipam::Ipam;

/// A row of the file: what it is, and what it says or what is wrong with it.
struct Read {
    what: String,
    row: Result<ImportRow, Box<Problem>>,
}

/// Writes networks, separations of networks, pools, quotas and leases as they are exported, in one decision. A row may stand on the ones before
/// it. If one is refused, or with `dry-run`, nothing is written; the report says what becomes of each row.
#[utoipa::path(post, path = "/api/v1/import", tag = "admin", params(ImportQuery),
    request_body(content = String, content_type = "text/plain"),
    responses((status = 200, body = ImportReport), (status = 413, body = Problem), (status = 422, body = Problem),
        (status = 503, body = Problem)))]
pub async fn import(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<ImportQuery>,
    body: Bytes,
) -> Result<Json<ImportReport>, Problem> {
    let csv = match query.format.as_deref() {
        None | Some("jsonl") => false,
        Some("csv") => true,
        Some(other) => return Err(Problem::invalid("format", other, "jsonl or csv")),
    };
    let report = take(&api.ipam, caller.actor, body, csv, query.dry_run);
    report.await.map(Json)
}

async fn take(
    ipam: &Ipam,
    actor: Actor,
    body: Bytes,
    csv: bool,
    dry_run: bool,
) -> Result<ImportReport, Problem> {
    let reading = ipam.clone();
    let reads = admin::blocking(move || read(&reading, &body, csv)).await??;
    let fine: Vec<ImportRow> = reads
        .iter()
        .filter_map(|read| read.row.as_ref().ok().cloned())
        .collect();
    let malformed = fine.len() < reads.len();
    let request = Request::Import(Import {
        rows: fine,
        dry_run: dry_run || malformed,
        actor,
    });
    let answer = ipam.submit(request).await?;
    let Answer::Imported { rows, written } = answer else {
        return Err(convert::unexpected(&answer));
    };
    Ok(report(reads, rows, written))
}

/// Takes the text apart. Names of clusters are looked up, at most 1,000 rows at once.
fn read(ipam: &Ipam, body: &[u8], csv: bool) -> Result<Vec<Read>, Problem> {
    let values = if csv {
        table::of_csv(body)?
    } else {
        table::of_lines(body)?
    };
    if values.len() > Import::MAX_ROWS {
        let allowed = format!("up to {} rows at once", Import::MAX_ROWS);
        return Err(Problem::new(
            Code::TooLarge,
            format!("the file has {} rows: {allowed}", values.len()),
        ));
    }
    let mut reads = Vec::with_capacity(values.len());
    for some in values.chunks(Ledger::SCAN) {
        ipam.read(|ledger| {
            for value in some {
                let row = value
                    .as_ref()
                    .map_err(|problem| Box::new(problem.clone()))
                    .and_then(|value| parse::row(ledger, value).map_err(Box::new));
                let what = value.as_ref().map_or_else(|_| "row".to_owned(), name);
                reads.push(Read { what, row });
            }
        });
    }
    Ok(reads)
}

/// What the row is about, for people.
fn name(value: &Value) -> String {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or("?");
    match parse::Kind::of(value) {
        parse::Kind::Lease => format!("lease {}", text("address")),
        parse::Kind::Pool => format!("pool {}", text("name")),
        parse::Kind::Quota => format!("quota of {} in {}", text("tenant"), text("pool")),
        parse::Kind::Separation => {
            let names = value.get("networks").and_then(Value::as_array);
            let names = names.into_iter().flatten().filter_map(Value::as_str);
            let names: Vec<&str> = names.collect();
            format!("separation of {}", names.join(" and "))
        }
        parse::Kind::Network => format!("network {}", text("name")),
    }
}

fn report(reads: Vec<Read>, fates: Vec<RowFate>, written: bool) -> ImportReport {
    let mut report = ImportReport {
        written,
        ..ImportReport::default()
    };
    let mut fates = fates.into_iter();
    for (at, read) in reads.into_iter().enumerate() {
        let fate = match read.row {
            Ok(_) => fates.next().unwrap_or(RowFate::Same),
            Err(problem) => {
                report.refused += 1;
                report.rows.push(refused(at, read.what, *problem));
                continue;
            }
        };
        let (count, text) = match fate {
            RowFate::Created => (&mut report.created, "create"),
            RowFate::Changed => (&mut report.changed, "change"),
            RowFate::Same => (&mut report.same, "same"),
            RowFate::Refused(refusal) => {
                report.refused += 1;
                report.rows.push(refused(at, read.what, refusal.into()));
                continue;
            }
        };
        *count += 1;
        report.rows.push(ImportedRow {
            row: at + 1,
            what: read.what,
            fate: text.to_owned(),
            ..ImportedRow::default()
        });
    }
    report
}

fn refused(at: usize, what: String, problem: Problem) -> ImportedRow {
    ImportedRow {
        row: at + 1,
        what,
        fate: "error".to_owned(),
        error: Some(problem.detail.into_string()),
        field: problem.field.map(Into::into),
        value: problem.value.map(Into::into),
        allowed: problem.allowed.map(Into::into),
    }
}
