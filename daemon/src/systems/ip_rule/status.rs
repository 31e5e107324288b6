//! What IPRules and IPRuleConfigs say of themselves.

use std::time::Duration;

use fipd_core::{Text, host::Clash};
use fipd_crds::ip_rule::{IPRuleConfigStatus, IPRuleStatus};
use k8s_openapi::jiff;

use super::{
    config_change::{Scope, named},
    observe::{Config, Rule},
    plan::Told,
};
use crate::{
    controller::conditions::{ConditionUpdate, INVALID, REFUSED, note_condition, set},
    systems::ip_rule::validate::warnings,
    validation::Wrong,
};

pub const PODS_UNKNOWN: &str = "PodsUnknown";
/// What that means.
pub const PODS: &str = "the pods behind Services are not known: fipd cannot read EndpointSlices yet. What it had before stays as it \
                        was; if this stays, see the ClusterRole of fipd";
const CONFLICT: &str = "Conflict";
const APPLIED: &str = "Applied";
/// The most sources that a message names.
const NAMED: usize = 5;

/// Reason of the condition and of the Event of an IPRule that cannot be understood.
pub fn rejected(rule: &Rule) -> &'static str {
    match rule.status.rules {
        0 => INVALID,
        _ => REFUSED,
    }
}

pub fn of_rule(rule: &Rule, told: &Told, now: jiff::Timestamp) -> IPRuleStatus {
    let mut status = rule.status.clone();
    let generation = rule.meta.generation;
    status.observed_generation = generation.unwrap_or_default();
    let (ready, clash) = match told {
        Told::Wrong(all) => (
            ConditionUpdate::ready(false, rejected(rule), wrong(all)),
            None,
        ),
        Told::PodsUnknown => (ConditionUpdate::ready(false, PODS_UNKNOWN, PODS), None),
        Told::Counts {
            sources,
            lost: clashes,
        } => {
            status.rules = i64::try_from(*sources).unwrap_or(i64::MAX);
            let (reason, message) = match sources {
                0 => (
                    "NoMatch",
                    "no Service has an address in its ranges".to_owned(),
                ),
                1 => ("Active", "1 source has a rule".to_owned()),
                many => ("Active", format!("{many} sources have a rule")),
            };
            let ready = ConditionUpdate::ready(true, reason, message);
            (ready, lost(clashes))
        }
    };
    set(&mut status.conditions, &ready, generation, now);
    let reason = clash.as_ref().map_or("", |(reason, _)| *reason);
    let message = clash.map(|(_, message)| message);
    note_condition(
        &mut status.conditions,
        (CONFLICT, reason),
        message,
        generation,
        now,
    );
    let warned = warnings(&rule.spec).join("; ");
    let warned = (!warned.is_empty()).then_some(warned);
    note_condition(
        &mut status.conditions,
        ("Questionable", "Allowed"),
        warned,
        generation,
        now,
    );
    status
}

/// What is wrong, and what that means.
pub fn wrong(all: &[Wrong]) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    format!(
        "{}. Nothing of this IPRule is applied; what it had before stays as it was",
        all.join("; ")
    )
}

/// Reason and message where other IPRules have sources that this one wants.
pub fn lost(clashes: &[Clash]) -> Option<(&'static str, String)> {
    let first = clashes.first()?;
    let by_name = clashes.iter().find(|clash| !clash.by_length);
    let (reason, why) = match by_name {
        None => ("MoreSpecific", "whose range is more specific"),
        Some(_) => (
            "SameRange",
            "whose range is as long and whose name is less; make one of the two more specific",
        ),
    };
    let winner = &by_name.unwrap_or(first).winner;
    let mut sources: Vec<String> = clashes
        .iter()
        .take(NAMED)
        .map(|clash| clash.source.to_string())
        .collect();
    if clashes.len() > NAMED {
        sources.push(format!("and {} more", clashes.len() - NAMED));
    }
    Some((
        reason,
        format!("{} go by IPRule {winner}, {why}", sources.join(", ")),
    ))
}

/// The rule of this IPRuleConfig may be left on these nodes.
pub fn unheard(config: &str, nodes: &[Text], silent: Duration) -> String {
    format!(
        "{} had the rule of {config} and said nothing for {} s since it is not wanted any more; it is waited for no longer, and \
         removes the rule itself when fipd is back there",
        named(nodes).join(", "),
        silent.as_secs()
    )
}

pub fn of_config(config: &Config, scope: &Scope<'_>, now: jiff::Timestamp) -> IPRuleConfigStatus {
    let mut status = IPRuleConfigStatus {
        conditions: config.status.conditions.clone(),
        ..IPRuleConfigStatus::default()
    };
    let (applied, all) = match config.is_present() {
        true => scope.applied(config),
        false => (Vec::new(), 0),
    };
    status.applied = i64::try_from(applied.len()).unwrap_or(i64::MAX);
    status.nodes = named(&applied);
    let (is, reason, message) = match config.is_present() {
        true if applied.len() < all => (
            false,
            "Progressing",
            format!("{} of {all} nodes in scope have the rule", applied.len()),
        ),
        true if all == 0 => (false, "NoNode", "no node is in scope".to_owned()),
        true => (
            true,
            "AllNodes",
            format!("all {all} nodes in scope have the rule"),
        ),
        false => (
            false,
            "Absent",
            "nodes remove the rule; the object goes when each has confirmed or is gone".to_owned(),
        ),
    };
    let says = ConditionUpdate {
        kind: APPLIED,
        status: is,
        reason,
        message,
    };
    set(&mut status.conditions, &says, config.meta.generation, now);
    status
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::systems::ip_rule::plan::tests::rule;

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn defect_13_a_wrong_field_is_told_with_value_what_is_allowed_and_what_happens() {
        let rule = rule("bad", json!({ "cidr": "foo", "table": 100 }));
        let all = [Wrong::new("spec.cidr", "foo", "allowed is a range")];
        let status = of_rule(&rule, &Told::Wrong(all.to_vec()), at(10));
        let ready = &status.conditions[0];
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_str()),
            ("False", INVALID)
        );
        let applied = Rule {
            status: IPRuleStatus {
                rules: 1,
                ..rule.status.clone()
            },
            ..(*rule).clone()
        };
        assert_eq!(rejected(&applied), REFUSED);
        for word in [
            "spec.cidr: \"foo\"",
            "allowed is a range",
            "stays as it was",
        ] {
            assert!(ready.message.contains(word), "{}", ready.message);
        }
    }

    #[test]
    fn conformance_6_a_lost_source_is_a_condition_for_as_long_as_it_is_lost() {
        let clash = |source: &str, by_length| Clash {
            source: source.parse().unwrap(),
            winner: "a".into(),
            loser: "b".into(),
            by_length,
        };
        let mut rule = Rule::clone(&rule(
            "b",
            json!({ "cidr": "203.0.113.0/24", "table": 100 }),
        ));
        let both = vec![clash("10.0.0.1", true), clash("10.0.0.2", false)];
        rule.status = of_rule(
            &rule,
            &Told::Counts {
                sources: 2,
                lost: both,
            },
            at(10),
        );
        let conflict = rule
            .status
            .conditions
            .iter()
            .find(|one| one.type_ == "Conflict")
            .unwrap();
        assert_eq!(conflict.reason, "SameRange");
        assert!(
            conflict
                .message
                .starts_with("10.0.0.1, 10.0.0.2 go by IPRule a"),
            "{}",
            conflict.message
        );
        let again = of_rule(
            &rule,
            &Told::Counts {
                sources: 2,
                lost: vec![clash("10.0.0.1", true), clash("10.0.0.2", false)],
            },
            at(20),
        );
        assert_eq!(again, rule.status, "nothing more to write");
        let none = of_rule(
            &rule,
            &Told::Counts {
                sources: 2,
                lost: Vec::new(),
            },
            at(20),
        );
        assert_eq!(none.conditions.len(), 1);
        assert_eq!(lost(&[clash("10.0.0.1", true)]).unwrap().0, "MoreSpecific");
    }
}
