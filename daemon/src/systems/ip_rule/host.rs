//! This host, as far as the rules of clusters go.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{ClusterId, Text};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::node::LastRules;
use crate::{rules::RuleBoard, system::HostMeans};

/// Which cluster that was, and what was understood of its objects.
type SeenOf = (ClusterId, Arc<Mutex<LastRules>>);

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct RuleHost {
    pub board: RuleBoard,
    pub means: HostMeans,
    /// By the name of the cluster.
    seen: Arc<Mutex<BTreeMap<Text, SeenOf>>>,
}

impl RuleHost {
    pub fn new(board: RuleBoard, means: HostMeans) -> Self {
        Self {
            board,
            means,
            seen: Arc::default(),
        }
    }

    pub fn is_leaving(&self) -> bool {
        let leaving = self.means.leaving.as_ref();
        leaving.is_some_and(CancellationToken::is_cancelled)
    }

    /// What earlier sessions understood of this cluster; nothing where its name is another's now.
    pub fn seen(&self, name: &Text, id: &ClusterId) -> Arc<Mutex<LastRules>> {
        let mut all = self.seen.lock();
        let new = || (id.clone(), Arc::default());
        let entry = all.entry(Text::clone(name)).or_insert_with(new);
        if entry.0 != *id {
            *entry = new();
        }
        Arc::clone(&entry.1)
    }

    /// Forgets all other clusters.
    pub fn keep_seen(&self, is_known: impl Fn(&Text) -> bool) {
        self.seen.lock().retain(|name, _| is_known(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_of_a_cluster_outlives_its_session_and_is_no_other_clusters() {
        let host = RuleHost::new(
            RuleBoard::default(),
            HostMeans {
                node: "n1".into(),
                agent: None,
                leaving: None,
            },
        );
        let name: Text = "c".into();
        let id = |uid: &str| ClusterId(uid.into());
        let first = host.seen(&name, &id("1"));
        assert!(Arc::ptr_eq(&first, &host.clone().seen(&name, &id("1"))));
        let other = host.seen(&name, &id("2"));
        assert!(!Arc::ptr_eq(&first, &other), "another one of this name");
        host.keep_seen(|known| *known == name);
        assert!(Arc::ptr_eq(&other, &host.seen(&name, &id("2"))));
        host.keep_seen(|_| false);
        assert!(!Arc::ptr_eq(&other, &host.seen(&name, &id("2"))));
    }
}
