//! ConfigMap `kube-fip-config`, followed while fipd runs: what cannot be used is told of, and what was used last stays in
//! force, beyond a restart too.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;

use super::{
    VipGuests,
    config::{self, GuestConfig},
    notes::COPY,
    observe::CONFIG,
};
use crate::{
    controller::{kind::CONFIG_MAP, queue::retries, store::Key},
    guests::objects::Texts,
    logging,
    systems::kube_fip::settings::GuestLogLevel,
};

/// Where the system's own records come from.
const RECORDS: &str = "fipd::systems::kube_fip";

/// Before guests are looked after with what is not kept.
const ATTEMPTS: u8 = 3;

impl VipGuests {
    /// Reads it for the first time; `false`: the session is over.
    pub(super) async fn follow_first_config(&self) -> bool {
        let cancel = self.site.cancel();
        cancel
            .run_until_cancelled(self.read_config())
            .await
            .is_some()
    }

    /// Follows its changes until the session ends.
    pub(super) async fn follow_config(&self) {
        let cancel = self.site.cancel();
        let follow = async {
            loop {
                self.config_noticed.notified().await;
                if self.read_config().await {
                    self.config_changed();
                }
            }
        };
        cancel.run_until_cancelled(follow).await.unwrap_or(());
    }

    /// Puts in force what can be used of it; whether that is something else than before.
    async fn read_config(&self) -> bool {
        let map = self.maps.get(CONFIG);
        let before = self.maps.get(COPY).unwrap_or_default();
        let (good, refused) = match &map {
            Some(map) => config::usable(map, &before, self.site.settings()),
            None => (Texts::new(), Vec::new()),
        };
        if map.is_none() && !before.is_empty() {
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
        // Before anything is done by it, so that it holds after a restart too.
        self.keep_copy(&good, &before).await;
        let level = now.log_level.map(GuestLogLevel::as_str);
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

    /// Guests do not wait for it longer than a few attempts take: then it is kept with the next change.
    async fn keep_copy(&self, good: &Texts, before: &Texts) {
        if good == before {
            return;
        }
        let mut pauses = retries();
        for _ in 0..ATTEMPTS {
            let Err(stop) = self.change_map(COPY, |_| good.clone()).await else {
                return;
            };
            let error = stop.text();
            tracing::warn!(cluster = %self.site.name, error, "what {CONFIG} says is not kept for the next start yet");
            tokio::time::sleep(pauses.pause()).await;
        }
    }
}
