//! Compares the ledger in use with its file, page by page, so that decisions go on.
//!
//! Both change meanwhile, and the file is always ahead by a moment: a row that differs is looked at again until it
//! agrees, and is wrong only if it never does.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::{CheckedPage, Lease, LeaseFilter, LeaseKey, Ledger};

use crate::{ipam::Ipam, store::ReadError};

/// How often a row that differs is looked at.
const LOOKS: usize = 20;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// What was seen of the ledger in use.
#[derive(Debug, Default)]
pub struct Live {
    pub leases: usize,
    pub wrong: Vec<String>,
}

/// Checks the ledger in use, and against what its file was a moment ago. Blocks on the disk and for long.
///
/// # Errors
/// When the file cannot be read.
pub fn live(ipam: &Ipam, file: Option<&Ledger>) -> Result<Live, ReadError> {
    let mut live = Live::default();
    let (mut after, mut suspects) = (None, Vec::new());
    loop {
        let page = ipam.read(|ledger| ledger.check_page(after));
        live.leases += page.leases.len();
        live.wrong
            .extend(page.violations.iter().map(ToString::to_string));
        if let Some(file) = file {
            suspects.extend(differing(file, after, &page));
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut found = Vec::new();
    ipam.for_each_pool(|ledger, pool| ledger.check_pool_row(pool, &mut found));
    ipam.for_each_network(|ledger, network| ledger.check_network_row(network, &mut found));
    ipam.for_each_cluster(|ledger, record| ledger.check_cluster_row(record, &mut found));
    ipam.in_steps(|ledger, after| {
        let (wrong, next) = ledger.check_queues_page(after);
        found.extend(wrong);
        next
    });
    live.wrong.extend(found.iter().map(ToString::to_string));
    let wrong = settle(suspects, PAUSE, |keys| look(ipam, keys))?;
    let said = |key: LeaseKey| {
        format!(
            "lease {} of network {}: memory and store say different things",
            key.address, key.network.0
        )
    };
    live.wrong.extend(wrong.into_iter().map(said));
    Ok(live)
}

/// The leases of a page, and those of the file in the same range, that are not the same in both.
fn differing(file: &Ledger, after: Option<LeaseKey>, page: &CheckedPage) -> Vec<LeaseKey> {
    let rows = page.leases.iter().map(|lease| (lease.key, lease));
    let mut live: BTreeMap<LeaseKey, &Arc<Lease>> = rows.collect();
    let (mut from, mut found) = (after, Vec::new());
    loop {
        let rows = file.leases(&LeaseFilter::default(), from, Ledger::SCAN);
        let beyond = |key: LeaseKey| page.next.is_some_and(|last| key > last);
        for lease in rows.leases.iter().take_while(|lease| !beyond(lease.key)) {
            if live.remove(&lease.key) != Some(lease) {
                found.push(lease.key);
            }
        }
        from = rows.next.filter(|next| !beyond(*next));
        if from.is_none() {
            found.extend(live.into_keys());
            return found;
        }
    }
}

/// Looks at rows until they agree; those that never do.
fn settle<E>(
    mut rows: Vec<LeaseKey>,
    pause: Duration,
    look: impl Fn(&[LeaseKey]) -> Result<Vec<LeaseKey>, E>,
) -> Result<Vec<LeaseKey>, E> {
    for turn in 0..LOOKS {
        if rows.is_empty() {
            break;
        }
        if turn > 0 {
            std::thread::sleep(pause);
        }
        let mut left = Vec::new();
        for part in rows.chunks(Ledger::SCAN) {
            left.extend(look(part)?);
        }
        rows = left;
    }
    Ok(rows)
}

/// Which of the rows differ between file and memory. A row that cannot be read differs.
fn look(ipam: &Ipam, keys: &[LeaseKey]) -> Result<Vec<LeaseKey>, ReadError> {
    let file = match ipam.reader().leases(keys) {
        Err(error) if error.is_of_row() => match keys {
            [_] => return Ok(keys.to_vec()),
            _ => {
                let each = keys.chunks(1).map(|key| look(ipam, key));
                return Ok(each.collect::<Result<Vec<_>, _>>()?.concat());
            }
        },
        read => read?,
    };
    let live: Vec<_> =
        ipam.read(|ledger| keys.iter().map(|key| ledger.lease(*key).cloned()).collect());
    let rows = keys.iter().zip(file.iter().zip(&live));
    let differ = rows.filter(|(_, (file, live))| file.as_ref() != live.as_deref());
    Ok(differ.map(|(key, _)| *key).collect())
}

#[cfg(test)]
mod tests;
