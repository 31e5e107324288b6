//! The certificate of the TLS listener while the daemon runs: renewed in time, and when the configuration is read again.

use std::{sync::Arc, time::Duration};

use axum_server::tls_rustls::RustlsConfig;
use fipd_core::Timestamp;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::{api::listen::ListenError, metrics, settings::Settings};

/// How often the own certificate is looked at.
const RENEWAL: Duration = Duration::from_secs(12 * 3600);

pub struct Certificate {
    /// What the daemon started with.
    settings: Settings,
    served: RustlsConfig,
    ends: watch::Sender<Option<Timestamp>>,
    /// The last one that was read.
    last: parking_lot::Mutex<Settings>,
    /// Key and certificate are written by one at a time.
    turn: Mutex<()>,
}

impl Certificate {
    pub async fn start(settings: &Settings) -> Result<Arc<Self>, ListenError> {
        let (served, ends) = settings.tls().certificate().await?;
        metrics::certificate::note(ends);
        Ok(Arc::new(Self {
            settings: settings.clone(),
            last: parking_lot::Mutex::new(settings.clone()),
            served,
            ends: watch::Sender::new(ends),
            turn: Mutex::new(()),
        }))
    }

    /// What listeners show.
    pub fn served(&self) -> RustlsConfig {
        self.served.clone()
    }

    /// When that ends; `None`: it does not say.
    pub fn ends(&self) -> watch::Receiver<Option<Timestamp>> {
        self.ends.subscribe()
    }

    /// Takes names over, and reads files again.
    ///
    /// # Errors
    /// Why the certificate stays as it was.
    pub async fn reload(&self, fresh: &Settings) -> Result<(), ListenError> {
        self.renew(fresh).await?;
        *self.last.lock() = fresh.clone();
        Ok(())
    }

    /// Renews the own certificate in time; a configured one is read again as it is.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) -> Result<(), String> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(RENEWAL) => {}
            }
            let last = self.last.lock().clone();
            if let Err(error) = self.renew(&last).await {
                tracing::error!(%error, "the certificate stays as it was; tried again in 12 hours");
            }
        }
    }

    async fn renew(&self, fresh: &Settings) -> Result<(), ListenError> {
        let _turn = self.turn.lock().await;
        let (tls, wanted) = (self.settings.tls(), fresh.tls());
        let ends = tls.renewed_by(wanted).renew(&self.served).await?;
        metrics::certificate::note(ends);
        self.ends.send_replace(ends);
        Ok(())
    }
}
