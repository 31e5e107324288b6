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

    /// Whether a pod that should be gone is lost with it: it is gone, or fipd has found it silent for `limit`, `seen` being how long
    /// it has found it so.
    pub fn is_lost(self, seen: Duration, limit: Option<Duration>) -> bool {
        match self {
            Self::Gone => true,
            Self::Answers => false,
            Self::Silent { .. } => limit.is_some_and(|limit| seen >= limit),
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

/// The node of a pod whose end is overdue: it may not answer any more. `ending`: for how long fipd knows that the pod is to end, by
/// no clock that somebody sets.
pub fn node_to_ask(pod: &Pod, ending: impl FnOnce() -> Duration) -> Option<&str> {
    pod.metadata.deletion_timestamp.as_ref()?;
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    let node = pod.spec.as_ref()?.node_name.as_deref();
    node.filter(|_| ending() >= grace)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn a_node_is_asked_for_once_the_end_of_its_pod_is_overdue() {
        let pod = |meta: serde_json::Value| -> Pod {
            serde_json::from_value(json!({
                "metadata": meta, "spec": { "nodeName": "n1", "containers": [] },
            }))
            .expect("a pod")
        };
        let asked = |meta: serde_json::Value, seconds| {
            let ending = || Duration::from_secs(seconds);
            node_to_ask(&pod(meta), ending).map(str::to_owned)
        };
        assert_eq!(asked(json!({}), 1_000), None, "it is not being deleted");
        // Long ago by the clock of the API server, which counts for nothing.
        let ends =
            json!({ "deletionTimestamp": at(0).to_string(), "deletionGracePeriodSeconds": 30 });
        for (seconds, node) in [(0, None), (29, None), (30, Some("n1"))] {
            assert_eq!(asked(ends.clone(), seconds).as_deref(), node, "{seconds}");
        }
        let at_once = json!({ "deletionTimestamp": at(0).to_string() });
        assert_eq!(asked(at_once, 0).as_deref(), Some("n1"));
        assert_eq!(node_to_ask(&Pod::default(), Duration::default), None);
    }

    #[test]
    fn a_pod_is_lost_with_a_node_that_is_gone_or_found_silent_for_the_declared_time() {
        let minute = Some(Duration::from_secs(60));
        let (gone, silent) = (NodeState::Gone, silent_since(0));
        for (node, seen, limit, lost) in [
            (gone, 0, None, true),
            (silent, 59, minute, false),
            (silent, 60, minute, true),
            // Nobody said how long.
            (silent, 999_999, None, false),
            (NodeState::Answers, 999_999, minute, false),
        ] {
            let found = node.is_lost(Duration::from_secs(seen), limit);
            assert_eq!(found, lost, "{node:?} {seen}");
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
