//! `/api/v1/changes`: what changed since a revision, as a page or as server-sent events.
//!
//! Each stream has a task that reads the change log, and a short queue to the connection. A client that does not empty the
//! queue loses the stream and not the ledger its time.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{FromRef, State},
    response::{
        IntoResponse as _, Response,
        sse::{Event, Sse},
    },
};
use fipd_core::{Actor, Change, LeaseKey, LeasePrefix, Ledger, PoolId, TooOld};
use futures::{Stream, stream};
use http::{HeaderMap, header};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{
        Api,
        access::{
            auth::{Caller, Via},
            visible::VisibleLedger,
        },
        convert,
        extract::{Query, header_text, in_document},
        page::{self, Ask},
        problem::{Code, Problem},
        ui::Sessions,
        wire::{ChangeView, ChangedLease, ChangedPool, ChangesPage, ChangesQuery},
    },
    ipam::Ipam,
};

/// Streams that are open at once.
const STREAMS: usize = 128;
/// The same of one token, user or uid at the socket, so that none keeps all others out.
const STREAMS_OF_ONE: usize = STREAMS / 4;
/// Events that wait for one client.
const QUEUE: usize = 64;
/// How long a client may take until its queue has room.
const PATIENCE: Duration = Duration::from_secs(10);
/// A sign of life where nothing happens.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// What a stream follows, and what ends it.
#[derive(Clone)]
pub struct Followed {
    ipam: Ipam,
    sessions: Arc<Sessions>,
    stop: CancellationToken,
}

impl FromRef<Api> for Followed {
    fn from_ref(api: &Api) -> Self {
        Self {
            ipam: api.ipam.clone(),
            sessions: api.sessions.clone(),
            stop: api.stop.clone(),
        }
    }
}

/// Who has how many streams open; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Streams(Arc<Mutex<BTreeMap<Actor, usize>>>);

/// Of one stream, while it is open.
struct OpenStream {
    streams: Streams,
    of: Actor,
}

/// Some changes, the revision up to which they are all, and whether more are known.
type Batch = (Vec<ChangeView>, u64, bool);

/// What changed after a revision, as a page or, with `accept: text/event-stream`, as events for as long as the client listens.
/// An event `reset` says that the client has missed changes and is to read everything anew, an event `end` why the stream
/// ends. `Last-Event-ID` goes before `since`.
#[utoipa::path(get, path = "/api/v1/changes", tag = "changes", params(ChangesQuery, ("Last-Event-ID" = Option<u64>, Header)),
    responses((status = 200, content((ChangesPage = "application/json"), (String = "text/event-stream"))),
        (status = 429, body = Problem)))]
pub async fn changes(
    State(followed): State<Followed>,
    State(streams): State<Streams>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<ChangesQuery>,
) -> Result<Response, Problem> {
    let ask = Ask::<u64>::new(query.limit, query.cursor.as_deref())?;
    let last = last_event(&headers)?;
    for (field, since) in [("Last-Event-ID", last), ("since", query.since)] {
        in_document(field, since, "a revision")?;
    }
    let since = last.or(ask.after).or(query.since);
    let since = since.unwrap_or_else(|| followed.ipam.read(Ledger::revision));
    if header_text(&headers, header::ACCEPT).contains("text/event-stream") {
        return events(followed, &streams, caller, headers, since);
    }
    let page = match batch(&followed.ipam, &caller, since, ask.limit) {
        Ok((changes, revision, more)) => ChangesPage {
            changes,
            revision,
            reset: false,
            next: more.then(|| page::text(&revision)),
        },
        Err(revision) => ChangesPage {
            changes: Vec::new(),
            revision,
            reset: true,
            next: None,
        },
    };
    Ok(Json(page).into_response())
}

fn last_event(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    let number = text.parse().map(Some);
    number.map_err(|_| Problem::invalid("Last-Event-ID", text, "the id of an earlier event"))
}

/// What the caller sees of the changes after `since`; the latest revision where they are not known. Looks at `limit` changes
/// and about as many leases as may be looked at at once. A first change of more comes alone, read in parts.
fn batch(ipam: &Ipam, caller: &Caller, since: u64, limit: usize) -> Result<Batch, u64> {
    let changes =
        ipam.read(
            |ledger| match ledger.changes_page(since, limit.saturating_add(1)) {
                // A revision of an earlier run of the daemon may be one that this run has not reached.
                Ok(changes) if since <= ledger.revision() => Ok(changes),
                Ok(_) | Err(TooOld { .. }) => Err(ledger.revision()),
            },
        )?;
    let large = |one: &&Arc<Change>| one.leases.len().max(one.pools.len()) > Ledger::SCAN;
    if let Some(first) = changes.first().filter(large) {
        let parts = first.parts(Ledger::SCAN).into_iter();
        let views = parts.filter_map(|part| ipam.read(|ledger| view(caller.within(ledger), &part)));
        let shown = views.reduce(joined).into_iter().collect();
        return Ok((shown, first.revision, changes.len() > 1));
    }
    ipam.read(|ledger| {
        let (mut shown, mut revision, mut rows) = (Vec::new(), since, 0);
        for change in changes.iter().take(limit) {
            rows += change.leases.len();
            if rows > Ledger::SCAN {
                return Ok((shown, revision, true));
            }
            revision = change.revision;
            shown.extend(view(caller.within(ledger), change));
        }
        Ok((shown, revision, changes.len() > limit))
    })
}

/// Two parts of one change.
fn joined(mut first: ChangeView, second: ChangeView) -> ChangeView {
    first.kinds.extend(second.kinds);
    first.kinds.dedup();
    first.pools.extend(second.pools);
    first.leases.extend(second.leases);
    first.tenants.extend(second.tenants);
    first
}

fn view(visible: VisibleLedger<'_>, change: &Change) -> Option<ChangeView> {
    let all = visible.scope.is_all();
    let pools = change.pools.iter().filter(|id| has_pool(visible, **id));
    let pools: Vec<_> = pools.map(|id| pool_view(visible, *id)).collect();
    let leases = change.leases.iter();
    let leases = leases.filter(|prefix| has_key(visible, prefix.key));
    let leases: Vec<_> = leases.map(|prefix| lease_view(visible, *prefix)).collect();
    let tenants = change.tenants.iter().filter(|_| all);
    let tenants: Vec<_> = tenants.map(|tenant| tenant.0.to_string()).collect();
    let kinds = [
        ("pools", !pools.is_empty()),
        ("leases", !leases.is_empty()),
        ("quotas", !tenants.is_empty()),
        ("other", all && change.other),
    ];
    let kinds: Vec<_> = kinds
        .into_iter()
        .filter(|(_, touched)| *touched)
        .map(|(kind, _)| kind.to_owned())
        .collect();
    (!kinds.is_empty()).then_some(ChangeView {
        revision: change.revision,
        kinds,
        pools,
        leases,
        tenants,
    })
}

fn has_pool(visible: VisibleLedger<'_>, id: PoolId) -> bool {
    let scope = visible.scope;
    match visible.ledger.pool(id) {
        Some(pool) => scope.has_pool(pool),
        // Of a pool that is gone only its number is known.
        None => scope.is_all() || scope.pools.contains(&id),
    }
}

/// An address that nobody holds, or that has come to another pool, is told of where one of the scope's pools may have it.
fn has_key(visible: VisibleLedger<'_>, key: LeaseKey) -> bool {
    let scope = visible.scope;
    if visible.lease(key).is_some() || scope.is_all() {
        return true;
    }
    let listed = |id: &PoolId| {
        let spec = visible.ledger.pool(*id).map(|pool| &pool.spec);
        let mut entries = spec.into_iter().flat_map(|spec| &spec.addresses);
        entries.any(|entry| entry.span().contains(key.address))
    };
    (scope.networks.is_empty() || scope.networks.contains(&key.network))
        && (scope.pools.is_empty() || scope.pools.iter().any(listed))
}

fn pool_view(visible: VisibleLedger<'_>, id: PoolId) -> ChangedPool {
    let name = visible.ledger.pool(id);
    ChangedPool {
        id: id.0,
        name: name.map(|pool| pool.spec.name.to_string()),
    }
}

fn lease_view(visible: VisibleLedger<'_>, prefix: LeasePrefix) -> ChangedLease {
    let (ledger, key) = (visible.ledger, prefix.key);
    // What begins there by now may be of another length.
    let lease = visible.lease(key).filter(|lease| lease.prefix() == prefix);
    let pool = lease.and_then(|lease| ledger.pool(lease.pool?));
    let owner = lease.and_then(|lease| lease.owner());
    ChangedLease {
        network: convert::network_name(ledger, key.network),
        address: key.address,
        // What others have is told by nothing but its first address.
        length: prefix
            .explicit_length()
            .filter(|_| lease.is_some() || visible.scope.is_all()),
        state: lease.map(|lease| lease.state.to_string()),
        pool: pool.map(|pool| pool.spec.name.to_string()),
        owner: owner.map(|holder| convert::owner_text(ledger, &holder.identity)),
    }
}

fn events(
    followed: Followed,
    streams: &Streams,
    caller: Caller,
    headers: HeaderMap,
    since: u64,
) -> Result<Response, Problem> {
    let place = streams.take(&caller.actor)?;
    let (queue, events) = mpsc::channel(QUEUE);
    let (why, reason) = oneshot::channel();
    let stream = ChangeStream {
        followed,
        caller,
        headers,
        queue,
        since,
        _place: place,
    };
    tokio::spawn(async move {
        let ended = stream.run().await;
        // Nobody listens where the client is gone.
        let _ = why.send(ended);
    });
    Ok(Sse::new(told(events, reason)).into_response())
}

impl Streams {
    fn take(&self, of: &Actor) -> Result<OpenStream, Problem> {
        let mut open = self.0.lock();
        let all: usize = open.values().sum();
        let mine = open.get(of).copied().unwrap_or_default();
        let detail = if mine >= STREAMS_OF_ONE {
            format!("{of} has {mine} streams open, which is the most of one caller; end one first")
        } else if all >= STREAMS {
            format!("{STREAMS} streams are open, which is the most; ask again later")
        } else {
            open.insert(Actor::clone(of), mine + 1);
            return Ok(OpenStream {
                streams: self.clone(),
                of: Actor::clone(of),
            });
        };
        Err(Problem::new(Code::Busy, detail))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock();
        if let Some(mine) = open.get_mut(&self.of) {
            *mine -= 1;
        }
        open.retain(|_, count| *count > 0);
    }
}

/// The events, and at last why there are no more.
fn told(
    events: mpsc::Receiver<Event>,
    reason: oneshot::Receiver<&'static str>,
) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold((events, Some(reason)), |(mut events, mut reason)| async {
        if let Some(event) = events.recv().await {
            return Some((Ok(event), (events, reason)));
        }
        let why = reason.take()?.await.ok()?;
        let event = Event::default().event("end").data(why);
        Some((Ok(event), (events, None)))
    })
}

/// Tells one client.
struct ChangeStream {
    followed: Followed,
    caller: Caller,
    headers: HeaderMap,
    queue: mpsc::Sender<Event>,
    since: u64,
    _place: OpenStream,
}

impl ChangeStream {
    /// Until it ends; why.
    async fn run(mut self) -> &'static str {
        const MOST: usize = 500;
        let mut revisions = self.followed.ipam.revisions();
        let stop = self.followed.stop.clone();
        loop {
            if !self.may_listen() {
                return "the token or session has ended";
            }
            revisions.borrow_and_update();
            let (events, more) = match batch(&self.followed.ipam, &self.caller, self.since, MOST) {
                Ok((changes, revision, more)) => {
                    self.since = revision;
                    (changes.iter().filter_map(event).collect(), more)
                }
                Err(revision) => {
                    self.since = revision;
                    (vec![reset(revision)], false)
                }
            };
            for event in events {
                match timeout(PATIENCE, self.queue.send(event)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return "the client is gone",
                    Err(_) => return "the client is too slow; go on from the last event",
                }
            }
            if more {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => return "fipd is stopping",
                () = self.queue.closed() => return "the client is gone",
                changed = revisions.changed() => if changed.is_err() {
                    return "fipd is stopping";
                },
                () = tokio::time::sleep(HEARTBEAT) => {
                    // A full queue is a sign of life as well.
                    let _ = self.queue.try_send(Event::default().comment("alive"));
                }
            }
        }
    }

    /// Whether the caller may still ask as it could at the beginning.
    fn may_listen(&self) -> bool {
        match self.caller.via {
            Via::Socket => true,
            Via::Token(id) => {
                let now = self.followed.ipam.wall();
                let token = self.followed.ipam.read(|ledger| ledger.token(id).cloned());
                token.is_some_and(|token| token.expires.is_none_or(|end| end > now))
            }
            Via::Session => self.followed.sessions.lives(&self.headers),
        }
    }
}

fn event(change: &ChangeView) -> Option<Event> {
    let event = Event::default().event("change");
    event.id(change.revision.to_string()).json_data(change).ok()
}

fn reset(revision: u64) -> Event {
    let event = Event::default().event("reset").id(revision.to_string());
    event.data(format!("{{\"revision\":{revision}}}"))
}

#[cfg(test)]
mod tests;
