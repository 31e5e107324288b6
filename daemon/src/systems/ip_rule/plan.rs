//! Which sources are to have a rule, by all IPRules and Services together. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fipd_core::{
    Text,
    host::{Balanced, Clash, Policy, SourceMode, Target, assign},
};
use fipd_crds::ip_rule::{IPRuleConfigSpec, PRESENT};

use super::{
    names::config_name,
    observe::{Owner, Rule, ServiceName, Slice, Svc},
};
use crate::{
    controller::store::Key,
    systems::ip_rule::validate::{Selector, Valid, read},
    validation::Wrong,
};

/// All is looked at so often without any change, where no IPRule says how often.
const INTERVAL: Duration = Duration::from_secs(600);

/// What is known of a cluster.
#[derive(Clone, Debug, Default)]
pub struct PlanInput {
    pub rules: Vec<Arc<Rule>>,
    /// IPRules that do not fit their schema, by name.
    pub malformed: BTreeSet<Text>,
    pub services: Vec<(Key, Arc<Svc>)>,
    /// `None`: not all were read yet, or they cannot be.
    pub slices: Option<Vec<Arc<Slice>>>,
}

/// An IPRuleConfig as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedConfig {
    pub spec: IPRuleConfigSpec,
    pub owner: Owner,
}

/// What became of an IPRule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Counts {
        sources: usize,
        /// Sources that another IPRule has although this one wants them.
        lost: Vec<Clash>,
    },
    Wrong(Vec<Wrong>),
    /// It is about pods, which are not known.
    PodsUnknown,
}

/// All that is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigPlan {
    /// By name.
    pub wanted: BTreeMap<Text, WantedConfig>,
    pub rules: BTreeMap<Text, Told>,
    /// IPRules that cannot be understood: what came of them before stays as it was.
    pub held: BTreeSet<Text>,
    /// Where the rules of IPRules are to be.
    pub nodes: BTreeMap<Text, Selector>,
    /// The shortest time after which all is to be looked at without any change.
    pub interval: Option<Duration>,
}

impl ConfigPlan {
    /// The time until the next look where nothing changes.
    pub fn again(&self) -> Duration {
        self.interval.unwrap_or(INTERVAL)
    }
}

/// Whether any IPRule needs to know the pods behind Services.
pub fn wants_endpoints(rules: &[Arc<Rule>]) -> bool {
    let all = rules.iter().filter(|rule| !rule.meta.is_terminating());
    let mut sources = all.filter_map(|rule| read(&rule.spec).ok().map(|valid| valid.source));
    sources.any(|source| source == SourceMode::Endpoints)
}

pub fn plan(known: &PlanInput) -> ConfigPlan {
    let mut plan = ConfigPlan {
        held: known.malformed.clone(),
        ..ConfigPlan::default()
    };
    let mut valid: Vec<(&Rule, Valid)> = Vec::new();
    for rule in &known.rules {
        // Also of one that goes: the same nodes are asked that have it.
        if let Ok(nodes) = Selector::read(&rule.spec.node_selector_label) {
            plan.nodes.insert(Text::clone(&rule.meta.name), nodes);
        }
    }
    let staying = known.rules.iter();
    for rule in staying.filter(|rule| !rule.meta.is_terminating()) {
        let why = match read(&rule.spec) {
            Ok(one) if one.source == SourceMode::Endpoints && known.slices.is_none() => {
                Told::PodsUnknown
            }
            Ok(one) => {
                valid.push((rule, one));
                continue;
            }
            Err(wrong) => Told::Wrong(wrong),
        };
        plan.held.insert(Text::clone(&rule.meta.name));
        plan.rules.insert(Text::clone(&rule.meta.name), why);
    }
    plan.interval = valid.iter().filter_map(|(_, valid)| valid.interval).min();
    let policies = policies(&valid);
    let assignment = assign(&policies, &balanced(known));
    let mut counts = vec![0_usize; valid.len()];
    for (source, number) in &assignment.sources {
        let (Some((rule, valid)), Some(count)) = (valid.get(*number), counts.get_mut(*number))
        else {
            continue;
        };
        *count += 1;
        let wanted = WantedConfig {
            spec: config_spec(source.to_string(), rule, valid),
            owner: Owner {
                name: Text::clone(&rule.meta.name),
                uid: Text::clone(&rule.meta.uid),
                controller: true,
            },
        };
        plan.wanted.insert(config_name(*source).into(), wanted);
    }
    for ((rule, _), sources) in valid.iter().zip(counts) {
        let name = Text::clone(&rule.meta.name);
        let lost = assignment
            .clashes
            .iter()
            .filter(|clash| clash.loser == name);
        let told = Told::Counts {
            sources,
            lost: lost.cloned().collect(),
        };
        plan.rules.insert(name, told);
    }
    plan
}

fn policies(valid: &[(&Rule, Valid)]) -> Vec<Policy> {
    let policy = |(rule, one): &(&Rule, Valid)| Policy {
        name: Text::clone(&rule.meta.name),
        prefixes: one.prefixes.clone(),
        source: one.source,
        way: one.way.clone(),
    };
    valid.iter().map(policy).collect()
}

fn balanced(known: &PlanInput) -> Vec<Balanced> {
    let mut pods: BTreeMap<&ServiceName, Vec<std::net::IpAddr>> = BTreeMap::new();
    for slice in known.slices.iter().flatten() {
        pods.entry(&slice.service)
            .or_default()
            .extend(&slice.addresses);
    }
    let service = |(key, service): &(Key, Arc<Svc>)| {
        let name = (Text::clone(&key.namespace), Text::clone(&key.name));
        Balanced {
            vips: service.vips.clone(),
            cluster_ips: service.cluster_ips.clone(),
            endpoints: pods.get(&name).cloned().unwrap_or_default(),
        }
    };
    known.services.iter().map(service).collect()
}

fn config_spec(source: String, rule: &Rule, valid: &Valid) -> IPRuleConfigSpec {
    let (table, vrf) = match &valid.way.target {
        Target::Table(table) => (i64::from(*table), String::new()),
        Target::Vrf(vrf) => (0, vrf.to_string()),
    };
    IPRuleConfigSpec {
        service_ip: source,
        table,
        priority: valid.way.priority.map_or(0, i64::from),
        state: PRESENT.to_owned(),
        fail_closed: valid.way.fail_closed,
        mode: rule.spec.mode.clone(),
        vrf,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub fn rule(name: &str, spec: Value) -> Arc<Rule> {
        let object = json!({
            "apiVersion": "api.operator.brtrm.dev/v1alpha1", "kind": "IPRule",
            "metadata": { "name": name, "uid": format!("u-{name}"), "finalizers": ["iprule.operator.brtrm.dev/rules"] },
            "spec": spec,
        });
        Arc::new(Rule::of(
            serde_json::from_value::<fipd_crds::ip_rule::IPRule>(object).unwrap(),
        ))
    }

    fn service(name: &str, vips: &[&str], ips: &[&str]) -> (Key, Arc<Svc>) {
        let parse = |all: &[&str]| all.iter().map(|one| one.parse().unwrap()).collect();
        let service = Svc {
            vips: parse(vips),
            cluster_ips: parse(ips),
        };
        (Key::new("shop", name), Arc::new(service))
    }

    fn told(plan: &ConfigPlan) -> Vec<String> {
        let wanted = plan.wanted.iter();
        let wanted = wanted.map(|(name, one)| {
            format!(
                "{name} t{} p{} {}",
                one.spec.table, one.spec.priority, one.owner.name
            )
        });
        wanted.collect()
    }

    #[test]
    fn conformance_1_a_service_in_the_range_has_its_config() {
        let known = PlanInput {
            rules: vec![rule(
                "lb",
                json!({ "cidr": "203.0.113.0/24", "table": 100, "priority": 1000 }),
            )],
            services: vec![
                service("web", &["203.0.113.45"], &["10.96.23.17"]),
                service("outside", &["203.0.114.45"], &["10.96.23.18"]),
            ],
            ..PlanInput::default()
        };
        let plan = plan(&known);
        assert_eq!(told(&plan), ["iprc-10-96-23-17 t100 p1000 lb"]);
        let spec = &plan.wanted["iprc-10-96-23-17"].spec;
        let expected = json!({ "serviceIP": "10.96.23.17", "table": 100, "priority": 1000, "state": "present" });
        assert_eq!(serde_json::to_value(spec).unwrap(), expected);
    }

    #[test]
    fn conformance_4_and_6_the_most_specific_rule_wins_then_the_lesser_name_and_the_loser_is_told()
    {
        let rules = |second: &str| {
            vec![
                rule("wide", json!({ "cidr": "203.0.0.0/16", "table": 100 })),
                rule("narrow", json!({ "cidr": second, "table": 200 })),
            ]
        };
        for (second, by_length) in [("203.0.113.0/24", true), ("203.0.0.0/16", false)] {
            let known = PlanInput {
                rules: rules(second),
                services: vec![service("web", &["203.0.113.45"], &["10.96.0.1"])],
                ..PlanInput::default()
            };
            let plan = plan(&known);
            assert_eq!(told(&plan), ["iprc-10-96-0-1 t200 p0 narrow"], "{second}");
            let Told::Counts { sources: 0, lost } = &plan.rules["wide"] else {
                panic!("{:?}", plan.rules);
            };
            assert_eq!((lost.len(), lost[0].by_length), (1, by_length));
        }
    }

    #[test]
    fn defect_5_and_6_a_source_has_one_config_and_both_families_have_theirs() {
        let known = PlanInput {
            rules: vec![
                rule(
                    "a",
                    json!({ "cidrs": ["203.0.113.0/24", "2001:db8::/64"], "table": 100 }),
                ),
                rule("b", json!({ "cidr": "203.0.114.0/24", "table": 200 })),
            ],
            services: vec![service(
                "web",
                &["203.0.113.4", "203.0.114.4", "2001:db8::4"],
                &["10.96.0.1", "fd00::1"],
            )],
            ..PlanInput::default()
        };
        let plan = plan(&known);
        let expected = [
            "iprc-10-96-0-1 t100 p0 a",
            "iprc-fd00-0000-0000-0000-0000-0000-0000-0001 t100 p0 a",
        ];
        assert_eq!(told(&plan), expected);
    }

    #[test]
    fn defect_13_a_rule_that_is_wrong_holds_what_it_had_and_stops_no_other() {
        let known = PlanInput {
            rules: vec![
                rule("bad", json!({ "cidr": "203.0.113.0/24", "table": 0 })),
                rule(
                    "good",
                    json!({ "cidr": "203.0.0.0/16", "table": 200, "reconcileInterval": "30s" }),
                ),
            ],
            services: vec![service("web", &["203.0.113.45"], &["10.96.0.1"])],
            ..PlanInput::default()
        };
        let plan = plan(&known);
        assert!(plan.held.contains("bad"));
        assert!(matches!(&plan.rules["bad"], Told::Wrong(wrong) if wrong[0].field == "spec.table"));
        assert_eq!(told(&plan), ["iprc-10-96-0-1 t200 p0 good"]);
        assert_eq!(plan.interval, Some(Duration::from_secs(30)));
    }

    #[test]
    fn all_is_looked_at_as_often_as_the_shortest_interval_says_which_may_be_long() {
        let with = |name: &str, interval: &str| {
            let spec =
                json!({ "cidr": "203.0.113.0/24", "table": 100, "reconcileInterval": interval });
            rule(name, spec)
        };
        let again = |rules: Vec<Arc<Rule>>| {
            let known = PlanInput {
                rules,
                ..PlanInput::default()
            };
            plan(&known).again()
        };
        let hour = Duration::from_secs(3600);
        assert_eq!(again(vec![with("a", "")]), hour / 6);
        assert_eq!(again(vec![with("a", "1d"), with("b", "")]), hour * 24);
        assert_eq!(again(vec![with("a", "2h"), with("b", "1h")]), hour);
    }

    #[test]
    fn a_rule_that_goes_or_is_wrong_keeps_its_nodes() {
        let mut going = Rule::clone(&rule(
            "going",
            json!({ "cidr": "203.0.113.0/24", "table": 100, "nodeSelectorLabel": "lb=true" }),
        ));
        going.meta.deleted = Some(fipd_core::Timestamp(1));
        let wrong = json!({ "cidr": "203.0.113.0/24", "table": 0, "nodeSelectorLabel": "lb=true" });
        let odd = json!({ "cidr": "203.0.113.0/24", "table": 1, "nodeSelectorLabel": "a in (b)" });
        let known = PlanInput {
            rules: vec![Arc::new(going), rule("odd", odd), rule("wrong", wrong)],
            ..PlanInput::default()
        };
        let plan = plan(&known);
        let nodes: Vec<&str> = plan.nodes.keys().map(|name| &**name).collect();
        assert_eq!(nodes, ["going", "wrong"]);
        assert!(!plan.nodes["going"].matches(&BTreeMap::new()));
        assert!(!plan.rules.contains_key("going"));
    }

    #[test]
    fn pods_are_the_sources_where_a_rule_says_so() {
        let pods = rule(
            "pods",
            json!({ "cidr": "203.0.113.0/24", "vrf": "red", "source": "endpoints" }),
        );
        assert!(wants_endpoints(std::slice::from_ref(&pods)));
        let slice = Slice {
            service: ("shop".into(), "web".into()),
            addresses: vec!["10.42.0.5".parse().unwrap()],
        };
        let known = PlanInput {
            rules: vec![pods],
            services: vec![service("web", &["203.0.113.45"], &["10.96.0.1"])],
            slices: Some(vec![Arc::new(slice)]),
            ..PlanInput::default()
        };
        let plan = plan(&known);
        assert_eq!(told(&plan), ["iprc-10-42-0-5 t0 p0 pods"]);
        assert_eq!(plan.wanted["iprc-10-42-0-5"].spec.vrf, "red");
        let table = rule("lb", json!({ "cidr": "203.0.112.0/23", "table": 100 }));
        let unread = PlanInput {
            rules: vec![Arc::clone(&known.rules[0]), table],
            slices: None,
            ..known
        };
        let plan = super::plan(&unread);
        assert_eq!(told(&plan), ["iprc-10-96-0-1 t100 p0 lb"], "of others");
        assert!(plan.held.contains("pods"), "what it had stays");
        assert_eq!(plan.rules["pods"], Told::PodsUnknown);
    }

    #[test]
    fn two_vrfs_are_two_targets() {
        let known = PlanInput {
            rules: ["red", "green"]
                .map(|vrf| rule(vrf, json!({ "cidr": "203.0.113.0/24", "vrf": vrf })))
                .to_vec(),
            services: vec![service("web", &["203.0.113.45"], &["10.96.0.1"])],
            ..PlanInput::default()
        };
        let plan = plan(&known);
        assert!(matches!(&plan.rules["red"], Told::Counts { sources: 0, lost } if lost.len() == 1));
    }
}
