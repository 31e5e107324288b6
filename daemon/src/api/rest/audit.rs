//! `/api/v1/audit`: who did what, and the search that the pages use too.

use std::time::{Duration, Instant};

use axum::Json;
use fipd_core::{Action, AuditEntry, Ledger, Timestamp};

use super::admin::blocking;
use crate::{
    api::{
        access::{permit::Requester, visible::VisibleLedger},
        convert::{self, given},
        extract::{Query, in_document},
        page::{self, Ask},
        problem::{Code, Problem},
        wire::{AuditPage, AuditQuery, AuditView},
    },
    clock,
    ipam::Ipam,
    store::{AuditFilter, AuditFound, ReadError},
};

/// Searches of one request.
const SCANS: usize = 20;
/// Rows of the log that are read at once.
const STEP: usize = 2_000;
/// How long one search looks for rows before it answers what it has.
const PATIENCE: Duration = Duration::from_millis(25);

/// Who did what, newest first.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(AuditQuery),
    responses((status = 200, body = AuditPage), (status = 404, body = Problem)))]
pub async fn audit(
    requester: Requester,
    Query(query): Query<AuditQuery>,
) -> Result<Json<AuditPage>, Problem> {
    let ask = Ask::<u64>::new(query.limit, query.cursor.as_deref())?;
    in_document("before", query.before, "the number of an entry")?;
    let filter = requester.read(|visible| filter(visible, &query))?;
    let (mut before, limit) = (ask.after.or(query.before), ask.limit);
    let mut entries = Vec::new();
    for _ in 0..SCANS {
        let wanted = limit - entries.len();
        let (found, next) = rows(&requester, &filter, before, wanted).await?;
        entries.extend(found);
        before = next;
        if before.is_none() || entries.len() >= limit {
            break;
        }
    }
    let next = before.as_ref().map(page::text);
    Ok(Json(AuditPage { entries, next }))
}

/// Of the wanted entries before that number, at most `limit`, those that the caller sees, newest first, and where the
/// next begin.
pub(in crate::api) async fn rows(
    requester: &Requester,
    filter: &AuditFilter,
    before: Option<u64>,
    limit: usize,
) -> Result<(Vec<AuditView>, Option<u64>), Problem> {
    let found = search(&requester.ipam, filter, before, limit).await;
    let found = found.map_err(|error| Problem::new(Code::Unavailable, error))?;
    let entries = requester.read(|visible| {
        let entries = found.entries.iter();
        entries
            .filter(|(_, entry)| visible.has_entry(entry))
            .map(|(number, entry)| view(visible.ledger, *number, entry))
            .collect()
    });
    Ok((entries, found.next))
}

/// Which way the log is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Newest first.
    Down,
    /// Oldest first.
    Up,
}

/// Wanted rows below number `before`, newest first, as [`search_along`].
pub async fn search(
    ipam: &Ipam,
    filter: &AuditFilter,
    before: Option<u64>,
    limit: usize,
) -> Result<AuditFound, String> {
    search_along(ipam, filter, (Way::Down, before), limit).await
}

/// Wanted rows behind a number, at most `limit`, as far as they are found in a short time. Reads the file on a thread that may block.
pub async fn search_along(
    ipam: &Ipam,
    filter: &AuditFilter,
    (way, behind): (Way, Option<u64>),
    limit: usize,
) -> Result<AuditFound, String> {
    let (reader, filter) = (ipam.reader().clone(), filter.clone());
    let read = move || {
        let started = Instant::now();
        let search = |behind, limit| match way {
            Way::Down => reader.audit_search(&filter, behind, limit, STEP),
            Way::Up => reader.audit_search_up(&filter, behind, limit, STEP),
        };
        let mut found = search(behind, limit)?;
        while found.next.is_some() && found.entries.len() < limit && started.elapsed() < PATIENCE {
            let wanted = limit - found.entries.len();
            let more = search(found.next, wanted)?;
            found.entries.extend(more.entries);
            found.next = more.next;
        }
        Ok::<_, ReadError>(found)
    };
    match blocking(read).await {
        Ok(found) => found.map_err(|error| error.to_string()),
        Err(problem) => Err(problem.detail.into()),
    }
}

fn filter(visible: VisibleLedger<'_>, query: &AuditQuery) -> Result<AuditFilter, Problem> {
    let pool = |name: &str| {
        let found = visible.pool_id(name);
        found.map_err(|problem| problem.about("pool", name))
    };
    let filter = AuditFilter {
        actor: given(&query.actor, |text| convert::text("actor", text))?,
        action: given(&query.action, known_action)?,
        network: given(&query.network, |name| Ok(visible.network(name)?.id))?,
        pool: given(&query.pool, pool)?,
        touches: given(&query.address, |text| convert::span("address", text))?,
        owner: given(&query.owner, |text| convert::owner(visible.ledger, text))?,
        from: given(&query.from, |text| time("from", text))?,
        to: given(&query.to, |text| time("to", text))?,
    };
    match (filter.from, filter.to) {
        (Some(from), Some(to)) if from > to => {
            let text = query.from.as_deref().unwrap_or_default();
            Err(Problem::invalid(
                "from",
                text,
                "a time that is not after `to`",
            ))
        }
        _ => Ok(filter),
    }
}

fn known_action(word: &str) -> Result<Action, Problem> {
    word.parse()
        .map_err(|_| Problem::invalid("action", word, Action::WORDS.join(", ")))
}

fn time(field: &str, text: &str) -> Result<Timestamp, Problem> {
    let allowed = "a time such as 2026-03-01T12:00:00Z, or a day such as 2026-03-01";
    clock::parse_typed(text).ok_or_else(|| Problem::invalid(field, text, allowed))
}

/// An entry with the names that things have now.
pub fn view(ledger: &Ledger, number: u64, entry: &AuditEntry) -> AuditView {
    AuditView {
        number,
        at: clock::rfc3339(entry.at),
        actor: entry.actor.to_string(),
        action: entry.action.to_string(),
        network: entry.network.map(|id| convert::network_name(ledger, id)),
        address: entry.address,
        length: entry.length,
        pool: entry.pool.map(|id| convert::pool_name(ledger, id)),
        owner: (entry.identity.as_ref()).map(|identity| convert::owner_text(ledger, identity)),
        detail: entry.detail.to_string(),
    }
}

/// The same as JSON.
pub fn json(ledger: &Ledger, number: u64, entry: &AuditEntry) -> serde_json::Value {
    serde_json::to_value(view(ledger, number, entry)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use fipd_core::{Scope, Span};

    use super::*;

    #[test]
    fn mistakes_name_their_field() {
        let (ledger, scope) = (Ledger::new(), Scope::default());
        let read = |query: &str| {
            let uri = format!("/?{query}").parse().unwrap();
            let axum::extract::Query(query) = axum::extract::Query::try_from_uri(&uri).unwrap();
            let (ledger, scope) = (&ledger, &scope);
            filter(VisibleLedger { ledger, scope }, &query)
        };
        assert_eq!(read("").unwrap(), AuditFilter::default());
        let query = "address=::ffff:10.0.0.7&owner=fipd/Host/lab/a&action=released&actor=ann&from=2026-03-01&to=2026-03-01T00:00:00Z";
        let found = read(query).unwrap();
        let address = "10.0.0.7".parse().unwrap();
        assert_eq!(found.touches, Some(Span::single(address)));
        assert_eq!(found.owner, Some("fipd/Host/lab/a".parse().unwrap()));
        assert_eq!(
            (found.action, found.from),
            (Some(Action::Released), found.to)
        );
        for (query, status) in [
            ("address=10.0.0", 422),
            ("address=2001:db8::7/64", 422),
            ("owner=me", 422),
            ("action=nonsense", 422),
            ("actor=%00", 422),
            ("from=yesterday", 422),
            ("to=0", 422),
            ("from=2026-03-02&to=2026-03-01", 422),
            ("pool=nope", 404),
            ("network=nope", 404),
        ] {
            let problem = read(query).unwrap_err();
            let field = query.split('=').next();
            assert_eq!(
                (problem.status, problem.field.as_deref()),
                (status, field),
                "{query}"
            );
        }
    }
}
