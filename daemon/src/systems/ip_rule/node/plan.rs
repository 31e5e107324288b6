//! The rules that a node is to have, by what it has seen of a cluster. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use fipd_core::{
    Text,
    host::{RuleSet, check_priority, check_table},
};
use fipd_crds::ip_rule::{ABSENT, APPLIED_PREFIX, SPEC_HASH};
use tokio::time::Instant;

use super::{
    super::{
        config_change::selects,
        names::{of_node, spec_hash},
        observe::{Config, Node, Rule},
    },
    news::Present,
};
use crate::systems::ip_rule::validate::{Selector, mode};

/// What decides about the rules of this node.
pub struct NodeInput<'a> {
    pub cluster: &'a str,
    /// The name of the Node that this host is.
    pub name: &'a str,
    /// That Node; without it nothing is wanted.
    pub node: Option<&'a Node>,
    pub rules: BTreeMap<Text, Arc<Rule>>,
    pub agent: Belongs<'a>,
    /// Whether all Agents fit their schema.
    pub agents_fit: bool,
    /// `None`: nobody looked for them yet.
    pub vrfs: Option<&'a BTreeMap<Text, u32>>,
    /// IPRuleConfigs that do not fit their schema.
    pub malformed: BTreeSet<Text>,
    /// What was wanted last, also before a restart.
    pub before: &'a [RuleSet],
}

/// Whether fipd is on this host for an Agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs<'a> {
    /// It is here for itself: no Agent's selector is about this host.
    Nobody,
    /// In a pod of an Agent; the one that counts selects these nodes.
    To(&'a BTreeMap<String, String>),
    /// In a pod of one, and there is none any more: the rules go with it.
    Left,
}

/// The rule of an IPRuleConfig.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeRule {
    source: IpAddr,
    /// The set that it is in, without its sources.
    set: RuleSet,
    hash: String,
}

/// What was understood last, so that neither an object that is made anew nor one that cannot be understood takes its rule
/// away.
#[derive(Debug, Default)]
pub struct LastRules {
    entries: BTreeMap<Text, NodeRule>,
    gone: BTreeMap<Text, Instant>,
}

impl LastRules {
    /// Whether there are rules whose object went a moment ago.
    pub fn waits(&self) -> bool {
        !self.gone.is_empty()
    }
}

/// The sets, and each IPRuleConfig whose rule is in them. `None`: it is not known yet.
pub fn plan(
    want: &NodeInput<'_>,
    configs: &[Arc<Config>],
    seen: &mut LastRules,
    now: Instant,
    grace: Duration,
) -> Option<(Vec<RuleSet>, BTreeMap<Text, Present>)> {
    let mut entries = BTreeMap::new();
    let mut astray = BTreeSet::new();
    let mut known: BTreeSet<&Text> = want.malformed.iter().collect();
    for name in want.malformed.iter().filter(|_| want.node.is_some()) {
        if let Some(before) = seen.entries.get(name) {
            entries.insert(Text::clone(name), before.clone());
        }
    }
    for config in configs.iter().filter(|config| config.is_ours()) {
        let name = &config.meta.name;
        known.insert(name);
        let before = seen.entries.get(name);
        if !in_scope(want, config, before.is_some()) {
            continue;
        }
        if config.spec.state == ABSENT && !is_absent_by_hand(config) {
            continue;
        }
        let vrf = config.spec.vrf.as_str();
        if !vrf.is_empty() && want.vrfs.is_some_and(|vrfs| !vrfs.contains_key(vrf)) {
            astray.insert(name);
        }
        match entry(want, config, before).or_else(|| before.cloned()) {
            Some(entry) => drop(entries.insert(Text::clone(name), entry)),
            None if want.vrfs.is_none() && !config.spec.vrf.is_empty() => return None,
            None => {}
        }
    }
    let lost = seen
        .entries
        .iter()
        .filter(|(name, _)| !known.contains(name));
    let mut gone = BTreeMap::new();
    for (name, entry) in lost.filter(|_| want.node.is_some()) {
        let since = seen.gone.get(name).copied().unwrap_or(now);
        if now.duration_since(since) < grace {
            gone.insert(Text::clone(name), since);
            entries.insert(Text::clone(name), entry.clone());
        }
    }
    *seen = LastRules { entries, gone };
    let present = seen
        .entries
        .iter()
        .filter(|(name, _)| !seen.gone.contains_key(*name));
    let present = present.map(|(name, entry)| {
        let present = Present {
            hash: entry.hash.clone(),
            source: entry.source,
            set: Text::clone(&entry.set.name),
            astray: astray.contains(name),
        };
        (Text::clone(name), present)
    });
    let present = present.collect();
    Some((sets(&seen.entries), present))
}

/// Where the deciding part says that one is absent, its hash goes with that. This one is repaired.
pub fn is_absent_by_hand(config: &Config) -> bool {
    config.spec.state == ABSENT && config.annotations.contains_key(SPEC_HASH)
}

/// `seen`: it had a rule here a moment ago.
fn in_scope(want: &NodeInput<'_>, config: &Config, seen: bool) -> bool {
    let Some(node) = want.node else {
        return false;
    };
    let owner = config.owner().and_then(|owner| want.rules.get(&owner.name));
    let selector = owner.and_then(|rule| Selector::read(&rule.spec.node_selector_label).ok());
    let applied = || {
        let key = of_node(APPLIED_PREFIX, want.name);
        config.annotations.contains_key(&key)
    };
    // Where it is not known which nodes are meant, rules stay where they are, and come nowhere else.
    let doubt = !want.agents_fit && want.agent != Belongs::Nobody;
    if (selector.is_none() || doubt) && !seen && !applied() {
        return false;
    }
    let agent = match want.agent {
        Belongs::Nobody => true,
        Belongs::To(selector) => selects(selector, &node.labels),
        Belongs::Left => !want.agents_fit,
    };
    agent && selector.is_none_or(|selector| selector.matches(&node.labels))
}

fn set_name(cluster: &str, owner: &str) -> Text {
    format!("{cluster}/{owner}").into()
}

/// `None`: it is not understood, somebody edited it by hand, or its VRF is not there.
fn entry(want: &NodeInput<'_>, config: &Config, before: Option<&NodeRule>) -> Option<NodeRule> {
    let spec = &config.spec;
    let hash = spec_hash(spec);
    let said = config.annotations.get(SPEC_HASH);
    if said.is_some_and(|said| *said != hash) {
        return None;
    }
    let table = match spec.vrf.as_str() {
        "" => check_table(spec.table).ok()?,
        // One that is gone keeps the table that it had.
        vrf => want
            .vrfs?
            .get(vrf)
            .copied()
            .or_else(|| last(want, config))?,
    };
    let name = match (config.owner(), before) {
        (None, Some(before)) => Text::clone(&before.set.name),
        (owner, _) => set_name(want.cluster, owner.map_or("", |owner| &owner.name)),
    };
    Some(NodeRule {
        source: config.source()?,
        set: RuleSet {
            name,
            sources: BTreeSet::new(),
            table,
            priority: check_priority(spec.priority, spec.fail_closed).ok()?,
            fail_closed: spec.fail_closed,
            mode: mode(&spec.mode).ok()?,
        },
        hash,
    })
}

/// The table by which the source went last.
fn last(want: &NodeInput<'_>, config: &Config) -> Option<u32> {
    let source = config.source()?;
    let name = set_name(want.cluster, &config.owner()?.name);
    let mut sets = want.before.iter();
    let set = sets.find(|set| set.name == name && set.sources.contains(&source));
    set.map(|set| set.table)
}

/// One set for each IPRule, table and priority.
fn sets(entries: &BTreeMap<Text, NodeRule>) -> Vec<RuleSet> {
    let mut sets: BTreeMap<&RuleSet, BTreeSet<IpAddr>> = BTreeMap::new();
    for entry in entries.values() {
        sets.entry(&entry.set).or_default().insert(entry.source);
    }
    let with = |(set, sources): (&RuleSet, _)| RuleSet {
        sources,
        ..set.clone()
    };
    sets.into_iter().map(with).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use fipd_core::host::Mode;
    use fipd_crds::ip_rule::{CONFIG_FINALIZER, IPRuleConfigSpec, PRESENT};
    use serde_json::json;

    use super::*;
    use crate::{
        controller::meta::Meta,
        systems::ip_rule::{observe::Owner, plan::tests::rule},
    };

    const GRACE: Duration = Duration::from_secs(2);

    pub fn config(source: &str, table: i64, state: &str) -> Arc<Config> {
        Arc::new(Config {
            meta: Meta {
                name: format!("iprc-{source}").into(),
                finalizers: vec![CONFIG_FINALIZER.into()],
                ..Meta::default()
            },
            labelled: true,
            owners: vec![Owner {
                name: "lb".into(),
                uid: "u".into(),
                controller: true,
            }],
            spec: IPRuleConfigSpec {
                service_ip: source.into(),
                table,
                state: state.into(),
                ..IPRuleConfigSpec::default()
            },
            ..Config::default()
        })
    }

    struct Host {
        node: Option<Node>,
        rules: BTreeMap<Text, Arc<Rule>>,
        agent: Option<BTreeMap<String, String>>,
        left: bool,
        agents_fit: bool,
        vrfs: Option<BTreeMap<Text, u32>>,
        malformed: BTreeSet<Text>,
        before: Vec<RuleSet>,
        seen: LastRules,
        start: Instant,
    }

    impl Host {
        fn new() -> Self {
            Self {
                node: Some(Node::default()),
                rules: BTreeMap::from([("lb".into(), rule("lb", json!({})))]),
                agent: None,
                left: false,
                agents_fit: true,
                vrfs: Some(BTreeMap::new()),
                malformed: BTreeSet::new(),
                before: Vec::new(),
                seen: LastRules::default(),
                start: Instant::now(),
            }
        }

        fn plan(&mut self, configs: &[Arc<Config>], after: u64) -> Vec<String> {
            self.try_plan(configs, after).unwrap()
        }

        /// `None`: it cannot be said yet.
        fn try_plan(&mut self, configs: &[Arc<Config>], after: u64) -> Option<Vec<String>> {
            Some(self.both(configs, after)?.0)
        }

        /// With the number of those that go where their objects say.
        fn both(&mut self, configs: &[Arc<Config>], after: u64) -> Option<(Vec<String>, usize)> {
            let want = NodeInput {
                cluster: "c",
                name: "n1",
                node: self.node.as_ref(),
                rules: self.rules.clone(),
                agent: match &self.agent {
                    _ if self.left => Belongs::Left,
                    Some(agent) => Belongs::To(agent),
                    None => Belongs::Nobody,
                },
                agents_fit: self.agents_fit,
                vrfs: self.vrfs.as_ref(),
                malformed: self.malformed.clone(),
                before: &self.before,
            };
            let now = self.start + Duration::from_millis(after);
            let (sets, present) = plan(&want, configs, &mut self.seen, now, GRACE)?;
            let text = |set: &RuleSet| format!("{} t{} {:?}", set.name, set.table, set.sources);
            Some((
                sets.iter().map(text).collect(),
                present.values().filter(|one| !one.astray).count(),
            ))
        }
    }

    #[test]
    fn conformance_3_what_is_absent_is_not_wanted_and_what_is_present_is_one_set() {
        let mut host = Host::new();
        let both = [
            config("10.96.0.1", 100, PRESENT),
            config("10.96.0.2", 100, PRESENT),
        ];
        assert_eq!(host.plan(&both, 0), ["c/lb t100 {10.96.0.1, 10.96.0.2}"]);
        let one = [
            config("10.96.0.1", 100, ABSENT),
            config("10.96.0.2", 200, PRESENT),
        ];
        assert_eq!(host.plan(&one, 0), ["c/lb t200 {10.96.0.2}"]);
        assert!(!host.seen.waits());
    }

    #[test]
    fn defect_12_an_object_that_is_made_anew_or_edited_takes_no_rule_away() {
        let mut host = Host::new();
        let whole = [config("10.96.0.1", 100, PRESENT)];
        let expected = host.plan(&whole, 0);
        assert_eq!(host.plan(&[], 100), expected);
        assert!(host.seen.waits());
        assert_eq!(host.plan(&whole, 200), expected);
        let edited = |table, state| {
            let mut config = Config::clone(&config("10.96.0.1", table, state));
            config.labelled = false;
            Arc::new(config)
        };
        let mut masked = Config::clone(&edited(7, PRESENT));
        let hash = spec_hash(&whole[0].spec);
        masked.annotations.insert(SPEC_HASH.into(), hash);
        let kept = host.plan(&[Arc::new(masked)], 250);
        assert_eq!(kept, expected, "not as its hash says");
        assert_eq!(
            host.plan(&[edited(0, "here")], 300),
            expected,
            "not understood"
        );
        let mut absent = Config::clone(&config("10.96.0.1", 100, ABSENT));
        let hash = spec_hash(&absent.spec);
        absent.annotations.insert(SPEC_HASH.into(), hash);
        let kept = host.plan(&[Arc::new(absent)], 350);
        assert_eq!(kept, expected, "absent by hand");
        host.plan(&[], 400);
        assert!(host.plan(&[], 2500).is_empty(), "gone for good");
    }

    #[test]
    fn defect_10_a_node_that_leaves_the_scope_wants_nothing_more() {
        let mut host = Host::new();
        let configs = [config("10.96.0.1", 100, PRESENT)];
        let labels = BTreeMap::from([("lb".to_owned(), "true".to_owned())]);
        host.rules = BTreeMap::from([(
            "lb".into(),
            rule("lb", json!({ "nodeSelectorLabel": "lb=true" })),
        )]);
        assert!(host.plan(&configs, 0).is_empty());
        host.node = Some(Node {
            labels: labels.clone(),
            ..Node::default()
        });
        assert_eq!(host.plan(&configs, 0).len(), 1);
        host.agent = Some(BTreeMap::from([("role".into(), "edge".into())]));
        assert!(host.plan(&configs, 0).is_empty());
        host.agent = Some(labels);
        assert_eq!(host.plan(&configs, 0).len(), 1);
        host.left = true;
        assert!(host.plan(&configs, 0).is_empty(), "its Agent is gone");
        host.left = false;
        assert_eq!(host.plan(&configs, 0).len(), 1);
        host.node = None;
        assert!(host.plan(&configs, 0).is_empty());
    }

    #[test]
    fn a_vrf_is_its_table_once_the_host_has_it() {
        let mut host = Host::new();
        let mut red = Config::clone(&config("10.96.0.1", 0, PRESENT));
        red.spec.vrf = "red".into();
        let configs = [Arc::new(red), config("10.96.0.2", 100, PRESENT)];
        assert_eq!(host.plan(&configs, 0), ["c/lb t100 {10.96.0.2}"]);
        host.vrfs = Some(BTreeMap::from([("red".into(), 1001)]));
        let both = ["c/lb t100 {10.96.0.2}", "c/lb t1001 {10.96.0.1}"];
        assert_eq!(host.plan(&configs, 0), both);
        host.vrfs = None;
        assert_eq!(host.plan(&configs, 0), both, "as it was seen");
        host.vrfs = Some(BTreeMap::new());
        let (rules, present) = host.both(&configs, 0).unwrap();
        assert_eq!(rules, both, "it stays where it was");
        assert_eq!(present, 1, "and is no more what is asked for");
        (host.seen, host.vrfs) = (LastRules::default(), None);
        let unsaid = host.try_plan(&configs, 0);
        assert_eq!(unsaid, None, "what it wants without its VRF is not all");
        assert_eq!(host.plan(&configs[1..], 0), ["c/lb t100 {10.96.0.2}"]);
        // After a restart, by the journal.
        host.vrfs = Some(BTreeMap::new());
        host.before = vec![RuleSet {
            name: "c/lb".into(),
            sources: BTreeSet::from(["10.96.0.1".parse().unwrap()]),
            table: 1001,
            priority: None,
            fail_closed: false,
            mode: Mode::Auto,
        }];
        assert_eq!(host.plan(&configs, 0), both, "what was wanted last stays");
    }

    #[test]
    fn where_it_is_not_known_which_nodes_are_meant_rules_come_nowhere_new() {
        let selector = |text: &str| rule("lb", json!({ "nodeSelectorLabel": text }));
        let configs = [config("10.96.0.1", 100, PRESENT)];
        let whole = Host::new().rules;
        let good = whole.values().next().cloned();
        for broken in [Some(selector("a in (b)")), None, good] {
            let mut host = Host::new();
            host.agent = Some(BTreeMap::new());
            host.agents_fit = broken != whole.values().next().cloned();
            host.rules.clear();
            host.rules
                .extend(broken.map(|rule| (Text::from("lb"), rule)));
            assert!(host.plan(&configs, 0).is_empty(), "never here");
            // It says that it was here before a restart.
            let mut applied = Config::clone(&configs[0]);
            let key = of_node(APPLIED_PREFIX, "n1");
            applied.annotations.insert(key, "x".into());
            assert_eq!(host.plan(&[Arc::new(applied)], 0).len(), 1);
            let here = host.plan(&configs, 0);
            assert_eq!(here.len(), 1, "seen a moment ago");
            host.seen = LastRules::default();
            (host.rules, host.agents_fit) = (whole.clone(), true);
            assert_eq!(host.plan(&configs, 0).len(), 1);
        }
    }

    #[test]
    fn defect_13_an_object_that_does_not_fit_its_schema_any_more_keeps_its_rule() {
        let mut host = Host::new();
        let expected = host.plan(&[config("10.96.0.1", 100, PRESENT)], 0);
        host.malformed = BTreeSet::from(["iprc-10.96.0.1".into(), "iprc-10.96.0.2".into()]);
        assert_eq!(host.plan(&[], 10), expected);
        assert_eq!(host.plan(&[], 10_000), expected, "however long");
        assert!(!host.seen.waits());
        host.malformed.clear();
        host.plan(&[], 20_000);
        assert!(host.plan(&[], 30_000).is_empty());
    }
}
