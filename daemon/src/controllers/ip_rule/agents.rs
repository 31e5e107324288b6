//! Which Agent of a cluster counts.

use std::sync::Arc;

use fipd_crds::ip_rule::AGENT_NAMES;

use super::observe::Agent;
use crate::controllers::objects::Key;

/// The Agent that counts: of those with a name that they may have and that stay, the one with the least name.
pub fn active(all: &[(Key, Arc<Agent>)]) -> Option<&Arc<Agent>> {
    winner(all).map(|(_, agent)| agent)
}

pub fn is_allowed(name: &str) -> bool {
    AGENT_NAMES.contains(&name)
}

fn winner(all: &[(Key, Arc<Agent>)]) -> Option<&(Key, Arc<Agent>)> {
    let candidates = all
        .iter()
        .filter(|(key, agent)| is_allowed(&key.name) && !agent.meta.terminating);
    candidates.min_by_key(|(key, _)| (&key.name, &key.namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_agents_the_least_name_counts() {
        let agent = |uid: &str| {
            let mut agent = Agent::default();
            agent.meta.uid = uid.into();
            Arc::new(agent)
        };
        let all = [
            (Key::new("a", "default"), agent("1")),
            (Key::new("b", "agent"), agent("2")),
            (Key::new("c", "aaa"), agent("3")),
        ];
        assert_eq!(&*active(&all).unwrap().meta.uid, "2");
        assert!(active(&all[2..]).is_none());
    }
}
