//! The Nodes of clusters that have policy-routing rules, as values: whoever decides there tells where they are read,
//! [`crate::api`] reads. Neither knows the other, and nothing is kept when the cluster is left.

use std::sync::Arc;

use fipd_core::{Text, Timestamp};

use crate::connected::Connected;

/// One Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    pub name: Text,
    /// What it is for, such as `control-plane`.
    pub roles: Vec<String>,
    /// Since when it is not ready.
    pub unready: Option<Timestamp>,
    /// It is the machine that this daemon runs on.
    pub here: bool,
}

/// An Agent: where pods are that bring rules to Nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentView {
    /// `NAMESPACE/NAME`.
    pub name: String,
    /// Nodes that are to run it, and those whose pod is ready.
    pub wanted: i64,
    pub ready: i64,
}

/// Who follows the Nodes of a cluster.
pub trait Nodes: Send + Sync {
    /// By name.
    fn nodes(&self) -> Vec<NodeView>;
    /// By name.
    fn agents(&self) -> Vec<AgentView>;
}

/// Who follows which cluster; cheap to clone.
#[derive(Clone, Default)]
pub struct NodeBoard(Connected<dyn Nodes>);

impl NodeBoard {
    /// From now on until it is dropped this one knows the Nodes of the cluster.
    pub fn tell(&self, cluster: &Text, nodes: &Arc<impl Nodes + 'static>) {
        let nodes = Arc::downgrade(nodes);
        self.0.add(cluster, nodes);
    }

    /// The Nodes of all clusters, by cluster and name.
    pub fn nodes(&self) -> Vec<(Text, NodeView)> {
        self.of_all(|all| all.nodes())
    }

    /// The Agents of all clusters, by cluster and name.
    pub fn agents(&self) -> Vec<(Text, AgentView)> {
        self.of_all(|all| all.agents())
    }

    fn of_all<T>(&self, read: impl Fn(&dyn Nodes) -> Vec<T>) -> Vec<(Text, T)> {
        let all = self.0.all();
        let each = all.iter().flat_map(|(name, nodes)| {
            let found = read(&**nodes).into_iter();
            found.map(|one| (Text::clone(name), one))
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One;

    impl Nodes for One {
        fn nodes(&self) -> Vec<NodeView> {
            vec![NodeView {
                name: "node-1".into(),
                roles: Vec::new(),
                unready: None,
                here: false,
            }]
        }

        fn agents(&self) -> Vec<AgentView> {
            Vec::new()
        }
    }

    #[test]
    fn what_is_known_of_a_cluster_goes_with_who_follows_it() {
        let board = NodeBoard::default();
        let one = Arc::new(One);
        board.tell(&"edge".into(), &one);
        let nodes = board.nodes();
        assert_eq!((&*nodes[0].0, &*nodes[0].1.name), ("edge", "node-1"));
        assert_eq!(board.agents(), []);
        drop(one);
        assert_eq!(board.nodes(), []);
    }
}
