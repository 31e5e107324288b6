//! Whether a pod may still use its address. Pure.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff,
};

/// How the node of a pod is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// There is no such Node.
    Gone,
    /// It is not ready; `None`: nobody said since when.
    Silent { since: Option<jiff::Timestamp> },
    /// It is ready: it ends its pods itself, however long that takes.
    Answers,
}

impl NodeState {
    pub fn of(node: Option<&Node>) -> Self {
        let Some(node) = node else {
            return Self::Gone;
        };
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        match conditions.find(|one| one.type_ == "Ready") {
            Some(ready) if ready.status == "True" => Self::Answers,
            Some(ready) => Self::Silent {
                since: ready.last_transition_time.as_ref().map(|since| since.0),
            },
            None => Self::Silent { since: None },
        }
    }

    /// Whether it has been silent for `limit`, where a pod on it is overdue for so long and fipd has found it so for `seen`.
    fn is_lost(
        self,
        (overdue, seen): (Duration, Duration),
        limit: Option<Duration>,
        now: jiff::Timestamp,
    ) -> bool {
        match self {
            Self::Gone => true,
            Self::Answers => false,
            Self::Silent { since } => {
                let silent = since.map_or(overdue, |since| elapsed(since, now));
                limit.is_some_and(|limit| overdue.min(silent).min(seen) >= limit)
            }
        }
    }
}

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

/// Whether a pod whose end is overdue is lost with its node: that is gone, or both are silent for `limit`, also by what fipd has
/// seen of the node itself: the clocks that others go by may be behind.
pub fn is_lost(
    pod: &Pod,
    (node, seen): (NodeState, Duration),
    limit: Option<Duration>,
    now: jiff::Timestamp,
) -> bool {
    let overdue = overdue(pod, now).filter(|overdue| *overdue > Duration::ZERO);
    overdue.is_some_and(|overdue| node.is_lost((overdue, seen), limit, now))
}

/// How long ago the pod should have been gone; `None`: it is not being deleted. Its deletion time has its grace in it already.
fn overdue(pod: &Pod, now: jiff::Timestamp) -> Option<Duration> {
    let ends = pod.metadata.deletion_timestamp.as_ref()?.0;
    Some(elapsed(ends, now))
}

/// Zero where it is yet to come.
fn elapsed(since: jiff::Timestamp, now: jiff::Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
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
        let is_lost =
            |pod: &Pod, node, limit, now| is_lost(pod, (node, Duration::from_secs(60)), limit, now);
        let runs = pod(None);
        assert_eq!(node_to_ask(&runs, at(1_000)), None);
        let (gone, silent) = (NodeState::Gone, NodeState::Silent { since: None });
        assert!(
            !is_lost(&runs, gone, minute, at(1_000)),
            "it is not being deleted"
        );
        let ends = pod(Some(1_000));
        assert_eq!(node_to_ask(&ends, at(990)), None, "it has its grace");
        assert!(!is_lost(&ends, gone, minute, at(1_000)));
        assert_eq!(node_to_ask(&ends, at(1_001)), Some("n1"));
        assert!(is_lost(&ends, gone, None, at(1_001)), "its node is gone");
        for (node, now, lost) in [
            (silent, 1_059, false),
            (silent, 1_060, true),
            (silent_since(900), 1_059, false),
            (silent_since(900), 1_060, true),
            (silent_since(1_030), 1_089, false),
            (silent_since(1_030), 1_090, true),
            (silent_since(999_999), 2_000, false),
            (NodeState::Answers, 999_999, false),
        ] {
            let found = is_lost(&ends, node, minute, at(now));
            assert_eq!(found, lost, "{node:?} {now}");
        }
        assert!(
            !is_lost(&ends, silent, None, at(999_999)),
            "nobody said how long"
        );
        // Their clock is behind, or fipd's is ahead.
        let seen = Duration::from_secs(59);
        for (node, lost) in [(silent_since(900), false), (gone, true)] {
            let found = super::is_lost(&ends, (node, seen), minute, at(999_999));
            assert_eq!(found, lost, "{node:?}");
        }
    }

    fn silent_since(second: i64) -> NodeState {
        NodeState::Silent {
            since: Some(at(second)),
        }
    }

    #[test]
    fn a_node_answers_while_it_is_ready() {
        let ready = |status: &str| json!({ "type": "Ready", "status": status, "lastTransitionTime": at(7).to_string() });
        let pressure = json!({ "type": "MemoryPressure", "status": "True" });
        let bare = json!({ "type": "Ready", "status": "Unknown" });
        let silent = NodeState::Silent { since: None };
        for (conditions, state) in [
            (json!([]), silent),
            (json!([pressure]), silent),
            (json!([bare]), silent),
            (json!([pressure, ready("True")]), NodeState::Answers),
            (json!([ready("Unknown")]), silent_since(7)),
            (json!([ready("False")]), silent_since(7)),
        ] {
            let node = json!({ "metadata": {}, "status": { "conditions": conditions } });
            let node: Node = serde_json::from_value(node).expect("a node");
            assert_eq!(NodeState::of(Some(&node)), state, "{conditions}");
        }
        assert_eq!(NodeState::of(Some(&Node::default())), silent);
        assert_eq!(NodeState::of(None), NodeState::Gone);
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
