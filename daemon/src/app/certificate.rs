//! The certificate of the TLS listener while the daemon runs: renewed in time, and when the configuration is read again.

use std::{sync::Arc, time::Duration};

use axum_server::tls_rustls::RustlsConfig;
use fipd_core::Timestamp;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::{api::listen::ListenError, clock, metrics, settings::Settings};

/// How often the own certificate is looked at.
const RENEWAL: Duration = Duration::from_secs(12 * 3600);
/// How often the clock is: one that is set after the start may have left the end of a certificate behind.
const CLOCK: Duration = Duration::from_secs(60);

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
        metrics::process::note_certificate(ends);
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
        let mut looked = clock::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(CLOCK) => {}
            }
            let now = clock::now();
            if !is_due(looked, now) {
                continue;
            }
            looked = now;
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
        metrics::process::note_certificate(ends);
        self.ends.send_replace(ends);
        Ok(())
    }
}

/// Whether the certificate is to be looked at again: by the clock, so that it is where that was set.
fn is_due(looked: Timestamp, now: Timestamp) -> bool {
    let age = now.0.checked_sub(looked.0);
    age.is_none_or(|age| Duration::from_millis(age) >= RENEWAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_has_the_certificate_looked_at() {
        let hours = |hours: u64| Timestamp(1_700_000_000_000 + hours * 3_600_000);
        let start = hours(5);
        for (now, due) in [
            (5, false),
            (16, false),
            (17, true),
            (4, true),
            (20_000, true),
        ] {
            assert_eq!(is_due(start, hours(now)), due, "{now}");
        }
    }
}
