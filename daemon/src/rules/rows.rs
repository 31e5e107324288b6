//! What there is to show of rules, one row each: those that are to be, and those of others.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
    net::IpAddr,
    ops::Bound::{Excluded, Unbounded},
    sync::{Arc, OnceLock},
};

use fipd_core::{
    Family, Text,
    host::{FwMark, HostOrNet, KERNEL, KernelRule, Rule, RuleAction, SetKey, is_own},
};
use serde::{Deserialize, Serialize};

use super::View;

/// A rule, or a source of an indexed set. Its texts are made where somebody asks for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    pub standing: Standing,
    /// Of a source of an indexed set, the one that it would have if it were not indexed, with its mark.
    pub rule: Cow<'a, Rule>,
    /// What the rule says beyond, for people.
    more: Option<&'a str>,
    owners: &'a BTreeMap<IpAddr, Text>,
}

/// Where a row of fipd's own is in the list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RulePosition {
    Rule(Rule),
    Source(IpAddr),
    Stray(Rule),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It is to be and is.
    Applied,
    /// It is to be and is not.
    Missing,
    /// A source that the packet filter marks.
    Indexed,
    /// It has fipd's tag and is not to be.
    Surplus,
    /// Another program's.
    Foreign,
    /// The kernel's own.
    Kernel,
}

impl Standing {
    /// Of fipd's own rows.
    pub const OWN: [Self; 4] = [Self::Applied, Self::Missing, Self::Indexed, Self::Surplus];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Missing => "missing",
            Self::Indexed => "indexed",
            Self::Surplus => "surplus",
            Self::Foreign => "foreign",
            Self::Kernel => "kernel",
        }
    }
}

/// The rows of a view.
pub struct Rows {
    view: Arc<View>,
    sets: Arc<Sets>,
}

/// The sets of a view, once somebody has asked for them. A copy has none: it is there to be changed.
#[derive(Debug, Default)]
pub struct Sorted(OnceLock<Arc<Sets>>);

impl Clone for Sorted {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// What rules are to be and are, one against the other.
#[derive(Debug)]
struct Sets {
    strays: BTreeSet<Rule>,
    missing: BTreeSet<Rule>,
    /// The sets and masks of marks.
    marks: BTreeMap<u32, (SetKey, u32)>,
    /// Rules of fipd's tag in the kernel.
    own: usize,
    /// Rules of other programs, those of the kernel apart.
    foreign: usize,
}

impl Sets {
    fn of(view: &View) -> Self {
        let desired = &view.desired;
        let all = || view.kernel.iter();
        let own = || all().filter(|one| is_own(one, view.protocol));
        let foreign =
            |one: &&KernelRule| !is_own(one, view.protocol) && one.rule.protocol != KERNEL;
        let there: HashSet<&Rule> = own().map(|one| &one.rule).collect();
        let strays = there.iter().filter(|rule| !desired.rules.contains(**rule));
        let missing = desired.rules.iter().filter(|rule| !there.contains(rule));
        let masks = desired.rules.iter().filter_map(|rule| rule.mark);
        let masks: BTreeMap<u32, u32> = masks.map(|mark| (mark.value, mark.mask)).collect();
        let marks = desired.marks.iter().map(|(key, mark)| {
            let mask = masks.get(mark).copied().unwrap_or(u32::MAX);
            (*mark, (*key, mask))
        });
        Self {
            strays: strays.map(|rule| (*rule).clone()).collect(),
            missing: missing.cloned().collect(),
            marks: marks.collect(),
            own: own().count(),
            foreign: all().filter(foreign).count(),
        }
    }
}

impl Rows {
    pub fn of(view: Arc<View>) -> Self {
        let sets = view.sorted.0.get_or_init(|| Arc::new(Sets::of(&view)));
        Self {
            sets: Arc::clone(sets),
            view,
        }
    }

    pub fn view(&self) -> &View {
        &self.view
    }

    /// Desired rules that are not in the kernel.
    pub fn missing(&self) -> usize {
        self.sets.missing.len()
    }

    /// Rules of fipd's tag that are not desired.
    pub fn strays(&self) -> usize {
        self.sets.strays.len()
    }

    /// Rules of fipd's tag that are in the kernel.
    pub fn own_in_kernel(&self) -> usize {
        self.sets.own
    }

    /// Rules of other programs, those of the kernel apart.
    pub fn foreign_count(&self) -> usize {
        self.sets.foreign
    }

    /// Rows of fipd's own from behind a place: desired rules by priority, then sources of indexed sets by address, then
    /// what is not to be.
    pub fn own(&self, after: Option<&RulePosition>) -> impl Iterator<Item = Row<'_>> {
        let (rule, source, stray) = match after {
            None => (Some(Unbounded), Some(Unbounded), Unbounded),
            Some(RulePosition::Rule(rule)) => (Some(Excluded(rule)), Some(Unbounded), Unbounded),
            Some(RulePosition::Source(source)) => (None, Some(Excluded(source)), Unbounded),
            Some(RulePosition::Stray(rule)) => (None, None, Excluded(rule)),
        };
        let desired = &self.view.desired;
        let rules = rule.map(|from| desired.rules.range((from, Unbounded)));
        let sources = source.map(|from| desired.index.range((from, Unbounded)));
        let strays = self.sets.strays.range((stray, Unbounded));
        let rules = rules.into_iter().flatten().map(|rule| self.wanted(rule));
        let sources = sources.into_iter().flatten();
        rules
            .chain(sources.filter_map(|(source, mark)| self.indexed(*source, *mark)))
            .chain(strays.map(|rule| self.row(Standing::Surplus, rule)))
    }

    /// Rules of others from a number on, in the kernel's order, each with its number.
    pub fn foreign(&self, from: usize) -> impl Iterator<Item = (usize, Row<'_>)> {
        let rest = self.view.kernel.get(from..).unwrap_or_default();
        let all = rest.iter().enumerate();
        let all = all.map(move |(at, one)| (from + at, one));
        let foreign = all.filter(|(_, one)| !is_own(one, self.view.protocol));
        foreign.map(|(number, one)| {
            let standing = match one.rule.protocol {
                KERNEL => Standing::Kernel,
                _ => Standing::Foreign,
            };
            let row = Row {
                more: one.more.as_deref(),
                ..self.row(standing, &one.rule)
            };
            (number, row)
        })
    }

    fn wanted<'a>(&'a self, rule: &'a Rule) -> Row<'a> {
        let standing = match self.sets.missing.contains(rule) {
            true => Standing::Missing,
            false => Standing::Applied,
        };
        self.row(standing, rule)
    }

    fn indexed(&self, source: IpAddr, value: u32) -> Option<Row<'_>> {
        let (key, mask) = *self.sets.marks.get(&value)?;
        let rule = Rule {
            priority: key.priority,
            source: Some(source.into()),
            mark: Some(FwMark { value, mask }),
            protocol: self.view.protocol,
            ..Rule::any(Family::of(source), RuleAction::Table(key.table))
        };
        Some(Row {
            standing: Standing::Indexed,
            rule: Cow::Owned(rule),
            more: None,
            owners: &self.view.desired.owners,
        })
    }

    fn row<'a>(&'a self, standing: Standing, rule: &'a Rule) -> Row<'a> {
        Row {
            standing,
            rule: Cow::Borrowed(rule),
            more: None,
            owners: &self.view.desired.owners,
        }
    }
}

impl<'a> Row<'a> {
    pub fn place(&self) -> RulePosition {
        match (self.standing, self.rule.host()) {
            (Standing::Indexed, Some(source)) => RulePosition::Source(source),
            _ if self.is_wanted() => RulePosition::Rule(self.rule.clone().into_owned()),
            _ => RulePosition::Stray(self.rule.clone().into_owned()),
        }
    }

    fn is_wanted(&self) -> bool {
        match self.standing {
            Standing::Applied | Standing::Missing | Standing::Indexed => true,
            Standing::Surplus | Standing::Foreign | Standing::Kernel => false,
        }
    }

    /// Of one source that is wanted: the set that wants it.
    pub fn owner(&self) -> Option<&'a Text> {
        let source = self.rule.source?.addr();
        self.owners.get(&source).filter(|_| self.is_wanted())
    }

    /// A host without the length of its prefix.
    pub fn source(&self) -> Option<String> {
        let source = self.rule.source.as_ref();
        source.map(|source| HostOrNet(source).to_string())
    }

    /// Whether it shows this text.
    pub fn has(&self, part: &str) -> bool {
        part.is_empty()
            || self.owner().is_some_and(|owner| owner.contains(part))
            || self.to_string().contains(part)
    }
}

/// As `ip rule` shows it, or as if it did.
impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = &self.rule;
        match (self.standing, rule.mark, rule.action) {
            (Standing::Indexed, Some(mark), RuleAction::Table(table)) => {
                let source = self.source().unwrap_or_default();
                let (priority, FwMark { value, mask }) = (rule.priority, mark);
                write!(
                    f,
                    "{priority}: from {source} mark {value:#x}/{mask:#x} lookup {table}"
                )
            }
            _ => {
                rule.fmt(f)?;
                self.more.map_or(Ok(()), |more| write!(f, " {more}"))
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use fipd_core::host::{Desired, HostSettings, Mode, RuleSet, desired, diff};

    use super::*;
    use crate::rules::{Drift, EngineState, Warning};

    fn set(name: &str, sources: &[&str], table: u32, mode: Mode) -> RuleSet {
        RuleSet {
            name: name.into(),
            sources: sources.iter().map(|one| one.parse().unwrap()).collect(),
            table,
            priority: None,
            fail_closed: false,
            mode,
        }
    }

    fn wanted() -> Desired {
        let sets = [
            set("shop", &["10.0.0.1", "fd00::1"], 100, Mode::Flat),
            set("farm", &["10.1.0.1", "10.1.0.2"], 200, Mode::Indexed),
        ];
        desired(&sets, &HostSettings::default(), &BTreeMap::new())
    }

    /// Two flat rules, one of which is missing; two indexed sources; one stray; two of others.
    pub fn view() -> View {
        let desired = wanted();
        let kept = desired.rules.iter().filter(|rule| {
            let lost = rule.source.is_some_and(|one| one.addr().is_ipv6());
            !lost
        });
        let mut kernel: Vec<KernelRule> = kept.cloned().map(Into::into).collect();
        let first = kernel.iter().find(|one| one.rule.source.is_some());
        let first = first.unwrap().rule.clone();
        let stray = Rule {
            source: Some("10.9.9.9/32".parse().unwrap()),
            ..first.clone()
        };
        let foreign = Rule {
            protocol: 0,
            ..stray.clone()
        };
        let boot = Rule {
            priority: 32_766,
            source: None,
            action: RuleAction::Table(254),
            protocol: KERNEL,
            ..first
        };
        kernel.extend([stray.into(), foreign.into(), boot.into()]);
        View {
            state: EngineState::Active,
            node: Some("node-1".into()),
            protocol: 200,
            plan: Arc::new(diff(&desired.rules, &kernel, 200)),
            desired: Arc::new(desired),
            kernel: Arc::new(kernel),
            warnings: vec![Warning {
                code: "table-empty",
                text: "table 100 has no route".to_owned(),
            }],
            drift: Drift {
                removed: 3,
                ..Drift::default()
            },
            at: fipd_core::Timestamp(5),
            ..View::default()
        }
    }

    #[test]
    fn each_row_is_told_once_with_owner_and_standing() {
        let rows = Rows::of(Arc::new(view()));
        let all: Vec<Row> = rows.own(None).collect();
        let told = |standing| {
            let of = all.iter().filter(|row| row.standing == standing);
            of.map(|row| (row.owner().map(|owner| &**owner), row.source()))
                .collect::<Vec<_>>()
        };
        let source = |source: &str| Some(source.to_owned());
        assert_eq!(told(Standing::Missing), [(Some("shop"), source("fd00::1"))]);
        let farm = |one| (Some("farm"), source(one));
        assert_eq!(
            told(Standing::Indexed),
            [farm("10.1.0.1"), farm("10.1.0.2")]
        );
        assert_eq!(told(Standing::Surplus), [(None, source("10.9.9.9"))]);
        assert!(told(Standing::Applied).contains(&(Some("shop"), source("10.0.0.1"))));
        assert_eq!(
            (rows.missing(), rows.strays(), rows.foreign_count()),
            (1, 1, 1)
        );
        let indexed = all.iter().find(|row| row.standing == Standing::Indexed);
        let text = indexed.unwrap().to_string();
        assert_eq!(text, "10000: from 10.1.0.1 mark 0x1/0xfff lookup 200");
        for (number, row) in all.iter().enumerate() {
            let rest: Vec<Row> = rows.own(Some(&row.place())).collect();
            assert_eq!(rest, all[number + 1..], "from behind {row}");
        }
    }

    #[test]
    fn what_is_worked_out_of_a_view_is_worked_out_once_and_anew_for_a_changed_copy() {
        let view = Arc::new(view());
        let (one, two) = (Rows::of(Arc::clone(&view)), Rows::of(Arc::clone(&view)));
        assert!(Arc::ptr_eq(&one.sets, &two.sets));
        assert_eq!(one.own_in_kernel(), view.desired.rules.len());
        let mut changed = View::clone(&view);
        changed.kernel = Arc::default();
        let changed = Rows::of(Arc::new(changed));
        assert_eq!(changed.missing(), view.desired.rules.len());
        assert_eq!((changed.strays(), changed.own_in_kernel()), (0, 0));
    }

    #[test]
    fn rules_of_others_come_apart_in_the_kernels_order() {
        let rows = Rows::of(Arc::new(view()));
        let all: Vec<(usize, Row)> = rows.foreign(0).collect();
        let standings: Vec<_> = all.iter().map(|(_, row)| row.standing).collect();
        assert_eq!(standings, [Standing::Foreign, Standing::Kernel]);
        let rest: Vec<_> = rows.foreign(all[0].0 + 1).collect();
        assert_eq!(rest, all[1..]);
    }
}
