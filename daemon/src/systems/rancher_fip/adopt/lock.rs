//! One take-over at a time for each cluster.

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::Text;
use parking_lot::Mutex;

/// The clusters, by their ids, that are being taken over.
#[derive(Clone, Default)]
pub struct Turns(Arc<Mutex<BTreeSet<Text>>>);

/// The right to take a cluster over, until it is dropped.
pub struct Turn {
    turns: Turns,
    cluster: Text,
}

impl Turns {
    /// `None`: somebody else has it.
    pub fn begin(&self, cluster: &Text) -> Option<Turn> {
        let first = self.0.lock().insert(Text::clone(cluster));
        first.then(|| Turn {
            turns: self.clone(),
            cluster: Text::clone(cluster),
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.0.lock().remove(&self.cluster);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_one_turn_at_a_time() {
        let turns = Turns::default();
        let (one, other) = ("one".into(), "other".into());
        let turn = turns.begin(&one);
        assert!(turn.is_some());
        assert!(turns.clone().begin(&one).is_none());
        assert!(turns.begin(&other).is_some());
        drop(turn);
        assert!(turns.begin(&one).is_some());
    }
}
