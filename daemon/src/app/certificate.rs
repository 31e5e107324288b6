//! The certificate of the TLS listener while the daemon runs: renewed in time, and when the configuration is read again.

use std::{sync::Arc, time::Duration};

use axum_server::tls_rustls::RustlsConfig;
use sd_notify::NotifyState;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::tell;
use crate::{api::listen::ListenError, clusters::WatchedFile, settings::Settings};

/// How often the own certificate is looked at.
const RENEWAL: Duration = Duration::from_secs(12 * 3600);

pub struct Certificate {
    /// What the daemon started with.
    settings: Settings,
    served: RustlsConfig,
    /// Key and certificate are written by one at a time.
    turn: Mutex<()>,
}

impl Certificate {
    pub async fn start(settings: &Settings) -> Result<Arc<Self>, ListenError> {
        Ok(Arc::new(Self {
            settings: settings.clone(),
            served: settings.tls().certificate().await?,
            turn: Mutex::new(()),
        }))
    }

    /// What listeners show.
    pub fn served(&self) -> RustlsConfig {
        self.served.clone()
    }

    /// Reads configuration and certificates again. Clusters follow the file by themselves.
    pub async fn reload(&self) {
        let reloading = NotifyState::monotonic_usec_now();
        if let Ok(now) = reloading {
            tell(&[NotifyState::Reloading, now]);
        }
        match self.settings.reload() {
            Ok(fresh) => {
                if self.renew(&fresh).await {
                    tracing::info!("configuration and certificate were read again");
                }
            }
            Err(error) => tracing::error!(%error, "the configuration stays as it was"),
        }
        tell(&[NotifyState::Ready]);
    }

    /// Renews the own certificate in time and when the configuration has other names for it; a configured one is read again
    /// as it is.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) -> Result<(), String> {
        let mut last = self.settings.clone();
        let mut file = last.config_file.clone();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(RENEWAL) => {}
                () = changed(file.as_mut()) => {
                    // One that cannot be read is told by who follows the clusters in it.
                    if let Ok(fresh) = last.reload() {
                        last = fresh;
                    }
                }
            }
            self.renew(&last).await;
        }
    }

    async fn renew(&self, fresh: &Settings) -> bool {
        let _turn = self.turn.lock().await;
        let (tls, wanted) = (self.settings.tls(), fresh.tls());
        let other_files = tls.files.is_some() != wanted.files.is_some();
        if wanted.listen != tls.listen || wanted.data_dir != tls.data_dir || other_files {
            tracing::warn!(
                "listen, data-dir, and whether [api] has cert and key, are taken over at the next start only"
            );
        }
        if wanted.advertise != tls.advertise {
            tracing::warn!(
                "clusters and their webhooks are told of another [api] advertise at the next start; until then the certificate has both names"
            );
        }
        let renewed = tls.renewed_by(wanted).renew(&self.served).await;
        if let Err(error) = &renewed {
            tracing::error!(%error, "the certificate stays as it was; tried again in 12 hours");
        }
        renewed.is_ok()
    }
}

async fn changed(file: Option<&mut WatchedFile>) {
    match file {
        Some(file) => file.changed().await,
        None => std::future::pending().await,
    }
}
