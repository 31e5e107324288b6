use fipd_crds::ip_rule::{IPRuleConfigSpec, PRESENT};

use super::*;
use crate::systems::ip_rule::observe::{self, Owner};

const NAME: &str = "iprc-10-96-0-1";
const NOW: Timestamp = Timestamp(10_000_000);
const PATIENCE: ConfigPatience = ConfigPatience {
    unready: Duration::from_secs(600),
    silent: Duration::from_secs(3600),
};

fn wanted(table: i64) -> WantedConfig {
    WantedConfig {
        spec: IPRuleConfigSpec {
            service_ip: "10.96.0.1".into(),
            table,
            priority: 1000,
            state: PRESENT.into(),
            ..IPRuleConfigSpec::default()
        },
        owner: Owner {
            name: "lb".into(),
            uid: "u-lb".into(),
            controller: true,
        },
    }
}

fn read(object: Value) -> Config {
    observe::config(serde_json::from_value(object).unwrap())
}

/// As it is after this step: what an API server does with a merge patch.
fn after(found: &Value, step: &ConfigChange) -> Value {
    fn merge(into: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *into = patch.clone();
            return;
        };
        for (key, value) in patch {
            if value.is_null() {
                into.as_object_mut().unwrap().remove(key);
            } else if into.get(key).is_some_and(Value::is_object) && value.is_object() {
                merge(&mut into[key], value);
            } else {
                into[key] = value.clone();
            }
        }
    }
    match step {
        ConfigChange::Create(object) => {
            let mut object = object.clone();
            object["metadata"]["uid"] = json!("u-1");
            object["metadata"]["resourceVersion"] = json!("1");
            object
        }
        ConfigChange::Repair(patch) | ConfigChange::Retire(patch) => {
            let mut object = found.clone();
            merge(&mut object, patch);
            object
        }
        ConfigChange::Nothing
        | ConfigChange::Wait(_)
        | ConfigChange::Delete(_)
        | ConfigChange::Disown => {
            panic!("{step:?} changes nothing")
        }
    }
}

fn node(unready: Option<u64>) -> Arc<Node> {
    Arc::new(Node {
        labels: BTreeMap::from([("lb".into(), "true".into())]),
        unready: unready.map(Timestamp),
        ..Node::default()
    })
}

struct Case {
    nodes: BTreeMap<Text, Arc<Node>>,
    rule: Selector,
    agent: Option<BTreeMap<String, String>>,
}

impl Case {
    fn of(nodes: &[(&str, Option<u64>)]) -> Self {
        Self {
            nodes: nodes
                .iter()
                .map(|(name, unready)| ((*name).into(), node(*unready)))
                .collect(),
            rule: Selector::default(),
            agent: None,
        }
    }

    fn change(&self, wanted: Option<&WantedConfig>, found: Option<&Value>) -> ConfigChange {
        self.step_at(wanted, false, found, NOW)
    }

    fn step_at(
        &self,
        wanted: Option<&WantedConfig>,
        held: bool,
        found: Option<&Value>,
        now: Timestamp,
    ) -> ConfigChange {
        let found = found.map(|object| read(object.clone()));
        let scope = Scope {
            nodes: &self.nodes,
            rule: Some(&self.rule),
            agent: self.agent.as_ref(),
            patience: PATIENCE,
        };
        plan_change(NAME, wanted, held, found.as_ref(), &scope, now)
    }

    fn made(&self) -> Value {
        after(&Value::Null, &self.change(Some(&wanted(100)), None))
    }

    fn retired(&self) -> Value {
        let made = self.made();
        after(&made, &self.change(None, Some(&made)))
    }
}

fn annotate(object: &Value, prefix: &str, node: &str, value: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"][of_node(prefix, node)] = json!(value);
    object
}

#[test]
fn what_is_made_is_as_the_original_made_it_and_protected() {
    let case = Case::of(&[("n1", None)]);
    let made = case.made();
    assert_eq!(
        made["metadata"]["labels"],
        json!({ "managed-by": "ip-rule-operator" })
    );
    assert_eq!(
        made["metadata"]["annotations"][SPEC_HASH],
        json!(spec_hash(&wanted(100).spec))
    );
    assert_eq!(made["metadata"]["finalizers"], json!([CONFIG_FINALIZER]));
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "IPRule");
    assert_eq!(
        case.change(Some(&wanted(100)), Some(&made)),
        ConfigChange::Nothing
    );
}

#[test]
fn defect_2_what_is_absent_goes_only_when_every_node_in_scope_has_confirmed() {
    let mut case = Case::of(&[("n1", None), ("n2", None), ("n3", None)]);
    let retired = case.retired();
    assert_eq!(retired["spec"]["state"], "absent");
    assert_eq!(retired["metadata"]["annotations"].get(SPEC_HASH), None);
    let one = annotate(&retired, CLEANUP_PREFIX, "n1", DONE);
    assert_eq!(
        case.change(None, Some(&one)),
        ConfigChange::Wait(vec!["n2".into(), "n3".into()])
    );
    let other = annotate(&one, CLEANUP_PREFIX, "n2", "soon");
    assert!(
        matches!(case.change(None, Some(&other)), ConfigChange::Wait(_)),
        "only one word counts"
    );
    case.nodes.insert("n3".into(), Arc::default());
    case.rule = Selector::read("lb=true").unwrap();
    let both = annotate(&one, CLEANUP_PREFIX, "n2", DONE);
    assert_eq!(
        case.change(None, Some(&both)),
        ConfigChange::Delete(Vec::new())
    );
    case.rule = Selector::default();
    case.agent = Some(BTreeMap::from([("lb".into(), "true".into())]));
    assert_eq!(
        case.change(None, Some(&both)),
        ConfigChange::Delete(Vec::new()),
        "the Agent's nodes"
    );
}

#[test]
fn defect_3_another_table_is_written_into_the_object_with_its_hash() {
    let case = Case::of(&[]);
    let made = case.made();
    let step = case.change(Some(&wanted(200)), Some(&made));
    let changed = after(&made, &step);
    assert_eq!(changed["spec"]["table"], 200);
    assert_eq!(
        case.change(Some(&wanted(200)), Some(&changed)),
        ConfigChange::Nothing
    );
    let scope = |object: &Value| {
        let case = Case::of(&[("n1", None)]);
        let scope = Scope {
            nodes: &case.nodes,
            rule: None,
            agent: None,
            patience: PATIENCE,
        };
        scope.applied(&read(object.clone())).0.len()
    };
    let told = annotate(
        &made,
        APPLIED_PREFIX,
        "n1",
        &echo(&spec_hash(&wanted(100).spec)),
    );
    assert_eq!(
        (scope(&told), scope(&after(&told, &step))),
        (1, 0),
        "the node has the old one"
    );
}

#[test]
fn defect_8_what_comes_back_has_no_confirmations_of_before() {
    let case = Case::of(&[("n1", None)]);
    let confirmed = annotate(&case.retired(), CLEANUP_PREFIX, "n1", DONE);
    let revived = after(
        &confirmed,
        &case.change(Some(&wanted(100)), Some(&confirmed)),
    );
    assert_eq!(revived["spec"]["state"], "present");
    assert_eq!(
        revived["metadata"]["annotations"],
        json!({ SPEC_HASH: spec_hash(&wanted(100).spec) })
    );
    let again = after(&revived, &case.change(None, Some(&revived)));
    assert!(matches!(
        case.change(None, Some(&again)),
        ConfigChange::Wait(_)
    ));
    let stale = annotate(&revived, CLEANUP_PREFIX, "n1", DONE);
    let cleared = after(&stale, &case.change(Some(&wanted(100)), Some(&stale)));
    assert_eq!(cleared, revived, "one that came late is taken away");
}

#[test]
fn defect_9_and_conformance_36_a_dead_node_is_waited_for_no_longer_than_said() {
    let hour_ago = NOW.0 - 3_600_000;
    let case = Case::of(&[("n1", Some(hour_ago)), ("n2", Some(NOW.0 - 1_000))]);
    let retired = annotate(&case.retired(), APPLIED_PREFIX, "n2", "x");
    assert_eq!(
        case.change(None, Some(&retired)),
        ConfigChange::Wait(vec!["n2".into()])
    );
    let later = Timestamp(NOW.0 + 600_000);
    assert_eq!(
        case.step_at(None, false, Some(&retired), later),
        ConfigChange::Delete(Vec::new())
    );
    assert_eq!(
        Case::of(&[]).change(None, Some(&retired)),
        ConfigChange::Delete(Vec::new()),
        "its Node is gone"
    );
    let alive = Case::of(&[("n1", None), ("n2", None)]);
    let step = alive.step_at(None, false, Some(&retired), later);
    assert_eq!(
        step,
        ConfigChange::Wait(vec!["n2".into()]),
        "n1 never had it, n2 has it and lives"
    );
    let long = "n".repeat(100);
    let named = Case::of(&[(&long, None)]);
    let confirmed = annotate(&named.retired(), CLEANUP_PREFIX, &long, DONE);
    assert_eq!(
        named.change(None, Some(&confirmed)),
        ConfigChange::Delete(Vec::new())
    );
}

#[test]
fn a_living_node_without_fipd_is_waited_for_long_and_named_then() {
    let case = Case::of(&[("n1", None), ("n2", None)]);
    let retired = annotate(&case.retired(), APPLIED_PREFIX, "n1", "x");
    let retired = annotate(&retired, APPLIED_PREFIX, "n2", "x");
    let one = annotate(&retired, CLEANUP_PREFIX, "n2", DONE);
    let after = |seconds: u64| {
        let now = Timestamp(NOW.0 + seconds * 1_000);
        case.step_at(None, false, Some(&one), now)
    };
    assert_eq!(after(3_599), ConfigChange::Wait(vec!["n1".into()]));
    assert_eq!(after(3_600), ConfigChange::Delete(vec!["n1".into()]));
}

#[test]
fn defect_12_what_was_edited_or_deleted_by_hand_is_put_right() {
    let case = Case::of(&[]);
    let (made, wanted) = (case.made(), wanted(100));
    for (path, value) in [
        ("/spec/table", json!(7)),
        ("/spec/serviceIP", json!("10.0.0.9")),
        ("/spec/state", json!("absent")),
        ("/spec/priority", json!(1)),
        ("/metadata/labels", json!({})),
        ("/metadata/finalizers", json!([])),
        ("/metadata/annotations", json!({})),
        ("/metadata/ownerReferences", json!([])),
    ] {
        let mut edited = made.clone();
        *edited.pointer_mut(path).unwrap() = value;
        let step = case.change(Some(&wanted), Some(&edited));
        assert_eq!(
            after(&edited, &step),
            {
                let mut made = made.clone();
                made["metadata"]["resourceVersion"] = json!("1");
                made
            },
            "{path}"
        );
    }
    let mut added = made.clone();
    added["spec"]["failClosed"] = json!(true);
    assert_eq!(
        after(&added, &case.change(Some(&wanted), Some(&added))),
        made
    );
    let mut deleted = made.clone();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(
        case.change(Some(&wanted), Some(&deleted)),
        ConfigChange::Disown
    );
    assert!(
        matches!(case.change(None, Some(&deleted)), ConfigChange::Retire(_)),
        "nodes first"
    );
}

#[test]
fn defect_13_what_a_wrong_rule_had_stays_as_it_was_and_foreign_objects_are_left_alone() {
    let case = Case::of(&[("n1", None)]);
    let made = case.made();
    assert_eq!(
        case.step_at(None, true, Some(&made), NOW),
        ConfigChange::Nothing
    );
    let retired = case.retired();
    assert!(
        matches!(
            case.step_at(None, true, Some(&retired), NOW),
            ConfigChange::Wait(_)
        ),
        "what goes goes on"
    );
    let foreign = json!({ "metadata": { "name": NAME }, "spec": { "serviceIP": "10.96.0.1", "table": 1, "state": "present" } });
    assert_eq!(case.change(None, Some(&foreign)), ConfigChange::Nothing);
}

#[test]
fn what_the_original_left_is_taken_over() {
    let case = Case::of(&[("n1", None)]);
    let left = json!({
        "metadata": { "name": NAME, "uid": "u-0", "resourceVersion": "7", "labels": { "managed-by": "ip-rule-operator" },
            "annotations": { of_node(CLEANUP_PREFIX, "n1"): "done" } },
        "spec": { "serviceIP": "10.96.0.1", "table": 100, "state": "absent" },
    });
    let ConfigChange::Retire(patch) = case.change(None, Some(&left)) else {
        panic!("not retired anew");
    };
    assert_eq!(patch["metadata"]["finalizers"], json!([CONFIG_FINALIZER]));
    let step = ConfigChange::Retire(patch);
    let taken = after(&left, &step);
    assert!(
        matches!(case.change(None, Some(&taken)), ConfigChange::Wait(_)),
        "what is confirmed may be long ago"
    );
}

#[test]
fn a_host_with_a_package_is_waited_for_whatever_the_agent_selects() {
    let mut case = Case::of(&[("n1", None), ("n2", None)]);
    case.agent = Some(BTreeMap::from([("other".into(), "nodes".into())]));
    let retired = case.retired();
    assert_eq!(
        case.change(None, Some(&retired)),
        ConfigChange::Delete(Vec::new())
    );
    let applied = annotate(&retired, APPLIED_PREFIX, "n2", "0123");
    assert_eq!(
        case.change(None, Some(&applied)),
        ConfigChange::Wait(vec!["n2".into()])
    );
}

#[test]
fn words_of_nodes_that_are_no_more_do_not_pile_up() {
    let case = Case::of(&[("n1", None), ("n2", None)]);
    let mut made = case.made();
    for node in ["n1", "gone-1"] {
        made = annotate(&made, APPLIED_PREFIX, node, "0123");
    }
    assert_eq!(
        case.change(Some(&wanted(100)), Some(&made)),
        ConfigChange::Nothing
    );
    made = annotate(&made, APPLIED_PREFIX, "gone-2", "0123");
    let tidied = after(&made, &case.change(Some(&wanted(100)), Some(&made)));
    let annotations = &tidied["metadata"]["annotations"];
    assert!(annotations.get(of_node(APPLIED_PREFIX, "n1")).is_some());
    assert!(annotations.get(of_node(APPLIED_PREFIX, "gone-1")).is_none());
    assert!(annotations.get(of_node(APPLIED_PREFIX, "gone-2")).is_none());
    let retired = after(&made, &case.change(None, Some(&made)));
    let annotations = &retired["metadata"]["annotations"];
    assert!(annotations.get(of_node(APPLIED_PREFIX, "gone-2")).is_none());
}
