//! Which Agent of a cluster counts.

use std::sync::Arc;

use crate::{
    controller::store::Key,
    systems::ip_rule::{observe::Agent, validate::is_agent_name},
};

/// What an Agent is to its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Active,
    /// The Agent with this name and namespace counts.
    Inactive(Key),
    InvalidName,
}

/// The Agent that counts: of those with a name that they may have and that stay, the one with the least name.
pub fn active(all: &[(Key, Arc<Agent>)]) -> Option<&Arc<Agent>> {
    winner(all).map(|(_, agent)| agent)
}

pub fn standing(key: &Key, all: &[(Key, Arc<Agent>)]) -> Standing {
    if !is_agent_name(&key.name) {
        return Standing::InvalidName;
    }
    match winner(all) {
        Some((winner, _)) if winner != key => Standing::Inactive(winner.clone()),
        Some(_) | None => Standing::Active,
    }
}

/// The same with its name.
pub fn winner(all: &[(Key, Arc<Agent>)]) -> Option<&(Key, Arc<Agent>)> {
    let candidates = all
        .iter()
        .filter(|(key, agent)| is_agent_name(&key.name) && !agent.meta.is_terminating());
    candidates.min_by_key(|(key, _)| (&key.name, &key.namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_agents_the_least_name_counts_and_the_others_know_which() {
        let agents = |names: &[(&str, &str)]| -> Vec<(Key, Arc<Agent>)> {
            let keys = names
                .iter()
                .map(|(namespace, name)| Key::new(namespace, name));
            keys.map(|key| (key, Arc::default())).collect()
        };
        let all = agents(&[("a", "default"), ("b", "agent"), ("c", "aaa")]);
        assert_eq!(standing(&all[1].0, &all), Standing::Active);
        assert_eq!(
            standing(&all[0].0, &all),
            Standing::Inactive(Key::new("b", "agent"))
        );
        assert_eq!(standing(&all[2].0, &all), Standing::InvalidName);
        assert!(active(&agents(&[("c", "other")])).is_none());
    }
}
