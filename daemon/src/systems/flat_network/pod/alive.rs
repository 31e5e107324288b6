//! Whether a pod may still use its address. Pure.

use std::time::Duration;

use k8s_openapi::{api::core::v1::Pod, jiff};

/// All its containers have ended for good.
pub fn is_finished(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Since when it has a node, where its scheduler says so.
pub fn scheduled(pod: &Pod) -> Option<jiff::Timestamp> {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let scheduled = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "True")?;
    Some(scheduled.last_transition_time.as_ref()?.0)
}

/// The node of a pod whose end is overdue: it may not answer any more.
pub fn node_to_ask(pod: &Pod, now: jiff::Timestamp) -> Option<&str> {
    let overdue = overdue(pod, now)?;
    let node = pod.spec.as_ref()?.node_name.as_deref();
    node.filter(|_| overdue > Duration::ZERO)
}

/// Whether a pod whose end is overdue is lost with its node: that is gone, or did not answer for `limit`.
pub fn is_lost(
    pod: &Pod,
    node_is_there: bool,
    limit: Option<Duration>,
    now: jiff::Timestamp,
) -> bool {
    let Some(overdue) = overdue(pod, now).filter(|overdue| *overdue > Duration::ZERO) else {
        return false;
    };
    !node_is_there || limit.is_some_and(|limit| overdue >= limit)
}

/// How long ago the pod should have been gone; `None`: it is not being deleted. Its deletion time has its grace in it already.
fn overdue(pod: &Pod, now: jiff::Timestamp) -> Option<Duration> {
    let ends = pod.metadata.deletion_timestamp.as_ref()?.0;
    let since = now.duration_since(ends);
    Some(Duration::try_from(since).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn a_pod_is_lost_with_its_node_once_its_end_is_overdue() {
        let pod = |deleted: Option<i64>| -> Pod {
            let deleted = deleted.map(|second| at(second).to_string());
            serde_json::from_value(json!({
                "metadata": { "name": "p", "deletionTimestamp": deleted },
                "spec": { "nodeName": "n1", "containers": [] },
            }))
            .expect("a pod")
        };
        let minute = Some(Duration::from_secs(60));
        let runs = pod(None);
        assert_eq!(node_to_ask(&runs, at(1_000)), None);
        assert!(
            !is_lost(&runs, false, minute, at(1_000)),
            "it is not being deleted"
        );
        let ends = pod(Some(1_000));
        assert_eq!(node_to_ask(&ends, at(990)), None, "it has its grace");
        assert!(!is_lost(&ends, false, minute, at(1_000)));
        assert_eq!(node_to_ask(&ends, at(1_001)), Some("n1"));
        assert!(is_lost(&ends, false, None, at(1_001)), "its node is gone");
        assert!(!is_lost(&ends, true, minute, at(1_059)));
        assert!(is_lost(&ends, true, minute, at(1_060)));
        assert!(
            !is_lost(&ends, true, None, at(999_999)),
            "nobody said how long"
        );
    }

    #[test]
    fn a_pod_that_ended_for_good_uses_nothing() {
        for (phase, finished) in [("Succeeded", true), ("Failed", true), ("Running", false)] {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {}, "status": { "phase": phase },
            }))
            .expect("a pod");
            assert_eq!(is_finished(&pod), finished, "{phase}");
        }
        assert!(!is_finished(&Pod::default()));
    }
}
