//! What needs somebody: one list for the first page, each entry with what to do and where.
//!
//! Urgent is what does not work; the rest will not, unless somebody does something.

mod addresses;
mod clusters;
mod config;
mod rules;
mod storage;

use fipd_web_ui::{ClusterRow, Warning, count, links};

use super::{pools::Figures, views};
use crate::api::Api;
use addresses::{adoptions, contended, doubtful, filling, full};
use clusters::{discovery, guests, held_back, ill};
use config::{certificate, configuration, silent};
use rules::engine;
pub use storage::store;
use storage::{clock, copies, disk, restore_hold};

/// Warnings of one kind; how many more there are is said.
const MOST: usize = 5;

/// Pages that only admins may open.
const ADMINS: [&str; 2] = [links::SETTINGS, links::BACKUP];

/// All there is, what is urgent first, as it is told to an admin or to others.
pub fn all(api: &Api, admin: bool, pools: &[Figures], clusters: &[ClusterRow]) -> Vec<Warning> {
    let now = api.ipam.now();
    let row = |one: &Figures| {
        api.ipam
            .read(|ledger| views::pool_row(ledger, &one.pool, now))
    };
    let mut all: Vec<_> = store(&api.ipam).into_iter().collect();
    all.extend(disk(api.ipam.reader().disk().ok()));
    all.extend(api.ipam.read(restore_hold));
    all.extend(clock(&api.ipam));
    all.extend(configuration(&api.reload.standing()));
    all.extend(discovery(api.clusters.discovery()));
    all.extend(some(silent(api.webhooks.views(&api.ipam))));
    all.extend(api.ipam.read(adoptions));
    all.extend(full(pools, row));
    all.extend(some(ill(clusters)));
    all.extend(some(held_back(clusters)));
    all.extend(some(guests(&api.guests)));
    all.extend(engine(&api.rules.view()));
    all.extend(api.ipam.read(contended));
    all.extend(filling(pools, row));
    all.extend(doubtful(pools, row));
    all.extend(copies(
        &api.backups.schedule(),
        &api.backups.standing(),
        now,
    ));
    all.extend(certificate(*api.certificate.borrow(), now));
    all.sort_by_key(|warning| !warning.urgent);
    if !admin {
        all.iter_mut().for_each(for_others);
    }
    all
}

/// Nobody is led to a page that is refused.
fn for_others(warning: &mut Warning) {
    let refused = |(to, _): &&mut (String, String)| ADMINS.contains(&to.as_str());
    if let Some(link) = warning.link.as_mut().filter(refused) {
        *link = (String::new(), "That is for an admin to do.".to_owned());
    }
}

/// The first of a kind; the last one says how many more there are.
fn some(warnings: impl IntoIterator<Item = Warning>) -> Vec<Warning> {
    let mut rest = warnings.into_iter();
    let first = rest.by_ref().take(MOST).collect();
    and_more(first, rest.count())
}

fn and_more(mut all: Vec<Warning>, more: usize) -> Vec<Warning> {
    if let Some(last) = all.last_mut().filter(|_| more > 0) {
        last.next = format!("{} {} more like it.", last.next, count(more));
    }
    all
}

/// A sentence of somebody else's as a part of ours.
fn part(text: &str) -> String {
    text.trim_end_matches('.').to_owned()
}

fn link(to: &str, text: &str) -> Option<(String, String)> {
    Some((to.to_owned(), text.to_owned()))
}

#[cfg(test)]
mod tests;
