//! Does what the report says of things that somebody has to ask for.

use std::time::Duration;

use fipd_core::{Actor, Request};
use fipd_crds::{floating_ip::FloatingIP, labels::WEBHOOK_CONFIGURATION};
use futures::{StreamExt as _, stream};

use super::{
    addresses::place,
    report::{Action, State, some},
};
use crate::{
    clusters::ClusterSession,
    controllers::{
        objects::Key,
        rancher_fip::{
            floating_ip::{self, observe, without_users},
            names::HOLDER,
        },
        remote::{CallError, Patch, Remote, Target},
    },
};

/// FloatingIPs that are written at once.
const AT_ONCE: usize = 16;
/// One is tried again so often, with this pause.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(500);

/// Does it and has it in the audit log; what became of it.
pub async fn apply(session: &ClusterSession, action: &Action, name: &str, actor: &Actor) -> State {
    let remote = Remote::new(session.client.clone());
    let done = match action {
        Action::TakeKey(bytes) => {
            let request = Request::ImportKey {
                bytes: bytes.clone(),
                actor: Actor::clone(actor),
            };
            let imported = session.ipam.submit(request).await;
            return state(imported.map(drop).map_err(|error| error.to_string()));
        }
        Action::RemoveWebhook { uid, version } => {
            let target = Target {
                api: "apis/admissionregistration.k8s.io/v1",
                plural: "validatingwebhookconfigurations",
                namespace: String::new(),
                name: WEBHOOK_CONFIGURATION.to_owned(),
            };
            let removed = remote.delete_version(&target, uid, version).await;
            removed
                .map(|()| "deleted".to_owned())
                .map_err(|error| error.to_string())
        }
        Action::RemoveGhosts(keys) => remove_ghosts(&remote, keys).await,
    };
    let done = match done {
        Ok(what) => note(session, format!("{}: {name}: {what}", session.name), actor).await,
        Err(why) => Err(why),
    };
    if let Err(why) = &done {
        tracing::warn!(cluster = %session.name, name, why, "not taken over");
    }
    state(done)
}

fn state(done: Result<(), String>) -> State {
    match done {
        Ok(()) => State::Done,
        Err(why) => State::Failed(why),
    }
}

async fn note(session: &ClusterSession, what: String, actor: &Actor) -> Result<(), String> {
    let request = Request::TakeOver {
        what: what.into(),
        actor: Actor::clone(actor),
    };
    let noted = session.ipam.submit(request).await;
    let failed = |error| format!("it was done, but is not in the audit log: {error}");
    noted.map(drop).map_err(failed)
}

async fn remove_ghosts(remote: &Remote, keys: &[Key]) -> Result<String, String> {
    let removals = keys.iter().cloned().map(|key| {
        let remote = remote.clone();
        async move {
            let removed = remove_ghost(&remote, &key).await;
            removed.map_err(|why| format!("{}: {why}", place(&key)))
        }
    });
    let all: Vec<Result<(), String>> = stream::iter(removals)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let count = all.len();
    let failed: Vec<String> = all.into_iter().filter_map(Result::err).collect();
    if failed.is_empty() {
        return Ok(format!("labels removed from {count}"));
    }
    Err(format!(
        "{} of {count} failed: {}",
        failed.len(),
        some(&failed)
    ))
}

/// Takes the labels off unless a cluster has got the address meanwhile. An API server may go on for a moment to ask a
/// webhook that is gone.
async fn remove_ghost(remote: &Remote, key: &Key) -> Result<(), String> {
    let mut attempts = 0;
    loop {
        match try_remove_ghost(remote, key).await {
            Err(CallError::Unavailable(..) | CallError::Conflict(..)) if attempts < ATTEMPTS => {
                attempts += 1;
                tokio::time::sleep(PAUSE).await;
            }
            other => return other.map_err(|error| error.to_string()),
        }
    }
}

async fn try_remove_ghost(remote: &Remote, key: &Key) -> Result<(), CallError> {
    let target = floating_ip::target(key);
    let found = remote.get::<FloatingIP>(&target).await?;
    let is_free = |object: &FloatingIP| {
        let notes = object.metadata.annotations.as_ref();
        let shows = notes.is_some_and(|notes| notes.contains_key(HOLDER));
        observe::cluster(object).is_none() && !shows
    };
    let Some(object) = found.filter(is_free) else {
        return Ok(());
    };
    let uid = object.metadata.uid.as_deref().unwrap_or_default().into();
    match without_users(&object, &uid) {
        Some(patch) => remote.patch(&target, Patch::Merge, &patch).await,
        None => Ok(()),
    }
}
