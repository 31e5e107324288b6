//! `/api/v1/pools/{name}/history`.

use axum::Json;
use fipd_core::{Hour, Rollup};

use super::admin;
use crate::api::{
    access::permit::Requester,
    convert::given,
    extract::{Path, Query},
    page::{self, Ask},
    problem::{Code, Problem},
    wire::{Count, HistoryPage, HistoryQuery, HistoryView},
};
use crate::{clock, store::HistoryAsk};

/// How full a pool was, by the hour or by the day. Hours are kept for 35 days and days for 400, unless `[history]` of the
/// configuration says otherwise.
#[utoipa::path(get, path = "/api/v1/pools/{name}/history", tag = "pools",
    params(("name" = String, Path, description = "slashes as %2F"), HistoryQuery),
    responses((status = 200, body = HistoryPage), (status = 409, body = Problem)))]
pub async fn history(
    requester: Requester,
    Path(name): Path<String>,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<HistoryPage>, Problem> {
    let last = Hour::of(requester.ipam.now()).before(1);
    let pool = requester.read(|visible| visible.pool_id(&name))?;
    let span = Span::of(&query, last)?;
    let ask = Ask::<u32>::new(query.limit, query.cursor.as_deref())?;
    let ask = HistoryAsk {
        pool,
        from: span.from.max(Hour(ask.after.unwrap_or(0))),
        to: span.to,
        daily: span.daily,
        limit: ask.limit,
    };
    let reader = requester.ipam.reader().clone();
    let read = move || Ok((reader.row_before(ask.pool, ask.from)?, reader.history(ask)?));
    let read: Result<_, crate::store::ReadError> = admin::blocking(read).await?;
    let (before, (rows, next)) =
        read.map_err(|error| Problem::new(Code::Unavailable, error.to_string()))?;
    let shown = |row: &Rollup| view(row, span.daily);
    Ok(Json(HistoryPage {
        before: before.as_ref().map(shown),
        rows: rows.iter().map(shown).collect(),
        next: next.map(|hour| page::text(&hour.0)),
    }))
}

struct Span {
    from: Hour,
    to: Hour,
    daily: bool,
}

impl Span {
    /// `last`: the last hour that is over.
    fn of(query: &HistoryQuery, last: Hour) -> Result<Self, Problem> {
        let daily = match query.step.as_deref() {
            None | Some("hour") => false,
            Some("day") => true,
            Some(other) => return Err(Problem::invalid("step", other, "hour or day")),
        };
        let time = |field: &str, text: &Option<String>| {
            given(text, |text| {
                let hour = clock::parse_rfc3339(text).map(Hour::of);
                let allowed = "RFC 3339, as 2026-03-01T12:00:00Z";
                hour.ok_or_else(|| Problem::invalid(field, text, allowed))
            })
        };
        let to = time("to", &query.to)?.unwrap_or(last);
        let back = if daily { 90 } else { 7 };
        let from = time("from", &query.from)?.unwrap_or(to.before(back * 24 - 1));
        if from > to {
            let from = query.from.as_deref().unwrap_or_default();
            return Err(Problem::invalid("from", from, "a time before `to`"));
        }
        let (from, to) = match daily {
            true => (from.day(), Hour(to.day().0.saturating_add(23))),
            false => (from, to),
        };
        Ok(Self { from, to, daily })
    }
}

fn view(row: &Rollup, daily: bool) -> HistoryView {
    let hour = if daily { row.hour.day() } else { row.hour };
    HistoryView {
        at: clock::rfc3339(hour.begin()),
        size: Count(row.size),
        used: Count(row.used.into()),
        quarantined: Count(row.quarantined.into()),
        highest: Count(row.highest.into()),
        given: row.given,
        released: row.released,
        refused: row.refused,
    }
}
