//! fipd's own rules in the kernel: which of them stay though nobody wants them now, and what others did to them.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::{
    desired::Desired,
    diff::{Step, is_own},
    rule::{KernelRule, Rule},
};

/// The rules with fipd's tag, in the kernel's order.
pub fn owned(actual: &[KernelRule], protocol: u8) -> impl Iterator<Item = &KernelRule> {
    actual.iter().filter(move |one| is_own(one, protocol))
}

/// The rules with fipd's tag, each once.
pub fn own_rules(actual: &[KernelRule], protocol: u8) -> BTreeSet<Rule> {
    let own = owned(actual, protocol);
    own.map(|one| one.rule.clone()).collect()
}

/// What stays without a journal: any rule may be somebody's, except those that fipd `added` since it started.
pub fn stay_without_journal(
    desired: &BTreeSet<Rule>,
    actual: &[KernelRule],
    added: &BTreeSet<Rule>,
    protocol: u8,
) -> BTreeSet<Rule> {
    let found = owned(actual, protocol).map(|one| &one.rule);
    let found = found.filter(|rule| !added.contains(*rule));
    desired.iter().chain(found).cloned().collect()
}

/// Where the kernel refuses a new rule, the rules that its sources had before stay.
pub fn stay_beside_refused(
    desired: &Desired,
    actual: &[KernelRule],
    refused: &BTreeSet<Rule>,
    protocol: u8,
) -> BTreeSet<Rule> {
    if refused.is_empty() {
        return BTreeSet::new();
    }
    let flat: BTreeSet<IpNet> = refused.iter().filter_map(|rule| rule.source).collect();
    let marks = refused.iter().filter_map(|rule| rule.mark);
    let marks: BTreeSet<u32> = marks.map(|mark| mark.value).collect();
    let has = |source: &IpNet| {
        let mark = desired.index.get(&source.addr());
        flat.contains(source) || mark.is_some_and(|mark| marks.contains(mark))
    };
    // A rule of a mark may be the one by which they went before.
    let before = owned(actual, protocol).filter(|one| {
        let rule = &one.rule;
        rule.source.as_ref().map_or(rule.mark.is_some(), has)
    });
    before.map(|one| one.rule.clone()).collect()
}

/// What others did to fipd's rules since fipd `left` them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interference<'a> {
    /// In order.
    pub removed: Vec<&'a Rule>,
    /// In the kernel's order; a rule that is there twice counts as added.
    pub added: Vec<&'a Rule>,
}

impl<'a> Interference<'a> {
    pub fn find(left: &'a BTreeSet<Rule>, actual: &'a [KernelRule], protocol: u8) -> Self {
        let mut there: BTreeSet<&Rule> = BTreeSet::new();
        let mut added = Vec::new();
        for KernelRule { rule, .. } in owned(actual, protocol) {
            if !there.insert(rule) || !left.contains(rule) {
                added.push(rule);
            }
        }
        let removed = left.iter().filter(|rule| !there.contains(rule)).collect();
        Self { removed, added }
    }

    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }
}

/// What of the rules that fipd left is there after these steps.
pub fn left_after(left: &BTreeSet<Rule>, steps: &[Step]) -> BTreeSet<Rule> {
    let mut left = left.clone();
    for step in steps {
        if let Step::Delete(rule) = step {
            left.remove(rule);
        }
    }
    left
}
