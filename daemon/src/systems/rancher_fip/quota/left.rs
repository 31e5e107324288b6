//! The finalizer of the cluster manager on a quota that nobody removes the Secrets of: the cluster manager that set it is
//! switched off.

use std::time::Duration;

use fipd_crds::labels::SECRET_CLEANUP;

use super::Quotas;
use crate::{
    clock,
    controller::{ReconcileError, client::Remote, meta::Meta, queue::Next, store::Key},
    systems::rancher_fip::{kinds::QUOTA, settings::RancherFipSettings},
};

impl Quotas {
    /// Where the cluster manager is off, its finalizer goes after the time that it would have had.
    pub(super) async fn let_secrets_be(
        &self,
        key: &Key,
        meta: &Meta,
    ) -> Result<Next, ReconcileError> {
        let settings = self.context.site.settings::<RancherFipSettings>();
        if settings.cluster_manager.enabled || !meta.has_finalizer(SECRET_CLEANUP) {
            return Ok(Next::Done);
        }
        let rest = settings
            .release_wait
            .left(meta.deleted.unwrap_or_default(), clock::now());
        let next = drop_late(&self.context.remote, key, meta, rest).await?;
        if next == Next::Done {
            let note = format!(
                "the cluster manager is switched off: Secrets rancher-fip-config-{} that are left in clusters stay",
                key.name
            );
            self.context.warn(key, &meta.uid, "SecretsLeftBehind", note);
        }
        Ok(next)
    }
}

async fn drop_late(
    remote: &Remote,
    key: &Key,
    meta: &Meta,
    rest: Option<Duration>,
) -> Result<Next, ReconcileError> {
    if let Some(rest) = rest {
        return Ok(Next::After(rest));
    }
    let (target, finalizers) = (QUOTA.target(key), &meta.finalizers);
    let drop = remote.drop_finalizer(&target, &meta.uid, finalizers, SECRET_CLEANUP);
    drop.await?;
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
        let since = Timestamp(1_000_000);
        let meta = Meta {
            uid: "u".into(),
            finalizers: vec!["other".to_owned(), SECRET_CLEANUP.to_owned()],
            deleted: Some(since),
            ..Meta::default()
        };
        let key = Key::new("", "p-1");
        let rest = |now| ReleaseWait::default().left(since, Timestamp(now));
        let (remote, _) = canned(&[]);
        let early = drop_late(&remote, &key, &meta, rest(1_590_000)).await;
        assert_eq!(early.unwrap(), Next::After(Duration::from_secs(10)));
        let (remote, asked) = canned(&[("PATCH", 200, "{}")]);
        let late = drop_late(&remote, &key, &meta, rest(1_600_000)).await;
        assert_eq!(late.unwrap(), Next::Done);
        let body = asked.lock().pop().unwrap().body;
        let test =
            json!({ "op": "test", "path": "/metadata/finalizers/1", "value": SECRET_CLEANUP });
        assert_eq!(body[1], test);
    }
}
