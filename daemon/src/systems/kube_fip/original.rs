//! The original program: two that give addresses of the same ranges would give them twice.

use std::time::Duration;

use fipd_core::Text;
use k8s_openapi::api::apps::v1::Deployment;

use super::{
    names::{FLOATING_IP, RANGE},
    settings::KubeFipSettings,
};
use crate::{
    adopt::OriginalWorkload,
    controller::{
        client::{CallError, Remote},
        kind::{DEPLOYMENT, Kind},
        site::Site,
    },
};

/// Its Deployment, in the namespace of its ConfigMap.
const OPERATOR: &str = "kube-fip-operator";
/// Between two looks at it.
const PAUSE: Duration = Duration::from_secs(5);

/// The original, where it has or is to have pods: it has no Lease that would say who works. A pod that is ending, which only
/// newer API servers count, gives addresses until it is gone.
pub async fn running(
    remote: &Remote,
    settings: &KubeFipSettings,
) -> Result<Option<OriginalWorkload>, CallError> {
    let target = DEPLOYMENT.named(&settings.namespace, OPERATOR);
    let found: Option<Deployment> = remote.get(&target).await?;
    Ok(found.and_then(|found| {
        let status = found.status.as_ref();
        let pods = status.map(|status| [status.replicas, status.terminating_replicas]);
        let has_pods = pods.into_iter().flatten().flatten().any(|pods| pods > 0);
        let workload = OriginalWorkload::deployment(&found);
        (workload.replicas > 0 || has_pods).then_some(workload)
    }))
}

/// The kinds whose definition is still that of the original, which has no status: nothing shows there what became of an
/// object.
pub async fn without_status(remote: &Remote) -> Result<Vec<&'static str>, CallError> {
    let mut without = Vec::new();
    for (kind, plural) in [
        (RANGE, "floatingipranges/status"),
        (FLOATING_IP, "floatingips/status"),
    ] {
        if !(Kind { plural, ..kind }).is_served(remote).await? {
            without.push(kind.kind);
        }
    }
    Ok(without)
}

/// What to do about such kinds.
pub fn statusless(kinds: &[&str], cluster: &str) -> String {
    format!(
        "the definitions of {} have no status, so that nothing shows what became of an object: run `fipd crds install --cluster {cluster}`",
        kinds.join(" and ")
    )
}

/// Why fipd gives no address while the original runs.
pub fn in_the_way(original: &OriginalWorkload) -> String {
    let OriginalWorkload {
        namespace, name, ..
    } = original;
    format!(
        "{original} has pods or is to have some, and both would give addresses: run `kubectl -n {namespace} scale deployment {name} --replicas=0`"
    )
}

/// Waits until the original is gone, and shows that at the cluster; `false`: the session is over.
pub async fn wait_gone(site: &Site, remote: &Remote) -> bool {
    let show = |why: Option<String>| site.session.waits_for(&site.system, why.map(Text::from));
    let gone = async {
        loop {
            show(match running(remote, site.settings()).await {
                Ok(None) => return,
                Ok(Some(original)) => Some(in_the_way(&original)),
                Err(error) => Some(format!(
                    "it is not known whether the original runs: {error}"
                )),
            });
            tokio::time::sleep(PAUSE).await;
        }
    };
    let is_gone = site.cancel().run_until_cancelled(gone).await.is_some();
    show(None);
    is_gone
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use fipd_core::System;
    use serde_json::json;

    use super::*;
    use crate::{
        clock,
        clusters::testing::{session, waiting},
        controller::client::testing::{canned, serving},
        ipam::Ipam,
    };

    #[tokio::test]
    async fn while_the_original_runs_its_cluster_shows_what_to_do() {
        let runs = Arc::new(AtomicBool::new(true));
        let is_running = Arc::clone(&runs);
        let (remote, _) = serving(move |path| {
            match path.contains("/deployments/") && is_running.load(Ordering::Relaxed) {
                true => (200, json!({ "spec": { "replicas": 1 } })),
                false => (404, json!("no")),
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
        let session = session(remote.client(), &ipam).await;
        let site = Site::new(session, System::kube_fip());
        tokio::time::pause();
        let mut gone = std::pin::pin!(wait_gone(&site, &remote));
        let waits = tokio::time::timeout(PAUSE * 2, &mut gone).await;
        assert!(waits.is_err());
        let shown = waiting(&site.session);
        assert_eq!(shown.len(), 1);
        assert!(shown[0].contains("scale deployment"), "{shown:?}");
        runs.store(false, Ordering::Relaxed);
        assert!(gone.await);
        assert!(waiting(&site.session).is_empty());
    }

    #[tokio::test]
    async fn a_deployment_with_pods_or_that_is_to_have_some_is_in_the_way() {
        let settings = KubeFipSettings::default();
        for (answer, runs) in [
            ((404, "no"), false),
            ((200, r#"{"spec":{"replicas":0}}"#), false),
            (
                (200, r#"{"spec":{"replicas":0},"status":{"replicas":1}}"#),
                true,
            ),
            (
                (
                    200,
                    r#"{"spec":{"replicas":0},"status":{"terminatingReplicas":1}}"#,
                ),
                true,
            ),
            (
                (
                    200,
                    r#"{"spec":{"replicas":0},"status":{"replicas":0,"terminatingReplicas":0}}"#,
                ),
                false,
            ),
            ((200, r#"{"spec":{"replicas":1}}"#), true),
            ((200, r#"{"spec":{}}"#), true),
        ] {
            let (remote, asked) = canned(&[("GET", answer.0, answer.1)]);
            let found = running(&remote, &settings).await.unwrap();
            assert_eq!(found.is_some(), runs, "{answer:?}");
            assert!(asked.lock()[0].path.contains("/namespaces/kube-fip/"));
        }
        let (remote, _) = canned(&[("GET", 403, "no")]);
        assert!(running(&remote, &settings).await.is_err(), "nobody knows");
    }
}
