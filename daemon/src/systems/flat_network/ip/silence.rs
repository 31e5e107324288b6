//! For how long fipd itself has seen pods end and found their nodes silent: the clocks of its host and of the API server may differ.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{controller::store::Key, systems::flat_network::pod::alive::NodeState};

/// Pods that end, by the address and the UID of its pod: the next pod of the name has a grace of its own.
#[derive(Default)]
pub struct SeenNodes(Mutex<BTreeMap<(Key, String), SeenPod>>);

struct SeenPod {
    /// When fipd first saw that it is to end.
    ends: Instant,
    /// How its node was found, and since when.
    node: Option<(NodeState, Instant)>,
}

impl SeenPod {
    fn ending(now: Instant) -> Self {
        Self {
            ends: now,
            node: None,
        }
    }
}

impl SeenNodes {
    /// The pod is to end: for how long fipd knows it already.
    pub fn ending(&self, ip: &Key, pod: &str) -> Duration {
        let now = Instant::now();
        let mut all = self.0.lock();
        let seen = all.entry((ip.clone(), pod.to_owned()));
        now - seen.or_insert_with(|| SeenPod::ending(now)).ends
    }

    /// Its node is found so: for how long already, without a change.
    pub fn note(&self, ip: &Key, pod: &str, node: NodeState) -> Duration {
        let now = Instant::now();
        let mut all = self.0.lock();
        let seen = all.entry((ip.clone(), pod.to_owned()));
        let seen = seen.or_insert_with(|| SeenPod::ending(now));
        let (state, since) = seen.node.get_or_insert((node, now));
        if *state != node {
            (*state, *since) = (node, now);
        }
        now - *since
    }

    /// The FlatNetworkIP is gone. Not before: what follows the end of its last pod may fail, and the next try looks again.
    pub fn forget(&self, ip: &Key) {
        self.0.lock().retain(|(one, _), _| one != ip);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_silence_without_a_pause_counts() {
        let nodes = SeenNodes::default();
        let (ip, pod, other) = (Key::new("ns", "a"), "first", "next");
        let silent = |second| NodeState::Silent {
            since: jiff::Timestamp::from_second(second).ok(),
        };
        let pass = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let note = |node| nodes.note(&ip, pod, node).as_secs();
        assert_eq!(note(silent(1)), 0);
        pass(40).await;
        assert_eq!(note(silent(1)), 40);
        assert_eq!(nodes.note(&ip, other, silent(1)), Duration::ZERO);
        assert_eq!(note(silent(30)), 0, "it answered between two looks");
        pass(20).await;
        assert_eq!(note(silent(30)), 20);
        assert_eq!(note(NodeState::Answers), 0);
        pass(20).await;
        assert_eq!(note(silent(30)), 0);
        pass(20).await;
        nodes.forget(&ip);
        assert_eq!(note(silent(30)), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_ends_from_when_it_was_first_seen_to() {
        let nodes = SeenNodes::default();
        let (ip, pod) = (Key::new("ns", "a"), "first");
        let ending = || nodes.ending(&ip, pod).as_secs();
        assert_eq!(ending(), 0);
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(ending(), 40);
        nodes.note(&ip, pod, NodeState::Gone);
        assert_eq!(ending(), 40, "whatever its node does");
        let next = nodes.ending(&ip, "next").as_secs();
        assert_eq!(next, 0, "the next pod of the name");
        nodes.forget(&ip);
        assert_eq!(ending(), 0);
    }
}
