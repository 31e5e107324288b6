//! Lists that a Rancher does not let fipd read: nothing is done without them, and its cluster shows which they are.

use std::time::Duration;

use fipd_core::Text;
use tokio::time::timeout;

use crate::controller::site::Site;

/// After this time it is shown which lists are missing.
pub const WITHIN: Duration = Duration::from_secs(10);
/// The part of the cluster that is not in order meanwhile.
pub const PART: &str = "kube-fip-lists";

/// Waits until `known` is done, and shows meanwhile what waits for it (`held`), and which kinds are not listed yet.
pub async fn complete(
    site: &Site,
    known: impl Future<Output = ()>,
    held: &str,
    unlisted: impl Fn() -> String,
) {
    let mut known = std::pin::pin!(known);
    while timeout(WITHIN, &mut known).await.is_err() {
        let why = format!(
            "{held} before these are listed: {}; apply packaging/rbac/kube-fip.yaml again, bind its roles to fipd's user, and run `fipd crds install --cluster {}` where a kind is not there",
            unlisted(),
            site.name
        );
        if site.session.troubled(PART, Some(Text::from(&*why))) {
            tracing::warn!(cluster = %site.name, "{why}");
        }
    }
    site.session.troubled(PART, None);
}

/// The kinds that are not known yet.
pub fn missing(kinds: &[(bool, &str)]) -> String {
    let missing = kinds.iter().filter(|(is_known, _)| !is_known);
    let missing: Vec<&str> = missing.map(|(_, kind)| *kind).collect();
    missing.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::System;

    use super::*;
    use crate::{
        clock,
        clusters::testing::{session, troubles},
        controller::{fake_api_tests::client, store::Objects},
        ipam::Ipam,
    };

    #[tokio::test]
    async fn what_may_not_be_listed_shows_at_the_cluster_until_it_is_listed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let session = session(client(&Arc::default()), &ipam).await;
        let site = Site::new(session, System::kube_fip());
        let objects = Objects::<()>::new();
        tokio::time::pause();
        let all = complete(&site, objects.completed(), "nothing is served", || {
            missing(&[(true, "floatingipranges"), (false, "floatingips")])
        });
        let mut all = std::pin::pin!(all);
        let waits = timeout(WITHIN * 2, &mut all).await;
        assert!(waits.is_err());
        let shown = troubles(&site.session);
        let why = shown.get(PART).expect("it is shown");
        let lists = "nothing is served before these are listed: floatingips; apply";
        assert!(why.contains(lists), "{why}");
        objects.complete();
        all.await;
        assert!(troubles(&site.session).is_empty());
    }
}
