//! Taking a site over from the original programs of the family.
//!
//! ```text
//!  complete lists of Rancher, the address book --observe--> Found --report--> Report --> REST, command line
//! ```
//!
//! Most of it fipd does by itself once it leads. Here is what it found, and what somebody has to ask for.

mod addresses;
mod api_service;
mod apply;
mod foreign;
pub mod found;
mod guest_url;
mod holders;
mod key;
mod ledger_view;
mod leftovers;
mod lock;
mod observe;
mod owners;
mod pool_ranges;
mod pools;
pub mod report;
#[cfg(test)]
mod tests;
mod uses;

use fipd_core::{Actor, System, Text};

use self::report::{Report, State};
use super::{RunningRancherFip, api_service::plan::Door};
use crate::clusters::{CallError, ClusterSession};
use crate::systems::rancher_fip::{
    adopt::lock::Turns,
    settings::{RancherFipRole, RancherFipSettings},
};

/// Looks at sites and takes them over.
#[derive(Clone, Default)]
pub struct Takeover {
    /// What this daemon calls itself in Leases.
    me: Text,
    door: Door,
    turns: Turns,
}

/// Why there is no report, or nothing was taken over.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error(
        "cluster {0} holds no pools of rancher-fip: its role in the configuration is not \"management\""
    )]
    NotManagement(Text),
    #[error(transparent)]
    Cluster(#[from] CallError),
    /// Nothing was changed.
    #[error("nothing was taken over: {}", .0.join("; "))]
    Blocked(Vec<String>),
    #[error(
        "it is being taken over already: wait for that to end, then look with `fipd adopt rancher-fip --dry-run`"
    )]
    Busy,
    #[error("the take-over broke off; the audit log says what was begun: {0}")]
    Broken(#[from] tokio::task::JoinError),
    #[error("the report could not be made: {0}")]
    Unmade(tokio::task::JoinError),
}

impl RunningRancherFip {
    /// Takes sites over from the original programs.
    pub fn takeover(&self) -> Takeover {
        Takeover {
            me: Text::clone(&self.means.me),
            door: Door::of(&self.means.endpoint),
            turns: Turns::default(),
        }
    }
}

impl Takeover {
    /// What is found in the cluster and what would change. Changes nothing.
    pub async fn look(&self, session: &ClusterSession) -> Result<Report, AdoptError> {
        let found = self.find(session).await?;
        let made = tokio::task::spawn_blocking(move || report::report(&found)).await;
        made.map_err(AdoptError::Unmade)
    }

    /// Does what is done only where it is asked for, and says what became of it. Doing it again changes nothing.
    ///
    /// One at a time for each cluster, and to its end also where nobody waits for it.
    pub async fn take_over(
        &self,
        session: &ClusterSession,
        actor: &Actor,
    ) -> Result<Report, AdoptError> {
        let turn = self.turns.begin(&session.id.0).ok_or(AdoptError::Busy)?;
        let (takeover, session, actor) = (self.clone(), session.clone(), actor.clone());
        let work = tokio::spawn(async move {
            let _turn = turn;
            let done = takeover.take_all(&session, &actor).await;
            match &done {
                Ok(_) => tracing::info!(cluster = %session.name, %actor, "rancher-fip taken over"),
                Err(why) => {
                    tracing::warn!(cluster = %session.name, %actor, %why, "rancher-fip not taken over")
                }
            }
            done
        });
        work.await?
    }

    async fn take_all(
        &self,
        session: &ClusterSession,
        actor: &Actor,
    ) -> Result<Report, AdoptError> {
        let mut report = self.look(session).await?;
        if !report.blockers.is_empty() {
            return Err(AdoptError::Blocked(report.blockers));
        }
        let mut before = Vec::new();
        for mut change in std::mem::take(&mut report.changes) {
            if let Some(action) = &change.action {
                change.state = match report::obstacle(&before, action) {
                    Some(why) => State::Failed(why),
                    None => apply::apply(session, action, &change.name, actor).await,
                };
            }
            before.push(change);
        }
        report.changes = before;
        Ok(report)
    }

    async fn find(&self, session: &ClusterSession) -> Result<found::Found, AdoptError> {
        let here = session.systems.contains(&System::rancher_fip());
        if !here || session.settings.of::<RancherFipSettings>().role != RancherFipRole::Management {
            return Err(AdoptError::NotManagement(Text::clone(&session.name)));
        }
        observe::find(session, &self.me, &self.door).await
    }
}
