//! ConfigMap `kube-fip-config`, followed while fipd runs: what cannot be used is told of, and what was used last stays in
//! force, beyond a restart too.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;

use super::{
    RECORDS, VipGuests,
    config::{self, GuestConfig},
    notes::COPY,
    observe::CONFIG,
};
use crate::{
    controller::{kind::CONFIG_MAP, queue::retries, store::Key},
    guests::objects::Texts,
    logging,
};

/// Before guests are looked after with what is not kept.
const ATTEMPTS: u8 = 3;
/// After this time it is tried to keep it once more.
const KEEP_AGAIN: Duration = Duration::from_secs(30);

/// What is in force of the ConfigMap.
#[derive(Default)]
pub(super) struct FollowedConfig {
    /// `None`: it was not read yet, and what an earlier start kept counts.
    good: Option<Arc<Texts>>,
    /// There was a ConfigMap at the last look.
    was_there: bool,
    /// What is in force is not kept for the next start.
    is_behind: bool,
}

impl VipGuests {
    /// Follows its changes until the session ends.
    pub(super) async fn follow_config(&self) {
        let cancel = self.site.cancel();
        let follow = async {
            loop {
                let is_behind = self.followed.lock().is_behind;
                tokio::select! {
                    () = self.config_noticed.notified() => {
                        if self.read_config().await {
                            self.config_changed();
                        }
                    }
                    () = tokio::time::sleep(KEEP_AGAIN), if is_behind => self.keep_copy().await,
                }
            }
        };
        cancel.run_until_cancelled(follow).await.unwrap_or(())
    }

    /// Puts in force what can be used of it; whether that is something else than before.
    pub(super) async fn read_config(&self) -> bool {
        let map = self.maps.get(CONFIG);
        let (before, was_there) = {
            let followed = self.followed.lock();
            let kept = || self.maps.get(COPY).unwrap_or_default();
            let before = followed.good.clone().unwrap_or_else(kept);
            (before, followed.was_there)
        };
        let (good, refused) = match &map {
            Some(map) => config::usable(map, &before, self.site.settings()),
            None => (Texts::new(), Vec::new()),
        };
        if map.is_none() && (was_there || !before.is_empty()) {
            let note = "it is gone: the defaults hold for every key that fipd's own configuration does not give";
            let key = Key::new(self.config_namespace(), CONFIG);
            let object = CONFIG_MAP.reference(&key, "");
            self.events.warning(&object, "ConfigMissing", note);
        }
        let now = GuestConfig::new(&good, self.site.settings());
        let refused = refused.into_iter().map(|why| ("ConfigInvalid", why));
        let port = now.port_note(&self.metrics_ports);
        let port = port.map(|why| ("MetricsPortDiffers", why));
        self.warn(refused.chain(port).collect()).await;
        *self.followed.lock() = FollowedConfig {
            good: Some(Arc::new(good)),
            was_there: map.is_some(),
            is_behind: false,
        };
        // Before anything is done by it, so that it holds after a restart too.
        self.keep_copy().await;
        let level = now.log_level.and_then(|level| level.as_str().parse().ok());
        if let Err(error) = logging::set_module_level(RECORDS, level) {
            tracing::warn!(cluster = %self.site.name, %error, "logLevel is not applied");
        }
        let mut held = self.config.write();
        let is_new = **held != now;
        if is_new {
            *held = Arc::new(now);
        }
        is_new
    }

    /// An Event for each reason and text. `kubectl describe` shows those with the UID of the object alone.
    async fn warn(&self, notes: Vec<(&'static str, String)>) {
        if notes.is_empty() {
            return;
        }
        let key = Key::new(self.config_namespace(), CONFIG);
        let found = self.remote.get(&CONFIG_MAP.target(&key)).await;
        let found: Option<PartialObjectMeta<ConfigMap>> = found.unwrap_or_default();
        let uid = found.and_then(|map| map.metadata.uid).unwrap_or_default();
        let object = CONFIG_MAP.reference(&key, &uid);
        for (reason, why) in notes {
            self.events.warning(&object, reason, why);
        }
    }

    /// Keeps what is in force for the next start. Guests do not wait for it longer than a few attempts take.
    async fn keep_copy(&self) {
        let good = self.followed.lock().good.clone().unwrap_or_default();
        let mut pauses = retries();
        let mut attempts = 0..ATTEMPTS;
        let is_behind = loop {
            if good == self.maps.get(COPY).unwrap_or_default() {
                break false;
            }
            if attempts.next().is_none() {
                break true;
            }
            let Err(stop) = self.change_map(COPY, |_| Texts::clone(&good)).await else {
                break false;
            };
            let error = stop.text();
            tracing::warn!(cluster = %self.site.name, error, "what {CONFIG} says is not kept for the next start yet");
            tokio::time::sleep(pauses.pause()).await;
        };
        self.followed.lock().is_behind = is_behind;
    }
}
