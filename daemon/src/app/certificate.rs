//! The certificate of the TLS listener while the daemon runs: renewed in time, and when the configuration is read again.

use std::{sync::Arc, time::Duration};

use axum_server::tls_rustls::RustlsConfig;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{api::listen::ListenError, settings::Settings};

/// How often the own certificate is looked at.
const RENEWAL: Duration = Duration::from_secs(12 * 3600);

pub struct Certificate {
    /// What the daemon started with.
    settings: Settings,
    served: RustlsConfig,
    /// The last one that was read.
    last: parking_lot::Mutex<Settings>,
    /// Key and certificate are written by one at a time.
    turn: Mutex<()>,
}

impl Certificate {
    pub async fn start(settings: &Settings) -> Result<Arc<Self>, ListenError> {
        Ok(Arc::new(Self {
            settings: settings.clone(),
            last: parking_lot::Mutex::new(settings.clone()),
            served: settings.tls().certificate().await?,
            turn: Mutex::new(()),
        }))
    }

    /// What listeners show.
    pub fn served(&self) -> RustlsConfig {
        self.served.clone()
    }

    /// Takes names over, and reads files again.
    pub async fn reload(&self, fresh: &Settings) {
        *self.last.lock() = fresh.clone();
        self.renew(fresh).await;
    }

    /// Renews the own certificate in time; a configured one is read again as it is.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) -> Result<(), String> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(RENEWAL) => {}
            }
            let last = self.last.lock().clone();
            self.renew(&last).await;
        }
    }

    async fn renew(&self, fresh: &Settings) {
        let _turn = self.turn.lock().await;
        let (tls, wanted) = (self.settings.tls(), fresh.tls());
        let renewed = tls.renewed_by(wanted).renew(&self.served).await;
        if let Err(error) = &renewed {
            tracing::error!(%error, "the certificate stays as it was; tried again in 12 hours");
        }
    }
}
