//! Changes of the kernel, and of the packet filter.

use std::collections::BTreeSet;

use fipd_core::{
    Family,
    host::{KernelRule, Rule, Step, diff},
};
use tokio::time::Instant;

use super::{
    engine::EngineError, filter::FilterError, kernel::Listing, nft::Index, session::Session,
    socket::Refusals,
};
use crate::{metrics::rules as figures, rules::Warning};

impl Session<'_> {
    /// Answers what the kernel refused.
    pub async fn add(&mut self, rules: &[Rule]) -> Result<Vec<String>, EngineError> {
        self.engine.notes.intend(rules).await;
        let began = Instant::now();
        let refused = self.kernel.requests.add(rules).await?;
        figures::added(rules.len(), refused.len(), began.elapsed());
        self.engine.added.extend(rules.iter().cloned());
        for rule in refused.iter().filter_map(|(index, _)| rules.get(*index)) {
            self.engine.added.remove(rule);
            self.refused.insert(rule.clone());
        }
        told(rules, refused)
    }

    pub async fn remove(&mut self, steps: &[Step]) -> Result<Vec<String>, EngineError> {
        let mut all = Vec::new();
        let kind = |step: &Step| matches!(step, Step::Add(_));
        for steps in steps.chunk_by(|one, next| kind(one) == kind(next)) {
            let rules = steps.iter().map(|step| match step {
                Step::Add(rule) | Step::Delete(rule) => rule.clone(),
            });
            let rules: Vec<Rule> = rules.collect();
            if steps.first().is_some_and(kind) {
                all.extend(self.add(&rules).await?);
                if all.is_empty() {
                    continue;
                }
                // What follows would take the rule that this one was to be behind.
                return Ok(all);
            }
            let mut refused = self.kernel.requests.delete(&rules).await?;
            let gone = rules.len().saturating_sub(refused.len());
            // Another was quicker; the next list tells.
            refused.retain(|(index, error)| {
                let missed = error.raw_os_error() == Some(nix::libc::ENOENT);
                self.missed
                    .extend(rules.get(*index).filter(|_| missed).cloned());
                !missed
            });
            figures::deleted(gone, refused.len());
            let stay: BTreeSet<usize> = refused.iter().map(|(index, _)| *index).collect();
            let gone = rules.iter().enumerate();
            for (_, rule) in gone.filter(|(index, _)| !stay.contains(index)) {
                self.engine.added.remove(rule);
            }
            all.extend(told(&rules, refused)?);
        }
        Ok(all)
    }

    /// Deletes what an earlier run wrote with another tag: exactly that, whatever else has this tag. `true`: there was some.
    pub async fn remove_old_tags(&mut self, listing: &Listing) -> Result<bool, EngineError> {
        let protocol = self.engine.protocol();
        let old = self.engine.notes.rules_but(protocol);
        let tags: BTreeSet<u8> = old.iter().map(|rule| rule.protocol).collect();
        for tag in tags {
            let mut stay = BTreeSet::new();
            let mut actual = Vec::new();
            for one in &listing.rules {
                // Others may have two of one.
                if old.contains(&one.rule) || one.more.is_some() || stay.insert(one.rule.clone()) {
                    actual.push(one.clone());
                }
            }
            stay.retain(|rule| rule.protocol == tag);
            let plan = diff(&stay, &actual, tag);
            self.remove(&plan.removals).await?;
        }
        Ok(!old.is_empty())
    }

    /// `false`: these sources cannot be indexed after all.
    pub async fn index(&mut self, wanted: &Index, held: bool) -> bool {
        if !self.indexes() {
            return true;
        }
        let mut index = wanted.clone();
        self.leave_refused(&mut index);
        if held || !self.engine.notes.is_open() {
            for (source, mark) in &self.indexed_before {
                index.entry(*source).or_insert(*mark);
            }
        } else {
            self.indexed_before.clear();
        }
        match self.filter.apply(&index).await {
            Ok(drifted) => {
                self.indexed = index;
                self.filter_pause.reset();
                if drifted {
                    self.engine.drift.index += 1;
                    self.repaired = Some(Instant::now());
                }
                true
            }
            Err(error) => {
                if matches!(error, FilterError::Foreign) {
                    // Another's table has taken the place of ours.
                    self.indexed.clear();
                }
                self.cannot_index(&error);
                wanted.is_empty()
            }
        }
    }

    /// A mark whose rule the kernel refused leads nowhere: its sources stay as they were.
    fn leave_refused(&self, index: &mut Index) {
        let refused = self.refused.iter();
        let refused = refused.filter_map(|rule| Some((rule.mark?.value, rule.family)));
        let refused: BTreeSet<(u32, Family)> = refused.collect();
        if refused.is_empty() {
            return;
        }
        let before = &self.indexed;
        index.retain(|source, mark| {
            let stays = refused.contains(&(*mark, Family::of(*source)));
            match before.get(source) {
                Some(had) if stays => *mark = *had,
                None if stays => return false,
                Some(_) | None => {}
            }
            true
        });
    }

    /// What is in our table of before, so that it is kept while it is not known what is wanted.
    pub async fn begin_index(&mut self) {
        if !self.engine.options.settings.can_index || !self.filter.is_there() {
            return;
        }
        match self.filter.start().await {
            Ok(index) => {
                self.filter_begun = true;
                self.indexed.clone_from(&index);
                self.indexed_before = index;
            }
            Err(error) => self.cannot_index(&error),
        }
    }

    pub fn indexes(&self) -> bool {
        self.filter_problem.is_none() && self.engine.options.settings.can_index
    }

    pub fn cannot_index(&mut self, error: &FilterError) {
        let pause = self.filter_pause.pause();
        tracing::warn!(%error, ?pause, "sets of sources cannot be indexed; it is tried again");
        self.filter_again = Instant::now() + pause;
        self.filter_problem = Some(Warning::new(
            "packet-filter",
            format!(
                "{error}. It is tried again; meanwhile large sets stay indexed as they were, and small ones are flat rules"
            ),
        ));
    }
}

/// Rules that the kernel lists and does not find when they are to be deleted.
pub(super) fn undeleted(missed: &BTreeSet<Rule>, rules: &[KernelRule]) -> Vec<String> {
    let still = rules
        .iter()
        .filter(|one| one.more.is_none() && missed.contains(&one.rule));
    let still = still.map(|one| {
        format!("{one} was not deleted: the kernel lists it and says that it is not there")
    });
    still.collect()
}

fn told(rules: &[Rule], refused: Refusals) -> Result<Vec<String>, EngineError> {
    let mut all = Vec::new();
    for (index, error) in refused {
        if matches!(
            error.raw_os_error(),
            Some(nix::libc::EPERM | nix::libc::EACCES)
        ) {
            return Err(EngineError::NotAllowed);
        }
        let rule = rules.get(index).map(ToString::to_string);
        let rule = rule.unwrap_or_default();
        all.push(format!("the kernel refuses {rule}: {error}"));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use fipd_core::host::RuleAction;

    use super::*;

    fn rule(priority: u32) -> Rule {
        Rule {
            priority,
            family: Family::V4,
            source: "10.0.0.1/24".parse().ok(),
            destination: None,
            input: None,
            output: None,
            mark: None,
            action: RuleAction::Table(100),
            protocol: 200,
        }
    }

    #[test]
    fn a_rule_that_is_still_listed_was_not_deleted_whatever_the_kernel_answered() {
        let missed = BTreeSet::from([rule(1), rule(2), rule(3)]);
        let more = KernelRule {
            rule: rule(3),
            more: Some("uidrange 0-1".into()),
        };
        let listed = [rule(2).into(), more, rule(4).into()];
        let stay = undeleted(&missed, &listed);
        assert_eq!(stay.len(), 1, "{stay:?}");
        assert!(
            stay[0].contains("was not deleted") && stay[0].contains("10.0.0.1/24"),
            "{stay:?}"
        );
        assert_eq!(undeleted(&missed, &[]), Vec::<String>::new());
    }
}
