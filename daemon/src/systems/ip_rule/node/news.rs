//! What a node says on an IPRuleConfig of its rule. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::Text;
use fipd_crds::ip_rule::{APPLIED_PREFIX, CLEANUP_PREFIX, DONE};
use serde_json::{Value, json};

use super::super::{
    config_change::echo,
    names::{of_node, spec_hash},
    observe::Config,
};
use crate::{controller::client::Patch, rules::Reached};

/// What was wanted of the IPRuleConfigs of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub present: BTreeMap<Text, Present>,
    /// Generations of those that are absent, and that nobody of this cluster wants otherwise.
    pub absent: BTreeMap<Text, Option<i64>>,
}

/// The rule of an IPRuleConfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    pub hash: String,
    pub source: IpAddr,
    /// The set that it is in.
    pub set: Text,
    /// Its VRF is gone, and the rule asks the table that this had.
    pub astray: bool,
}

/// The patch that has it say what became of its rule on this node, where it does not say so yet. `reached`: how the kernel
/// is at least since `said` counts.
pub fn news(config: &Config, node: &str, said: &Said, reached: &Reached) -> Option<(Patch, Value)> {
    if !config.is_ours() {
        return None;
    }
    match config.is_present() {
        true if config.meta.is_terminating() => None,
        true => applied(config, node, said, reached),
        false => cleaned(config, node, said, reached),
    }
}

/// Says nothing where there is no rule, in or out of scope.
fn applied(config: &Config, node: &str, said: &Said, reached: &Reached) -> Option<(Patch, Value)> {
    let key = of_node(APPLIED_PREFIX, node);
    let now = match said.present.get(&config.meta.name) {
        // It changed since; what is said comes.
        Some(present) if present.hash != spec_hash(&config.spec) => return None,
        None if !is_rid(config, reached) => return None,
        Some(present) if !present.astray && reached.has(present.source, &present.set) => {
            Some(echo(&present.hash))
        }
        Some(_) | None => None,
    };
    if config.annotations.get(&key) == now.as_ref() {
        return None;
    }
    let uid = &config.meta.uid;
    let body = json!({ "metadata": { "uid": uid, "annotations": { key: now } } });
    Some((Patch::Merge, body))
}

fn cleaned(config: &Config, node: &str, said: &Said, reached: &Reached) -> Option<(Patch, Value)> {
    let meta = &config.meta;
    let key = of_node(CLEANUP_PREFIX, node);
    let says = config.annotations.get(&key);
    let generation = said.absent.get(&meta.name)?;
    if *generation != meta.generation
        || !is_rid(config, reached)
        || says.is_some_and(|value| value == DONE)
        || config.annotations.is_empty()
    {
        return None;
    }
    let place = key.replace('~', "~0").replace('/', "~1");
    // Were it present again since, and absent once more, this would be a word of before.
    let body = json!([
        { "op": "test", "path": "/metadata/uid", "value": meta.uid },
        { "op": "test", "path": "/metadata/generation", "value": meta.generation },
        { "op": "add", "path": format!("/metadata/annotations/{place}"), "value": DONE },
    ]);
    Some((Patch::Json, body))
}

fn is_rid(config: &Config, reached: &Reached) -> bool {
    let source = config.source();
    source.is_none_or(|source| reached.is_rid_of(source))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fipd_crds::ip_rule::{ABSENT, ABSENT_SINCE, PRESENT};

    use super::*;
    use crate::systems::ip_rule::node::plan::tests::config;

    const NODE: &str = "n1";

    fn there(config: &Config) -> Said {
        let present = Present {
            hash: spec_hash(&config.spec),
            source: config.source().unwrap(),
            set: "c/lb".into(),
            astray: false,
        };
        Said {
            present: BTreeMap::from([(Text::clone(&config.meta.name), present)]),
            ..Said::default()
        }
    }

    fn gone(source: &str) -> (Config, Said) {
        let mut config = Config::clone(&config(source, 100, ABSENT));
        config.annotations.insert(ABSENT_SINCE.into(), "x".into());
        config.meta.generation = Some(3);
        let absent = BTreeMap::from([(Text::clone(&config.meta.name), Some(3))]);
        let said = Said {
            absent,
            ..Said::default()
        };
        (config, said)
    }

    fn sources(all: &[&str]) -> BTreeSet<IpAddr> {
        all.iter().map(|one| one.parse().unwrap()).collect()
    }

    /// What it says after this.
    fn says(config: &mut Config, said: &Said, reached: &Reached) -> Option<String> {
        let key = of_node(APPLIED_PREFIX, NODE);
        if let Some((patch, body)) = news(config, NODE, said, reached) {
            assert_eq!(patch, Patch::Merge);
            match body["metadata"]["annotations"][&key].as_str() {
                Some(value) => drop(config.annotations.insert(key.clone(), value.to_owned())),
                None => drop(config.annotations.remove(&key)),
            }
            assert_eq!(news(config, NODE, said, reached), None, "said once");
        }
        config.annotations.get(&key).cloned()
    }

    #[test]
    fn one_rule_that_is_refused_or_held_back_is_no_word_about_the_others() {
        let reached = Reached {
            missing: sources(&["10.96.0.1"]),
            lingering: sources(&["10.96.0.3"]),
            ..Reached::whole(1)
        };
        for (source, is) in [("10.96.0.1", false), ("10.96.0.2", true)] {
            let mut config = Config::clone(&config(source, 100, PRESENT));
            let said = there(&config);
            assert_eq!(says(&mut config, &said, &reached).is_some(), is, "{source}");
        }
        for (source, is) in [("10.96.0.3", false), ("10.96.0.4", true)] {
            let (config, said) = gone(source);
            let news = news(&config, NODE, &said, &reached);
            assert_eq!(news.is_some(), is, "{source}");
        }
    }

    #[test]
    fn a_rule_to_the_table_of_a_vrf_that_is_gone_is_not_said_to_be_there() {
        let mut config = Config::clone(&config("10.96.0.1", 100, PRESENT));
        let mut said = there(&config);
        let whole = Reached::whole(1);
        assert!(says(&mut config, &said, &whole).is_some());
        for present in said.present.values_mut() {
            present.astray = true;
        }
        assert_eq!(says(&mut config, &said, &whole), None);
    }

    #[test]
    fn a_flush_confirms_what_is_absent_and_takes_back_what_was_said_to_be_there() {
        let mut config = Config::clone(&config("10.96.0.1", 100, PRESENT));
        let said = there(&config);
        let flushed = Reached {
            flushed: true,
            ..Reached::whole(2)
        };
        assert_eq!(says(&mut config, &said, &flushed), None);
        assert!(says(&mut config, &said, &Reached::whole(1)).is_some());
        assert_eq!(says(&mut config, &said, &flushed), None);
        let (config, said) = gone("10.96.0.2");
        assert!(news(&config, NODE, &said, &flushed).is_some());
    }

    #[test]
    fn a_node_out_of_scope_says_so_once_its_rule_is_gone() {
        let mut config = Config::clone(&config("10.96.0.1", 100, PRESENT));
        let said = there(&config);
        let before = says(&mut config, &said, &Reached::whole(1));
        let still = Reached {
            lingering: sources(&["10.96.0.1"]),
            ..Reached::whole(2)
        };
        assert_eq!(says(&mut config, &Said::default(), &still), before);
        let none = says(&mut config, &Said::default(), &Reached::whole(3));
        assert_eq!(none, None);
    }

    #[test]
    fn what_changed_since_is_not_spoken_of() {
        let mut config = Config::clone(&config("10.96.0.1", 100, PRESENT));
        let said = there(&config);
        config.spec.table = 200;
        assert_eq!(says(&mut config, &said, &Reached::whole(1)), None);
        let (mut config, said) = gone("10.96.0.2");
        config.meta.generation = Some(4);
        assert_eq!(news(&config, NODE, &said, &Reached::whole(1)), None);
    }

    #[test]
    fn who_lost_a_source_to_another_cluster_does_not_say_that_it_is_there() {
        let mut config = Config::clone(&config("10.96.0.1", 100, PRESENT));
        let said = there(&config);
        let lost = BTreeSet::from([("10.96.0.1".parse().unwrap(), "c/lb".into())]);
        let reached = Reached {
            lost,
            ..Reached::whole(1)
        };
        assert_eq!(says(&mut config, &said, &reached), None);
    }
}
