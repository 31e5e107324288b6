use proptest::prelude::*;

use super::*;
use crate::host::{FwMark, HostSettings, Marks, Mode, desired, placed};

const TAG: u8 = 200;
const BAND: u32 = 10_000;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn rule(priority: u32, source: &str, table: u32, protocol: u8) -> Rule {
    let source: IpNet = source.parse().unwrap();
    Rule {
        priority,
        family: Family::of(source.addr()),
        source: Some(source),
        destination: None,
        input: None,
        output: None,
        mark: None,
        action: RuleAction::Table(table),
        protocol,
    }
}

/// For all packets to there.
fn to(priority: u32, destination: &str, table: u32) -> Rule {
    Rule {
        source: None,
        destination: Some(destination.parse().unwrap()),
        ..rule(priority, "10.0.0.0/8", table, 4)
    }
}

fn main_table() -> Rule {
    Rule {
        source: None,
        ..rule(32_766, "0.0.0.0/0", 254, 2)
    }
}

fn set(sources: &[&str], priority: Option<u32>) -> RuleSet {
    RuleSet {
        name: "lb".into(),
        sources: sources.iter().map(|one| ip(one)).collect(),
        table: 100,
        priority,
        fail_closed: false,
        mode: Mode::Flat,
    }
}

fn kernel(rules: &[Rule]) -> Vec<KernelRule> {
    let mut rules: Vec<KernelRule> = rules.iter().cloned().map(Into::into).collect();
    rules.sort_by_key(|one| one.rule.priority);
    rules
}

fn untagged(list: &[KernelRule]) -> BTreeSet<Rule> {
    let all = list.iter().filter(|one| one.rule.protocol == 0);
    all.map(|one| one.rule.clone()).collect()
}

fn plan(list: &[KernelRule], sets: &[RuleSet], places: &Places) -> Takeover {
    let here = Here {
        list,
        asked: &asked(sets),
        places,
        protocol: TAG,
        band: BAND,
    };
    take_over(&untagged(list), &here)
}

fn at(takeover: &Takeover) -> Vec<u32> {
    takeover.taken.values().copied().collect()
}

#[test]
fn rules_whose_priority_the_kernel_chose_stay_before_the_foreign_ones_that_they_were_before() {
    let list = kernel(&[
        rule(998, "10.0.0.1/32", 100, 0),
        rule(999, "10.0.0.2/32", 100, 0),
        to(1_000, "192.0.2.0/24", 55),
        rule(4_999, "10.0.0.3/32", 100, 0),
        to(5_000, "198.51.100.0/24", 56),
        to(9_999, "203.0.113.0/24", 57),
        main_table(),
    ]);
    let sets = [set(&["10.0.0.1", "10.0.0.2", "10.0.0.3"], None)];
    let taken = plan(&list, &sets, &Places::new());
    assert_eq!(at(&taken), [999, 999, 4_999], "as few as there can be");
    let place = |priority| Place {
        table: 100,
        priority,
    };
    let expected = Places::from([
        (ip("10.0.0.1"), place(999)),
        (ip("10.0.0.2"), place(999)),
        (ip("10.0.0.3"), place(4_999)),
    ]);
    assert_eq!(taken.places, expected);
    let again = plan(&list, &sets, &expected);
    assert_eq!((at(&again), again.places), (at(&taken), Places::new()));
}

#[test]
fn where_nothing_foreign_is_between_the_first_of_the_band_is_as_good() {
    let list = kernel(&[
        rule(998, "10.0.0.1/32", 100, 0),
        // These are no business of its packets, or ask the same table.
        rule(1_000, "10.9.0.0/16", 55, 4),
        to(2_000, "192.0.2.0/24", 100),
        main_table(),
    ]);
    let taken = plan(&list, &[set(&["10.0.0.1"], None)], &Places::new());
    assert_eq!((at(&taken), taken.places), (vec![BAND], Places::new()));
}

#[test]
fn a_stated_priority_behind_a_foreign_rule_is_refused_with_those_that_would_do() {
    let list = kernel(&[
        rule(998, "10.0.0.1/32", 100, 0),
        to(1_000, "192.0.2.0/24", 55),
        main_table(),
    ]);
    let refused = plan(&list, &[set(&["10.0.0.1"], Some(3_000))], &Places::new()).refused;
    let why = refused.values().next().unwrap().to_string();
    let expected = "at priority 3000, which the IPRule states, the order with the rule \"1000: from all to 192.0.2.0/24 lookup 55 \
         proto 4\" is another; let the IPRule state a priority of 1 to 999";
    assert!(why.contains(expected), "{why}");
    let taken = plan(&list, &[set(&["10.0.0.1"], Some(500))], &Places::new());
    assert_eq!((at(&taken), taken.places), (vec![500], Places::new()));
}

#[test]
fn without_room_between_two_foreign_rules_with_another_table_or_with_a_jump_it_is_refused() {
    let list = kernel(&[
        to(1_000, "192.0.2.0/24", 55),
        rule(1_000, "10.0.0.1/32", 100, 0),
        to(1_000, "198.51.100.0/24", 56),
        main_table(),
    ]);
    let one = [set(&["10.0.0.1"], None)];
    let told = |list: &[KernelRule], sets: &[RuleSet]| {
        let takeover = plan(list, sets, &Places::new());
        assert!(takeover.taken.is_empty(), "{takeover:?}");
        takeover.refused.values().next().unwrap().to_string()
    };
    assert!(told(&list, &one).contains("no priority is left between"));
    let other = RuleSet {
        table: 7,
        ..set(&["10.0.0.1"], None)
    };
    assert!(told(&list, &[other]).contains("to table 7"));
    let closed = RuleSet {
        fail_closed: true,
        ..set(&["10.0.0.1"], None)
    };
    let list = kernel(&[
        rule(998, "10.0.0.1/32", 100, 0),
        to(1_000, "192.0.2.0/24", 55),
        main_table(),
    ]);
    assert!(told(&list, &[closed]).contains("failClosed"));
    let mut list = kernel(&[rule(998, "10.0.0.1/32", 100, 0), main_table()]);
    let mut jump = KernelRule::from(rule(5, "10.7.0.0/16", 0, 4));
    jump.rule.action = RuleAction::Other(GOTO);
    jump.more = Some("goto 998".into());
    list.insert(0, jump);
    assert!(told(&list, &one).contains("jumps"));
}

#[test]
fn what_nobody_wants_any_more_goes_as_it_is() {
    let list = kernel(&[rule(998, "10.0.0.1/32", 100, 0), main_table()]);
    let taken = plan(&list, &[], &Places::new());
    assert_eq!((at(&taken), taken.refused.len()), (vec![998], 0));
}

#[test]
fn ten_thousand_rules_among_as_many_are_planned_at_once() {
    let many = |protocol: u8, step: u32| {
        (0..10_000_u32).map(move |number| {
            let source = std::net::Ipv4Addr::from(0x0a00_0000 + number);
            rule(step, &format!("{source}/32"), 100, protocol)
        })
    };
    let all: Vec<Rule> = many(0, 999).chain(many(TAG, BAND)).collect();
    let mut list = kernel(&all);
    list.insert(10_000, to(1_000, "192.0.2.0/24", 55).into());
    let sources: BTreeSet<IpAddr> = all.iter().filter_map(Rule::host).collect();
    let sets = [RuleSet {
        sources,
        ..set(&[], None)
    }];
    let taken = plan(&list, &sets, &Places::new());
    assert_eq!(taken.places.len(), 10_000);
    assert!(taken.taken.values().all(|priority| *priority == 999));
}

/// The reference: what becomes of a packet, without looking into any table.
#[derive(Clone, Copy, Debug)]
struct Packet {
    source: IpAddr,
    destination: IpAddr,
    mark: u32,
}

fn matches(one: &KernelRule, packet: &Packet) -> bool {
    let rule = &one.rule;
    let inside = |prefix: &Option<IpNet>, address: IpAddr| {
        prefix.is_none_or(|prefix| prefix.contains(&address))
    };
    let plain = inside(&rule.source, packet.source)
        && inside(&rule.destination, packet.destination)
        && rule
            .mark
            .is_none_or(|mark| packet.mark & mark.mask == mark.value);
    plain != one.more.as_deref().is_some_and(|more| more == "not")
}

/// The tables that are asked, each once, in their order, and what ends it.
fn way(list: &[KernelRule], packet: &Packet) -> Vec<RuleAction> {
    let mut way = Vec::new();
    for one in list.iter().filter(|one| matches(one, packet)) {
        if !way.contains(&one.rule.action) {
            way.push(one.rule.action);
        }
        if !matches!(one.rule.action, RuleAction::Table(_)) {
            break;
        }
    }
    way
}

/// The kernel puts it behind those of its priority.
fn add(list: &mut Vec<KernelRule>, rule: Rule) {
    let at = list.partition_point(|one| one.rule.priority <= rule.priority);
    list.insert(at, rule.into());
}

fn remove(list: &mut Vec<KernelRule>, rule: &Rule) {
    if let Some(at) = list
        .iter()
        .position(|one| one.more.is_none() && one.rule == *rule)
    {
        list.remove(at);
    }
}

fn own(sets: &[RuleSet], places: &Places) -> BTreeSet<Rule> {
    let settings = HostSettings {
        band: 5..=9,
        ..HostSettings::default()
    };
    desired(&placed(sets.to_vec(), places), &settings, &Marks::new()).rules
}

/// Brings the own rules there, as the engine does.
fn converge(list: &mut Vec<KernelRule>, wanted: &BTreeSet<Rule>) {
    for rule in wanted.iter().rev() {
        if !list
            .iter()
            .any(|one| one.more.is_none() && one.rule == *rule)
        {
            add(list, rule.clone());
        }
    }
    list.retain(|one| one.rule.protocol != TAG || wanted.contains(&one.rule));
}

const SOURCES: [&str; 3] = ["10.0.0.1", "10.0.0.2", "10.0.1.1"];
const DESTINATIONS: [&str; 2] = ["192.0.2.1", "198.51.100.1"];

fn foreign() -> impl Strategy<Value = KernelRule> {
    let sources = prop::sample::select(vec!["", "10.0.0.0/24", "10.0.0.1/32", "10.0.1.7/24"]);
    let destinations = prop::sample::select(vec!["", "192.0.2.0/24", "198.51.100.0/24"]);
    let actions = prop::sample::select(vec![
        RuleAction::Table(100),
        RuleAction::Table(55),
        RuleAction::Table(56),
        RuleAction::Blackhole,
    ]);
    let all = (
        1..10_u32,
        sources,
        destinations,
        actions,
        0..3_u32,
        0..8_u32,
    );
    all.prop_map(|(priority, source, destination, action, mark, inverted)| {
        let rule = Rule {
            source: source.parse().ok(),
            destination: destination.parse().ok(),
            mark: (mark == 2).then_some(FwMark { value: 1, mask: 1 }),
            action,
            ..rule(priority, "0.0.0.0/0", 0, 4)
        };
        KernelRule {
            rule,
            more: (inverted == 0).then(|| "not".into()),
        }
    })
}

fn scene() -> impl Strategy<Value = (Vec<KernelRule>, Vec<RuleSet>)> {
    let victim = (1..10_u32, 0..3_usize);
    let stated = prop::option::weighted(0.3, 1..10_u32);
    let wanted = (stated, any::<bool>(), 0..6_u32);
    let wanted = prop::collection::vec(wanted, 3);
    let foreign = prop::collection::vec(foreign(), 0..7);
    let all = (foreign, prop::collection::vec(victim, 1..5), wanted);
    all.prop_map(|(foreign, victims, wanted)| {
        let mut list: Vec<KernelRule> = Vec::new();
        let victims = victims.into_iter().map(|(priority, source)| {
            KernelRule::from(rule(priority, &format!("{}/32", SOURCES[source]), 100, 0))
        });
        // In some order: of equal priorities either may be first.
        for (number, one) in victims.chain(foreign).enumerate() {
            let at = list.partition_point(|other| match number % 2 {
                0 => other.rule.priority <= one.rule.priority,
                _ => other.rule.priority < one.rule.priority,
            });
            list.insert(at, one);
        }
        let wanted = wanted.into_iter().zip(SOURCES);
        let wanted = wanted.filter(|((_, _, table), _)| *table > 0);
        let sets = wanted.map(|((priority, closed, table), source)| RuleSet {
            fail_closed: closed,
            table: if table == 1 { 77 } else { 100 },
            ..set(&[source], priority)
        });
        let sets = sets.collect();
        (list, sets)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// With the engine at work before and after, by a walk over the rules that knows nothing of the plan.
    #[test]
    fn after_a_takeover_every_packet_takes_the_table_it_took_before((mut list, sets) in scene()) {
        let none = Places::new();
        converge(&mut list, &own(&sets, &none));
        let all = asked(&sets);
        let here = Here { list: &list, asked: &all, places: &none, protocol: TAG, band: 5 };
        let victims: BTreeSet<Rule> = untagged(&list);
        let plan = take_over(&victims, &here);
        prop_assert_eq!(plan.taken.len() + plan.refused.len(), victims.len());
        let mut after = list.clone();
        for (victim, priority) in &plan.taken {
            let own = Rule { priority: *priority, protocol: TAG, ..victim.clone() };
            if !after.iter().any(|one| one.rule == own) {
                add(&mut after, own.clone());
            }
        }
        for victim in plan.taken.keys() {
            let twin = Rule { protocol: TAG, ..victim.clone() };
            while after.iter().any(|one| one.rule == *victim) {
                let place = |rule: &Rule| after.iter().position(|one| one.rule == *rule);
                if place(&twin) < place(victim) && place(&twin).is_some() {
                    remove(&mut after, &twin);
                    add(&mut after, twin.clone());
                }
                remove(&mut after, victim);
            }
        }
        converge(&mut after, &own(&sets, &plan.places));
        for source in SOURCES.iter().chain(&["10.0.1.7", "10.3.0.1"]) {
            // Nobody wants its rules any more: they go because of that.
            if !all.contains_key(&ip(source)) && victims.iter().any(|one| one.host() == Some(ip(source))) {
                continue;
            }
            for destination in DESTINATIONS {
                for mark in 0..2 {
                    let packet = Packet { source: ip(source), destination: ip(destination), mark };
                    prop_assert_eq!(
                        way(&list, &packet), way(&after, &packet),
                        "{:?}\n{:#?}\n{:#?}\n{:?}", packet, list, after, plan
                    );
                }
            }
        }
    }

    /// A plan that refuses everything would be right, too: where the victim's own priority can be the rule's, it is taken.
    #[test]
    fn a_rule_that_is_alone_at_its_priority_and_states_none_is_never_refused((list, sets) in scene()) {
        let sets: Vec<RuleSet> = sets.into_iter().map(|set| RuleSet {
            priority: None,
            fail_closed: false,
            table: 100,
            ..set
        }).collect();
        let plan = plan(&list, &sets, &Places::new());
        for victim in plan.refused.keys() {
            let alike = |one: &&KernelRule| {
                one.rule.priority == victim.priority || (one.rule.protocol == 0 && one.rule.source == victim.source)
            };
            prop_assert!(list.iter().filter(alike).count() > 1, "{victim} {list:#?} {plan:?}");
        }
    }
}
