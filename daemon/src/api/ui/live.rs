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
use tokio::sync::watch;

use super::{
    page::harden,
    sessions::{LivePlace, Sessions},
};
use crate::rules::View;
use crate::{api::ui::session_extract::Visitor, ipam::Ipam, rules::RuleBoard};
use tokio_util::sync::CancellationToken;

/// At least this long between two events of one page.
const PAUSE: Duration = Duration::from_secs(1);
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Clusters, the disk and the clock change without a revision: at the latest after this time open pages look again.
const LATEST: Duration = Duration::from_secs(30);

struct Watcher {
    sessions: Arc<Sessions>,
    stop: CancellationToken,
    headers: HeaderMap,
    revisions: watch::Receiver<u64>,
    rules: watch::Receiver<Arc<View>>,
    _place: LivePlace,
}

/// One event `revision` for each batch of changes, as long as the session lasts. 503 where there is no place for more
/// open pages: they look again by themselves.
pub async fn events(
    State(ipam): State<Ipam>,
    State(rules): State<RuleBoard>,
    State(sessions): State<Arc<Sessions>>,
    State(stop): State<CancellationToken>,
    headers: HeaderMap,
    _visitor: Visitor,
) -> Response {
    let Some(place) = sessions.live_place(&headers) else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let mut revisions = ipam.revisions();
    revisions.mark_unchanged();
    let mut rules = rules.views();
    rules.mark_unchanged();
    let watcher = Watcher {
        sessions,
        stop,
        headers,
        revisions,
        rules,
        _place: place,
    };
    let keep = KeepAlive::new().interval(KEEP_ALIVE);
    let mut response = Sse::new(changes(watcher)).keep_alive(keep).into_response();
    harden(&mut response);
    response
}

fn changes(watcher: Watcher) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(watcher, |mut watcher| async move {
        let stop = watcher.stop.clone();
        let next = async {
            tokio::select! {
                changed = watcher.revisions.changed() => changed.ok()?,
                changed = otherwise(&mut watcher.rules) => changed.ok()?,
                () = tokio::time::sleep(LATEST) => {}
            }
            watcher.sessions.find(&watcher.headers)?;
            tokio::time::sleep(PAUSE).await;
            watcher.rules.mark_unchanged();
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

/// Waits until rules look otherwise; the engine tells its view also where it is the same.
async fn otherwise(views: &mut watch::Receiver<Arc<View>>) -> Result<(), watch::error::RecvError> {
    let before = Arc::clone(&views.borrow_and_update());
    loop {
        views.changed().await?;
        let now = views.borrow_and_update();
        let same = now.state == before.state
            && now.drift == before.drift
            && now.warnings == before.warnings
            && Arc::ptr_eq(&now.desired, &before.desired)
            && Arc::ptr_eq(&now.kernel, &before.kernel);
        if !same {
            return Ok(());
        }
    }
}
