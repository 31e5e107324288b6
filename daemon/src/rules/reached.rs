//! How far the kernel is.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use fipd_core::{
    Family, Text,
    host::{Desired, Plan, Rule, Step},
};

use super::Revision;

/// What the kernel has of what is wanted, as of one whole list that nobody disturbed. What is missing, and what lingers, is
/// little at most times, so that it is told instead of all that is well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Of what is wanted, that at this revision.
    pub revision: Revision,
    /// An admin had the rules flushed, or fipd removed them at its stop: nobody's are there.
    pub flushed: bool,
    /// Sources that are to have a rule of which some part is not there.
    pub missing: BTreeSet<IpAddr>,
    /// Sources with the names of sets that do not get them, since another set has them.
    pub lost: BTreeSet<(IpAddr, Text)>,
    /// Sources that fipd has something of in the kernel although nobody wants it there.
    pub lingering: BTreeSet<IpAddr>,
}

impl Reached {
    /// All that was wanted at this revision, and nothing else.
    pub fn whole(revision: Revision) -> Self {
        Self {
            revision,
            ..Self::default()
        }
    }

    /// `left` is all that is still to be done to get there, and `indexed` are the sources that the packet filter knows.
    pub fn of(
        revision: Revision,
        desired: &Desired,
        left: &Plan,
        indexed: &BTreeMap<IpAddr, u32>,
    ) -> Self {
        let mut missing = desired.refused.clone();
        for rule in &left.adds {
            match (rule.host(), rule.mark) {
                (Some(source), _) => drop(missing.insert(source)),
                (None, Some(mark)) => {
                    let marked = desired.index.iter();
                    let marked = marked.filter(|(source, value)| {
                        **value == mark.value && Family::of(**source) == rule.family
                    });
                    missing.extend(marked.map(|(source, _)| *source));
                }
                (None, None) => {}
            }
        }
        if *indexed != desired.index {
            let here = |(source, mark): &(&IpAddr, &u32)| indexed.get(source) == Some(mark);
            let not = desired.index.iter().filter(|one| !here(one));
            missing.extend(not.map(|(source, _)| *source));
        }
        let removed = left.removals.iter().filter_map(|step| match step {
            Step::Delete(rule) => Some(rule),
            Step::Add(_) => None,
        });
        let surplus = removed.chain(&left.stuck).filter_map(Rule::host);
        let all = surplus.chain(indexed.keys().copied());
        let lost = desired.clashes.iter();
        Self {
            revision,
            flushed: false,
            missing,
            lost: lost
                .map(|(source, _, loser)| (*source, Text::clone(loser)))
                .collect(),
            lingering: all
                .filter(|source| !desired.owners.contains_key(source))
                .collect(),
        }
    }

    /// Whether the rule of this source is there for the set of this name.
    pub fn has(&self, source: IpAddr, set: &Text) -> bool {
        let lost = || self.lost.contains(&(source, Text::clone(set)));
        !self.flushed && !self.missing.contains(&source) && !lost()
    }

    /// Whether nothing of this source is there, or only what others want.
    pub fn is_rid_of(&self, source: IpAddr) -> bool {
        !self.lingering.contains(&source)
    }

    /// Whether all is there and nothing else.
    pub fn is_whole(&self) -> bool {
        !self.flushed && self.missing.is_empty() && self.lingering.is_empty()
    }

    /// Whether the same can be said of every source.
    pub fn is_alike(&self, other: &Self) -> bool {
        let all = |one: &Self| (one.flushed, one.missing.len(), one.lingering.len());
        all(self) == all(other)
            && self.missing == other.missing
            && self.lingering == other.lingering
            && self.lost == other.lost
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::host::{HostSettings, KernelRule, Marks, Mode, RuleSet, desired, diff};

    use super::*;

    const TAG: u8 = 200;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn ips(all: &[&str]) -> BTreeSet<IpAddr> {
        all.iter().map(|one| ip(one)).collect()
    }

    fn set(name: &str, sources: &[&str], table: u32, mode: Mode) -> RuleSet {
        RuleSet {
            name: name.into(),
            sources: ips(sources),
            table,
            priority: None,
            fail_closed: true,
            mode,
        }
    }

    fn wanted(sets: &[RuleSet]) -> Desired {
        desired(sets, &HostSettings::default(), &Marks::new())
    }

    /// With these rules in the kernel.
    fn reached(desired: &Desired, kernel: &BTreeSet<Rule>) -> Reached {
        let kernel: Vec<KernelRule> = kernel.iter().cloned().map(KernelRule::from).collect();
        let left = diff(&desired.rules, &kernel, TAG);
        Reached::of(7, desired, &left, &desired.index)
    }

    #[test]
    fn one_rule_that_is_not_there_is_no_word_about_the_others() {
        let all = wanted(&[set("c/lb", &["10.0.0.1", "2001:db8::1"], 100, Mode::Flat)]);
        let mut kernel = all.rules.clone();
        assert_eq!(reached(&all, &kernel), Reached::whole(7));
        kernel.retain(|rule| rule.family == Family::V4);
        let without = reached(&all, &kernel);
        assert_eq!(without.missing, ips(&["2001:db8::1"]));
        assert!(without.has(ip("10.0.0.1"), &"c/lb".into()) && !without.is_whole());
        assert!(without.is_rid_of(ip("10.0.0.9")));
        // What fails closed is a part of it, too.
        let mut kernel = all.rules.clone();
        kernel.retain(|rule| rule.priority == 10_000);
        assert_eq!(reached(&all, &kernel).missing.len(), 2);
    }

    #[test]
    fn what_nobody_wants_lingers_until_it_is_gone_and_what_another_wants_does_not() {
        let before = wanted(&[set("c/lb", &["10.0.0.1", "10.0.0.2"], 100, Mode::Flat)]);
        let after = wanted(&[set("d/lb", &["10.0.0.2"], 200, Mode::Flat)]);
        let both: BTreeSet<Rule> = before.rules.union(&after.rules).cloned().collect();
        let meanwhile = reached(&after, &both);
        assert_eq!(meanwhile.lingering, ips(&["10.0.0.1"]));
        assert!(meanwhile.has(ip("10.0.0.2"), &"d/lb".into()));
        assert_eq!(reached(&after, &after.rules), Reached::whole(7));
    }

    #[test]
    fn a_source_that_another_set_has_is_not_there_for_the_one_that_lost_it() {
        let both = wanted(&[
            set("a/lb", &["10.0.0.1"], 100, Mode::Flat),
            set("b/lb", &["10.0.0.1"], 200, Mode::Flat),
        ]);
        let reached = reached(&both, &both.rules);
        assert!(reached.has(ip("10.0.0.1"), &"a/lb".into()));
        assert!(!reached.has(ip("10.0.0.1"), &"b/lb".into()));
        assert!(reached.is_whole());
    }

    #[test]
    fn an_indexed_source_needs_its_entry_and_the_rule_of_its_mark() {
        let all = wanted(&[set("c/lb", &["10.0.0.1", "10.0.0.2"], 100, Mode::Indexed)]);
        assert_eq!(reached(&all, &all.rules), Reached::whole(7));
        assert_eq!(reached(&all, &BTreeSet::new()).missing.len(), 2);
        let mut indexed = all.index.clone();
        indexed.remove(&ip("10.0.0.1"));
        indexed.insert(ip("10.0.0.9"), 1);
        let seen = Reached::of(7, &all, &Plan::default(), &indexed);
        assert_eq!(seen.missing, ips(&["10.0.0.1"]));
        assert_eq!(seen.lingering, ips(&["10.0.0.9"]));
    }

    #[test]
    fn a_flush_leaves_nothing_of_anybody() {
        let flushed = Reached {
            flushed: true,
            ..Reached::whole(8)
        };
        assert!(flushed.is_rid_of(ip("10.0.0.1")));
        assert!(!flushed.has(ip("10.0.0.1"), &"c/lb".into()));
        assert!(!flushed.is_alike(&Reached::whole(8)));
        assert!(Reached::whole(8).is_alike(&Reached::whole(9)));
    }
}
