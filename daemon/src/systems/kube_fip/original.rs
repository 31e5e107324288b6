//! The original program: two that give addresses of the same ranges would give them twice.

use std::time::Duration;

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

/// Waits until the original is gone; `false`: the session is over.
pub async fn wait_gone(site: &Site, remote: &Remote) -> bool {
    let cancel = site.cancel();
    let gone = async {
        let mut told = None;
        loop {
            let why = match running(remote, site.settings()).await {
                Ok(None) => return,
                Ok(Some(original)) => in_the_way(&original),
                Err(error) => format!("it is not known whether the original runs: {error}"),
            };
            if told.as_ref() != Some(&why) {
                tracing::warn!(cluster = %site.name, why, "kube-fip waits");
                told = Some(why);
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    cancel.run_until_cancelled(gone).await.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::client::testing::canned;

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
