//! `/api/v1/import`: rows as an export writes them, all taken or none.

pub(crate) mod parse;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use axum::{Json, body::Bytes};
use fipd_core::{Actor, Answer, Import, ImportRow, Ledger, Request, RowFate, Trial};
use serde_json::Value;

use super::{admin, export::rows::Format};
use crate::api::{
    access::permit::Requester,
    convert,
    extract::Query,
    problem::{Code, Problem},
    wire::{ImportQuery, ImportReport, ImportedRow},
};
use crate::ipam::Ipam;

/// What a file says.
#[derive(Default)]
struct File {
    /// Of each row where it is and what it is about, and what is wrong with it by itself.
    rows: Vec<(ImportedRow, Option<Box<Problem>>)>,
    /// Those with which nothing is.
    fine: Vec<ImportRow>,
}

/// Writes networks, separations of networks, pools, quotas and leases as they are exported, in one decision. A row may
/// stand on the ones before it. If one is refused, or with `dry-run`, nothing is written; the report says what becomes
/// of each row. Up to 128 MiB and 200,000 rows are taken at once.
#[utoipa::path(post, path = "/api/v1/import", tag = "admin", params(ImportQuery),
    request_body(content = String, content_type = "text/plain"), responses((status = 200, body = ImportReport)))]
pub async fn import(
    requester: Requester,
    Query(query): Query<ImportQuery>,
    body: Bytes,
) -> Result<Json<ImportReport>, Problem> {
    let (ipam, actor) = (&requester.ipam, requester.actor());
    let csv = Format::parse(query.format.as_deref())? == Format::Csv;
    let force = query.force;
    let reading = ipam.clone();
    let File { rows, fine } = admin::blocking(move || read(&reading, &body, csv)).await??;
    if query.dry_run || fine.len() < rows.len() {
        let trying = ipam.clone();
        let fates = admin::blocking(move || tried(&trying, &fine, &actor, force)).await?;
        return Ok(Json(report(rows, fates, false)));
    }
    let request = Request::Import(Import {
        rows: fine,
        force,
        actor,
    });
    let answer = ipam.submit(request).await?;
    let Answer::Imported {
        rows: fates,
        written,
    } = answer
    else {
        return Err(convert::unexpected(&answer));
    };
    Ok(Json(report(rows, fates, written)))
}

/// What would become of the rows, 1,000 at once, so that others read and write in between.
fn tried(ipam: &Ipam, rows: &[ImportRow], actor: &Actor, force: bool) -> Vec<RowFate> {
    let mut trial = Trial::new(actor, force, ipam.now());
    let steps = rows.chunks(Ledger::SCAN);
    let fates = steps.flat_map(|some| ipam.read(|ledger| trial.rows(ledger, some)));
    fates.collect()
}

/// Takes the text apart, 1,000 rows at once. Names of clusters are looked up.
fn read(ipam: &Ipam, body: &[u8], csv: bool) -> Result<File, Problem> {
    let mut values = table::rows(body, csv)?;
    let mut file = File::default();
    loop {
        let some: Vec<table::ImportTableRow> = values.by_ref().take(Ledger::SCAN).collect();
        if some.is_empty() {
            return Ok(file);
        }
        if file.rows.len() + some.len() > Import::MAX_ROWS {
            let detail = format!("the file has too many rows: {}", ImportQuery::MOST);
            return Err(Problem::new(Code::TooLarge, detail));
        }
        ipam.read(|ledger| {
            for value in some {
                file.add(ledger, value);
            }
        });
    }
}

impl File {
    fn add(
        &mut self,
        ledger: &Ledger,
        table::ImportTableRow { line, value }: table::ImportTableRow,
    ) {
        let about = ImportedRow {
            row: self.rows.len() + 1,
            line,
            what: value.as_ref().map_or_else(|_| "row".to_owned(), name),
            owner: value.as_ref().ok().and_then(owner),
            ..ImportedRow::default()
        };
        let row = value.and_then(|value| parse::row(ledger, &value));
        let wrong = row.map(|row| self.fine.push(row)).err();
        self.rows.push((about, wrong.map(Box::new)));
    }
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

/// Who holds the address by the row, as it is written.
fn owner(value: &Value) -> Option<String> {
    let members = value.get("members").and_then(Value::as_array);
    let first = members.and_then(|members| members.first());
    let owner = first.unwrap_or(value).get("owner").and_then(Value::as_str);
    owner.map(ToOwned::to_owned)
}

fn report(
    rows: Vec<(ImportedRow, Option<Box<Problem>>)>,
    fates: Vec<RowFate>,
    written: bool,
) -> ImportReport {
    let mut report = ImportReport {
        written,
        ..ImportReport::default()
    };
    let mut fates = fates.into_iter();
    for (row, wrong) in rows {
        let fate = match wrong {
            Some(problem) => Err(*problem),
            None => match fates.next().unwrap_or(RowFate::Same) {
                RowFate::Created => Ok((&mut report.created, "create")),
                RowFate::Changed => Ok((&mut report.changed, "change")),
                RowFate::Same => Ok((&mut report.same, "same")),
                RowFate::Refused(refusal) => Err(refusal.into()),
            },
        };
        let (count, row) = match fate {
            Ok((count, fate)) => {
                let fate = fate.to_owned();
                (count, ImportedRow { fate, ..row })
            }
            Err(problem) => (&mut report.refused, refused(row, problem)),
        };
        *count += 1;
        report.rows.push(row);
    }
    report
}

fn refused(row: ImportedRow, problem: Problem) -> ImportedRow {
    ImportedRow {
        fate: "error".to_owned(),
        error: Some(problem.detail.into_string()),
        field: problem.field.map(Into::into),
        value: problem.value.map(Into::into),
        allowed: problem.allowed.map(Into::into),
        ..row
    }
}
