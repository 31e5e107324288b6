//! Leader-election Leases of the programs that fipd stands in for: while it holds them, none of those does anything, and
//! without them fipd does nothing.
//!
//! `record` decides, `keeper` has one Lease, and here is what runs for as long as all of them are held.

mod identity;
mod keeper;
mod record;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, time::Duration};

use fipd_core::{System, Text};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::identity::{identity, is_fipd};
use self::{
    keeper::{LeaseRenewer, Loss, Waits},
    record::RETRY,
};
use crate::{
    clusters::ClusterSession,
    controller::{client::Remote, store::Key},
};

/// For what was begun to end before others may take the lease: less than lies between the holder's deadline and theirs.
const LAST_WORDS: Duration = Duration::from_secs(4);
/// For the leases to be let go at a stop.
const FAREWELL: Duration = Duration::from_secs(2);

/// The Leases to hold. Whoever wants several takes them in one order, so that no two wait for each other.
pub struct Wanted {
    pub leases: Vec<Key>,
    /// Who holds them.
    pub me: Text,
}

/// Runs `run` for as long as all leases are held, with a session that ends when one is lost. Returns when `session` is
/// over or a lease was lost. `elsewhere` hears whether somebody else holds one, each time that this is known.
pub async fn while_held<R: Future<Output = ()>>(
    session: &ClusterSession,
    system: &System,
    wanted: &Wanted,
    elsewhere: impl Fn(bool),
    run: impl FnOnce(ClusterSession) -> R,
) {
    let stop = CancellationToken::new();
    let mut kept = JoinSet::new();
    if take_all(session, system, wanted, &elsewhere, &stop, &mut kept).await {
        elsewhere(false);
        session.waits_for(system, None);
        tracing::info!(cluster = %session.name, %system, leases = ?wanted.leases, "leads");
        let lost = async {
            // `None`: there is no lease to lose.
            match kept.join_next().await {
                Some(ended) => {
                    // Who follows us must not go on beside the new holder.
                    let lost = ended.as_ref().ok().and_then(Option::as_ref);
                    if lost.is_some_and(|lost| matches!(lost.why, Loss::Taken(_))) {
                        elsewhere(true);
                    }
                    report(session, system, ended);
                }
                None => std::future::pending().await,
            }
        };
        run_until(session, lost, run).await;
    }
    session.waits_for(system, None);
    stop.cancel();
    let ended = async { while kept.join_next().await.is_some() {} };
    if tokio::time::timeout(FAREWELL, ended).await.is_err() {
        tracing::warn!(cluster = %session.name, %system, "not every lease was let go in time; others take them once they have expired");
    }
}

/// Runs `run` with a session of its own, which ends with `session` or when `over` does.
pub async fn run_until<R: Future<Output = ()>>(
    session: &ClusterSession,
    over: impl Future<Output = ()>,
    run: impl FnOnce(ClusterSession) -> R,
) {
    let cancel = session.cancel.child_token();
    let mut inner = session.clone();
    inner.cancel = cancel.clone();
    let running = run(inner);
    tokio::pin!(running);
    tokio::select! {
        () = &mut running => return,
        () = over => {}
    }
    cancel.cancel();
    if tokio::time::timeout(LAST_WORDS, running).await.is_err() {
        tracing::warn!(cluster = %session.name, "the controllers did not end in time and are aborted");
    }
}

/// Takes one lease after the other and keeps those it has; `false`: the session is over, or one was lost again.
async fn take_all(
    session: &ClusterSession,
    system: &System,
    wanted: &Wanted,
    elsewhere: &impl Fn(bool),
    stop: &CancellationToken,
    kept: &mut JoinSet<Option<Lost>>,
) -> bool {
    let remote = Remote::new(session.client.clone());
    let leases = wanted.leases.iter();
    let renewer =
        |lease: &Key| LeaseRenewer::new(remote.clone(), &lease.namespace, &lease.name, &wanted.me);
    let mut keepers: VecDeque<LeaseRenewer> = leases.map(renewer).collect();
    while let Some(mut keeper) = keepers.pop_front() {
        let place = format!("{}/{}", keeper.namespace(), keeper.name());
        let tell = |waits: Waits| {
            // Whether another leads is not known where it cannot be read.
            if let Waits::Held(_) = waits {
                elsewhere(true);
            }
            session.waits_for(system, Some(sentence(&place, &waits)));
        };
        let taken = tokio::select! {
            taken = keeper.acquire(&session.cancel, tell) => taken,
            () = look_at(&mut keepers) => false,
            Some(ended) = kept.join_next() => {
                report(session, system, ended);
                false
            }
        };
        if !taken {
            return false;
        }
        let stop = stop.clone();
        kept.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                why = keeper.keep() => return Some(Lost { lease: keeper.name().to_owned(), why }),
            }
            keeper.release().await;
            None
        });
    }
    true
}

/// Looks at the leases whose turn has not come, for ever: how long a dead holder is waited for counts from the first look.
async fn look_at(keepers: &mut VecDeque<LeaseRenewer>) {
    loop {
        for keeper in keepers.iter_mut() {
            keeper.watch().await;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// A lease that is not ours any more.
struct Lost {
    lease: String,
    why: Loss,
}

fn report(
    session: &ClusterSession,
    system: &System,
    ended: Result<Option<Lost>, tokio::task::JoinError>,
) {
    match ended {
        Ok(Some(Lost { lease, why })) => {
            tracing::error!(cluster = %session.name, %system, lease, "lost the lease: {why}; nothing more is written until it is held again");
        }
        Ok(None) => {}
        Err(error) => {
            tracing::error!(cluster = %session.name, %system, %error, "the renewal of a lease ended abnormally");
        }
    }
}

fn sentence(place: &str, waits: &Waits) -> Text {
    match waits {
        Waits::Held(holder) => format!(
            "waiting for lease {place} held by {holder}: nothing is done here until that program has stopped"
        ),
        Waits::Failed(error) => format!("waiting for lease {place}: {error}"),
    }
    .into()
}
