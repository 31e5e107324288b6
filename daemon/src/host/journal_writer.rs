//! The journal, or that it cannot be used for now.
//!
//! Rules are kept without it, too, and nothing waits for it longer than a moment. What is missing then is what tells leftovers
//! from rules that somebody wants who did not speak yet: only what was added in this life is removed.

use std::{collections::BTreeSet, future::Future, path::PathBuf, time::Duration};

use fipd_core::host::{Places, Rule};
use tokio::time::Instant;

use super::journal::{Journal, JournalError, Remembered, Wishes};
use crate::{backoff::Backoff, rules::Warning};

/// For one write, on a disk that does not answer.
const DEADLINE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct Notes {
    path: PathBuf,
    journal: Option<Journal>,
    /// Why there is none, as it was told.
    problem: Option<String>,
    backoff: Backoff,
    /// When it was opened last.
    opened: Instant,
    /// When it is opened next.
    again: Instant,
    /// What an admin said in this life.
    paused: Option<bool>,
}

impl Notes {
    /// Not opened yet.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            journal: None,
            problem: None,
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            opened: Instant::now(),
            again: Instant::now(),
            paused: None,
        }
    }

    /// Opens it if it is time to. `None`: it was open before, or is not now.
    pub async fn open(&mut self) -> Option<Remembered> {
        if self.journal.is_some() || Instant::now() < self.again {
            return None;
        }
        let path = self.path.clone();
        let opening = tokio::task::spawn_blocking(move || Journal::open(&path));
        let opened = in_time(async { opening.await.map_err(|_| JournalError::Ended)? }).await;
        let (journal, mut found) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.fail(&error);
                return None;
            }
        };
        self.journal = Some(journal);
        self.opened = Instant::now();
        if let Some(said) = self.paused {
            found.paused = said;
            self.note_pause(said).await;
        }
        if self.journal.is_some() && self.problem.take().is_some() {
            tracing::info!(journal = %self.path.display(), "the journal of rules can be used again");
        }
        Some(found)
    }

    pub fn is_open(&self) -> bool {
        self.journal.is_some()
    }

    /// When it is to be opened again.
    pub fn due(&self) -> Option<Instant> {
        self.journal.is_none().then_some(self.again)
    }

    pub fn warning(&self) -> Option<Warning> {
        let text = self.problem.clone()?;
        Some(Warning::new("journal", text))
    }

    /// See [`Journal::wish`].
    pub async fn wish(&mut self, wishes: &Wishes) {
        if let Some(journal) = &mut self.journal {
            let done = in_time(journal.wish(wishes)).await;
            self.check(done);
        }
    }

    /// See [`Journal::intend`].
    pub async fn intend(&mut self, rules: &[Rule]) {
        if let Some(journal) = &mut self.journal {
            let done = in_time(journal.intend(rules)).await;
            self.check(done);
        }
    }

    /// See [`Journal::keep`].
    pub async fn keep(&mut self, rules: &BTreeSet<Rule>) {
        if let Some(journal) = &mut self.journal {
            let done = in_time(journal.keep(rules)).await;
            self.check(done);
        }
    }

    /// See [`Journal::place`]. What is not written down would be forgotten at the next restart.
    pub async fn place(&mut self, places: &Places) -> Result<(), String> {
        if let Some(journal) = &mut self.journal {
            let done = in_time(journal.place(places)).await;
            self.check(done);
        }
        match (&self.journal, &self.problem) {
            (Some(_), _) => Ok(()),
            (None, Some(problem)) => Err(problem.clone()),
            (None, None) => Err("the journal of rules is not open yet".to_owned()),
        }
    }

    async fn note_pause(&mut self, paused: bool) {
        if let Some(journal) = &mut self.journal {
            let done = in_time(journal.pause(paused)).await;
            self.check(done);
        }
    }

    /// Closes it if that failed: what the file has is not known then.
    fn check(&mut self, done: Result<(), JournalError>) {
        if let Err(error) = done {
            self.journal = None;
            // Soon after it was opened it is the same trouble still.
            if self.opened.elapsed() > LONGEST_PAUSE {
                self.backoff.reset();
            }
            self.fail(&error);
        }
    }

    /// See [`Journal::rules`]; none while it cannot be used.
    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.journal.iter().flat_map(Journal::rules)
    }

    /// Those of these rules.
    pub fn tags(&self) -> BTreeSet<u8> {
        self.rules().map(|rule| rule.protocol).collect()
    }

    /// Rules of earlier tags.
    pub fn rules_but(&self, protocol: u8) -> BTreeSet<Rule> {
        let rules = self.rules().filter(|rule| rule.protocol != protocol);
        rules.cloned().collect()
    }

    /// Notes what an admin said. A pause that would end with the next restart is refused; the end of one is not.
    pub async fn pause(&mut self, paused: bool) -> Result<(), String> {
        self.note_pause(paused).await;
        match &self.problem {
            Some(problem) if paused => Err(format!("nothing was removed: {problem}")),
            Some(_) | None => {
                self.paused = Some(paused);
                Ok(())
            }
        }
    }

    fn fail(&mut self, error: &JournalError) {
        self.again = Instant::now() + self.backoff.pause();
        let text = format!(
            "the journal of rules {} cannot be used: {error}. Rules are added and repaired meanwhile, but of those that are not \
             wanted only such as were added since fipd was started are removed. It is tried again: make room, or remove a file \
             that is damaged",
            self.path.display()
        );
        if self.problem.as_ref() != Some(&text) {
            tracing::warn!("{text}");
        }
        self.problem = Some(text);
    }
}

async fn in_time<T>(
    work: impl Future<Output = Result<T, JournalError>>,
) -> Result<T, JournalError> {
    let done = tokio::time::timeout(DEADLINE, work).await;
    done.map_err(|_| JournalError::Late(DEADLINE.as_secs()))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use fipd_core::{Family, host::RuleAction};

    fn rule() -> Rule {
        Rule {
            priority: 10_000,
            family: Family::V4,
            source: None,
            destination: None,
            input: None,
            output: None,
            mark: None,
            action: RuleAction::Table(100),
            protocol: 200,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_damaged_is_told_and_tried_again_until_it_can_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.redb");
        std::fs::write(&path, [7; 5000]).unwrap();
        let mut notes = Notes::new(path.clone());
        assert_eq!(notes.warning(), None);
        assert_eq!(notes.open().await, None);
        let warning = notes.warning().unwrap();
        assert!(warning.text.contains("rules.redb") && warning.text.contains("tried again"));
        notes.intend(&[rule()]).await;
        assert!(notes.rules().next().is_none() && !notes.is_open());
        let refused = notes.pause(true).await.unwrap_err();
        assert!(refused.contains("nothing was removed"), "{refused}");
        notes.pause(false).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(notes.open().await, None, "not at once");
        tokio::time::sleep_until(notes.due().unwrap()).await;
        assert_eq!(notes.open().await, Some(Remembered::default()));
        assert!(notes.is_open() && notes.warning().is_none() && notes.due().is_none());
        notes.intend(&[rule()]).await;
        assert!(notes.rules().eq([&rule()]));
    }

    #[tokio::test]
    async fn what_an_admin_said_meanwhile_counts_more_than_what_the_file_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.redb");
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.pause(true).await.unwrap();
        let mut notes = Notes::new(path.clone());
        assert_eq!(notes.open().await, None, "another has it open");
        notes.pause(false).await.unwrap();
        drop(journal);
        tokio::time::sleep_until(notes.due().unwrap()).await;
        assert!(!notes.open().await.unwrap().paused);
        drop(notes);
        let (_, found) = Journal::open(&path).unwrap();
        assert!(!found.paused, "and is in it from then on");
    }
}
