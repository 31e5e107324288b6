//! Where copies of the address book are made and had, and how they are brought back.

use std::time::Duration;

use axum::{Json, extract::State, response::Response};
use fipd_web_ui::{BackupPage, Column, CopyRow, Form, Input, Nav, links};
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
        rest::backups,
        wire::LiftHold,
    },
    backups::{Backups, Copy},
    clock,
};

/// Copies of one page.
const PAGE: usize = 50;
const ORDERS: &[[Order; 2]] = &[
    Order::down_first("made", "newest first", "oldest first"),
    Order::down_first("size", "largest first", "smallest first"),
    Order::down_first("tried", "last tried first", "never tried first"),
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
    State(backups): State<Backups>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    Ok(room(&backups, &visitor, StatusCode::OK, &query, lifting()).await)
}

/// Makes a copy in the directory of copies.
pub async fn make(State(backups): State<Backups>, posted: SubmittedForm) -> Answered {
    let SubmittedForm { visitor, .. } = posted;
    let (good, text) = match backups::make(State(backups.clone())).await {
        Ok((_, Json(copy))) => (true, format!("{} was made and checked.", copy.name)),
        Err(problem) => (false, format!("No copy was made: {}.", problem.detail)),
    };
    Ok(visitor.redirect_with(links::BACKUP, good, text))
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
    Ok(visitor.redirect_with(links::BACKUP, good, text))
}

/// Where the form of the hold is, for who comes back to it from the login.
pub async fn to_hold(_: Visitor) -> Answered {
    Ok(go_to(links::BACKUP))
}

/// Ends the hold that a restore began.
pub async fn lift(
    State(backups): State<Backups>,
    SubmittedForm { visitor, fields }: SubmittedForm,
) -> Answered {
    let mut form = lifting();
    typed(&mut form, &fields);
    let body = Body(LiftHold {
        reason: form.value("reason").to_owned(),
    });
    let lifted = backups::lift_hold(State(visitor.ipam.clone()), visitor.caller(), body);
    if let Err(problem) = lifted.await {
        let status = blame(&mut form, &problem, WORDS);
        return Ok(room(&backups, &visitor, status, &Fields::default(), form).await);
    }
    Ok(visitor.done(links::BACKUP, "Free addresses are given again."))
}

fn lifting() -> Form {
    let reason = Input::new("reason", "Reason").note("for the audit log");
    let reason = reason.required().hint(
        "Why free addresses are certainly free, such as: everything that uses one was adopted.",
    );
    Form {
        inputs: vec![reason],
        ..Form::confirm(links::BACKUP_HOLD, "Give free addresses again")
    }
}

async fn room(
    backups: &Backups,
    visitor: &Visitor,
    status: StatusCode,
    query: &Fields,
    lifting: Form,
) -> Response {
    let listing = backups.clone();
    let listed = tokio::task::spawn_blocking(move || listing.list()).await;
    let (mut copies, error) = match listed {
        Ok(Ok(copies)) => (copies, String::new()),
        Ok(Err(error)) => (
            Vec::new(),
            format!("The directory cannot be read: {error}."),
        ),
        Err(ended) => (Vec::new(), ended.to_string()),
    };
    let inputs = vec![Input::new("filter", "File contains")];
    let list = Listing::new(links::BACKUP, inputs, ORDERS.as_flattened(), query);
    let newest = copies.iter().max_by_key(|copy| copy.created);
    let newest = newest.map_or_else(String::new, |copy| copy.name.clone());
    copies.retain(|copy| copy.name.contains(list.filter("filter")));
    let tried = |copy: &Copy| copy.drill.as_ref().map(|drill| drill.at);
    let (copies, pager) = match list.order.key {
        "size" => list.page_by(copies, PAGE, |copy| copy.bytes),
        "tried" => list.page_by(copies, PAGE, tried),
        _ => list.page_by(copies, PAGE, |copy| copy.created),
    };
    let hold = visitor.read(|ledger| ledger.restore_hold());
    let now = clock::rfc3339(clock::now());
    let day = now.split('T').next().unwrap_or_default();
    let disk = visitor.ipam.reader().disk().ok();
    let page = BackupPage {
        shell: visitor.shell(Nav::Backup),
        file: format!("fipd-{day}.redb"),
        room: disk.map_or_else(String::new, |(used, _)| size(used)),
        directory: backups.schedule().directory.display().to_string(),
        plan: plan(backups),
        failed: (backups.standing().failure).map(|(at, why)| (views::moment(at), why)),
        error,
        columns: vec![
            Column::plain("File"),
            list.column("made", "Made"),
            list.column("tried", "Restore test"),
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
        problem: (copy.drill.as_ref()).and_then(|drill| drill.problems.first().cloned()),
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
