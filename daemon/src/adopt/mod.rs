//! Taking over what the original programs of a system left in a cluster or on this host.
//!
//! ```text
//!  lists of the cluster, address book, this host --observe--> inventory --judge--> report --> REST, command line
//! ```
//!
//! A system says what it finds and makes the changes. Here is what all of them share: the report, one takeover at a
//! time, the audit log, and looks at the originals' Leases and workloads.

mod audit;
pub mod leases;
mod lock;
mod report;
mod workload;

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{Actor, System};
use futures::future::BoxFuture;

pub use self::{
    audit::AdoptLog,
    report::{ChangeBy, ChangeState, Finding, FindingKind, TakeoverChange, TakeoverReport},
    workload::OriginalWorkload,
};
use crate::{
    clusters::{CallError, ClusterSession},
    rules::CommandError,
};
use lock::AdoptLocks;

/// What was seen, or why it could not be looked at: that is reported, and keeps nothing else from being shown.
pub type Looked<T> = Result<T, String>;

/// Refuses a cluster that does not have the system.
pub fn require(session: &ClusterSession, system: &System) -> Result<(), TakeoverError> {
    if session.systems.contains(system) {
        return Ok(());
    }
    let cluster = &session.name;
    let system = system.as_str();
    Err(TakeoverError::NotServed(format!(
        "cluster {cluster} does not have the system {system}: its systems in the configuration lack {system:?}"
    )))
}

/// A report, or why there is none.
pub type TakeoverFuture<'a> = BoxFuture<'a, Result<TakeoverReport, TakeoverError>>;

/// How a system looks at what its originals left, and takes it over.
pub trait Takeover: Send + Sync {
    /// What is found and what would change. Changes nothing.
    fn look<'a>(&'a self, session: &'a ClusterSession) -> TakeoverFuture<'a>;

    /// Does what is done only where it is asked for, and says what became of it. Doing it again changes nothing.
    fn adopt<'a>(&'a self, log: AdoptLog<'a>) -> TakeoverFuture<'a>;
}

/// Why there is no report, or nothing was taken over.
#[derive(Debug, thiserror::Error)]
pub enum TakeoverError {
    /// With the systems that have one.
    #[error("there is nothing to take over for system {0:?}: {1} can be taken over")]
    Unknown(String, String),
    /// The system is not served in the cluster in a way that has something to take over.
    #[error("{0}")]
    NotServed(String),
    #[error(transparent)]
    Cluster(#[from] CallError),
    /// Nothing was changed.
    #[error("nothing was taken over: {}", .0.join("; "))]
    Blocked(Vec<String>),
    #[error(
        "it is being taken over already: wait for that to end, then look with `fipd adopt {0} --cluster NAME --dry-run`"
    )]
    Busy(System),
    /// Without a row in the audit log nothing is changed.
    #[error("{0}")]
    NotBegun(String),
    #[error(transparent)]
    Rules(#[from] CommandError),
    #[error("the takeover broke off; the audit log says what was begun: {0}")]
    Broken(#[from] tokio::task::JoinError),
    #[error("the report could not be made: {0}")]
    Unmade(tokio::task::JoinError),
}

/// The takeovers of this daemon, by system.
#[derive(Clone, Default)]
pub struct Takeovers {
    all: BTreeMap<System, Arc<dyn Takeover>>,
    locks: AdoptLocks,
}

/// The takeover of one system.
pub struct SystemTakeover<'a> {
    system: &'a System,
    takeover: &'a Arc<dyn Takeover>,
    locks: &'a AdoptLocks,
}

impl Takeovers {
    pub fn new(all: impl IntoIterator<Item = (System, Arc<dyn Takeover>)>) -> Self {
        Self {
            all: all.into_iter().collect(),
            locks: AdoptLocks::default(),
        }
    }

    /// That of the system.
    pub fn of(&self, system: &str) -> Result<SystemTakeover<'_>, TakeoverError> {
        let named = system.parse::<System>().ok();
        let found = named.and_then(|system| self.all.get_key_value(&system));
        let Some((system, takeover)) = found else {
            let known: Vec<&str> = self.all.keys().map(System::as_str).collect();
            return Err(TakeoverError::Unknown(system.to_owned(), known.join(", ")));
        };
        let locks = &self.locks;
        Ok(SystemTakeover {
            system,
            takeover,
            locks,
        })
    }
}

impl SystemTakeover<'_> {
    /// What is found in the cluster and what would change. Changes nothing.
    pub async fn look(&self, session: &ClusterSession) -> Result<TakeoverReport, TakeoverError> {
        self.takeover.look(session).await
    }

    /// Takes it over: one at a time for each cluster, and to its end also where nobody waits for it.
    pub async fn adopt(
        &self,
        session: &ClusterSession,
        actor: &Actor,
    ) -> Result<TakeoverReport, TakeoverError> {
        let system = self.system.clone();
        let lock = self.locks.acquire(&system, &session.id.0);
        let lock = lock.ok_or_else(|| TakeoverError::Busy(system.clone()))?;
        let (takeover, session, actor) =
            (Arc::clone(self.takeover), session.clone(), actor.clone());
        let work = tokio::spawn(async move {
            let _lock = lock;
            let (session, actor) = (&session, &actor);
            let done = takeover.adopt(AdoptLog { session, actor }).await;
            match &done {
                Ok(_) => tracing::info!(cluster = %session.name, %actor, "{system} taken over"),
                Err(why) => {
                    tracing::warn!(cluster = %session.name, %actor, %why, "{system} not taken over")
                }
            }
            done
        });
        work.await?
    }
}

impl<A> TakeoverReport<A> {
    /// Refuses a report with blockers.
    pub fn unblocked(self) -> Result<Self, TakeoverError> {
        match self.blockers.is_empty() {
            true => Ok(self),
            false => Err(TakeoverError::Blocked(self.blockers)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Takeover for Nothing {
        fn look<'a>(&'a self, _: &'a ClusterSession) -> TakeoverFuture<'a> {
            Box::pin(async { Ok(TakeoverReport::default()) })
        }

        fn adopt<'a>(&'a self, log: AdoptLog<'a>) -> TakeoverFuture<'a> {
            self.look(log.session)
        }
    }

    #[test]
    fn a_system_without_takeover_is_refused_with_those_that_have_one() {
        let all = ["one", "two"].map(|system| {
            let takeover: Arc<dyn Takeover> = Arc::new(Nothing);
            (system.parse().expect("a system"), takeover)
        });
        let takeovers = Takeovers::new(all);
        assert!(takeovers.of("two").is_ok());
        for system in ["three", "No System"] {
            let error = takeovers.of(system).err().expect("it is unknown");
            let said = format!(
                "there is nothing to take over for system {system:?}: one, two can be taken over"
            );
            assert_eq!(error.to_string(), said);
        }
    }

    #[test]
    fn a_report_with_blockers_is_not_carried_out() {
        let mut report = TakeoverReport::<()>::default();
        assert!(report.clone().unblocked().is_ok());
        report.blockers = vec!["stop it".to_owned(), "wait".to_owned()];
        let refused = report.unblocked().expect_err("it has blockers");
        assert_eq!(refused.to_string(), "nothing was taken over: stop it; wait");
    }
}
