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
mod foreign;
mod guest_url;
mod holders;
mod inventory;
mod key;
mod ledger_view;
mod leftovers;
mod observe;
mod owners;
mod pool_ranges;
mod pools;
pub mod report;
#[cfg(test)]
mod tests;
mod uses;

use fipd_core::{System, Text};
use futures::future::BoxFuture;

use self::{inventory::SiteInventory, report::SiteReport};
use super::{
    rancher::Ranchers,
    settings::{RancherFipRole, RancherFipSettings},
};
use crate::{
    adopt::{AdoptLog, ChangeState, Takeover, TakeoverError, TakeoverReport},
    clusters::ClusterSession,
    controller::endpoint::OwnEndpoint,
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
    fn look<'a>(
        &'a self,
        session: &'a ClusterSession,
    ) -> BoxFuture<'a, Result<TakeoverReport, TakeoverError>> {
        Box::pin(async { Ok(self.report(session).await?.shown()) })
    }

    fn adopt<'a>(
        &'a self,
        log: AdoptLog<'a>,
    ) -> BoxFuture<'a, Result<TakeoverReport, TakeoverError>> {
        Box::pin(async move {
            let mut report = self.report(log.session).await?.unblocked()?;
            let mut before = Vec::new();
            for mut change in std::mem::take(&mut report.changes) {
                if let Some(action) = &change.action {
                    change.state = match report::obstacle(&before, action) {
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
        let made = tokio::task::spawn_blocking(move || report::report(&found)).await;
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
