//! Tells of every decision in the log, once and with fields: `journalctl FIPD_POOL=vips` finds what was given of a pool.
//!
//! It reads what the audit log has got, beside the writer, so that no decision waits for the log.

use std::time::Duration;

use fipd_core::{AuditEntry, Ledger, Text};
use tokio_util::sync::CancellationToken;

use crate::{
    ipam::Ipam,
    logging::DECISION,
    store::{ReadError, StoreReader},
};

/// Decisions that come within this time are told together.
const CALM: Duration = Duration::from_millis(50);
/// Before what could not be read is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Tells of what is decided from now on, until `stop`.
pub async fn run(ipam: Ipam, stop: CancellationToken) {
    let next = ipam.reader().stats().audit_next;
    // It ends with the daemon only.
    let _ = stop.run_until_cancelled(follow(&ipam, next)).await;
}

async fn follow(ipam: &Ipam, mut next: u64) {
    let mut revisions = ipam.revisions();
    loop {
        revisions.borrow_and_update();
        let read = ipam.clone();
        let told = tokio::task::spawn_blocking(move || tell_from(&read, next)).await;
        match told {
            Ok(Ok(after)) if after != next => {
                next = after;
                continue;
            }
            Ok(Ok(_)) => {
                if revisions.changed().await.is_err() {
                    return;
                }
                tokio::time::sleep(CALM).await;
            }
            // The store is being reopened; its trouble is told by who has it.
            Ok(Err(_)) | Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Tells a page of entries from number `next` on; the number to go on from.
fn tell_from(ipam: &Ipam, next: u64) -> Result<u64, ReadError> {
    let reader = ipam.reader();
    let stats = reader.stats();
    let from = next.max(stats.audit_first);
    if from >= stats.audit_next {
        return Ok(from);
    }
    let end = from.saturating_add(StoreReader::PAGE_MAX as u64);
    let page = reader.audit_page(Some(end), StoreReader::PAGE_MAX)?;
    for (number, entry) in page.iter().rev().filter(|(number, _)| *number >= from) {
        tell(ipam, *number, entry);
    }
    Ok(end.min(stats.audit_next))
}

/// What an entry names, in words.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    network: Option<Text>,
    pool: Option<Text>,
    cluster: Option<Text>,
}

impl Names {
    fn of(ledger: &Ledger, entry: &AuditEntry) -> Self {
        let network = entry.network.and_then(|id| ledger.network(id));
        let pool = entry.pool.and_then(|id| ledger.pool(id));
        let cluster = entry.identity.as_ref().and_then(|one| one.cluster.as_ref());
        let record = cluster.and_then(|id| ledger.cluster(id));
        Self {
            network: network.map(|network| network.name.clone()),
            pool: pool.map(|pool| pool.spec.name.clone()),
            cluster: record.and_then(|record| record.names.first().cloned()),
        }
    }
}

fn tell(ipam: &Ipam, number: u64, entry: &AuditEntry) {
    let names = ipam.read(|ledger| Names::of(ledger, entry));
    let action = entry.action.as_str();
    let address = entry.what();
    let owner = entry.identity.as_ref().map(ToString::to_string);
    let lease = match (&names.network, &address) {
        (Some(network), Some(address)) => Some(format!("{network}/{address}")),
        _ => None,
    };
    let system = entry.identity.as_ref().map(|one| one.system.to_string());
    let what = [address.as_deref(), owner.as_deref(), Some(&*entry.detail)];
    let what: Vec<&str> = what
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
        .collect();
    tracing::info!(
        target: DECISION,
        audit = number,
        action,
        actor = %entry.actor,
        network = names.network.as_deref(),
        pool = names.pool.as_deref(),
        cluster = names.cluster.as_deref(),
        system,
        address,
        lease,
        owner,
        "{action}: {}",
        what.join(", "),
    );
}
