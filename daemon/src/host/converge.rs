//! One look at the kernel, and what it takes from there to what is wanted.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use fipd_core::host::{
    Desired, HostSettings, Interference, Plan, Rule, RuleSet, Step, Unclaimed, desired, diff,
    left_after, marks_of, own_rules, owned, placed, stay_beside_refused, stay_without_journal,
    used,
};
use tokio::time::Instant;

use super::{
    apply::undeleted, engine::EngineError, journal::Wishes, kernel::Listing, outcome::PassOutcome,
    session::Session,
};
use crate::{
    clock,
    rules::{Reached, Wanted},
};

/// What was wanted and not there.
struct Missing {
    desired: Desired,
    /// Rules that were added, and what the kernel refused of them.
    added: Vec<Rule>,
    refused: Vec<String>,
}

impl Session<'_> {
    pub(super) async fn converge(&mut self) -> Result<PassOutcome, EngineError> {
        self.refused.clear();
        self.missed.clear();
        let wanted = self.recall();
        self.remember(&wanted).await;
        let listing = self.kernel.list().await?;
        let listing = match self.as_before(&wanted, listing) {
            Ok(outcome) => return Ok(outcome),
            Err(listing) => listing,
        };
        self.settled = None;
        self.leave_places(&wanted).await;
        self.count_drift(&listing);
        let held = !wanted.missing.is_empty() && !self.engine.paused;
        let missing = self.add_missing(&wanted.wishes, &listing, held).await?;
        let Missing {
            desired,
            added,
            mut refused,
        } = missing;
        if self.unclaimed.is_some() {
            // Whoever comes back later than that says anew what is wanted.
            let said = &wanted.wishes;
            (self.engine.remembered).retain(|who, _| !said.contains_key(who));
        }
        let mut changed = !added.is_empty();
        let mut removed = Vec::new();
        if listing.quiet {
            let mut stay = self.staying(&desired, &listing, held);
            let protocol = self.engine.protocol();
            let before = stay_beside_refused(&desired, &listing.rules, &self.refused, protocol);
            if !before.is_empty() {
                stay.to_mut().extend(before);
            }
            let plan = diff(&stay, &listing.rules, self.engine.protocol());
            refused.extend(self.remove(&plan.removals).await?);
            changed |= !plan.removals.is_empty();
            removed = plan.removals;
            changed |= self.remove_old_tags(&listing).await?;
            self.engine.notes.keep(&stay).await;
        }
        let listing = match changed {
            true => self.kernel.list().await?,
            false => listing,
        };
        self.engine.rejected_echoes.forget_but(&desired.rules);
        if listing.quiet && !listing.touched {
            refused.extend(undeleted(&self.missed, &listing.rules));
            let taken = added.iter().filter(|rule| self.engine.added.contains(rule));
            let taken: Vec<&Rule> = taken.collect();
            self.engine.rejected_echoes.note(&taken, &listing.rules);
        }
        let plan = diff(&desired.rules, &listing.rules, self.engine.protocol());
        let more = || !self.steps(&desired, &listing, held).is_empty();
        self.unfinished = !listing.quiet || (refused.is_empty() && !plan.is_empty() && more());
        match self.unfinished {
            true => drop(self.unquiet.pause()),
            false => self.unquiet.reset(),
        }
        let since = self.unfinished_since.filter(|_| self.unfinished);
        self.unfinished_since = since.or_else(|| self.unfinished.then(Instant::now));
        self.leave(&added, &removed, &listing);
        self.marks = Some(desired.marks.clone());
        let desired = Arc::new(desired);
        let done = plan.is_empty() && plan.stuck.is_empty() && refused.is_empty();
        if listing.quiet && done && wanted.missing.is_empty() && self.is_usual() {
            self.settled = Some((wanted.revision, self.settings().can_index));
        }
        let reached = listing.quiet.then(|| Reached {
            flushed: self.engine.paused,
            ..Reached::of(wanted.revision, &desired, &plan, &self.indexed)
        });
        Ok(PassOutcome {
            desired,
            listing,
            plan,
            reached,
            missing: wanted.missing,
            refused,
        })
    }

    /// Nothing that makes a pass another one than the last.
    fn is_usual(&self) -> bool {
        let notes = &self.engine.notes;
        notes.is_open()
            && notes
                .tags()
                .iter()
                .all(|tag| *tag == self.engine.protocol())
            && !self.engine.paused
            && self.unclaimed.is_some()
    }

    /// Where all was done and neither what is wanted nor the own rules changed since, there is nothing to do: mostly others
    /// change theirs, and a look is to cost little more than the list.
    fn as_before(&self, wanted: &Wanted, listing: Listing) -> Result<PassOutcome, Listing> {
        let doubted = self.indexes() && self.filter.is_doubted();
        let now = (wanted.revision, self.settings().can_index);
        let usual = listing.quiet && !listing.touched && !doubted && wanted.missing.is_empty();
        let paused = self.engine.paused;
        if !usual || paused || self.settled != Some(now) || !self.engine.notes.is_open() {
            return Err(listing);
        }
        let protocol = self.engine.protocol();
        let view = self.engine.board.view();
        if !owned(&listing.rules, protocol).eq(owned(&view.kernel, protocol)) {
            return Err(listing);
        }
        Ok(PassOutcome {
            desired: Arc::clone(&view.desired),
            listing,
            plan: Plan::default(),
            // That was said.
            reached: None,
            missing: Vec::new(),
            refused: Vec::new(),
        })
    }

    /// What is wanted, with what those wanted last who did not speak yet.
    fn recall(&self) -> Wanted {
        loop {
            let wanted = self.engine.board.wanted();
            let before = wanted.missing.iter();
            let before = before.filter_map(|who| self.engine.remembered.get_key_value(who));
            let before: Vec<_> = before.collect();
            if before.is_empty() {
                return wanted;
            }
            for (who, sets) in before {
                self.engine.board.recall(who, sets.to_vec());
            }
        }
    }

    /// Journals what is wanted, and as long as somebody is to speak also what others wanted last.
    async fn remember(&mut self, wanted: &Wanted) {
        let mut all = Cow::Borrowed(&wanted.wishes);
        if !wanted.missing.is_empty() {
            for (who, sets) in &self.engine.remembered {
                let all = all.to_mut().entry(who.clone());
                all.or_insert_with(|| Arc::clone(sets));
            }
        }
        self.engine.notes.wish(&all).await;
    }

    /// Forgets the places of sources that nobody wants any more, or elsewhere.
    async fn leave_places(&mut self, wanted: &Wanted) {
        if self.engine.places.is_empty() || !wanted.missing.is_empty() {
            return;
        }
        let used = used(wanted.sets(), &self.engine.places);
        if used != self.engine.places {
            self.engine.places = used;
            if let Err(why) = self.engine.notes.place(&self.engine.places).await {
                tracing::debug!(why, "that places of rules are forgotten is noted later");
            }
        }
    }

    /// Brings what is missing there.
    async fn add_missing(
        &mut self,
        wishes: &Wishes,
        listing: &Listing,
        held: bool,
    ) -> Result<Missing, EngineError> {
        let desired = self.desired(wishes, listing);
        self.claim(&desired, listing);
        let mut added = self.steps(&desired, listing, held).adds;
        let mut refused = match self.add(&added).await {
            Err(problem) => {
                self.show_undone(&desired, listing);
                return Err(problem);
            }
            refused => refused?,
        };
        if self.index(&desired.index, held).await {
            return Ok(Missing {
                desired,
                added,
                refused,
            });
        }
        // The rules of these sources are flat from here on.
        let desired = self.desired(wishes, listing);
        let mut flat = self.steps(&desired, listing, held).adds;
        let before: BTreeSet<&Rule> = added.iter().collect();
        flat.retain(|rule| !before.contains(rule));
        refused.extend(self.add(&flat).await?);
        added.extend(flat);
        Ok(Missing {
            desired,
            added,
            refused,
        })
    }

    /// What can be done now: what was given up is not added.
    fn steps(&self, desired: &Desired, listing: &Listing, held: bool) -> Plan {
        let stay = self.staying(desired, listing, held);
        let mut steps = diff(&stay, &listing.rules, self.engine.protocol());
        self.engine.rejected_echoes.spare(&mut steps.adds);
        steps
    }

    /// What is to be there. `held`: somebody is silent, and what nobody else is known to have wanted may be theirs. Without
    /// the journal all may be somebody's but what was added in this life.
    fn staying<'d>(
        &self,
        desired: &'d Desired,
        listing: &Listing,
        held: bool,
    ) -> Cow<'d, BTreeSet<Rule>> {
        let (rules, protocol) = (&listing.rules, self.engine.protocol());
        if !self.engine.notes.is_open() {
            let added = &self.engine.added;
            return Cow::Owned(stay_without_journal(&desired.rules, rules, added, protocol));
        }
        match &self.unclaimed {
            Some(unclaimed) if held => {
                Cow::Owned(unclaimed.beside(&desired.rules, rules, protocol))
            }
            Some(_) | None => Cow::Borrowed(&desired.rules),
        }
    }

    /// Remembers what is in the kernel, so that what others do to it is told from what fipd does.
    fn leave(&mut self, added: &[Rule], removed: &[Step], listing: &Listing) {
        if added.is_empty() && removed.is_empty() {
            // As it was when drift was counted.
            return;
        }
        let protocol = self.engine.protocol();
        let mut left = match (&self.engine.left, listing.quiet) {
            (_, true) => own_rules(&listing.rules, protocol),
            (None, false) => return,
            // It is not known what is there: what was, and what was done since.
            (Some(left), false) => left_after(left, removed),
        };
        if listing.touched || !listing.quiet {
            // One that is gone again already was removed by another.
            let taken = added
                .iter()
                .filter(|rule| self.engine.added.contains(*rule));
            left.extend(taken.cloned());
        }
        self.engine.left = Some(Arc::new(left));
    }

    /// What is to be done and cannot be.
    fn show_undone(&self, desired: &Desired, listing: &Listing) {
        let plan = diff(&desired.rules, &listing.rules, self.engine.protocol());
        self.engine.show(|view| {
            view.at = clock::now();
            view.desired = Arc::new(desired.clone());
            view.kernel = Arc::new(listing.rules.clone());
            view.plan = Arc::new(plan);
        });
    }

    /// What is there and wanted is somebody's from here on.
    fn claim(&mut self, desired: &Desired, listing: &Listing) {
        let protocol = self.engine.protocol();
        if self.unclaimed.is_none() && listing.quiet {
            let recorded = self.desired_of(&self.engine.remembered, listing);
            let found = Unclaimed::find(&listing.rules, &recorded.rules, protocol);
            self.indexed_before
                .retain(|source, _| !recorded.index.contains_key(source));
            self.unclaimed = Some(found);
        }
        if let Some(unclaimed) = &mut self.unclaimed {
            unclaimed.claim(&desired.rules);
            self.indexed_before
                .retain(|source, _| !desired.index.contains_key(source));
        }
    }

    fn desired(&self, wishes: &Wishes, listing: &Listing) -> Desired {
        match self.engine.paused {
            true => Desired::default(),
            false => self.desired_of(wishes, listing),
        }
    }

    fn desired_of(&self, wishes: &Wishes, listing: &Listing) -> Desired {
        let settings = self.settings();
        // A mark that is in the kernel is taken, whoever it was for.
        let mut marks = marks_of(&listing.rules, &settings);
        marks.extend(self.marks.iter().flatten());
        let sets = wishes.values().flat_map(|sets| sets.iter().cloned());
        let sets: Vec<RuleSet> = placed(sets, &self.engine.places);
        desired(&sets, &settings, &marks)
    }

    fn settings(&self) -> HostSettings {
        let settings = &self.engine.options.settings;
        let can_index =
            settings.can_index && self.filter.is_there() && self.filter_problem.is_none();
        HostSettings {
            can_index,
            ..settings.clone()
        }
    }

    fn count_drift(&mut self, listing: &Listing) {
        let protocol = self.engine.protocol();
        if !listing.quiet {
            return;
        }
        let now = Arc::new(own_rules(&listing.rules, protocol));
        let Some(left) = self.engine.left.replace(now) else {
            return;
        };
        let found = Interference::find(&left, &listing.rules, protocol);
        let count = |rules: &[&Rule]| u64::try_from(rules.len()).unwrap_or(u64::MAX);
        let (removed, added) = (count(&found.removed), count(&found.added));
        let drift = &mut self.engine.drift;
        drift.added += added;
        drift.removed += removed;
        if !found.is_empty() {
            let example = found.removed.first().map(ToString::to_string);
            tracing::info!(
                removed,
                added,
                example,
                "others changed rules of fipd; they are repaired"
            );
            let now = Instant::now();
            self.engine
                .contention
                .repaired(&found.removed, "removes", now);
            self.engine.contention.repaired(&found.added, "adds", now);
        }
    }
}
