//! Does what the report says of things that somebody has to ask for.

use std::time::Duration;

use fipd_core::{Actor, Request};
use fipd_crds::{floating_ip::FloatingIP, labels::WEBHOOK_CONFIGURATION};
use futures::{StreamExt as _, stream};

use super::{AdoptAction, some};
use crate::{
    adopt::{AdoptLog, ChangeState},
    controller::{
        client::{CallError, Patch, Remote},
        kind::VALIDATING_WEBHOOK_CONFIGURATION,
        store::Key,
    },
    systems::rancher_fip::{
        floating_ip::{observe, without_users},
        kinds::FLOATING_IP,
        names::HOLDER,
    },
};

/// FloatingIPs that are written at once, and named in one row of the audit log.
const AT_ONCE: usize = 16;
/// One is tried again so often, with this pause.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(500);

/// Does it and says what became of it. The audit log has it before it is begun and when it has ended.
pub async fn apply(log: &AdoptLog<'_>, action: &AdoptAction, name: &str) -> ChangeState {
    let session = log.session;
    let done = match action {
        AdoptAction::TakeKey(bytes) => {
            let request = Request::ImportKey {
                bytes: bytes.clone(),
                actor: Actor::clone(log.actor),
            };
            let imported = session.ipam.submit(request).await;
            imported.map(drop).map_err(|error| error.to_string())
        }
        AdoptAction::RemoveWebhook { uid, version } => {
            remove_webhook(log, name, uid, version).await
        }
        AdoptAction::RemoveGhosts(keys) => remove_ghosts(log, keys).await,
    };
    match done {
        Ok(()) => ChangeState::Done,
        Err(why) => {
            tracing::warn!(cluster = %session.name, name, why, "not taken over");
            ChangeState::Failed(why)
        }
    }
}

fn remote(log: &AdoptLog<'_>) -> Remote {
    Remote::new(log.session.client.clone())
}

async fn remove_webhook(
    log: &AdoptLog<'_>,
    name: &str,
    uid: &str,
    version: &str,
) -> Result<(), String> {
    let target = VALIDATING_WEBHOOK_CONFIGURATION.named("", WEBHOOK_CONFIGURATION);
    log.begin(&format!("{name}: is being deleted")).await?;
    let removed = remote(log).delete_version(&target, uid, version).await;
    let removed = removed.map_err(|error| error.to_string());
    log.end(&match &removed {
        Ok(()) => format!("{name}: deleted"),
        Err(why) => format!("{name}: not deleted: {why}"),
    })
    .await;
    removed
}

/// What became of FloatingIPs: who they are.
#[derive(Debug, Default, PartialEq, Eq)]
struct Removed {
    changed: Vec<String>,
    /// Those that do not need it any more.
    skipped: usize,
    /// And why.
    failed: Vec<String>,
}

impl Removed {
    fn of(all: impl IntoIterator<Item = (String, Result<bool, String>)>) -> Self {
        let mut removed = Self::default();
        for (name, done) in all {
            match done {
                Ok(true) => removed.changed.push(name),
                Ok(false) => removed.skipped += 1,
                Err(why) => removed.failed.push(format!("{name}: {why}")),
            }
        }
        removed
    }

    /// The row of the audit log; each change is in it.
    fn row(&self) -> String {
        let mut says = Vec::new();
        if !self.changed.is_empty() {
            let (count, names) = (self.changed.len(), self.changed.join(", "));
            says.push(format!("labels removed from {count}: {names}"));
        }
        if self.skipped > 0 {
            says.push(format!("not needed any more by {}", self.skipped));
        }
        if !self.failed.is_empty() {
            let (count, names) = (self.failed.len(), some(&self.failed));
            says.push(format!("failed for {count}: {names}"));
        }
        format!("FloatingIPs: {}", says.join("; "))
    }

    fn add(&mut self, more: Self) {
        self.changed.extend(more.changed);
        self.skipped += more.skipped;
        self.failed.extend(more.failed);
    }

    /// What became of `all`, unless everything went well.
    fn result(&self, all: usize) -> Result<(), String> {
        let tried = self.changed.len() + self.skipped + self.failed.len();
        if self.failed.is_empty() && tried == all {
            return Ok(());
        }
        let changed = self.changed.len();
        let mut says = format!("labels removed from {changed} of {all}");
        if !self.failed.is_empty() {
            says += &format!("; failed for {}: {}", self.failed.len(), some(&self.failed));
        }
        if tried < all {
            says += &format!("; {} were not tried", all.saturating_sub(tried));
        }
        Err(says)
    }
}

/// In groups: each is in the audit log by its names before it is begun. Ends where a whole group fails.
async fn remove_ghosts(log: &AdoptLog<'_>, keys: &[Key]) -> Result<(), String> {
    let remote = remote(log);
    let mut all = Removed::default();
    for group in keys.chunks(AT_ONCE) {
        let names: Vec<String> = group.iter().map(ToString::to_string).collect();
        let what = format!(
            "FloatingIPs: labels are being removed: {}",
            names.join(", ")
        );
        if let Err(why) = log.begin(&what).await {
            return Err(match all.result(keys.len()) {
                Ok(()) => why,
                Err(says) => format!("{why}; {says}"),
            });
        }
        let removals = group.iter().cloned().map(|key| {
            let remote = remote.clone();
            async move {
                let removed = remove_ghost(&remote, &key).await;
                (key.to_string(), removed)
            }
        });
        let done: Vec<_> = stream::iter(removals)
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let removed = Removed::of(done);
        log.end(&removed.row()).await;
        let hopeless = removed.failed.len() == group.len();
        all.add(removed);
        if hopeless {
            break;
        }
    }
    all.result(keys.len())
}

/// Takes the labels off unless a cluster has got the address meanwhile; whether it changed anything. An API server may
/// go on for a moment to ask a webhook that is gone.
async fn remove_ghost(remote: &Remote, key: &Key) -> Result<bool, String> {
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

async fn try_remove_ghost(remote: &Remote, key: &Key) -> Result<bool, CallError> {
    let target = FLOATING_IP.target(key);
    let found = remote.get::<FloatingIP>(&target).await?;
    let is_free = |object: &FloatingIP| {
        let notes = object.metadata.annotations.as_ref();
        let shows = notes.is_some_and(|notes| notes.contains_key(HOLDER));
        observe::cluster(object).is_none() && !shows
    };
    let Some(object) = found.filter(is_free) else {
        return Ok(false);
    };
    let uid = object.metadata.uid.as_deref().unwrap_or_default().into();
    match without_users(&object, &uid) {
        Some(patch) => remote
            .patch(&target, Patch::Merge, &patch)
            .await
            .map(|()| true),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_named_also_where_others_failed() {
        let of = |all: &[(&str, Result<bool, &str>)]| {
            let owned = all
                .iter()
                .map(|(name, done)| ((*name).to_owned(), (*done).map_err(ToOwned::to_owned)));
            Removed::of(owned)
        };
        let fine = of(&[("c/a", Ok(true)), ("c/b", Ok(false))]);
        assert_eq!(
            fine.row(),
            "FloatingIPs: labels removed from 1: c/a; not needed any more by 1"
        );
        assert_eq!(fine.result(2), Ok(()));
        let mut partial = of(&[
            ("c/a", Ok(true)),
            ("c/b", Err("forbidden")),
            ("c/c", Ok(true)),
        ]);
        assert_eq!(
            partial.row(),
            "FloatingIPs: labels removed from 2: c/a, c/c; failed for 1: c/b: forbidden"
        );
        partial.add(fine);
        assert_eq!(
            partial.result(9),
            Err(
                "labels removed from 3 of 9; failed for 1: c/b: forbidden; 4 were not tried"
                    .to_owned()
            )
        );
    }
}
