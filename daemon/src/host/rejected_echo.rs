//! Rules that the kernel takes and then does not have, as it has them in another way than it was told. Each time would make
//! one more.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use fipd_core::host::{KernelRule, Rule, owned};

use crate::rules::Warning;

/// Times that one is added before it is given up.
const MOST: u32 = 3;
/// Doublings of the pause after that, which is counted in looks of the slow timer.
const DOUBLINGS: u32 = 16;
/// Rules that are told by name.
const TOLD: usize = 5;

#[derive(Default)]
pub(super) struct RejectedEchoes(BTreeMap<Rule, Tries>);

#[derive(Default)]
struct Tries {
    failed: u32,
    /// Looks of the slow timer until it is tried again; 0: it is tried.
    left: u32,
}

impl RejectedEchoes {
    /// Takes out what is not worth another try.
    pub fn spare(&self, adds: &mut Vec<Rule>) {
        if !self.0.is_empty() {
            adds.retain(|rule| !self.is_given_up(rule));
        }
    }

    fn is_given_up(&self, rule: &Rule) -> bool {
        self.0.get(rule).is_some_and(|tries| tries.left > 0)
    }

    /// The kernel took all of these, nobody else changed rules, and then it has those.
    pub fn note(&mut self, taken: &[&Rule], rules: &[KernelRule]) {
        let Some(protocol) = taken.first().map(|rule| rule.protocol) else {
            return;
        };
        let own: HashSet<&Rule> = owned(rules, protocol).map(|one| &one.rule).collect();
        for rule in taken.iter().copied() {
            if own.contains(rule) {
                self.0.remove(rule);
                continue;
            }
            let tries = self.0.entry(rule.clone()).or_default();
            tries.failed = tries.failed.saturating_add(1);
            if let Some(more) = tries.failed.checked_sub(MOST) {
                tries.left = 1 << more.min(DOUBLINGS);
                if more == 0 {
                    tracing::warn!(%rule, "the kernel takes a rule and does not have it; it is given up");
                }
            }
        }
    }

    /// Only these are wanted.
    pub fn forget_but(&mut self, wanted: &BTreeSet<Rule>) {
        self.0.retain(|rule, _| wanted.contains(rule));
    }

    /// Everything is looked at anew.
    pub fn resynced(&mut self) {
        for tries in self.0.values_mut() {
            tries.left = tries.left.saturating_sub(1);
        }
    }

    pub fn warning(&self) -> Option<Warning> {
        let given_up = self.0.keys().filter(|rule| self.is_given_up(rule));
        let all: Vec<String> = given_up.map(ToString::to_string).collect();
        let told = all.get(..TOLD).unwrap_or(&all).join("; ");
        let more = match all.len().saturating_sub(TOLD) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        (!all.is_empty()).then(|| Warning::new("not-kept", format!(
                "the kernel takes these rules and then does not have them as they were said: {told}{more}. They are not added \
                 for now, and tried again each time that everything is read anew, less and less often"
            )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fipd_core::{Family, host::RuleAction};

    fn rule(priority: u32) -> Rule {
        Rule {
            priority,
            family: Family::V4,
            source: None,
            destination: None,
            input: None,
            output: None,
            mark: None,
            action: RuleAction::Table(100),
            protocol: 200,
        }
    }

    fn adds(rejected_echoes: &RejectedEchoes) -> Vec<Rule> {
        let mut adds = vec![rule(1), rule(2)];
        rejected_echoes.spare(&mut adds);
        adds
    }

    #[test]
    fn a_rule_that_does_not_come_is_given_up_and_tried_less_and_less_often() {
        let mut rejected_echoes = RejectedEchoes::default();
        let there = [KernelRule::from(rule(2))];
        for _ in 0..MOST {
            assert_eq!(adds(&rejected_echoes).len(), 2);
            assert_eq!(rejected_echoes.warning(), None);
            rejected_echoes.note(&[&rule(1), &rule(2)], &there);
        }
        assert_eq!(adds(&rejected_echoes), [rule(2)]);
        let text = rejected_echoes.warning().unwrap().text;
        assert!(text.contains("1: from all lookup 100 proto 200") && !text.contains("2: from"));
        for pause in [1, 2, 4] {
            for look in 1..=pause {
                assert_eq!(adds(&rejected_echoes), [rule(2)], "look {look} of {pause}");
                rejected_echoes.resynced();
            }
            assert_eq!(adds(&rejected_echoes).len(), 2);
            rejected_echoes.note(&[&rule(1)], &there);
        }
        let both = [KernelRule::from(rule(1)), KernelRule::from(rule(2))];
        rejected_echoes.note(&[&rule(1)], &both);
        assert_eq!(adds(&rejected_echoes).len(), 2, "it is there");
        rejected_echoes.note(&[&rule(1)], &there);
        rejected_echoes.forget_but(&[rule(1)].into());
        assert_eq!(rejected_echoes.0.len(), 1);
        rejected_echoes.forget_but(&BTreeSet::new());
        assert!(rejected_echoes.0.is_empty(), "nobody wants it any more");
    }

    #[test]
    fn one_that_is_read_as_anothers_is_none() {
        let mut rejected_echoes = RejectedEchoes::default();
        let other = KernelRule {
            rule: rule(1),
            more: Some("attribute 99 01".into()),
        };
        for _ in 0..MOST {
            rejected_echoes.note(&[&rule(1)], std::slice::from_ref(&other));
        }
        assert_eq!(adds(&rejected_echoes), [rule(2)]);
    }
}
