//! What is found in a site and what would change, from what was seen.

use fipd_core::KeyBytes;

use super::{
    addresses, holders, inventory::SiteInventory, leftovers, owners, pool_ranges::PoolRanges,
    pools, uses::Uses,
};
use crate::{
    adopt::{ChangeState, FindingKind, TakeoverChange, TakeoverReport},
    controller::store::Key,
};

/// What is found in a site.
pub type SiteReport = TakeoverReport<AdoptAction>;

/// What is done only where it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdoptAction {
    /// The original's ValidatingWebhookConfiguration, as it was read.
    RemoveWebhook { uid: String, version: String },
    /// Labels of Services on FloatingIPs that no cluster has.
    RemoveGhosts(Vec<Key>),
    /// What the original's key signed goes on to count.
    TakeKey(KeyBytes),
}

/// Makes the report.
pub fn report(found: &SiteInventory) -> SiteReport {
    let mut report = SiteReport::default();
    let known = PoolRanges::of(found);
    let uses = Uses::of(found, &known);
    pools::judge(found, &known, &uses, &mut report);
    holders::judge(found, &known, &uses, &mut report);
    addresses::judge(found, &known, &mut report);
    // First of all the webhook goes: it may refuse what is written after it.
    leftovers::judge(found, &mut report);
    owners::judge(found, &mut report);
    for ((kind, key), why) in &found.malformed {
        let name = format!("{kind} {key}");
        report.wrong(FindingKind::Malformed, name, why);
    }
    report
}

/// Why an action is left alone after what became of the changes before it.
pub(super) fn obstacle(
    before: &[TakeoverChange<AdoptAction>],
    action: &AdoptAction,
) -> Option<String> {
    if !matches!(action, AdoptAction::RemoveGhosts(_)) {
        return None;
    }
    let webhook = leftovers::webhook_name();
    let stays = |one: &&TakeoverChange<_>| {
        one.name == webhook && matches!(one.state, ChangeState::Failed(_))
    };
    let stays = before.iter().find(stays)?;
    Some(format!(
        "left alone while {} is there: it may refuse the change",
        stays.name
    ))
}

/// Names in a sentence: the first few, and how many more there are.
pub(super) fn some(names: &[String]) -> String {
    const SHOWN: usize = 5;
    few(names, SHOWN, ", ")
}

/// Parts of a sentence, the same way.
pub(super) fn parts(parts: &[String]) -> String {
    const SHOWN: usize = 20;
    few(parts, SHOWN, "; ")
}

fn few(all: &[String], most: usize, between: &str) -> String {
    let shown = all.get(..most).unwrap_or(all);
    more(shown.join(between), all.len().saturating_sub(most))
}

/// `shown`, and how many more there are.
pub(super) fn more(shown: String, count: usize) -> String {
    match count {
        0 => shown,
        count => format!("{shown} and {count} more"),
    }
}
