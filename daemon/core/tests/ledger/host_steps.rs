//! The steps to the rules of a host, against a model of the kernel's list.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use fipd_core::{
    Family, Text,
    host::{
        Desired, FwMark, HostSettings, Interference, KernelRule, Marks, Mode, Plan, Rule,
        RuleAction, RuleSet, Step, desired, diff, is_own, left_after, own_rules,
        stay_beside_refused, stay_without_journal,
    },
};
use ipnet::IpNet;
use proptest::{collection, option, prelude::*, sample};

const TAG: u8 = 200;

/// What the kernel has, in its order.
#[derive(Clone, Debug, Default)]
struct Kernel(Vec<KernelRule>);

impl Kernel {
    fn of(rules: Vec<KernelRule>) -> Self {
        let mut kernel = Self::default();
        rules.into_iter().for_each(|rule| kernel.add(rule));
        kernel
    }

    fn add(&mut self, rule: KernelRule) {
        let priority = rule.rule.priority;
        let behind = self
            .0
            .iter()
            .take_while(|one| one.rule.priority <= priority);
        let at = behind.count();
        self.0.insert(at, rule);
    }

    /// As `rule_find` of `net/core/fib_rules.c` finds it.
    fn delete(&mut self, wanted: &Rule) -> Option<KernelRule> {
        fn says<T: PartialEq>(wanted: Option<&T>, there: Option<&T>) -> bool {
            wanted.is_none_or(|wanted| there == Some(wanted))
        }
        let found = self.0.iter().position(|one| {
            let there = &one.rule;
            (wanted.family, wanted.priority, wanted.protocol)
                == (there.family, there.priority, there.protocol)
                && wanted.action == there.action
                && says(wanted.source.as_ref(), there.source.as_ref())
                && says(wanted.destination.as_ref(), there.destination.as_ref())
                && says(wanted.input.as_ref(), there.input.as_ref())
                && says(wanted.output.as_ref(), there.output.as_ref())
                && says(wanted.mark.as_ref(), there.mark.as_ref())
        });
        found.map(|at| self.0.remove(at))
    }

    fn own(&self) -> Vec<Rule> {
        let own = self.0.iter().filter(|one| is_own(one, TAG));
        own.map(|one| one.rule.clone()).collect()
    }

    fn foreign(&self) -> Vec<KernelRule> {
        let foreign = self.0.iter().filter(|one| !is_own(one, TAG));
        foreign.cloned().collect()
    }

    fn sources(&self) -> BTreeSet<Option<IpNet>> {
        self.own().into_iter().map(|rule| rule.source).collect()
    }
}

fn source() -> impl Strategy<Value = Option<IpNet>> {
    let host = (0_u8..4).prop_map(|last| IpNet::from(IpAddr::from(Ipv4Addr::new(10, 0, 0, last))));
    let wide = Just("10.0.0.0/24".parse().expect("a prefix"));
    prop_oneof![8 => host.prop_map(Some), 1 => wide.prop_map(Some), 1 => Just(None)]
}

fn name() -> impl Strategy<Value = Option<Text>> {
    prop_oneof![6 => Just(None), 1 => Just(Some("eth0".into()))]
}

/// Few values, so that rules are alike.
fn rule() -> impl Strategy<Value = Rule> {
    let mark = option::weighted(
        0.2,
        (1_u32..3).prop_map(|value| FwMark { value, mask: 0xff }),
    );
    let action = prop_oneof![
        6 => (100_u32..103).prop_map(RuleAction::Table),
        1 => Just(RuleAction::Unreachable),
    ];
    let destination = option::weighted(0.2, Just("10.9.0.0/16".parse().expect("a prefix")));
    let protocol = prop_oneof![5 => Just(TAG), 1 => Just(0), 1 => Just(4)];
    let priority = sample::select(vec![100_u32, 101, 30_000]);
    let selectors = (source(), destination, name(), name(), mark);
    (priority, selectors, action, protocol).prop_map(
        |(priority, (source, destination, input, output, mark), action, protocol)| Rule {
            priority,
            family: Family::V4,
            source,
            destination,
            input,
            output,
            mark,
            action,
            protocol,
        },
    )
}

fn kernel() -> impl Strategy<Value = Kernel> {
    let more = option::weighted(0.05, Just(Text::from("not")));
    let one = (rule(), more).prop_map(|(rule, more)| KernelRule { rule, more });
    collection::vec(one, 0..24).prop_map(Kernel::of)
}

fn wanted() -> impl Strategy<Value = BTreeSet<Rule>> {
    let ours = rule().prop_map(|rule| Rule {
        protocol: TAG,
        ..rule
    });
    collection::btree_set(ours, 0..16)
}

/// One of few sources, tables and priorities, flat.
fn set() -> impl Strategy<Value = RuleSet> {
    let sources = collection::btree_set((0_u8..4).prop_map(|last| [10, 0, 0, last].into()), 0..4);
    let priority = option::of(sample::select(vec![500_u32, 501, 502, 20_000]));
    let table = sample::select(vec![100_u32, 101]);
    (sources, table, priority, any::<bool>()).prop_map(|(sources, table, priority, fail_closed)| {
        RuleSet {
            name: "set".into(),
            sources,
            table,
            priority,
            fail_closed,
            mode: Mode::Flat,
        }
    })
}

/// Does all of it, looking after each step that nothing is lost on the way.
fn apply(kernel: &mut Kernel, plan: &Plan, desired: &BTreeSet<Rule>) {
    let stays: BTreeSet<_> = desired.iter().map(|rule| rule.source).collect();
    let had: BTreeSet<_> = kernel.sources().intersection(&stays).copied().collect();
    let adds = plan.adds.iter().cloned().map(Step::Add);
    let steps: Vec<Step> = adds.chain(plan.removals.iter().cloned()).collect();
    for step in &steps {
        match step {
            Step::Add(rule) => {
                assert_eq!(rule.protocol, TAG);
                kernel.add(rule.clone().into());
            }
            Step::Delete(rule) => {
                let gone = kernel.delete(rule).expect("something to delete");
                assert!(is_own(&gone, TAG), "{gone} is not fipd's");
            }
        }
        let has = kernel.sources();
        assert!(had.is_subset(&has), "{step:?} leaves a source without");
    }
}

proptest! {
    #[test]
    fn the_steps_lead_to_what_is_desired_and_touch_nothing_else(
        mut kernel in kernel(), desired in wanted()
    ) {
        let foreign = kernel.foreign();
        let plan = diff(&desired, &kernel.0, TAG);
        apply(&mut kernel, &plan, &desired);
        prop_assert_eq!(kernel.foreign(), foreign);
        let own = kernel.own();
        if plan.stuck.is_empty() {
            prop_assert_eq!(own.len(), desired.len(), "there is none twice");
            prop_assert_eq!(&own.into_iter().collect::<BTreeSet<_>>(), &desired);
            prop_assert_eq!(diff(&desired, &kernel.0, TAG), Plan::default());
        } else {
            let own: BTreeSet<Rule> = own.into_iter().collect();
            prop_assert!(own.is_superset(&desired));
            let again = diff(&desired, &kernel.0, TAG);
            prop_assert!(again.is_empty(), "it does not try for ever: {:?}", again);
        }
    }

    #[test]
    fn rules_are_added_from_the_end_and_deleted_from_the_head(
        mut kernel in kernel(), desired in wanted()
    ) {
        let plan = diff(&desired, &kernel.0, TAG);
        let ends = |rule: &Rule| !matches!(rule.action, RuleAction::Table(_));
        let added = plan.adds.iter().map(|rule| (ends(rule), std::cmp::Reverse(rule.priority)));
        prop_assert!(added.is_sorted());
        let deleted = plan.removals.iter().filter_map(|step| match step {
            Step::Delete(rule) => Some((!ends(rule), rule.priority)),
            Step::Add(_) => None,
        });
        prop_assert!(deleted.is_sorted());
        apply(&mut kernel, &plan, &desired);
    }

    /// What fails closed is never before what it closes behind.
    #[test]
    fn a_source_that_stays_always_asks_a_table_first(
        before in collection::vec(set(), 0..4), after in collection::vec(set(), 0..4)
    ) {
        let settings = HostSettings::default();
        let of = |sets: &[RuleSet]| desired(sets, &settings, &Marks::new()).rules;
        let (before, after) = (of(&before), of(&after));
        let sources = |rules: &BTreeSet<Rule>| -> BTreeSet<_> {
            rules.iter().map(|rule| rule.source).collect()
        };
        let stay: Vec<_> = sources(&before).intersection(&sources(&after)).copied().collect();
        let mut kernel = Kernel::of(before.into_iter().map(Into::into).collect());
        let plan = diff(&after, &kernel.0, settings.protocol);
        let adds = plan.adds.into_iter().map(Step::Add);
        for step in adds.chain(plan.removals) {
            match step {
                Step::Add(rule) => kernel.add(rule.into()),
                Step::Delete(rule) => drop(kernel.delete(&rule)),
            }
            for source in &stay {
                let first = kernel.0.iter().find(|one| one.rule.source == *source);
                let action = first.map(|one| one.rule.action);
                prop_assert!(matches!(action, Some(RuleAction::Table(_))), "{:?}", action);
            }
        }
        prop_assert_eq!(kernel.own().into_iter().collect::<BTreeSet<_>>(), after);
    }

    /// A step that was not done, or done by another, changes nothing but what is left to do.
    #[test]
    fn it_converges_from_wherever_it_was_cut_off(
        mut kernel in kernel(), desired in wanted(), cut in 0_usize..20
    ) {
        let plan = diff(&desired, &kernel.0, TAG);
        let adds = plan.adds.iter().cloned().map(Step::Add);
        for step in adds.chain(plan.removals.iter().cloned()).take(cut) {
            match step {
                Step::Add(rule) => kernel.add(rule.into()),
                Step::Delete(rule) => drop(kernel.delete(&rule)),
            }
        }
        let plan = diff(&desired, &kernel.0, TAG);
        apply(&mut kernel, &plan, &desired);
        if plan.stuck.is_empty() {
            prop_assert_eq!(kernel.own().into_iter().collect::<BTreeSet<_>>(), desired);
        }
    }
}

fn by_table(table: u32) -> Rule {
    Rule {
        priority: 1000,
        family: Family::V4,
        source: Some("10.96.0.1/32".parse().expect("a prefix")),
        destination: None,
        input: None,
        output: None,
        mark: None,
        action: RuleAction::Table(table),
        protocol: TAG,
    }
}

#[test]
fn a_source_that_changes_its_table_has_the_new_rule_before_the_old_one_goes() {
    let look_alike = Rule {
        protocol: 0,
        ..by_table(100)
    };
    let kernel = Kernel::of(vec![look_alike.clone().into(), by_table(100).into()]);
    let plan = diff(&[by_table(200)].into(), &kernel.0, TAG);
    assert_eq!(plan.adds, [by_table(200)]);
    assert_eq!(plan.removals, [Step::Delete(by_table(100))]);
    let foreign_only = Kernel::of(vec![look_alike.into()]);
    let plan = diff(&[by_table(100)].into(), &foreign_only.0, TAG);
    assert_eq!(
        plan.adds,
        [by_table(100)],
        "another's rule is no rule of fipd"
    );
}

/// Nothing in it grows with the square of the rules.
#[test]
fn a_hundred_thousand_rules_of_one_priority_are_planned() {
    let rules: BTreeSet<Rule> = (0..100_000_u32)
        .map(|number| Rule {
            priority: 10_000,
            source: Some(IpNet::from(IpAddr::from(Ipv4Addr::from(number)))),
            ..by_table(100)
        })
        .collect();
    let kernel: Vec<KernelRule> = rules.iter().cloned().map(Into::into).collect();
    assert!(diff(&rules, &kernel, TAG).is_empty());
    let plan = diff(&BTreeSet::new(), &kernel, TAG);
    let mut counts = BTreeMap::new();
    for step in &plan.removals {
        let Step::Delete(rule) = step else { continue };
        *counts.entry(rule).or_insert(0) += 1;
    }
    assert_eq!((plan.removals.len(), counts.len()), (100_000, 100_000));
}

proptest! {
    #[test]
    fn without_a_journal_only_what_was_added_since_the_start_goes(
        actual in kernel(), wanted in wanted(), added in wanted()
    ) {
        let stay = stay_without_journal(&wanted, &actual.0, &added, TAG);
        prop_assert!(stay.is_superset(&wanted));
        let gone: BTreeSet<Rule> = own_rules(&actual.0, TAG).difference(&stay).cloned().collect();
        prop_assert!(gone.is_subset(&added), "{gone:?}");
        prop_assert!(gone.is_disjoint(&wanted));
        let own: BTreeSet<Rule> = own_rules(&actual.0, TAG).union(&wanted).cloned().collect();
        prop_assert!(stay.is_subset(&own), "nothing comes back that is gone");
    }

    #[test]
    fn a_refused_rule_keeps_what_its_source_had(
        actual in kernel(), refused in collection::btree_set(rule(), 0..4)
    ) {
        let stay = stay_beside_refused(&Desired::default(), &actual.0, &refused, TAG);
        prop_assert!(stay.is_subset(&own_rules(&actual.0, TAG)));
        prop_assert!(!refused.is_empty() || stay.is_empty());
        for rule in own_rules(&actual.0, TAG) {
            let same = |one: &Rule| one.source.is_some() && one.source == rule.source;
            if refused.iter().any(same) {
                prop_assert!(stay.contains(&rule), "{rule:?}");
            }
        }
    }

    #[test]
    fn what_others_did_leads_from_what_was_left_to_what_is_there(
        actual in kernel(), left in wanted()
    ) {
        let found = Interference::find(&left, &actual.0, TAG);
        let mut after = left.clone();
        for rule in &found.removed {
            prop_assert!(after.remove(*rule));
        }
        after.extend(found.added.iter().copied().cloned());
        prop_assert_eq!(after, own_rules(&actual.0, TAG));
        let twice = actual.own().len() - own_rules(&actual.0, TAG).len();
        let new = own_rules(&actual.0, TAG).difference(&left).count();
        prop_assert_eq!(found.added.len(), new + twice);
        let own = own_rules(&actual.0, TAG);
        prop_assert!(twice > 0 || Interference::find(&own, &actual.0, TAG).is_empty());
    }

    #[test]
    fn what_is_deleted_is_not_left(left in wanted(), gone in wanted()) {
        let steps: Vec<Step> = gone.iter().cloned().map(Step::Delete).collect();
        let after = left_after(&left, &steps);
        prop_assert_eq!(after, left.difference(&gone).cloned().collect::<BTreeSet<_>>());
    }
}
