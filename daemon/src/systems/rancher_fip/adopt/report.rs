//! What is found in a site and what would change, from what was seen.

use std::collections::BTreeMap;

use fipd_core::KeyBytes;

use crate::controller::store::Key;

use super::{addresses, found::Found, holders, leftovers, owners, pools, uses::Uses};
use crate::systems::rancher_fip::adopt::pool_ranges::Known;

/// What is found, and what would change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many of each there are.
    pub counts: BTreeMap<&'static str, usize>,
    pub findings: Vec<Finding>,
    /// What could not be looked at.
    pub unseen: Vec<String>,
    pub changes: Vec<Change>,
    /// Why nothing is taken over at present; empty: it can be.
    pub blockers: Vec<String>,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    /// The object.
    pub name: String,
    /// Whether all is well with it.
    pub fine: bool,
    pub says: String,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Pool,
    Quota,
    Address,
    Conflict,
    Orphan,
    Secret,
    Leftover,
    Malformed,
}

/// Something that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub by: By,
    /// The object.
    pub name: String,
    pub does: String,
    pub state: State,
    /// What there is to do where somebody has to ask for it.
    pub action: Option<Action>,
}

/// What became of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Planned,
    Done,
    Failed(String),
}

/// What is done only where it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The original's ValidatingWebhookConfiguration, as it was read.
    RemoveWebhook { uid: String, version: String },
    /// Labels of Services on FloatingIPs that no cluster has.
    RemoveGhosts(Vec<Key>),
    /// What the original's key signed goes on to count.
    TakeKey(KeyBytes),
}

/// Who changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// fipd, while it leads.
    Itself,
    /// `fipd adopt`.
    Adopt,
    /// Whoever runs the site.
    You,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Quota => "quota",
            Self::Address => "address",
            Self::Conflict => "conflict",
            Self::Orphan => "orphan",
            Self::Secret => "secret",
            Self::Leftover => "leftover",
            Self::Malformed => "malformed",
        }
    }
}

impl By {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Itself => "fipd",
            Self::Adopt => "adopt",
            Self::You => "you",
        }
    }
}

impl Report {
    pub(super) fn fine(&mut self, kind: Kind, name: impl Into<String>, says: impl Into<String>) {
        self.finding(kind, name, true, says);
    }

    pub(super) fn wrong(&mut self, kind: Kind, name: impl Into<String>, says: impl Into<String>) {
        self.finding(kind, name, false, says);
    }

    fn finding(
        &mut self,
        kind: Kind,
        name: impl Into<String>,
        fine: bool,
        says: impl Into<String>,
    ) {
        self.findings.push(Finding {
            kind,
            name: name.into(),
            fine,
            says: says.into(),
        });
    }

    pub(super) fn change(&mut self, by: By, name: impl Into<String>, does: impl Into<String>) {
        self.changes.push(Change {
            by,
            name: name.into(),
            does: does.into(),
            state: State::Planned,
            action: None,
        });
    }

    /// What `fipd adopt` does.
    pub(super) fn act(&mut self, name: impl Into<String>, does: impl Into<String>, action: Action) {
        self.changes.push(Change {
            by: By::Adopt,
            name: name.into(),
            does: does.into(),
            state: State::Planned,
            action: Some(action),
        });
    }

    /// What `fipd adopt` would do, were it known that it may.
    pub(super) fn cannot(
        &mut self,
        name: impl Into<String>,
        does: impl Into<String>,
        why: impl Into<String>,
    ) {
        self.changes.push(Change {
            by: By::Adopt,
            name: name.into(),
            does: does.into(),
            state: State::Failed(why.into()),
            action: None,
        });
    }

    pub(super) fn count(&mut self, what: &'static str, more: usize) {
        *self.counts.entry(what).or_default() += more;
    }
}

/// Makes the report.
pub fn report(found: &Found) -> Report {
    let mut report = Report::default();
    let known = Known::of(found);
    let uses = Uses::of(found, &known);
    pools::judge(found, &known, &uses, &mut report);
    holders::judge(found, &known, &uses, &mut report);
    addresses::judge(found, &known, &mut report);
    // First of all the webhook goes: it may refuse what is written after it.
    leftovers::judge(found, &mut report);
    owners::judge(found, &mut report);
    for ((kind, key), why) in &found.malformed {
        let name = format!("{kind} {}", addresses::place(key));
        report.wrong(Kind::Malformed, name, why);
    }
    report
}

/// Why an action is left alone after what became of the changes before it.
pub(super) fn obstacle(before: &[Change], action: &Action) -> Option<String> {
    if !matches!(action, Action::RemoveGhosts(_)) {
        return None;
    }
    let webhook = leftovers::webhook_name();
    let stays = |one: &&Change| one.name == webhook && matches!(one.state, State::Failed(_));
    let stays = before.iter().find(stays)?;
    Some(format!(
        "left alone while {} is there: it may refuse the change",
        stays.name
    ))
}

/// Names in a sentence: the first few, and how many more there are.
pub(super) fn some(names: &[String]) -> String {
    const SHOWN: usize = 5;
    few(names, SHOWN, ", ")
}

/// Parts of a sentence, the same way.
pub(super) fn parts(parts: &[String]) -> String {
    const SHOWN: usize = 20;
    few(parts, SHOWN, "; ")
}

fn few(all: &[String], most: usize, between: &str) -> String {
    let shown = all.get(..most).unwrap_or(all);
    more(shown.join(between), all.len().saturating_sub(most))
}

/// `shown`, and how many more there are.
pub(super) fn more(shown: String, count: usize) -> String {
    match count {
        0 => shown,
        count => format!("{shown} and {count} more"),
    }
}
