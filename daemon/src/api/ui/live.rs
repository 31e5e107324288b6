//! Tells open pages that something has changed. Pages are complete without it.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, stream};
use http::{HeaderMap, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::{page::harden, visit::Visitor};
use crate::api::Api;

/// At least this long between two events of one page.
const PAUSE: Duration = Duration::from_secs(1);
const KEEP_ALIVE: Duration = Duration::from_secs(20);

struct Watcher {
    api: Arc<Api>,
    headers: HeaderMap,
    revisions: watch::Receiver<u64>,
    _place: OwnedSemaphorePermit,
}

/// One event `revision` for each batch of changes, as long as the session lasts.
pub async fn events(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    _visitor: Visitor,
) -> Response {
    let Ok(place) = Arc::clone(&api.sessions.live).try_acquire_owned() else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let mut revisions = api.ipam.revisions();
    revisions.mark_unchanged();
    let watcher = Watcher {
        api,
        headers,
        revisions,
        _place: place,
    };
    let keep = KeepAlive::new().interval(KEEP_ALIVE);
    let mut response = Sse::new(changes(watcher)).keep_alive(keep).into_response();
    harden(&mut response);
    response
}

fn changes(watcher: Watcher) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(watcher, |mut watcher| async move {
        let stop = watcher.api.stop.clone();
        let next = async {
            watcher.revisions.changed().await.ok()?;
            watcher.api.sessions.find(&watcher.headers)?;
            tokio::time::sleep(PAUSE).await;
            Some(*watcher.revisions.borrow_and_update())
        };
        // A daemon that stops does not wait for its readers.
        let revision = stop.run_until_cancelled(next).await??;
        let event = Event::default()
            .event("revision")
            .data(revision.to_string());
        Some((Ok(event), watcher))
    })
}
