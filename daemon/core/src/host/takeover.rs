//! Which rules without tag a rule of fipd's can take the place of, and at which priority.
//!
//! A rule is taken over only where every packet takes the table it took before. Packets of a source ask its table at the first
//! rule that says so; the rules that may match such packets too and do something else ([`RuleIndex::obstacles`]) must be asked
//! before and after that in the same order. The kernel puts a new rule behind those of its priority.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    ops::RangeInclusive,
};

use ipnet::IpNet;

use super::{
    desired::RuleSet,
    limits::check_priority,
    places::{Place, Places},
    rule::{KernelRule, Rule, RuleAction},
};
use crate::Family;

/// `FR_ACT_GOTO` of `linux/fib_rules.h`.
const GOTO: u8 = 2;
/// Priorities below the last one that are tried where that one is the kernel's own.
const TRIES: u32 = 4;

/// How the packets of a source are to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub table: u32,
    /// `None`: fipd chooses.
    pub priority: Option<u32>,
    pub fail_closed: bool,
}

/// That of each source of these sets, of which the first has it.
pub fn asked<S: Borrow<RuleSet>>(sets: impl IntoIterator<Item = S>) -> BTreeMap<IpAddr, Asked> {
    let mut all = BTreeMap::new();
    for set in sets {
        let set = set.borrow();
        for source in &set.sources {
            all.entry(*source).or_insert(Asked {
                table: set.table,
                priority: set.priority,
                fail_closed: set.fail_closed,
            });
        }
    }
    all
}

/// A host on which rules are taken over.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// All rules of both families, in the kernel's order.
    pub list: &'a [KernelRule],
    pub asked: &'a BTreeMap<IpAddr, Asked>,
    pub places: &'a Places,
    pub protocol: u8,
    /// The priority of rules that name none and have no place.
    pub band: u32,
}

/// What becomes of the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    /// With the priority of the rule that takes its place. What nobody wants any more keeps its own.
    pub taken: BTreeMap<Rule, u32>,
    /// New ones, beside those that there are.
    pub places: Places,
    pub refused: BTreeMap<Rule, Refusal>,
}

/// Why a rule cannot be taken over without packets taking another table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The source is to go by this table.
    Table(u32),
    /// Its priority is stated, and there the other rule would be asked in another order.
    Stated {
        priority: u32,
        other: Box<KernelRule>,
        /// Priorities that would do.
        instead: Option<RangeInclusive<u32>>,
    },
    /// No priority is left between these.
    Between(Box<KernelRule>, Option<Box<KernelRule>>),
    /// What fails closed would end before, or behind, this rule.
    Closed(Box<KernelRule>),
    /// This rule jumps.
    Jump(Box<KernelRule>),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => write!(
                f,
                "its packets would change their table, since fipd is to send this source to table {table}: let its IPRule name \
                 the table of this rule, or delete this rule"
            ),
            Self::Stated {
                priority,
                other,
                instead,
            } => {
                write!(
                    f,
                    "packets would change their table: at priority {priority}, which the IPRule states, the order with the rule \
                     \"{other}\" is another; "
                )?;
                match instead {
                    Some(range) => write!(
                        f,
                        "let the IPRule state a priority of {} to {}",
                        range.start(),
                        range.end()
                    ),
                    None => f.write_str("move that rule to another priority"),
                }
            }
            Self::Between(before, Some(after)) => write!(
                f,
                "packets would change their table: no priority is left between the rules \"{before}\" and \"{after}\"; move one of \
                 them"
            ),
            Self::Between(before, None) => write!(
                f,
                "packets would change their table: no priority is left behind the rule \"{before}\"; move it"
            ),
            Self::Jump(other) => write!(
                f,
                "packets could change their table: the rule \"{other}\" jumps, and where to depends on the rules that there are; \
                 delete it, or this rule"
            ),
            Self::Closed(other) => write!(
                f,
                "packets would change their table: its IPRule says failClosed, and the order of the rule that ends there and \
                 \"{other}\" would be another; move that rule, or take failClosed away"
            ),
        }
    }
}

/// Plans it. `victims` have neither tag nor anything but a host as source and a table.
pub fn take_over(victims: &BTreeSet<Rule>, here: &Here<'_>) -> Takeover {
    let index = RuleIndex::of(here.list);
    let mut takeover = Takeover::default();
    let mut ways: BTreeMap<(IpAddr, u32), Vec<&Rule>> = BTreeMap::new();
    for victim in victims {
        match victim.host().zip(victim.action.table()) {
            Some(way) => ways.entry(way).or_default().push(victim),
            None => drop(takeover.taken.insert(victim.clone(), victim.priority)),
        }
    }
    let mut free = Vec::new();
    for ((source, table), rules) in ways {
        let way = SourceWay::of(here, &index, (source, table), rules);
        match way.decide(here) {
            Ok(PriorityDecision::AsItIs) => {
                let own = way.victims.iter().map(|one| ((*one).clone(), one.priority));
                takeover.taken.extend(own);
            }
            Ok(PriorityDecision::At(priority)) => way.take(priority, here, &mut takeover),
            Ok(PriorityDecision::Within(range)) => free.push((range, way)),
            Err(why) => {
                let all = way.victims.iter();
                takeover
                    .refused
                    .extend(all.map(|one| ((*one).clone(), why.clone())));
            }
        }
    }
    share(free, here, &mut takeover);
    takeover
}

/// As few priorities as there can be: the last of the range that ends first is that of all ranges that have it.
fn share(
    mut free: Vec<(RangeInclusive<u32>, SourceWay<'_>)>,
    here: &Here<'_>,
    takeover: &mut Takeover,
) {
    free.sort_by_key(|(range, way)| (*range.end(), way.source));
    let mut shared: Option<u32> = None;
    for (range, way) in free {
        let priority = shared.filter(|one| range.contains(one) && way.fits(*one, here));
        let priority = priority.unwrap_or(*range.end());
        shared = Some(priority);
        way.take(priority, here, takeover);
    }
}

enum PriorityDecision {
    /// Nobody wants the source any more.
    AsItIs,
    At(u32),
    /// Not empty.
    Within(RangeInclusive<u32>),
}

/// The rules of one source and table.
struct SourceWay<'a> {
    source: IpAddr,
    table: u32,
    victims: Vec<&'a Rule>,
    asked: Option<Asked>,
    /// In the kernel's order, each with its index in the list.
    obstacles: Vec<(usize, &'a KernelRule)>,
    /// How many of them are asked before the first rule of this way.
    before: usize,
    /// The victims and the own rules of the way in the list.
    there: Vec<(usize, &'a Rule)>,
    /// Own rules behind which packets of the source go nowhere.
    ends: Vec<(usize, u32)>,
    jump: Option<&'a KernelRule>,
}

impl<'a> SourceWay<'a> {
    fn of(
        here: &Here<'a>,
        index: &RuleIndex<'a>,
        (source, table): (IpAddr, u32),
        victims: Vec<&'a Rule>,
    ) -> Self {
        let is_own = |one: &KernelRule| one.rule.protocol == here.protocol;
        let ends = |one: &KernelRule| is_own(one) && one.rule.action == RuleAction::Unreachable;
        let mut obstacles = index.obstacles(source, table);
        let (mut there, mut closed) = (Vec::new(), Vec::new());
        let plain = |one: &KernelRule| one.more.is_none() && one.rule.is_by_source();
        for (at, one) in index.of_source(source).filter(|(_, one)| plain(one)) {
            if asks(one, table) && (is_own(one) || victims.contains(&&one.rule)) {
                there.push((at, &one.rule));
            } else if ends(one) {
                closed.push((at, one.rule.priority));
            }
        }
        obstacles.retain(|(at, _)| closed.iter().all(|(end, _)| end != at));
        let first = there.first().map_or(usize::MAX, |(at, _)| *at);
        Self {
            source,
            table,
            victims,
            asked: here.asked.get(&source).copied(),
            before: count_before(&obstacles, first),
            obstacles,
            there,
            ends: closed,
            jump: index.jump(Family::of(source)),
        }
    }

    fn decide(&self, here: &Here<'_>) -> Result<PriorityDecision, Refusal> {
        let Some(asked) = self.asked else {
            return Ok(PriorityDecision::AsItIs);
        };
        if asked.table != self.table {
            return Err(Refusal::Table(asked.table));
        }
        if let Some(jump) = self.jump {
            return Err(Refusal::Jump(Box::new(jump.clone())));
        }
        let range = self.range(asked.fail_closed);
        if let Some(priority) = asked.priority {
            self.check(priority, here, |other| Refusal::Stated {
                priority,
                other,
                instead: range,
            })?;
            return Ok(PriorityDecision::At(priority));
        }
        let usual = self.place(here).into_iter().chain([here.band]);
        if let Some(priority) = usual.into_iter().find(|one| self.fits(*one, here)) {
            return Ok(PriorityDecision::At(priority));
        }
        let Some(range) = range else {
            let before = self.before.checked_sub(1);
            let around = before.into_iter().chain([self.before]);
            let around = around.filter_map(|at| self.obstacles.get(at));
            let mut around = around.map(|(_, rule)| Box::new((*rule).clone()));
            return match around.next() {
                Some(one) => Err(Refusal::Between(one, around.next())),
                // There is room everywhere where there is nothing.
                None => Ok(PriorityDecision::At(here.band)),
            };
        };
        self.check(*range.end(), here, |other| Refusal::Between(other, None))?;
        Ok(PriorityDecision::Within(range))
    }

    /// Priorities at which a rule is asked where the first of the way is. The last one is no rule of the kernel's own.
    fn range(&self, fail_closed: bool) -> Option<RangeInclusive<u32>> {
        let priority = |at: usize| self.obstacles.get(at).map(|(_, one)| one.rule.priority);
        let least = self
            .before
            .checked_sub(1)
            .and_then(priority)
            .unwrap_or(0)
            .max(1);
        let most = match priority(self.before) {
            Some(next) => next.checked_sub(1 + u32::from(fail_closed))?,
            None => self.there.first().map_or(least, |(_, one)| one.priority),
        };
        let most = (most.saturating_sub(TRIES).max(least)..=most)
            .rev()
            .find(|one| {
                check_priority(i64::from(*one), fail_closed).is_ok_and(|one| one.is_some())
            })?;
        (least <= most).then_some(least..=most)
    }

    fn fits(&self, priority: u32, here: &Here<'_>) -> bool {
        let order = |other| Refusal::Between(other, None);
        self.check(priority, here, order).is_ok()
    }

    /// Whether every other rule would be asked in the order of before if the way's rule were at this priority; `order` says
    /// of one that would not.
    fn check(
        &self,
        priority: u32,
        here: &Here<'_>,
        order: impl FnOnce(Box<KernelRule>) -> Refusal,
    ) -> Result<(), Refusal> {
        let after = self.behind(priority, |rule| {
            rule.protocol == here.protocol && rule.priority == priority
        });
        if let Some(other) = self.between(self.before, after) {
            return Err(order(other));
        }
        if !self.asked.is_some_and(|asked| asked.fail_closed) {
            return Ok(());
        }
        let stated = self.asked.and_then(|asked| asked.priority);
        let now = stated.or(self.place(here)).unwrap_or(here.band);
        if now == priority {
            return Ok(());
        }
        let end = |priority: u32| priority.saturating_add(1);
        let there = self.ends.iter().find(|(_, one)| *one == end(now));
        let before = there.map(|(at, _)| count_before(&self.obstacles, *at));
        let before = before.unwrap_or_else(|| self.count_to(end(now)));
        match self.between(before, self.count_to(end(priority))) {
            Some(other) => Err(Refusal::Closed(other)),
            None => Ok(()),
        }
    }

    /// The priority that it has had since an earlier time.
    fn place(&self, here: &Here<'_>) -> Option<u32> {
        let place = here.places.get(&self.source)?;
        (place.table == self.table).then_some(place.priority)
    }

    /// How many obstacles are asked before the own rule once the victims are gone.
    fn behind(&self, priority: u32, is_own: impl Fn(&Rule) -> bool) -> usize {
        let own = self.there.iter().find(|(_, rule)| is_own(rule));
        let own = own.map(|(at, _)| *at);
        // A request to delete a rule without tag takes the own rule first, which is then added anew behind all others.
        let hit = own.is_some_and(|own| {
            let mut later = self.there.iter().filter(|(at, _)| *at > own);
            later.any(|(_, rule)| rule.priority == priority && !is_own(rule))
        });
        match own {
            Some(own) if !hit => count_before(&self.obstacles, own),
            Some(_) | None => self.count_to(priority),
        }
    }

    fn count_to(&self, priority: u32) -> usize {
        self.obstacles
            .partition_point(|(_, one)| one.rule.priority <= priority)
    }

    fn between(&self, one: usize, other: usize) -> Option<Box<KernelRule>> {
        let (first, last) = (one.min(other), one.max(other));
        let crossed = self.obstacles.get(first..last)?;
        crossed.first().map(|(_, rule)| Box::new((*rule).clone()))
    }

    fn take(&self, priority: u32, here: &Here<'_>, takeover: &mut Takeover) {
        let all = self.victims.iter().map(|one| ((*one).clone(), priority));
        takeover.taken.extend(all);
        let stated = self.asked.is_some_and(|asked| asked.priority.is_some());
        let place = Place {
            table: self.table,
            priority,
        };
        let before = here.places.get(&self.source);
        let same = before.map_or(priority == here.band, |before| *before == place);
        if !stated && !same {
            takeover.places.insert(self.source, place);
        }
    }
}

fn count_before(obstacles: &[(usize, &KernelRule)], at: usize) -> usize {
    obstacles.partition_point(|(there, _)| *there < at)
}

/// The kernel's rules by whose packets they may match.
struct RuleIndex<'a> {
    /// For one host and nothing but its packets.
    hosts: BTreeMap<IpAddr, Vec<(usize, &'a KernelRule)>>,
    /// All others.
    wide: Vec<(usize, &'a KernelRule)>,
}

impl<'a> RuleIndex<'a> {
    fn of(list: &'a [KernelRule]) -> Self {
        let mut index = Self {
            hosts: BTreeMap::new(),
            wide: Vec::new(),
        };
        for (at, one) in list.iter().enumerate() {
            match one.rule.host().filter(|_| source_holds(one)) {
                Some(source) => index.hosts.entry(source).or_default().push((at, one)),
                None => index.wide.push((at, one)),
            }
        }
        index
    }

    fn of_source(&self, source: IpAddr) -> impl Iterator<Item = (usize, &'a KernelRule)> {
        self.hosts.get(&source).into_iter().flatten().copied()
    }

    /// Those that may match packets of the source and do not just ask this table, in the kernel's order.
    fn obstacles(&self, source: IpAddr, table: u32) -> Vec<(usize, &'a KernelRule)> {
        let all = self.wide.iter().copied().chain(self.of_source(source));
        let others = all.filter(|(_, one)| may_match(one, source) && !asks(one, table));
        let mut obstacles: Vec<_> = others.collect();
        obstacles.sort_by_key(|(at, _)| *at);
        obstacles
    }

    /// One that goes on behind others: where, depends on which rules there are.
    fn jump(&self, family: Family) -> Option<&'a KernelRule> {
        let mut all = self.wide.iter().chain(self.hosts.values().flatten());
        let jumps = |one: &KernelRule| one.rule.action == RuleAction::Other(GOTO);
        let found = all.find(|(_, one)| one.rule.family == family && jumps(one));
        found.map(|(_, one)| *one)
    }
}

/// Asks it and does nothing else: that again, or earlier, changes nothing.
fn asks(one: &KernelRule, table: u32) -> bool {
    one.more.is_none() && one.rule.action == RuleAction::Table(table)
}

/// Whether packets of the source may match it.
fn may_match(one: &KernelRule, source: IpAddr) -> bool {
    let inside = |prefix: &IpNet| prefix.contains(&source);
    one.rule.family == Family::of(source)
        && (!source_holds(one) || one.rule.source.as_ref().is_none_or(inside))
}

/// Whether packets of other sources than its own certainly do not match it: it is not inverted, and could be read.
fn source_holds(one: &KernelRule) -> bool {
    let more = one.more.as_deref().unwrap_or_default();
    more.split(' ')
        .all(|word| word != "not" && word != "cannot")
}

#[cfg(test)]
mod tests;
