//! The finalizer of the cluster manager on a quota that nobody removes the Secrets of: the cluster manager that set it is
//! switched off.

use std::time::Duration;

use fipd_crds::labels::SECRET_CLEANUP;

use super::{Quotas, end::Ending, reference, target};
use crate::{
    clock,
    controller::{Trouble, client::Remote, queue::Next, store::Key},
};

impl Quotas {
    /// Where the cluster manager is off, its finalizer goes after the time that it would have had.
    pub(super) async fn let_secrets_be(
        &self,
        key: &Key,
        ending: &Ending<'_>,
    ) -> Result<Next, Trouble> {
        let settings = &self.site.session.settings.rancher_fip;
        if settings.cluster_manager.enabled || !ending.has(SECRET_CLEANUP) {
            return Ok(Next::Done);
        }
        let rest = settings.release_wait.left(ending.since, clock::now());
        let next = drop_late(&self.data.remote, key, ending, rest).await?;
        if next == Next::Done {
            let note = format!(
                "the cluster manager is switched off: Secrets rancher-fip-config-{} that are left in clusters stay",
                key.name
            );
            self.events
                .warning(&reference(key, ending.uid), "SecretsLeftBehind", note);
        }
        Ok(next)
    }
}

async fn drop_late(
    remote: &Remote,
    key: &Key,
    ending: &Ending<'_>,
    rest: Option<Duration>,
) -> Result<Next, Trouble> {
    if let Some(rest) = rest {
        return Ok(Next::After(rest));
    }
    remote
        .drop_finalizer(&target(key), ending.uid, ending.finalizers, SECRET_CLEANUP)
        .await?;
    Ok(Next::Done)
}

#[cfg(test)]
mod tests {
    use fipd_core::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::{config::ReleaseWait, controller::client::testing::canned};

    #[tokio::test]
    async fn a_quota_does_not_wait_for_ever_for_a_cluster_manager_that_is_off() {
        let finalizers = ["other".to_owned(), SECRET_CLEANUP.to_owned()];
        let ending = Ending {
            uid: "u",
            finalizers: &finalizers,
            since: Timestamp(1_000_000),
        };
        let key = Key::new("", "p-1");
        let rest = |now| ReleaseWait::default().left(ending.since, Timestamp(now));
        let (remote, _) = canned(&[]);
        let early = drop_late(&remote, &key, &ending, rest(1_590_000)).await;
        assert_eq!(early.unwrap(), Next::After(Duration::from_secs(10)));
        let (remote, asked) = canned(&[("PATCH", 200, "{}")]);
        let late = drop_late(&remote, &key, &ending, rest(1_600_000)).await;
        assert_eq!(late.unwrap(), Next::Done);
        let body = asked.lock().pop().unwrap().body;
        let test =
            json!({ "op": "test", "path": "/metadata/finalizers/1", "value": SECRET_CLEANUP });
        assert_eq!(body[1], test);
    }
}
