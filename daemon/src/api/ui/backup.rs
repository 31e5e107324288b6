//! Where copies of the address book are made and had, and how they are brought back.

use std::time::Duration;

use axum::{Json, extract::State, response::Response};
use fipd_web_ui::{BackupPage, Column, CopyRow, Form, Input, Moment, Nav, links};
use http::StatusCode;

use super::{
    change::WORDS,
    dashboard::size,
    fields::{Fields, with_query},
    forms::{blame, typed},
    list::{Listing, Order},
    page::{Answered, go_to, page_as},
    session_extract::{Query, SubmittedForm, Visitor},
    views,
};
use crate::{
    api::{
        extract::{Body, Path},
        rest::backups::{self, copy},
        wire::LiftHold,
    },
    backups::{BackupStatus, Backups, Copy},
    clock,
    ipam::Ipam,
};

/// Copies of one page.
const PAGE: usize = 50;
const ORDERS: &[Order] = &[
    Order::down("made", "newest first"),
    Order::up("made", "oldest first"),
    Order::down("size", "largest first"),
    Order::up("size", "smallest first"),
    Order::down("tried", "last tried first"),
    Order::up("tried", "never tried first"),
];
/// What is exported: label and name.
const EXPORTS: [(&str, &str); 5] = [
    ("Leases", "leases"),
    ("Pools", "pools"),
    ("Networks", "networks"),
    ("Quotas", "quotas"),
    ("Audit log", "audit"),
];

pub async fn show(
    State(ipam): State<Ipam>,
    State(backups): State<Backups>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    Ok(room(&ipam, &backups, &visitor, StatusCode::OK, &query, lifting()).await)
}

/// Makes a copy in the directory of copies.
pub async fn make(State(backups): State<Backups>, posted: SubmittedForm) -> Answered {
    let SubmittedForm { visitor, .. } = posted;
    let (good, text) = match copy(&backups).await {
        Ok(copy) => (true, format!("{} was made and checked.", copy.name)),
        Err(problem) => (false, format!("No copy was made: {}.", problem.detail)),
    };
    visitor.tell(good, text, None);
    Ok(go_to(links::BACKUP))
}

/// Restores a copy on trial.
pub async fn drill(State(backups): State<Backups>, posted: SubmittedForm) -> Answered {
    let SubmittedForm { visitor, fields } = posted;
    let name = fields.get("name");
    let tried = backups::drill(State(backups.clone()), Path(name.to_owned())).await;
    let (good, text) = match tried.map(|Json(drill)| drill.problems.into_iter().next()) {
        Ok(None) => (
            true,
            format!("{name} was restored on trial: it is in order."),
        ),
        Ok(Some(problem)) => (false, format!("{name} cannot be restored: {problem}.")),
        Err(problem) => (false, format!("Nothing was tried out: {}.", problem.detail)),
    };
    visitor.tell(good, text, None);
    Ok(go_to(links::BACKUP))
}

/// Where the form of the hold is, for who comes back to it from the login.
pub async fn to_hold(_: Visitor) -> Answered {
    Ok(go_to(links::BACKUP))
}

/// Ends the hold that a restore began.
pub async fn lift(
    State(ipam): State<Ipam>,
    State(backups): State<Backups>,
    posted: SubmittedForm,
) -> Answered {
    let SubmittedForm { visitor, fields } = posted;
    let mut form = lifting();
    typed(&mut form, &fields);
    let body = Body(LiftHold {
        reason: form.value("reason").to_owned(),
    });
    let lifted = backups::lift(State(ipam.clone()), visitor.caller(), body);
    if let Err(problem) = lifted.await {
        let status = blame(&mut form, &problem, WORDS);
        return Ok(room(&ipam, &backups, &visitor, status, &Fields::default(), form).await);
    }
    visitor.tell(true, "Free addresses are given again.", None);
    Ok(go_to(links::BACKUP))
}

fn lifting() -> Form {
    let reason = Input::new("reason", "Reason").note("for the audit log");
    Form {
        target: links::BACKUP_HOLD.to_owned(),
        inputs: vec![reason.required().hint(
            "Why free addresses are certainly free, such as: everything that uses one was adopted.",
        )],
        button: "Give free addresses again".to_owned(),
        danger: true,
        ..Form::default()
    }
}

async fn room(
    ipam: &Ipam,
    backups: &Backups,
    visitor: &Visitor,
    status: StatusCode,
    query: &Fields,
    lifting: Form,
) -> Response {
    let listing = backups.clone();
    let listed = tokio::task::spawn_blocking(move || listing.list()).await;
    let mut error = String::new();
    let mut copies = match listed {
        Ok(Ok(copies)) => copies,
        Ok(Err(unreadable)) => {
            error = format!("The directory cannot be read: {unreadable}.");
            Vec::new()
        }
        Err(ended) => {
            error = ended.to_string();
            Vec::new()
        }
    };
    let inputs = vec![Input::new("filter", "File contains")];
    let list = Listing::new(links::BACKUP, inputs, ORDERS, query);
    let newest = copies.iter().max_by_key(|copy| copy.created);
    let newest = newest.map_or_else(String::new, |copy| copy.name.clone());
    copies.retain(|copy| copy.name.contains(list.filter("filter")));
    let tried = |copy: &Copy| copy.drill.as_ref().map(|drill| drill.at);
    let (copies, pager) = match list.order.key {
        "size" => list.page_by(copies, |copy| copy.bytes, PAGE, query),
        "tried" => list.page_by(copies, tried, PAGE, query),
        _ => list.page_by(copies, |copy| copy.created, PAGE, query),
    };
    let hold = ipam.read(|ledger| ledger.restore_hold());
    let now = clock::rfc3339(clock::now());
    let day = now.split('T').next().unwrap_or_default();
    let disk = ipam.reader().disk().ok();
    let page = BackupPage {
        shell: visitor.shell(Nav::Backup),
        file: format!("fipd-{day}.redb"),
        room: disk.map_or_else(String::new, |(used, _)| size(used)),
        directory: backups.schedule().directory.display().to_string(),
        plan: plan(backups),
        failed: failure(backups.standing()),
        error,
        columns: vec![
            Column::plain("File"),
            list.column("made", "Made"),
            list.column("tried", "Restored on trial"),
            list.numbers("size", "Size"),
        ],
        filters: list.filters,
        newest,
        copies: copies.iter().map(row).collect(),
        pager,
        held_until: hold.map(|hold| views::moment(hold.until)),
        lifting,
        exports: exports(),
    };
    page_as(status, &page)
}

fn failure(standing: BackupStatus) -> Option<(Moment, String)> {
    let (at, why) = standing.failure?;
    Some((views::moment(at), why))
}

/// `A copy is made every 24 h; the newest 7 are kept.`
fn plan(backups: &Backups) -> String {
    let schedule = backups.schedule();
    let keep = schedule.keep;
    match schedule.every {
        Some(every) => format!(
            "A copy is made every {}; the newest {keep} are kept.",
            spoken(every)
        ),
        None => format!("Copies are made only when asked; the newest {keep} are kept."),
    }
}

fn spoken(every: Duration) -> String {
    let seconds = every.as_secs();
    let units = [(86_400, "days"), (3_600, "h"), (60, "min")];
    let whole = units
        .iter()
        .find(|(unit, _)| seconds > *unit && seconds.is_multiple_of(*unit));
    match whole {
        Some((unit, name)) => format!("{} {name}", seconds / unit),
        None if seconds == 86_400 => "24 h".to_owned(),
        None => format!("{seconds} s"),
    }
}

fn row(copy: &Copy) -> CopyRow {
    CopyRow {
        name: copy.name.clone(),
        link: format!("/api/v1/backups/{}", copy.name),
        made: views::moment(copy.created),
        size: size(copy.bytes),
        tried: copy.drill.as_ref().map(|drill| views::moment(drill.at)),
        problem: copy
            .drill
            .as_ref()
            .and_then(|drill| drill.problems.first().cloned()),
    }
}

fn exports() -> Vec<(&'static str, &'static str, String)> {
    let formats = [("CSV", "csv"), ("JSON Lines", "jsonl")];
    let links = EXPORTS.iter().flat_map(|(label, what)| {
        formats.map(|(name, format)| {
            let pairs = [("what", *what), ("format", format)];
            (*label, name, with_query("/api/v1/export", &pairs))
        })
    });
    links.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_copies_are_spoken() {
        for (seconds, text) in [
            (90, "90 s"),
            (600, "10 min"),
            (7_200, "2 h"),
            (86_400, "24 h"),
            (604_800, "7 days"),
        ] {
            assert_eq!(spoken(Duration::from_secs(seconds)), text);
        }
    }
}
