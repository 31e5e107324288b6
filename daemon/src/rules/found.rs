//! Which cluster this host is a Node of.

use std::collections::BTreeMap;

use fipd_core::Text;

use super::Warning;

/// What a cluster says of the Node that this host is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeFound {
    Here,
    /// It has none of this name.
    Nowhere,
    /// It is not this host, and why.
    Other(String),
}

/// What is to be said of it. A host is a Node of one cluster: that others do not have it is as it should be.
pub(super) fn warnings(found: &BTreeMap<Text, NodeFound>) -> Vec<Warning> {
    let others = found.values().filter_map(|one| match one {
        NodeFound::Other(why) => Some(Warning::new("node", why.as_str())),
        NodeFound::Here | NodeFound::Nowhere => None,
    });
    let nowhere = !found.is_empty() && found.values().all(|one| *one == NodeFound::Nowhere);
    let missing = nowhere.then(|| {
        Warning::new(
            "node",
            "no cluster has a Node with the name of this host, so that no rule of theirs is wanted here: see node in [host]",
        )
    });
    others.chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_node_that_no_cluster_has_and_one_that_is_another_machine_are_told() {
        let told = |all: &[NodeFound]| {
            let all = all.iter().enumerate();
            let all = all.map(|(at, one)| (Text::from(format!("c{at}")), one.clone()));
            warnings(&all.collect()).len()
        };
        let other = || NodeFound::Other("another".into());
        assert_eq!(told(&[]), 0);
        assert_eq!(told(&[NodeFound::Here, NodeFound::Nowhere]), 0);
        assert_eq!(told(&[NodeFound::Nowhere, NodeFound::Nowhere]), 1);
        assert_eq!(told(&[NodeFound::Here, other()]), 1);
    }
}
