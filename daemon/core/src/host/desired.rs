//! The rules that a host is to have.
//!
//! A set is *flat*, one rule a source, or *indexed*: its sources are in a map of the packet filter that marks their packets,
//! and one rule sends the mark to the table. The kernel walks all flat rules for every packet, some 10 ns each.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::RangeInclusive,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{
    limits::{BAND_FIRST, BAND_LAST, CILIUM_MARKS, MARK_MASK},
    rule::{FwMark, KernelRule, Rule, RuleAction},
};
use crate::{Family, Text};

/// Sources that go by one table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RuleSet {
    /// Who wants it, for people. Of two that want a source, the one that is given first has it.
    pub name: Text,
    pub sources: BTreeSet<IpAddr>,
    /// 1 to 2^32 - 1.
    pub table: u32,
    /// `None`: the first of the band.
    pub priority: Option<u32>,
    /// Where the table has no route, packets go nowhere instead of by the tables that follow.
    pub fail_closed: bool,
    pub mode: Mode,
}

/// How a set is brought into the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Mode {
    /// Flat, and indexed where the flat ones become too many.
    #[default]
    Auto,
    Flat,
    Indexed,
}

/// What the configuration of a host says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    pub protocol: u8,
    pub band: RangeInclusive<u32>,
    /// Where there are more flat rules than these, the largest sets become indexed.
    pub indexed_above: usize,
    /// The bits of the packet mark that are fipd's, one run.
    pub mark_mask: u32,
    /// Whether this host has a packet filter that marks packets.
    pub can_index: bool,
}

impl HostSettings {
    /// The bits that a rule looks at: Cilium's are none in a mark of fipd's.
    fn rule_mask(&self) -> u32 {
        self.mark_mask | CILIUM_MARKS
    }
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            protocol: 200,
            band: BAND_FIRST..=BAND_LAST,
            indexed_above: 1_000,
            mark_mask: MARK_MASK,
            can_index: true,
        }
    }
}

/// What an indexed set is told from others by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetKey {
    pub table: u32,
    pub priority: u32,
    pub fail_closed: bool,
}

/// The marks of sets that were indexed before, so that they keep them.
pub type Marks = BTreeMap<SetKey, u32>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    pub rules: BTreeSet<Rule>,
    /// The marks of the packets of these sources.
    pub index: BTreeMap<IpAddr, u32>,
    pub marks: Marks,
    /// The set that each source is of.
    pub owners: BTreeMap<IpAddr, Text>,
    /// A source, the set that has it, and one that does not get it.
    pub clashes: BTreeSet<(IpAddr, Text, Text)>,
    /// Flat rules of sets that were to be indexed, for which there is no mark left, or no packet filter.
    pub not_indexed: usize,
    /// Sources of such sets that have no rule at all: so many flat rules would slow down every packet of the host.
    pub refused: BTreeSet<IpAddr>,
}

/// Flat rules that sets may have instead of their index: the kernel walks them in some 40 us.
const MOST_INSTEAD: usize = 4_096;

/// The rules of these sets. `before` is what was indexed: a set stays so until it would be well below the threshold.
pub fn desired(sets: &[RuleSet], settings: &HostSettings, before: &Marks) -> Desired {
    let mut desired = Desired::default();
    let groups = group(sets, settings, &mut desired);
    let indexed = choose(&groups, settings, before);
    let room = settings.mark_mask.count_ones();
    let most = 1_u32.checked_shl(room).map_or(u32::MAX, |all| all - 1);
    let (marked, refused) = match settings.can_index {
        true => (indexed.clone(), BTreeSet::new()),
        false => instead(&groups, &indexed, before),
    };
    desired.marks = number(&marked, before, settings.mark_mask, most);
    for (key, group) in &groups {
        if let Some(mark) = desired.marks.get(key).copied() {
            index(&mut desired, *key, group, mark, settings);
            continue;
        }
        if refused.contains(key) {
            desired.refused.extend(&group.sources);
            desired
                .owners
                .retain(|source, _| !group.sources.contains(source));
            continue;
        }
        if indexed.contains(key) {
            desired.not_indexed += group.sources.len();
        }
        let rules = group.sources.iter();
        let rules = rules.flat_map(|source| flat(*key, *source, settings.protocol));
        desired.rules.extend(rules);
    }
    desired
}

/// Where none can be indexed: those that stay as they were indexed before, which is better than none, and those that have no
/// rule; the rest is few enough for flat rules.
fn instead(
    groups: &BTreeMap<SetKey, RuleGroup>,
    indexed: &BTreeSet<SetKey>,
    before: &Marks,
) -> (BTreeSet<SetKey>, BTreeSet<SetKey>) {
    let (mut stay, mut refused) = (BTreeSet::new(), BTreeSet::new());
    let mut flat = 0;
    for key in indexed {
        let count = groups.get(key).map_or(0, |group| group.sources.len());
        if flat + count <= MOST_INSTEAD {
            flat += count;
        } else if before.contains_key(key) {
            stay.insert(*key);
        } else {
            refused.insert(*key);
        }
    }
    (stay, refused)
}

/// The marks that the rules in the kernel tell of, after a restart.
pub fn marks_of(rules: &[KernelRule], settings: &HostSettings) -> Marks {
    let own = super::owned(rules, settings.protocol);
    let marked = own.filter_map(|one| Some((&one.rule, one.rule.mark?)));
    let marked: Vec<(&Rule, FwMark)> = marked
        .filter(|(_, mark)| mark.mask == settings.rule_mask())
        .collect();
    let closed: BTreeSet<(u32, u32)> = marked
        .iter()
        .filter(|(rule, _)| rule.action == RuleAction::Unreachable)
        .map(|(rule, mark)| (rule.priority, mark.value))
        .collect();
    let key = |(rule, mark): &(&Rule, FwMark)| {
        let companion = (rule.priority.saturating_add(1), mark.value);
        let key = SetKey {
            table: rule.action.table()?,
            priority: rule.priority,
            fail_closed: closed.contains(&companion),
        };
        Some((key, mark.value))
    };
    marked.iter().filter_map(key).collect()
}

/// All that goes the same way.
#[derive(Default)]
struct RuleGroup {
    sources: BTreeSet<IpAddr>,
    /// Of one that any of its sets wants so.
    flat: bool,
    indexed: bool,
}

fn group(
    sets: &[RuleSet],
    settings: &HostSettings,
    desired: &mut Desired,
) -> BTreeMap<SetKey, RuleGroup> {
    let mut groups: BTreeMap<SetKey, RuleGroup> = BTreeMap::new();
    let mut keys: BTreeMap<IpAddr, SetKey> = BTreeMap::new();
    for set in sets {
        let key = SetKey {
            table: set.table,
            priority: set.priority.unwrap_or(*settings.band.start()),
            fail_closed: set.fail_closed,
        };
        let group = groups.entry(key).or_default();
        group.flat |= set.mode == Mode::Flat;
        group.indexed |= set.mode == Mode::Indexed;
        for source in &set.sources {
            match keys.get(source) {
                Some(before) if *before != key => {
                    let winner = desired.owners.get(source);
                    let winner = winner.map(Text::clone).unwrap_or_default();
                    let clash = (*source, winner, Text::clone(&set.name));
                    desired.clashes.insert(clash);
                }
                Some(_) => {}
                None => {
                    keys.insert(*source, key);
                    desired.owners.insert(*source, Text::clone(&set.name));
                    group.sources.insert(*source);
                }
            }
        }
    }
    groups.retain(|_, group| !group.sources.is_empty());
    groups
}

/// The sets that are indexed: those that are to be, and of the others the largest until the rest is few enough.
fn choose(
    groups: &BTreeMap<SetKey, RuleGroup>,
    settings: &HostSettings,
    before: &Marks,
) -> BTreeSet<SetKey> {
    let mut indexed: BTreeSet<SetKey> = groups
        .iter()
        .filter(|(_, group)| group.indexed && !group.flat)
        .map(|(key, _)| *key)
        .collect();
    let mut auto: Vec<(usize, SetKey)> = groups
        .iter()
        .filter(|(_, group)| !group.indexed && !group.flat)
        .map(|(key, group)| (group.sources.len(), *key))
        .collect();
    // The largest first; of equal ones those that are indexed already.
    auto.sort_by_key(|(count, key)| (std::cmp::Reverse(*count), !before.contains_key(key), *key));
    let forced = groups.values().filter(|group| group.flat);
    let forced: usize = forced.map(|group| group.sources.len()).sum();
    let mut rest = forced + auto.iter().map(|(count, _)| count).sum::<usize>();
    for (count, key) in auto {
        let enough = match before.contains_key(&key) {
            // What is indexed stays so until there is half the room.
            true => settings.indexed_above / 2,
            false => settings.indexed_above,
        };
        // One rule more is none less.
        if rest > enough && count > 1 {
            indexed.insert(key);
            rest -= count;
        }
    }
    indexed
}

/// A mark for each, the one that it had before where that is in the mask.
fn number(indexed: &BTreeSet<SetKey>, before: &Marks, mask: u32, most: u32) -> Marks {
    let shift = mask.trailing_zeros();
    let fits = |mark: u32| mark != 0 && mark & !mask == 0;
    let mut marks = Marks::new();
    let mut taken = BTreeSet::new();
    for key in indexed {
        if let Some(mark) = before.get(key).filter(|mark| fits(**mark))
            && taken.insert(*mark)
        {
            marks.insert(*key, *mark);
        }
    }
    // What goes in the same pass is still in the kernel for a while.
    let left: BTreeSet<u32> = before.values().copied().collect();
    let all = || (1..=most).map(|number| number << shift);
    let unused = all().filter(|mark| !left.contains(mark));
    let mut free = unused.chain(all().filter(|mark| left.contains(mark)));
    for key in indexed {
        if !marks.contains_key(key)
            && let Some(mark) = free.find(|mark| !taken.contains(mark))
        {
            marks.insert(*key, mark);
        }
    }
    marks
}

fn flat(key: SetKey, source: IpAddr, protocol: u8) -> impl Iterator<Item = Rule> {
    let rule = Rule {
        source: Some(IpNet::from(source)),
        ..rule(key, Family::of(source), protocol)
    };
    with_companion(key, rule)
}

/// That sends all packets of a family to the set's table.
fn rule(key: SetKey, family: Family, protocol: u8) -> Rule {
    Rule {
        priority: key.priority,
        protocol,
        ..Rule::any(family, RuleAction::Table(key.table))
    }
}

fn index(
    desired: &mut Desired,
    key: SetKey,
    group: &RuleGroup,
    mark: u32,
    settings: &HostSettings,
) {
    let families: BTreeSet<Family> = group.sources.iter().map(|one| Family::of(*one)).collect();
    for family in families {
        let rule = Rule {
            mark: Some(FwMark {
                value: mark,
                mask: settings.rule_mask(),
            }),
            ..rule(key, family, settings.protocol)
        };
        desired.rules.extend(with_companion(key, rule));
    }
    let sources = group.sources.iter().map(|source| (*source, mark));
    desired.index.extend(sources);
}

/// The rule, and what comes after it where the table has no route. It has a priority of its own: of equal ones the kernel
/// looks first at the older, and that would be the other one once the rule was repaired.
fn with_companion(key: SetKey, rule: Rule) -> impl Iterator<Item = Rule> {
    let next = key.priority.checked_add(1).filter(|_| key.fail_closed);
    let companion = next.map(|priority| Rule {
        priority,
        action: RuleAction::Unreachable,
        ..rule.clone()
    });
    [Some(rule), companion].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, sources: &[&str], table: u32) -> RuleSet {
        RuleSet {
            name: name.into(),
            sources: sources.iter().map(|one| one.parse().unwrap()).collect(),
            table,
            priority: None,
            fail_closed: false,
            mode: Mode::Auto,
        }
    }

    fn many(name: &str, count: u32, table: u32) -> RuleSet {
        let first = u32::from(std::net::Ipv4Addr::new(10, 0, 0, 0)) + (table << 16);
        let sources = (first..first + count).map(|one| IpAddr::from(std::net::Ipv4Addr::from(one)));
        RuleSet {
            sources: sources.collect(),
            ..set(name, &[], table)
        }
    }

    fn shown(desired: &Desired) -> Vec<String> {
        desired.rules.iter().map(ToString::to_string).collect()
    }

    fn of(sets: &[RuleSet], before: &Marks) -> Desired {
        desired(sets, &HostSettings::default(), before)
    }

    #[test]
    fn conformance_14_a_priority_that_is_omitted_is_the_first_of_the_band() {
        let sets = [set("a", &["10.96.0.1", "fd00::1"], 100)];
        let expected = [
            "10000: from 10.96.0.1 lookup 100 proto 200",
            "10000: from fd00::1 lookup 100 proto 200",
        ];
        assert_eq!(shown(&of(&sets, &Marks::new())), expected);
    }

    #[test]
    fn conformance_30_what_fails_closed_has_a_rule_behind_it() {
        let closed = RuleSet {
            priority: Some(500),
            fail_closed: true,
            ..set("a", &["10.96.0.1"], 100)
        };
        let expected = [
            "500: from 10.96.0.1 lookup 100 proto 200",
            "501: from 10.96.0.1 unreachable proto 200",
        ];
        assert_eq!(
            shown(&of(std::slice::from_ref(&closed), &Marks::new())),
            expected
        );
        let indexed = RuleSet {
            mode: Mode::Indexed,
            ..closed
        };
        let desired = of(&[indexed], &Marks::new());
        let expected = [
            "500: from all fwmark 0x1/0xfff lookup 100 proto 200",
            "501: from all fwmark 0x1/0xfff unreachable proto 200",
        ];
        assert_eq!(shown(&desired), expected);
        assert_eq!(desired.index.len(), 1);
        let kernel: Vec<KernelRule> = desired.rules.iter().cloned().map(Into::into).collect();
        assert_eq!(marks_of(&kernel, &HostSettings::default()), desired.marks);
    }

    #[test]
    fn a_source_is_in_one_set() {
        let sets = [
            set("a", &["10.96.0.1"], 100),
            set("b", &["10.96.0.1", "10.96.0.2"], 200),
            set("c", &["10.96.0.2"], 200),
        ];
        let desired = of(&sets, &Marks::new());
        let expected = [
            "10000: from 10.96.0.1 lookup 100 proto 200",
            "10000: from 10.96.0.2 lookup 200 proto 200",
        ];
        assert_eq!(shown(&desired), expected);
        let clash = ("10.96.0.1".parse().unwrap(), "a".into(), "b".into());
        assert_eq!(desired.clashes, [clash].into());
    }

    #[test]
    fn the_largest_sets_are_indexed_above_the_threshold_and_stay_so_for_a_while() {
        let sets = |large: u32| [many("small", 400, 1), many("large", large, 2)];
        let flat = of(&sets(600), &Marks::new());
        assert!(flat.index.is_empty() && flat.rules.len() == 1000);
        let above = of(&sets(601), &Marks::new());
        assert_eq!((above.index.len(), above.rules.len()), (601, 401));
        let fewer = of(&sets(200), &above.marks);
        assert_eq!(fewer.marks, above.marks, "600 are more than half");
        assert!(of(&sets(90), &above.marks).marks.is_empty());
        let forced = sets(2000).map(|set| RuleSet {
            mode: Mode::Flat,
            ..set
        });
        assert_eq!(of(&forced, &Marks::new()).rules.len(), 2400);
    }

    #[test]
    fn a_set_keeps_its_mark() {
        let indexed = |table| RuleSet {
            mode: Mode::Indexed,
            ..many("x", 2, table)
        };
        let first = of(&[indexed(7), indexed(9)], &Marks::new());
        let then = of(&[indexed(3), indexed(9)], &first.marks);
        let mark = |desired: &Desired, table| {
            let mut marks = desired.marks.iter();
            marks
                .find(|(key, _)| key.table == table)
                .map(|(_, mark)| *mark)
        };
        assert_eq!(mark(&then, 9), mark(&first, 9));
        assert_eq!(
            mark(&then, 3),
            Some(3),
            "that of another is still in the kernel"
        );
        let later = of(&[indexed(3), indexed(5), indexed(9)], &then.marks);
        assert_eq!(mark(&later, 5), mark(&first, 7), "it is free again");
    }

    #[test]
    fn where_there_is_no_mark_left_rules_are_flat() {
        let settings = HostSettings {
            mark_mask: 0b1000,
            ..HostSettings::default()
        };
        let sets: Vec<RuleSet> = (1..=3)
            .map(|table| RuleSet {
                mode: Mode::Indexed,
                ..many("x", 2, table)
            })
            .collect();
        let desired = desired(&sets, &settings, &Marks::new());
        assert_eq!(desired.marks.values().copied().collect::<Vec<_>>(), [8]);
        assert_eq!((desired.index.len(), desired.not_indexed), (2, 4));
        assert_eq!(desired.rules.len(), 5);
    }

    #[test]
    fn conformance_29_what_cannot_be_indexed_is_no_flood_of_flat_rules_unless_somebody_says_so() {
        let settings = HostSettings {
            can_index: false,
            ..HostSettings::default()
        };
        let at = |count, mode| {
            let set = RuleSet {
                mode,
                ..many("x", count, 7)
            };
            desired(&[set, many("few", 1, 20)], &settings, &Marks::new())
        };
        let bearable = at(4_096, Mode::Auto);
        assert_eq!((bearable.not_indexed, bearable.rules.len()), (4_096, 4_097));
        for mode in [Mode::Auto, Mode::Indexed] {
            let flood = at(4_097, mode);
            assert_eq!((flood.refused.len(), flood.rules.len()), (4_097, 1));
            assert_eq!(flood.owners.len(), 1, "nobody has what has no rule");
        }
        assert_eq!(at(100_000, Mode::Flat).rules.len(), 100_001, "forced");
        let before = of(&[many("x", 5_000, 7)], &Marks::new());
        let after = desired(&[many("x", 5_001, 7)], &settings, &before.marks);
        assert_eq!((after.refused.len(), after.index.len()), (0, 5_001));
        assert_eq!(after.rules, before.rules, "the index of before goes on");
        let two = [many("x", 3_000, 7), many("y", 3_000, 9)];
        let before = of(&two, &Marks::new());
        let after = desired(&two, &settings, &before.marks);
        assert!(
            after.refused.is_empty(),
            "one is flat, the other stays indexed"
        );
        assert_eq!((after.not_indexed, after.index.len()), (3_000, 3_000));
    }
}
