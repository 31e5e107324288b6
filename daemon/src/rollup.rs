//! Has the address book note, once an hour, how the hour before ended.
//!
//! One timer an hour; a pool in which nothing happened gets no row. What was given and released in the running hour is
//! counted in memory: an end of the daemon loses these counts, never the figures of use.

use std::time::Duration;

use fipd_core::{Answer, Hour, Request, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::ipam::{Ipam, IpamError};

/// Pools of one decision.
const AT_ONCE: usize = 500;
const HOUR: Duration = Duration::from_secs(3_600);
/// After the end of an hour, so that a clock that is read a little early does not cost a second wake-up.
const SLACK: Duration = Duration::from_secs(1);
/// After a decision that could not be made durable.
const RETRY: Duration = Duration::from_secs(60);

/// Works until it is told to stop or the address book is gone.
pub async fn run(ipam: Ipam, stop: CancellationToken) {
    if stop.run_until_cancelled(work(&ipam)).await.is_some() {
        stop.cancelled().await;
    }
}

async fn work(ipam: &Ipam) {
    loop {
        let wait = match roll_up(ipam).await {
            Ok(rows) => {
                tracing::debug!(rows, "the hour of the pools was noted");
                until_next(ipam.now())
            }
            Err(IpamError::Stopping) => return,
            Err(error) => {
                tracing::error!(%error, "the hour of the pools could not be noted; tried again in {} s", RETRY.as_secs());
                RETRY
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// A little beyond the end of the hour. The clock may stand far before that time, and be set meanwhile.
fn until_next(now: Timestamp) -> Duration {
    let left = Hour::of(now).end().0.saturating_sub(now.0);
    Duration::from_millis(left).min(HOUR) + SLACK
}

/// Notes the last hour that is over for all pools; the number of rows.
pub async fn roll_up(ipam: &Ipam) -> Result<usize, IpamError> {
    let (mut after, mut written) = (None, 0);
    loop {
        let request = Request::RollUp {
            after,
            most: AT_ONCE,
            actor: "fipd".into(),
        };
        let answer = ipam.submit(request).await?;
        let Answer::RolledUp { rows, next } = answer else {
            tracing::error!(?answer, "an unexpected answer of the address book");
            return Ok(written);
        };
        written += rows;
        match next {
            Some(_) => after = next,
            None => return Ok(written),
        }
    }
}

#[cfg(test)]
mod tests;
