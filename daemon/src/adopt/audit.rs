//! The audit log has each step of a takeover before it is begun and when it has ended.

use fipd_core::{Action, Actor};

use super::{ChangeState, TakeoverChange};
use crate::clusters::ClusterSession;

/// Who takes over which cluster, and where that is noted.
#[derive(Clone, Copy)]
pub struct AdoptLog<'a> {
    pub session: &'a ClusterSession,
    pub actor: &'a Actor,
}

impl AdoptLog<'_> {
    /// Notes what is about to be done; unless that succeeds it must not be.
    pub async fn begin(&self, what: &str) -> Result<(), String> {
        if self.session.cancel.is_cancelled() {
            return Err("not begun: the cluster is not served any more".to_owned());
        }
        let noted = self.note(what).await;
        noted.map_err(|why| format!("not begun, as the audit log cannot be written: {why}"))
    }

    /// Notes what became of it. `begin` has it already, so that this may fail.
    pub async fn end(&self, what: &str) {
        if let Err(why) = self.note(what).await {
            tracing::warn!(cluster = %self.session.name, what, why, "not in the audit log");
        }
    }

    /// Makes the planned changes one after the other, and notes what becomes of each.
    pub async fn carry_out<A: Clone, F: Future<Output = Result<(), String>>>(
        &self,
        changes: &mut [TakeoverChange<A>],
        act: impl Fn(A) -> F,
    ) {
        for change in changes {
            let Some(action) = change.action.clone() else {
                continue;
            };
            let what = format!("{}: {}", change.name, change.does);
            let done = match self.begin(&what).await {
                Err(why) => Err(why),
                Ok(()) => act(action).await,
            };
            self.end(&match &done {
                Ok(()) => format!("{}: done", change.name),
                Err(why) => format!("{}: failed: {why}", change.name),
            })
            .await;
            change.state = match done {
                Ok(()) => ChangeState::Done,
                Err(why) => ChangeState::Failed(why),
            };
        }
    }

    async fn note(&self, what: &str) -> Result<(), String> {
        let what = format!("{}: {what}", self.session.name);
        let actor = Actor::clone(self.actor);
        let noted = self.session.ipam.note(Action::TakenOver, what, actor);
        noted.await.map_err(|error| error.to_string())
    }
}
