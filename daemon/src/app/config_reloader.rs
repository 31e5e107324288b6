//! Keeps the configuration in force as the file says while the daemon runs: on SIGHUP, when an admin asks, and by itself when
//! the file changes.
//!
//! A file with errors changes nothing. What counts from the next start only is named in the log, in the answer and on the pages.

use std::{path::PathBuf, sync::Arc};

use sd_notify::NotifyState;
use tokio::{signal::unix::Signal, sync::watch};
use tokio_util::sync::CancellationToken;

use super::{certificate::Certificate, tell};
use crate::{
    api::listen::{ListenError, check_files},
    backups::{Backups, Schedule},
    clusters::{Clusters, WatchedFile},
    config::HostRule,
    ipam::Ipam,
    logging, metrics,
    reload::{Desk, NotReloaded, ReloadStatus, Reloaded},
    settings::Settings,
};

/// The parts that take a changed configuration over, beside clusters. A host that decides nothing has none of them.
pub struct Parts {
    pub certificate: Arc<Certificate>,
    pub backups: Backups,
    pub ipam: Ipam,
    pub host_rules: watch::Sender<Vec<HostRule>>,
}

pub struct ConfigReloader {
    /// What the daemon started with.
    started: Settings,
    /// The last good one.
    last: Settings,
    clusters: Clusters,
    parts: Option<Parts>,
    /// The status that the service manager shows.
    status: String,
}

impl ConfigReloader {
    pub fn new(
        settings: &Settings,
        clusters: Clusters,
        parts: Option<Parts>,
        status: String,
    ) -> Self {
        Self {
            started: settings.clone(),
            last: settings.clone(),
            clusters,
            parts,
            status,
        }
    }

    /// Until `stop`.
    pub async fn run(mut self, mut hangup: Signal, mut desk: Desk, stop: CancellationToken) {
        let mut file = self.started.config_file.clone();
        loop {
            let answer = tokio::select! {
                () = stop.cancelled() => return,
                Some(answer) = desk.asks.recv() => Some(answer),
                _ = hangup.recv() => None,
                () = changed(file.as_mut()) => {
                    if file.as_ref().is_some_and(WatchedFile::is_empty) {
                        tracing::error!("the configuration file is empty now and is not used; if that is meant: fipd reload");
                        continue;
                    }
                    None
                }
            };
            if let Some(file) = &mut file {
                // As it is read below it counts as seen.
                *file = WatchedFile::new(PathBuf::from(file.path()));
            }
            let result = self.reload(&desk.standing).await;
            if let Some(answer) = answer {
                // Who asked may have gone.
                drop(answer.send(result));
            }
        }
    }

    async fn reload(
        &mut self,
        standing: &watch::Sender<ReloadStatus>,
    ) -> Result<Reloaded, NotReloaded> {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            tell(&[NotifyState::Reloading, now]);
        }
        let settings = self.last.clone();
        let loaded = tokio::task::spawn_blocking(move || settings.reload()).await;
        let result = match loaded {
            // All of it or nothing.
            Ok(Ok(fresh)) => match self.certify(&fresh).await {
                Ok(()) => Ok(self.apply(fresh).await),
                Err(error) => Err(error.to_string()),
            },
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match &result {
            Ok(reloaded) => {
                tracing::info!(applied = ?reloaded.applied, needs_restart = ?reloaded.needs_restart, "the configuration was read again");
            }
            Err(error) => tracing::error!(%error, "the configuration stays as it was"),
        }
        let now = ReloadStatus {
            failed: result.as_ref().err().map(|error| error.as_str().into()),
            needs_restart: self.last.restart_keys(&self.started),
        };
        metrics::process::note_config(&now);
        let status = self.status_of(&now);
        standing.send_replace(now);
        tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
        result.map_err(|error| NotReloaded::Invalid(error.into()))
    }

    fn status_of(&self, standing: &ReloadStatus) -> String {
        let mut status = self.status.clone();
        if standing.failed.is_some() {
            status.push_str("; the changed configuration has errors and is not used");
        }
        if !standing.needs_restart.is_empty() {
            status.push_str("; needs a restart: ");
            status.push_str(&standing.needs_restart.join(", "));
        }
        status
    }

    /// What can fail of a configuration without errors, before the rest is taken over.
    async fn certify(&self, fresh: &Settings) -> Result<(), ListenError> {
        if let Some((cert, key)) = &fresh.tls().files {
            check_files(fresh.tls().listen, cert, key).await?;
        }
        // Until the next start the listener has the files that are not named any more, whether they are still there or not.
        let dropped = self.started.tls().files.is_some() && fresh.tls().files.is_none();
        match &self.parts {
            Some(parts) if !dropped => parts.certificate.reload(fresh).await,
            Some(_) | None => Ok(()),
        }
    }

    async fn apply(&mut self, fresh: Settings) -> Reloaded {
        let needs_restart = fresh.restart_keys(&self.started);
        let mut applied = fresh.config.live_keys(&self.last.config);
        applied.retain(|key| !needs_restart.contains(key));
        if fresh.log_level() != self.last.log_level()
            && let Err(error) = logging::set_level(fresh.log_level())
        {
            tracing::error!(%error, "the log level stays as it was");
        }
        self.clusters.configure(fresh.config.clone()).await;
        if let Some(parts) = &self.parts {
            let schedule = Schedule::new(&fresh.config.backup, &self.started.data_dir);
            parts.backups.reschedule(schedule);
            parts.ipam.keep_audit(fresh.config.audit.keep.0).await;
            // Without [host] the running engine goes on until the next start.
            if let Some(host) = &fresh.config.host {
                let rules = host.rules.clone();
                let told = &parts.host_rules;
                told.send_if_modified(|old| std::mem::replace(old, rules) != *old);
            }
        }
        self.last = fresh;
        Reloaded {
            applied,
            needs_restart,
        }
    }
}

async fn changed(file: Option<&mut WatchedFile>) {
    match file {
        Some(file) => file.changed().await,
        None => std::future::pending().await,
    }
}
