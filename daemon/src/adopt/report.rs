//! What a takeover finds, and what would change.

use std::collections::BTreeMap;

use fipd_core::words;
use serde::Serialize;

use super::Looked;

/// Failures that a summary names.
const NAMED: usize = 5;

/// What is found, and what would change. `A` is what the system's takeover needs to make a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeoverReport<A = ()> {
    /// How many of each there are.
    pub counts: BTreeMap<&'static str, usize>,
    pub findings: Vec<Finding>,
    /// What could not be looked at.
    pub unseen: Vec<String>,
    pub changes: Vec<TakeoverChange<A>>,
    /// Why nothing can be taken over at present; empty: it can.
    pub blockers: Vec<String>,
    /// What the changes are in a sentence, and what happens to them: such as `rules` that are `taken over`.
    pub wording: (&'static str, &'static str),
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    /// The object.
    pub name: String,
    /// Whether all is well with it.
    pub fine: bool,
    pub says: String,
}

words! {
    /// What a finding is about.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    pub enum FindingKind {
        Pool = "pool",
        Quota = "quota",
        Address = "address",
        Conflict = "conflict",
        Orphan = "orphan",
        Secret = "secret",
        Leftover = "leftover",
        Malformed = "malformed",
        /// A program of the original.
        Program = "program",
        /// What the takeover leaves alone, as it would do harm.
        Refused = "refused",
        /// What fipd would not keep.
        Unwanted = "unwanted",
    }
}

/// Something that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeoverChange<A = ()> {
    pub by: ChangeBy,
    /// The object.
    pub name: String,
    pub does: String,
    pub state: ChangeState,
    /// How `fipd adopt` does it.
    pub action: Option<A>,
}

/// What became of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ChangeState {
    #[default]
    Planned,
    Done,
    /// Nothing was left to be done, and why.
    Needless(String),
    Failed(String),
}

words! {
    /// Who changes it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    pub enum ChangeBy {
        /// fipd, while it leads.
        Itself = "fipd",
        /// `fipd adopt`.
        Adopt = "adopt",
        /// Whoever runs the site.
        You = "you",
    }
}

impl<A> Default for TakeoverReport<A> {
    fn default() -> Self {
        Self {
            counts: BTreeMap::new(),
            findings: Vec::new(),
            unseen: Vec::new(),
            changes: Vec::new(),
            blockers: Vec::new(),
            wording: ("things", "done"),
        }
    }
}

impl<A> TakeoverReport<A> {
    pub fn fine(&mut self, kind: FindingKind, name: impl Into<String>, says: impl Into<String>) {
        self.finding(kind, name, true, says);
    }

    pub fn wrong(&mut self, kind: FindingKind, name: impl Into<String>, says: impl Into<String>) {
        self.finding(kind, name, false, says);
    }

    /// A program of the original that keeps everything from being taken over.
    pub fn in_the_way(&mut self, name: impl Into<String>, why: String) {
        self.wrong(FindingKind::Program, name, why.clone());
        self.blockers.push(why);
    }

    pub fn finding(
        &mut self,
        kind: FindingKind,
        name: impl Into<String>,
        fine: bool,
        says: impl Into<String>,
    ) {
        let (name, says) = (name.into(), says.into());
        self.findings.push(Finding {
            kind,
            name,
            fine,
            says,
        });
    }

    /// How it is, and what is wrong with it.
    pub fn judge(
        &mut self,
        kind: FindingKind,
        name: impl Into<String>,
        says: String,
        wrongs: Vec<String>,
    ) {
        let fine = wrongs.is_empty();
        let all: Vec<String> = std::iter::once(says).chain(wrongs).collect();
        self.finding(kind, name, fine, all.join("; "));
    }

    /// What was seen. What could not be looked at is noted as `what`.
    pub fn seen<'a, T>(&mut self, what: &str, looked: &'a Option<Looked<T>>) -> Option<&'a T> {
        let seen = looked.as_ref()?.as_ref();
        seen.map_err(|why| self.unseen.push(format!("{what}: {why}")))
            .ok()
    }

    /// What others than `fipd adopt` change.
    pub fn change(&mut self, by: ChangeBy, name: impl Into<String>, does: impl Into<String>) {
        self.add(by, name, does, (ChangeState::Planned, None));
    }

    /// What `fipd adopt` does.
    pub fn act(&mut self, name: impl Into<String>, does: impl Into<String>, action: A) {
        let planned = (ChangeState::Planned, Some(action));
        self.add(ChangeBy::Adopt, name, does, planned);
    }

    /// What `fipd adopt` would do, were it known that it may.
    pub fn cannot(
        &mut self,
        name: impl Into<String>,
        does: impl Into<String>,
        why: impl Into<String>,
    ) {
        let failed = ChangeState::Failed(why.into());
        self.add(ChangeBy::Adopt, name, does, (failed, None));
    }

    fn add(
        &mut self,
        by: ChangeBy,
        name: impl Into<String>,
        does: impl Into<String>,
        (state, action): (ChangeState, Option<A>),
    ) {
        let (name, does) = (name.into(), does.into());
        self.changes.push(TakeoverChange {
            by,
            name,
            does,
            state,
            action,
        });
    }

    pub fn count(&mut self, what: &'static str, more: usize) {
        *self.counts.entry(what).or_default() += more;
    }

    /// One sentence about what `fipd adopt` does.
    pub fn summary(&self, dry_run: bool) -> String {
        let (things, done) = self.wording;
        let asked = self.changes.iter().filter(|one| one.by == ChangeBy::Adopt);
        let why = |one: &TakeoverChange<A>| match &one.state {
            ChangeState::Failed(why) => Some(format!("{}: {why}", one.name)),
            ChangeState::Planned | ChangeState::Done | ChangeState::Needless(_) => None,
        };
        let mut failed: Vec<String> = asked.clone().filter_map(why).collect();
        let needless = |one: &&TakeoverChange<A>| matches!(one.state, ChangeState::Needless(_));
        let needless = asked.clone().filter(needless).count();
        match (asked.count(), failed.len()) {
            (0, _) => "nothing to do".to_owned(),
            (all, 0) if dry_run => format!("{all} {things} would be {done}"),
            (all, 0) if needless == 0 => format!("{all} {things} were {done}"),
            (all, 0) => {
                let were = all - needless;
                format!(
                    "{were} of {all} {things} were {done}; for the rest nothing was to do any more"
                )
            }
            (all, count) => {
                let could = if dry_run { "cannot" } else { "could not" };
                failed.truncate(NAMED);
                let more = if count > NAMED { "; ..." } else { "" };
                let failed = failed.join("; ");
                format!("{count} of {all} {things} {could} be {done}: {failed}{more}")
            }
        }
    }

    /// The report as it is shown.
    pub fn shown(self) -> TakeoverReport {
        let changes = self.changes.into_iter().map(|one| TakeoverChange {
            by: one.by,
            name: one.name,
            does: one.does,
            state: one.state,
            action: None,
        });
        TakeoverReport {
            counts: self.counts,
            findings: self.findings,
            unseen: self.unseen,
            changes: changes.collect(),
            blockers: self.blockers,
            wording: self.wording,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_what_adopt_does_and_says_what_failed() {
        let mut report = TakeoverReport::<()>::default();
        report.change(ChangeBy::You, "a", "stop it");
        assert_eq!(report.summary(true), "nothing to do");
        report.act("b", "deletes it", ());
        report.act("c", "deletes it", ());
        assert_eq!(report.summary(true), "2 things would be done");
        for (change, state) in report
            .changes
            .iter_mut()
            .skip(1)
            .zip([ChangeState::Done, ChangeState::Needless("gone".to_owned())])
        {
            change.state = state;
        }
        report.wording = ("rules", "taken over");
        let needless = "1 of 2 rules were taken over; for the rest nothing was to do any more";
        assert_eq!(report.summary(false), needless);
        report.cannot("d", "deletes it", "forbidden");
        let said = "1 of 3 rules could not be taken over: d: forbidden";
        assert_eq!(report.summary(false), said);
        for _ in 0..9 {
            report.cannot("d", "deletes it", "forbidden");
        }
        let said = report.shown().summary(false);
        assert!(said.starts_with("10 of 12 rules"), "{said}");
        assert_eq!(said.matches("forbidden").count(), NAMED, "{said}");
        assert!(said.ends_with("; ..."), "{said}");
    }
}
