//! Own rules that may be those of somebody who has not spoken yet.

use std::collections::BTreeSet;

use super::{
    owned,
    rule::{KernelRule, Rule},
};

/// Own rules that an earlier run left and that nobody is known to have wanted. As long as somebody who may want rules is
/// silent they stay. A rule that somebody wanted once is that one's business from there on, and goes when it is not wanted
/// any more, whoever else is silent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unclaimed(BTreeSet<Rule>);

impl Unclaimed {
    /// `recorded`: the rules of all that is on record of what was wanted before; nothing where the record was lost.
    pub fn find(actual: &[KernelRule], recorded: &BTreeSet<Rule>, protocol: u8) -> Self {
        let unknown = owned(actual, protocol).filter(|one| !recorded.contains(&one.rule));
        Self(unknown.map(|one| one.rule.clone()).collect())
    }

    /// Somebody who speaks wants these.
    pub fn claim(&mut self, desired: &BTreeSet<Rule>) {
        if !self.0.is_empty() {
            self.0.retain(|rule| !desired.contains(rule));
        }
    }

    /// An admin had these made before anybody said that they are wanted.
    pub fn keep(&mut self, rules: impl IntoIterator<Item = Rule>) {
        self.0.extend(rules);
    }

    /// What is to be in the kernel as long as somebody is silent.
    pub fn beside(
        &self,
        desired: &BTreeSet<Rule>,
        actual: &[KernelRule],
        protocol: u8,
    ) -> BTreeSet<Rule> {
        let stay = owned(actual, protocol).filter(|one| self.0.contains(&one.rule));
        let mut all = desired.clone();
        all.extend(stay.map(|one| one.rule.clone()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Family,
        host::{RuleAction, diff},
    };

    const TAG: u8 = 200;

    fn rule(last: u8) -> Rule {
        Rule {
            priority: 10_000,
            family: Family::V4,
            source: Some(format!("10.0.0.{last}/32").parse().unwrap()),
            destination: None,
            input: None,
            output: None,
            mark: None,
            action: RuleAction::Table(100),
            protocol: TAG,
        }
    }

    fn rules(all: &[u8]) -> BTreeSet<Rule> {
        all.iter().copied().map(rule).collect()
    }

    fn kernel(all: &[u8]) -> Vec<KernelRule> {
        all.iter().map(|last| rule(*last).into()).collect()
    }

    /// What is deleted while somebody is silent.
    fn goes(unclaimed: &Unclaimed, desired: &[u8], actual: &[u8]) -> usize {
        let actual = kernel(actual);
        let stay = unclaimed.beside(&rules(desired), &actual, TAG);
        let plan = diff(&stay, &actual, TAG);
        assert!(plan.adds.is_empty(), "{:?}", plan.adds);
        plan.removals.len()
    }

    #[test]
    fn with_a_record_what_its_owners_do_not_want_any_more_goes_while_another_is_silent() {
        let found = Unclaimed::find(&kernel(&[1, 2]), &rules(&[1, 2]), TAG);
        assert_eq!(found, Unclaimed::default());
        assert_eq!(goes(&found, &[2], &[1, 2]), 1);
    }

    #[test]
    fn without_a_record_nothing_goes_until_somebody_wanted_it() {
        let mut found = Unclaimed::find(&kernel(&[1, 2]), &BTreeSet::new(), TAG);
        assert_eq!(goes(&found, &[], &[1, 2]), 0);
        found.claim(&rules(&[2, 3]));
        assert_eq!(goes(&found, &[2, 3], &[1, 2, 3]), 0);
        assert_eq!(goes(&found, &[], &[1, 2, 3]), 2, "2 and 3 were somebody's");
    }

    #[test]
    fn what_another_removed_meanwhile_is_not_brought_back() {
        let found = Unclaimed::find(&kernel(&[1, 2]), &BTreeSet::new(), TAG);
        assert_eq!(goes(&found, &[], &[2]), 0);
    }

    #[test]
    fn what_an_admin_had_made_stays_until_it_is_said_whose_it_is() {
        let mut found = Unclaimed::default();
        found.keep(rules(&[1]));
        assert_eq!(goes(&found, &[], &[1]), 0);
        found.claim(&rules(&[1]));
        assert_eq!(goes(&found, &[], &[1]), 1);
    }

    #[test]
    fn rules_of_others_are_nobodys_here() {
        let mut foreign = KernelRule::from(rule(1));
        foreign.rule.protocol = 3;
        let found = Unclaimed::find(&[foreign], &BTreeSet::new(), TAG);
        assert_eq!(found, Unclaimed::default());
    }
}
