//! Ends what ends by itself, reservations and quarantines, when the address book's time has come to it.
//!
//! That time advances with the boot clock, and jumps when the wall clock is ahead and believed: so the wait is cut into
//! pieces, each begun with a fresh look at the clock. While nothing has an end, it waits for the next change and for no
//! clock at all.

use std::{pin::pin, time::Duration};

use fipd_core::{Answer, Ledger, Request};
use tokio_util::sync::CancellationToken;

use crate::ipam::{Ipam, IpamError};

/// Leases of one decision.
const AT_ONCE: usize = 200;

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// At least between two looks: a busy address book changes thousands of times a second.
    pub least: Duration,
    /// At most without a look at the clock.
    pub most: Duration,
    /// After a decision that could not be made durable.
    pub retry: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            least: Duration::from_secs(1),
            most: Duration::from_secs(30),
            retry: Duration::from_secs(5),
        }
    }
}

/// Works until it is told to stop or the address book is gone.
pub async fn run(ipam: Ipam, pace: Pace, stop: CancellationToken) {
    let work = pin!(work(&ipam, pace));
    let _ = stop.run_until_cancelled(work).await;
}

async fn work(ipam: &Ipam, pace: Pace) {
    let mut revisions = ipam.revisions();
    loop {
        revisions.borrow_and_update();
        let next = ipam.read(Ledger::next_expiry);
        let left = next.map(|at| at.0.saturating_sub(ipam.now().0));
        match left {
            Some(0) => match end(ipam).await {
                // The rest at once.
                Ok(true) => continue,
                Ok(false) => {}
                Err(IpamError::Stopping) => return,
                Err(error) => {
                    tracing::error!(%error, "what has ended could not be freed; tried again in {} s", pace.retry.as_secs());
                    tokio::time::sleep(pace.retry).await;
                    continue;
                }
            },
            Some(left) => {
                let wait = Duration::from_millis(left).min(pace.most);
                tokio::select! {
                    () = tokio::time::sleep(wait) => continue,
                    changed = revisions.changed() => if changed.is_err() { return },
                }
            }
            None => {
                if revisions.changed().await.is_err() {
                    return;
                }
            }
        }
        tokio::time::sleep(pace.least).await;
    }
}

/// Whether there is more.
async fn end(ipam: &Ipam) -> Result<bool, IpamError> {
    let request = Request::Expire {
        most: AT_ONCE,
        actor: "fipd".into(),
    };
    let answer = ipam.submit(request).await?;
    let Answer::Moved { leases, more } = answer else {
        tracing::error!(?answer, "an unexpected answer of the address book");
        return Ok(false);
    };
    tracing::debug!(leases, "reservations or quarantines are over");
    Ok(more)
}

#[cfg(test)]
mod tests;
