//! Taking a site over from the original programs of the family.
//!
//! ```text
//!  complete lists of Rancher, the address book --observe--> inventory --report--> report --> REST, command line
//! ```
//!
//! Most of it fipd does by itself once it leads. Here is what it found, and what somebody has to ask for.

mod addresses;
mod api_service;
mod apply;
mod holders;
mod inventory;
mod key;
mod ledger_view;
mod leftovers;
mod observe;
mod owners;
mod pool_ranges;
mod pools;
#[cfg(test)]
mod tests;

use fipd_core::{KeyBytes, System, Text};

use self::{
    inventory::SiteInventory,
    pool_ranges::{PoolRanges, Uses},
};
use super::{
    rancher::Ranchers,
    settings::{RancherFipRole, RancherFipSettings},
};
use crate::{
    adopt::{
        AdoptLog, ChangeState, FindingKind, Takeover, TakeoverChange, TakeoverError,
        TakeoverFuture, TakeoverReport,
    },
    clusters::ClusterSession,
    controller::{endpoint::OwnEndpoint, store::Key},
    system::Means,
};

/// Looks at sites and takes them over.
pub struct SiteTakeover {
    /// What this daemon calls itself in Leases.
    me: Text,
    endpoint: OwnEndpoint,
    ranchers: Ranchers,
}

impl SiteTakeover {
    pub fn new(means: &Means) -> Self {
        Self {
            me: Text::clone(&means.me),
            endpoint: means.endpoint.clone(),
            ranchers: means.shared.get(),
        }
    }
}

impl Takeover for SiteTakeover {
    fn look<'a>(&'a self, session: &'a ClusterSession) -> TakeoverFuture<'a> {
        Box::pin(async { Ok(self.report(session).await?.shown()) })
    }

    fn adopt<'a>(&'a self, log: AdoptLog<'a>) -> TakeoverFuture<'a> {
        Box::pin(async move {
            let mut report = self.report(log.session).await?.unblocked()?;
            let mut before = Vec::new();
            for mut change in std::mem::take(&mut report.changes) {
                if let Some(action) = &change.action {
                    change.state = match obstacle(&before, action) {
                        Some(why) => ChangeState::Failed(why),
                        None => apply::apply(&log, action, &change.name).await,
                    };
                }
                before.push(change);
            }
            report.changes = before;
            Ok(report.shown())
        })
    }
}

impl SiteTakeover {
    async fn report(&self, session: &ClusterSession) -> Result<SiteReport, TakeoverError> {
        let found = self.find(session).await?;
        let made = tokio::task::spawn_blocking(move || report(&found)).await;
        made.map_err(TakeoverError::Unmade)
    }

    async fn find(&self, session: &ClusterSession) -> Result<SiteInventory, TakeoverError> {
        let here = session.systems.contains(&System::rancher_fip());
        if !here || session.settings.of::<RancherFipSettings>().role != RancherFipRole::Management {
            return Err(TakeoverError::NotServed(format!(
                "cluster {} holds no pools of rancher-fip: its role in the configuration is not \"management\"",
                session.name
            )));
        }
        // What pools are on is known once fipd leads there.
        let data = self.ranchers.get(&session.name).data();
        let attachments = data.and_then(|data| data.attachments.get().cloned());
        observe::find(session, &self.me, &self.endpoint, attachments).await
    }
}

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
