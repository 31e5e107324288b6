//! Kinds of pools that the cluster has no definition of.

use std::{sync::Arc, time::Duration};

use super::InClusterView;
use crate::controller::{kind::Kind, site::Site, store::Objects};

/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(10);

/// Shows in the cluster's state that it lacks the kind, until its objects are followed.
pub async fn report_missing(site: Arc<Site>, kind: Kind, objects: Arc<Objects<InClusterView>>) {
    let cancel = site.cancel();
    let look = async {
        objects.completed().await;
        while objects.followed_as().is_none() {
            let text = format!(
                "there is no {} in the cluster, so none is served: run `fipd crds install`",
                kind.kind
            );
            if site
                .session
                .troubled(kind.plural, Some(text.as_str().into()))
            {
                tracing::warn!(cluster = %site.name, "{text}");
            }
            tokio::time::sleep(LOOK).await;
        }
        site.session.troubled(kind.plural, None);
    };
    let _: Option<()> = cancel.run_until_cancelled(look).await;
}

#[cfg(test)]
mod tests {
    use fipd_core::System;
    use serde_json::json;

    use super::*;
    use crate::{
        clock, clusters::testing, controller::client::testing::serving, ipam::Ipam,
        systems::cluster_api::names::PREFIX_POOL,
    };

    #[tokio::test]
    async fn a_missing_definition_is_shown_until_it_is_there() {
        let (remote, _) = serving(|_| (404, json!("there is nothing")));
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let session = testing::session(remote.client(), &ipam).await;
        let site = Arc::new(Site::new(session, System::cluster_api()));
        let objects = Objects::new();
        let report = report_missing(Arc::clone(&site), PREFIX_POOL, Arc::clone(&objects));
        let report = tokio::spawn(report);
        let shown = || {
            testing::troubles(&site.session)
                .get(PREFIX_POOL.plural)
                .cloned()
        };
        tokio::time::pause();
        tokio::time::sleep(LOOK).await;
        assert_eq!(shown(), None, "it is not known yet");
        objects.complete();
        tokio::time::sleep(LOOK).await;
        let why = shown().expect("a trouble");
        assert!(
            why.contains("InClusterPrefixPool") && why.contains("fipd crds install"),
            "{why}"
        );
        objects.follow_as(PREFIX_POOL);
        report.await.expect("it ends");
        assert_eq!(shown(), None);
    }
}
