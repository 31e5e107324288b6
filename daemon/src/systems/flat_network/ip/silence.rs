//! For how long fipd itself has found nodes silent: the clocks of its host and of the API server may differ.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{controller::store::Key, systems::flat_network::pod::alive::NodeState};

/// How the node of each pod that ends was found, and since when, by the address and its pod.
#[derive(Default)]
pub struct SeenNodes(Mutex<BTreeMap<(Key, Key), (NodeState, Instant)>>);

impl SeenNodes {
    /// Its node is found so: for how long already, without a change.
    pub fn note(&self, ip: &Key, pod: &Key, node: NodeState) -> Duration {
        let now = Instant::now();
        let mut seen = self.0.lock();
        let before = seen.entry((ip.clone(), pod.clone()));
        let (state, since) = before.or_insert((node, now));
        if *state != node {
            (*state, *since) = (node, now);
        }
        now - *since
    }

    /// Nobody looks at the nodes of its pods any more.
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
        let (ip, pod, other) = (
            Key::new("ns", "a"),
            Key::new("ns", "a"),
            Key::new("ns", "b"),
        );
        let silent = |second| NodeState::Silent {
            since: jiff::Timestamp::from_second(second).ok(),
        };
        let pass = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let note = |node| nodes.note(&ip, &pod, node).as_secs();
        assert_eq!(note(silent(1)), 0);
        pass(40).await;
        assert_eq!(note(silent(1)), 40);
        assert_eq!(nodes.note(&ip, &other, silent(1)), Duration::ZERO);
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
}
