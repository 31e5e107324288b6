//! The steps from the rules that are in the kernel to those that are to be there.
//!
//! How the kernel (`net/core/fib_rules.c`) does it was measured:
//! - It replaces nothing: the new rule is added, then the old one is deleted. A second one like it is a second rule.
//! - It puts a rule behind those of its priority, walking from the head: rules of descending priority are added fastest,
//!   and deleted fastest of ascending.
//! - It deletes the first rule in its list that has what the request says. What the request does not say may be anything,
//!   and inversion, which cannot be said, is not looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::rule::{KernelRule, Rule};
use crate::Family;

/// One change of the kernel's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Behind those of its priority.
    Add(Rule),
    /// The first that has all that this one says.
    Delete(Rule),
}

/// All of them, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By descending priority, first those that ask a table: what fails closed comes when there is something before it.
    pub adds: Vec<Rule>,
    /// Deletions by ascending priority, those that ask a table last. One that would hit a rule that is to stay comes behind
    /// another one like that rule.
    pub removals: Vec<Step>,
    /// Own rules that cannot be deleted: the kernel would take another's rule, which has fipd's tag.
    pub stuck: Vec<Rule>,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.adds.is_empty() && self.removals.is_empty()
    }
}

/// Whether fipd made it: its tag, and nothing that fipd never writes.
pub fn is_own(one: &KernelRule, protocol: u8) -> bool {
    one.rule.protocol == protocol && one.more.is_none()
}

/// The steps to the desired rules, which all have this tag. `actual` is in the kernel's order.
pub fn diff(desired: &BTreeSet<Rule>, actual: &[KernelRule], protocol: u8) -> Plan {
    let mut there: HashMap<&Rule, usize> = HashMap::with_capacity(desired.len());
    let mut surplus: BTreeMap<&Rule, usize> = BTreeMap::new();
    for own in super::owned(actual, protocol) {
        let count = there.entry(&own.rule).or_default();
        *count += 1;
        if *count > 1 || !desired.contains(&own.rule) {
            *surplus.entry(&own.rule).or_default() += 1;
        }
    }
    let missing = desired
        .iter()
        .rev()
        .filter(|rule| !there.contains_key(rule));
    let (tables, ends): (Vec<Rule>, Vec<Rule>) = missing.cloned().partition(asks_a_table);
    let mut plan = Plan {
        adds: [tables, ends].concat(),
        ..Plan::default()
    };
    if !surplus.is_empty() {
        let mut lists = Lists::of(&surplus, actual, &plan.adds, protocol);
        let (tables, ends): (Vec<_>, Vec<_>) =
            surplus.iter().partition(|(rule, _)| asks_a_table(rule));
        for (rule, count) in ends.into_iter().chain(tables) {
            for _ in 0..*count {
                lists.remove(rule, desired, &mut plan);
            }
        }
    }
    plan
}

fn asks_a_table(rule: &Rule) -> bool {
    rule.action.table().is_some()
}

type RuleSlot = (u32, Family);

/// The kernel's rules of our tag at the priorities at which some are deleted.
struct Lists(BTreeMap<RuleSlot, RuleList>);

#[derive(Default)]
struct RuleList {
    /// In the kernel's order; `None`: it is gone.
    rules: Vec<Option<KernelRule>>,
    /// By the address of the source, which nearly all rules have.
    by_source: HashMap<Option<ipnet::IpNet>, Vec<usize>>,
}

impl Lists {
    fn of(
        surplus: &BTreeMap<&Rule, usize>,
        actual: &[KernelRule],
        adds: &[Rule],
        protocol: u8,
    ) -> Self {
        let mut lists: BTreeMap<RuleSlot, RuleList> = BTreeMap::new();
        for rule in surplus.keys() {
            lists.entry(place(rule)).or_default();
        }
        let tagged = actual.iter().filter(|one| one.rule.protocol == protocol);
        let added = adds.iter().cloned().map(KernelRule::from);
        for rule in tagged.cloned().chain(added) {
            if let Some(list) = lists.get_mut(&place(&rule.rule)) {
                list.push(rule);
            }
        }
        Self(lists)
    }

    /// Plans the deletion of one such rule.
    fn remove(&mut self, rule: &Rule, desired: &BTreeSet<Rule>, plan: &mut Plan) {
        let Some(list) = self.0.get_mut(&place(rule)) else {
            return;
        };
        // What was hit on the way to another is gone already.
        if !list.has_surplus(rule, desired) {
            return;
        }
        // Each deletion takes one that is before it, so that this ends.
        while let Some(hit) = list.hit(rule) {
            let Some(victim) = list.rules.get(hit).cloned().flatten() else {
                return;
            };
            if victim.more.is_some() {
                plan.stuck.push(rule.clone());
                return;
            }
            if victim.rule != *rule
                && desired.contains(&victim.rule)
                && list.count(&victim.rule) < 2
            {
                plan.removals.push(Step::Add(victim.rule.clone()));
                list.push(victim.clone());
            }
            plan.removals.push(Step::Delete(rule.clone()));
            list.take(hit);
            if victim.rule == *rule {
                return;
            }
        }
    }
}

impl RuleList {
    fn push(&mut self, rule: KernelRule) {
        let at = self.rules.len();
        self.by_source.entry(rule.rule.source).or_default().push(at);
        self.rules.push(Some(rule));
    }

    fn take(&mut self, at: usize) {
        if let Some(rule) = self.rules.get_mut(at) {
            *rule = None;
        }
    }

    /// The first that the kernel would delete.
    fn hit(&self, wanted: &Rule) -> Option<usize> {
        let is_hit = |at: &usize| {
            let rule = self.rules.get(*at).and_then(Option::as_ref);
            rule.is_some_and(|rule| wanted.may_take(&rule.rule))
        };
        match wanted.source {
            Some(_) => self.alike(wanted).find(is_hit),
            None => (0..self.rules.len()).find(is_hit),
        }
    }

    fn alike(&self, rule: &Rule) -> impl Iterator<Item = usize> {
        let alike = self.by_source.get(&rule.source);
        alike.into_iter().flatten().copied()
    }

    fn count(&self, rule: &Rule) -> usize {
        let same = self
            .alike(rule)
            .filter_map(|at| self.rules.get(at)?.as_ref());
        same.filter(|one| one.more.is_none() && one.rule == *rule)
            .count()
    }

    fn has_surplus(&self, rule: &Rule, desired: &BTreeSet<Rule>) -> bool {
        self.count(rule) > usize::from(desired.contains(rule))
    }
}

fn place(rule: &Rule) -> RuleSlot {
    (rule.priority, rule.family)
}
