//! Rows that are pasted or uploaded: what would become of each is shown, then all are written or none.

use std::{cmp::Reverse, net::IpAddr};

use axum::{Json, body::Bytes, response::Response};
use data_encoding::HEXLOWER;
use fipd_web_ui::{Fate, Form, ImportPage, Input, InputKind, Nav, Outlook, OutlookRow, links};
use http::StatusCode;

use super::{
    cookies::fingerprint,
    fields::Fields,
    page::{Answered, go_to, page_as},
};
use crate::api::{
    extract::Query as RestQuery,
    rest::import::import,
    ui::session_extract::{MAX_FORM, SubmittedForm, Visitor},
    wire::{ImportQuery, ImportReport, ImportedRow},
};

/// The longest text, in bytes; the page that shows what becomes of its rows carries it along.
const MOST: usize = 2 << 20;
/// The whole form: browsers send each end of a line as two bytes.
const MOST_SENT: usize = 2 * MOST + MAX_FORM;
/// Rows of one page.
const SHOWN: usize = 100;
/// Why nothing was written though every row was fine.
const CHANGED: &str =
    "Something changed since this was shown. This is what would happen to the rows by now.";

pub async fn show(visitor: Visitor) -> Answered {
    Ok(answer(&visitor, StatusCode::OK, form(), None))
}

/// From what was sent to the next page: the form again, what would become of the rows, or the deed.
pub async fn step(SubmittedForm { visitor, fields }: SubmittedForm<MOST_SENT>) -> Answered {
    let mut form = form();
    let text = chosen(&mut form, &fields);
    if fields.get("step") == "edit" {
        return Ok(answer(&visitor, StatusCode::OK, form, None));
    }
    let Some(text) = text else {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(answer(&visitor, status, form, None));
    };
    let text = Bytes::from(text);
    let format = if is_csv(&text) { "csv" } else { "jsonl" };
    let deed = ImportQuery {
        format: Some(format.to_owned()),
        ..ImportQuery::default()
    };
    let look = ImportQuery {
        dry_run: true,
        ..deed.clone()
    };
    let import = |query| import(visitor.requester(), RestQuery(query), text.clone());
    let mut report = import(look).await;
    let asked = fields.get("step") == "do";
    let same = |Json(report): &Json<ImportReport>| seen(report) == fields.get("seen");
    let agreed = asked && report.as_ref().is_ok_and(same);
    if agreed {
        report = import(deed).await;
    }
    match report {
        Ok(Json(report)) if report.written => Ok(done(&visitor, &report)),
        Ok(report) => {
            // Also when only another page of it was asked for: what was seen before is not so any more.
            let moved = !fields.get("seen").is_empty() && !same(&report);
            form.error = (asked || moved).then(|| CHANGED.to_owned());
            let status = match (report.refused, asked) {
                (0, false) => StatusCode::OK,
                (_, true) => StatusCode::CONFLICT,
                (_, false) => StatusCode::UNPROCESSABLE_ENTITY,
            };
            let asked = AskedRows::of(&fields);
            Ok(answer(&visitor, status, form, Some((report.0, asked))))
        }
        Err(problem) => {
            form.wrong("rows", problem.detail.to_string());
            Ok(answer(&visitor, problem.status_code(), form, None))
        }
    }
}

fn form() -> Form {
    let rows = Input::new("rows", "Rows").kind(InputKind::Lines);
    let kinds = InputKind::File(".csv,.jsonl,.ndjson,.json,.txt,text/csv,text/plain");
    let file = Input::new("file", "Or a file").kind(kinds);
    let rows = rows.hint("JSON Lines, or CSV with a header line.");
    let file = file.hint("In UTF-8, up to 2 MiB.");
    Form::new(links::IMPORT, "", vec![rows, file])
}

/// The text that was pasted or that the file has, which the form then shows; `None` with the mistake noted.
fn chosen(form: &mut Form, fields: &Fields) -> Option<String> {
    let (pasted, file) = (fields.raw("rows"), fields.raw("file"));
    let (pasted_any, file_any) = (!pasted.trim().is_empty(), !file.trim().is_empty());
    let text = if file_any && !pasted_any {
        file
    } else {
        pasted
    };
    // A byte order mark is not part of the rows.
    let text = text.trim_start_matches('\u{feff}');
    form.set("rows", text);
    if file_any && pasted_any {
        form.wrong("file", "Choose a file or paste rows, not both.");
    } else if !file_any && !pasted_any {
        form.wrong("rows", "Paste rows, or choose a file.");
    } else if text.len() > MOST {
        let at = if file_any { "file" } else { "rows" };
        let most = "At most 2 MiB here; `fipd import` takes more.";
        form.wrong(at, most);
    }
    (!form.failed()).then(|| text.to_owned())
}

/// JSON begins with a bracket, which no header line does.
fn is_csv(text: &[u8]) -> bool {
    !matches!(text.trim_ascii_start().first(), Some(b'{' | b'['))
}

/// What the asker has in front of them: other fates are another import.
fn seen(report: &ImportReport) -> String {
    let mut text = String::new();
    for row in &report.rows {
        text.push_str(&row.fate);
        text.push(' ');
    }
    HEXLOWER.encode(&fingerprint(&text)[..8])
}

fn done(visitor: &Visitor, report: &ImportReport) -> Response {
    let ImportReport {
        created, changed, ..
    } = report;
    let text = format!("Imported: {created} made, {changed} changed.");
    let log = (links::AUDIT.to_owned(), "Look at the audit log".to_owned());
    visitor.tell(true, text, Some(log));
    go_to(links::LEASES)
}

fn answer(
    visitor: &Visitor,
    status: StatusCode,
    mut form: Form,
    report: Option<(ImportReport, AskedRows)>,
) -> Response {
    if let Some((report, asked)) = &report {
        if report.refused == 0 {
            form.inputs = form.hidden();
            form.inputs.retain(|input| input.name == "rows");
            let seen = Input::new("seen", "").value(seen(report));
            form.inputs.push(seen.kind(InputKind::Hidden));
        }
        if report.rows.len() > 1 {
            form.inputs.extend(asked.inputs());
        }
    }
    let page = ImportPage {
        shell: visitor.shell(Nav::Leases),
        form,
        outlook: report.map(|(report, asked)| outlook(report, &asked)),
    };
    page_as(status, &page)
}

/// Which rows are to be shown, and in what order.
struct AskedRows {
    /// Of [`ORDERS`].
    order: String,
    /// Of [`KINDS`].
    only: String,
    /// From 1.
    page: usize,
}

/// The wrong ones first where none is said.
const ORDERS: [(&str, &str); 4] = [
    ("", "wrong ones first"),
    ("line", "by line"),
    ("row", "by row"),
    ("owner", "by owner"),
];
const KINDS: [(&str, &str); 5] = [
    ("", "all"),
    ("create", "made"),
    ("change", "changed"),
    ("same", "as they are"),
    ("wrong", "wrong"),
];

impl AskedRows {
    fn of(fields: &Fields) -> Self {
        let known = |name, choices: &[(&str, &str)]| {
            let asked = fields.get(name);
            match choices.iter().any(|(value, _)| *value == asked) {
                true => asked.to_owned(),
                false => String::new(),
            }
        };
        Self {
            order: known("order", &ORDERS),
            only: known("only", &KINDS),
            page: fields.get("page").parse().unwrap_or(1),
        }
    }

    fn inputs(&self) -> [Input; 2] {
        let only = Input::new("only", "Rows that are shown").kind(InputKind::of(KINDS));
        let order = Input::new("order", "Order of the rows").kind(InputKind::of(ORDERS));
        [only.value(&self.only), order.value(&self.order)]
    }

    fn wants(&self, row: &ImportedRow) -> bool {
        match (self.only.as_str(), &row.error) {
            ("", _) | ("wrong", Some(_)) => true,
            (_, Some(_)) | ("wrong", None) => false,
            (only, None) => row.fate == only,
        }
    }

    fn sort(&self, rows: &mut [ImportedRow]) {
        match self.order.as_str() {
            "line" => rows.sort_by_key(|row| row.line),
            "row" => rows.sort_by(|left, right| named(left).cmp(&named(right))),
            "owner" => rows.sort_by(|left, right| left.owner.cmp(&right.owner)),
            _ => rows.sort_by_key(|row| Reverse(row.error.is_some())),
        }
    }
}

/// What a row is about, addresses in their own order.
fn named(row: &ImportedRow) -> (&str, Option<IpAddr>, &str) {
    let (kind, name) = row.what.split_once(' ').unwrap_or((&row.what, ""));
    (kind, name.parse().ok(), name)
}

/// One page of what becomes of the rows.
fn outlook(report: ImportReport, asked: &AskedRows) -> Outlook {
    let mut rows = report.rows;
    rows.retain(|row| asked.wants(row));
    asked.sort(&mut rows);
    let pages = rows.len().div_ceil(SHOWN).max(1);
    let page = asked.page.clamp(1, pages);
    let before = (page - 1) * SHOWN;
    Outlook {
        created: report.created,
        changed: report.changed,
        same: report.same,
        refused: report.refused,
        asked: rows.len(),
        wrong_first: asked.order.is_empty(),
        before,
        previous: page.checked_sub(1).filter(|page| *page > 0),
        next: Some(page + 1).filter(|page| *page <= pages),
        rows: rows.into_iter().skip(before).take(SHOWN).map(row).collect(),
    }
}

fn row(row: ImportedRow) -> OutlookRow {
    let fate = match (row.error, row.fate.as_str()) {
        (Some(error), _) => Fate::Refused(error),
        (None, "create") => Fate::Created,
        (None, "change") => Fate::Changed,
        (None, _) => Fate::Same,
    };
    OutlookRow {
        line: row.line,
        what: row.what,
        owner: row.owner.unwrap_or_default(),
        fate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_character_tells_the_kind_of_text() {
        for (text, csv) in [
            ("{\"address\": 1}", false),
            ("\r\n  [1]", false),
            ("address,owner\n", true),
            ("\"address\",\"owner\"", true),
            ("", true),
        ] {
            assert_eq!(is_csv(text.as_bytes()), csv, "{text}");
        }
    }

    #[test]
    fn rows_come_pasted_or_in_a_file() {
        for (query, text, wrong) in [
            ("rows=%EF%BB%BFa%0Ab", Some("a\nb"), None),
            ("rows=+&file=a", Some("a"), None),
            ("rows=a&file=b", None, Some("file")),
            ("rows=+%0A", None, Some("rows")),
        ] {
            let mut form = form();
            let found = chosen(&mut form, &Fields::parse(query.as_bytes()));
            assert_eq!(found.as_deref(), text, "{query}");
            let input = form.inputs.iter().find(|input| input.field.error.is_some());
            assert_eq!(input.map(|input| input.name), wrong, "{query}");
        }
    }

    #[test]
    fn wrong_rows_are_shown_first_and_all_of_them_page_by_page() {
        let rows = (1..=250).map(|line| ImportedRow {
            line,
            what: format!("lease 10.0.0.{}", 251 - line),
            owner: (line % 2 == 1).then(|| format!("fipd/host/lab/{line}")),
            fate: "create".to_owned(),
            error: (line == 249).then(|| "held".to_owned()),
            ..ImportedRow::default()
        });
        let report = ImportReport {
            created: 249,
            refused: 1,
            rows: rows.collect(),
            ..ImportReport::default()
        };
        let page = |page, order: &str, only: &str| {
            let asked = AskedRows {
                order: order.to_owned(),
                only: only.to_owned(),
                page,
            };
            outlook(report.clone(), &asked)
        };
        let lines = |rows: &Outlook| rows.rows.iter().map(|row| row.line).collect::<Vec<_>>();
        let first = page(1, "", "");
        assert_eq!(
            (first.rows.len(), &lines(&first)[..3]),
            (SHOWN, &[249, 1, 2][..])
        );
        assert_eq!((first.previous, first.next), (None, Some(2)));
        let last = page(3, "", "");
        assert_eq!((last.before, last.rows.len()), (200, 50));
        assert_eq!((last.previous, last.next), (Some(2), None));
        assert_eq!(last.rows[49].line, 250);
        assert_eq!(page(0, "", ""), first);
        assert_eq!(page(99, "", ""), last);
        assert_eq!(lines(&page(1, "line", ""))[..3], [1, 2, 3]);
        assert_eq!(lines(&page(1, "", "wrong")), [249]);
        assert_eq!(page(1, "", "create").asked, 249);
        assert_eq!(lines(&page(1, "", "same")), [0; 0]);
        assert_eq!(
            lines(&page(1, "row", ""))[..3],
            [250, 249, 248],
            "lease 10.0.0.1 first"
        );
        assert_eq!(
            lines(&page(1, "owner", ""))[..2],
            [2, 4],
            "those of none first"
        );
    }
}
