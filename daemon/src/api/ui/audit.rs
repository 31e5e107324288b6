//! The audit log, newest first, and the way to the rows that somebody looks for.

use axum::{extract::State, response::IntoResponse as _};
use fipd_core::{Action, AddressSpec, Ledger, Timestamp};
use fipd_web_ui::{AuditPage, Column, Direction, Form, Input, InputKind, Nav, Pager, count, links};
use http::{StatusCode, header};
use tokio_util::sync::CancellationToken;

use super::{
    fields::{Fields, with_query},
    forms::{optional, parsed},
    list::{Listing, Order},
    page::{Answered, Failure, harden, page},
    views,
};
use crate::api::ui::session_extract::{Query, Visitor};
use crate::{
    api::rest::{
        audit::{Way, search_along},
        export::Export,
    },
    clock,
    store::{AuditFilter, AuditFound},
};

/// Rows of one page.
const PAGE: usize = 50;
const ORDERS: &[[Order; 2]] = &[Order::down_first("at", "newest first", "oldest first")];

pub async fn list(visitor: Visitor, Query(query): Query) -> Answered {
    let mut list = listing(&query);
    let filter = visitor.read(|ledger| filter(ledger, &mut list.filters));
    // Which number a page begins behind.
    let (key, way) = match list.order.direction {
        Direction::Down => ("before", Way::Down),
        Direction::Up => ("after", Way::Up),
    };
    let behind = query.get(key).parse().ok();
    let found = match &filter {
        Some(filter) => search_along(&visitor.ipam, filter, (way, behind), PAGE)
            .await
            .map_err(|error| unreadable(&visitor, &error))?,
        None => AuditFound::default(),
    };
    let pager = Pager {
        first: behind.map(|_| list.link(&[])),
        next: found
            .next
            .map(|next| list.link(&[(key, &next.to_string())])),
        label: label(&found),
    };
    let rows = visitor.read(|ledger| {
        let entries = found.entries.iter();
        entries
            .map(|(_, entry)| views::audit_row(ledger, entry))
            .collect()
    });
    let csv = filter.map(|_| {
        let inputs = list.filters.inputs.iter();
        let said = inputs.filter(|input| input.name != "sort");
        let pairs: Vec<_> = said
            .map(|input| (input.name, input.field.value.as_str()))
            .collect();
        with_query(links::AUDIT_CSV, &pairs)
    });
    let others = ["Who", "What", "Address", "Pool", "Owner", "Detail"].map(Column::plain);
    Ok(page(&AuditPage {
        shell: visitor.shell(Nav::Audit),
        csv,
        columns: [list.column("at", "Time")]
            .into_iter()
            .chain(others)
            .collect(),
        filters: list.filters,
        rows,
        pager,
    }))
}

/// The log as the query asks for it.
fn listing(query: &Fields) -> Listing<'static> {
    let inputs = vec![
        Input::new("actor", "Who").note("user:ann"),
        Input::new("action", "What").kind(InputKind::any_word(Action::WORDS)),
        Input::new("pool", "Pool"),
        Input::new("address", "Address").note("10.0.0.7, or a prefix"),
        Input::new("from", "From (UTC)").kind(InputKind::Time),
        Input::new("to", "To (UTC)").kind(InputKind::Time),
    ];
    Listing::new(links::AUDIT, inputs, ORDERS.as_flattened(), query)
}

/// What was asked for; `None` with the mistakes noted beside the filters.
fn filter(ledger: &Ledger, form: &mut Form) -> Option<AuditFilter> {
    let actor = optional(form.value("actor"));
    let action = parsed(form, "action", |word| {
        word.parse::<Action>()
            .map_err(|_| "There is no such action.")
    });
    let pool = parsed(form, "pool", |name| {
        ledger.find_pool(name).map(|pool| pool.id)
    });
    let addresses = parsed(form, "address", str::parse::<AddressSpec>);
    let time = |text: &str| {
        clock::parse_typed(text).ok_or("Write a day and a time, such as 2026-03-01T12:00.")
    };
    let from = parsed(form, "from", time);
    // To the end of the second that was said.
    let to = parsed(form, "to", |text| {
        time(text).map(|to| Timestamp(to.0 + 999))
    });
    Some(AuditFilter {
        actor: actor.map(Into::into),
        action: action?,
        touches: addresses?.map(|spec| spec.span()),
        pool: pool?,
        from: from?,
        to: to?,
        ..AuditFilter::default()
    })
}

fn label(found: &AuditFound) -> String {
    let ends = found.entries.first().zip(found.entries.last());
    match ends {
        Some(((first, _), (last, _))) => {
            format!("Rows {} to {}", count(first), count(last))
        }
        None if found.next.is_some() => {
            "Nothing so far; the next page looks on from there".to_owned()
        }
        None => String::new(),
    }
}

/// What the page says while the log cannot be read.
fn unreadable(visitor: &Visitor, error: &str) -> Failure {
    let what = format!("The audit log cannot be read: {error}.");
    let next = "Everything else works. Try again in a moment.";
    visitor.failure(StatusCode::SERVICE_UNAVAILABLE, what, next)
}

/// The log as CSV, with the filters of its page, for as long as the reader reads.
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
    let body = Export::of_log(visitor.requester(), stop, filter)
        .body()
        .await;
    let body = body.map_err(|problem| unreadable(&visitor, &problem.detail))?;
    let headers = [
        (
            header::CONTENT_TYPE,
            "text/csv; charset=utf-8; header=present",
        ),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"fipd-audit.csv\"",
        ),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let mut response = (headers, body).into_response();
    harden(&mut response);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use fipd_core::Span;

    use super::*;

    #[test]
    fn filters_are_read_and_mistakes_stand_beside_them() {
        let ledger = Ledger::new();
        let read = |query: &str| {
            let mut form = listing(&Fields::parse(query.as_bytes())).filters;
            (filter(&ledger, &mut form), form)
        };
        let (found, _) = read(
            "actor=ann&action=released&address=::ffff:10.0.0.7&from=2026-03-01T12:00&to=2026-03-02",
        );
        let found = found.unwrap();
        let address = "10.0.0.7".parse().unwrap();
        assert_eq!(found.touches, Some(Span::single(address)));
        assert_eq!(found.action, Some(Action::Released));
        assert!(found.from < found.to);
        assert_eq!(read("").0, Some(AuditFilter::default()));
        for (query, name) in [
            ("action=nonsense", "action"),
            ("address=10.0.0", "address"),
            ("pool=nope", "pool"),
            ("from=yesterday", "from"),
            ("to=%00", "to"),
        ] {
            let (found, form) = read(query);
            assert_eq!(found, None, "{query}");
            let wrong = form.inputs.iter().find(|input| input.field.error.is_some());
            assert_eq!(wrong.map(|input| input.name), Some(name), "{query}");
        }
    }
}
