//! The stop: with `cleanup-on-stop` nothing of fipd's stays, whatever state the engine was in.

use std::{collections::BTreeSet, fmt, time::Duration};

use fipd_core::host::{Desired, KernelRule, Plan, diff, is_own};
use tokio::time::{Instant, timeout_at};

use super::{
    engine::{Engine, EngineError},
    kernel::Listing,
    lock::Lock,
    nft::TABLE,
    session::Session,
};
use crate::{backoff::Backoff, rules::Reached};

/// For all of it; the daemon waits a little longer.
const DEADLINE: Duration = Duration::from_secs(7);
/// Of that, what the packet filter leaves for the rules.
const RULES: Duration = Duration::from_secs(5);
/// While others change rules, or the session that ended has the lock for a moment.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Times that the lock is tried for, and looks at rules that do not go.
const TRIES: usize = 5;

impl Engine {
    /// Where there is no session.
    pub async fn finish(&mut self) {
        if !self.options.cleanup_on_stop {
            return;
        }
        let protocol = self.protocol();
        let deadline = Instant::now() + DEADLINE;
        match by(deadline, self.begin()).await {
            Ok(mut session) => session.finish_by(deadline).await,
            Err(left) => tracing::error!(
                "rules of protocol {protocol} and the table inet {TABLE} stay as they are although fipd stops: {left}"
            ),
        }
    }

    async fn begin(&mut self) -> Result<Session<'_>, EngineError> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut tries = 1;
        let lock = loop {
            match Lock::take(self.protocol()).await {
                Err(_) if tries < TRIES => tries += 1,
                taken => break taken?,
            }
            tokio::time::sleep(backoff.pause()).await;
        };
        Session::with(self, lock).await
    }
}

impl Session<'_> {
    pub async fn finish(&mut self) {
        if self.engine.options.cleanup_on_stop {
            self.finish_by(Instant::now() + DEADLINE).await;
        }
    }

    async fn finish_by(&mut self, deadline: Instant) {
        match self.clean_up(deadline).await.as_slice() {
            [] => tracing::info!("the rules of fipd were removed at the stop"),
            left => tracing::error!(
                "this of fipd's stays on this host although fipd stops: {}",
                left.join("; ")
            ),
        }
    }

    /// Answers what is left.
    async fn clean_up(&mut self, deadline: Instant) -> Vec<String> {
        let mut left = Vec::new();
        if self.engine.options.settings.can_index {
            match by(deadline - RULES, self.filter.remove()).await {
                Ok(()) => self.indexed.clear(),
                Err(why) => left.push(format!(
                    "the table inet {TABLE} of the packet filter: {why}"
                )),
            }
        }
        let mut rules = Vec::new();
        let done = by(deadline, self.remove_all(&mut rules)).await;
        left.extend(told(&rules, done.err()));
        if let Some(warning) = self.engine.notes.warning() {
            let text = warning.text;
            left.push(format!(
                "rules of an earlier rule-protocol, if there are: {text}"
            ));
        }
        left
    }

    /// Until there is none, or they do not go; `left` are those that the last look found.
    async fn remove_all(&mut self, left: &mut Vec<KernelRule>) -> Result<(), EngineError> {
        let protocol = self.engine.protocol();
        let nothing = BTreeSet::new();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut tries = 0;
        loop {
            let listing = self.kernel.list().await?;
            let plan = diff(&nothing, &listing.rules, protocol);
            let before = std::mem::replace(left, self.of_fipd(&listing));
            tries = if *left == before { tries + 1 } else { 0 };
            if listing.quiet {
                self.tell_rest(&plan);
                if left.is_empty() {
                    self.engine.notes.keep(&nothing).await;
                    return Ok(());
                }
                if tries == TRIES {
                    return Ok(());
                }
                self.remove(&plan.removals).await?;
                self.remove_old_tags(&listing).await?;
            }
            tokio::time::sleep(backoff.pause()).await;
        }
    }

    /// Those of the tag, and of other tags exactly those that are journaled.
    fn of_fipd(&self, listing: &Listing) -> Vec<KernelRule> {
        let protocol = self.engine.protocol();
        let noted = self.engine.notes.rules_but(protocol);
        let is_noted = |one: &KernelRule| one.more.is_none() && noted.contains(&one.rule);
        let all = listing.rules.iter();
        let all = all.filter(|one| is_own(one, protocol) || is_noted(one));
        all.cloned().collect()
    }

    fn tell_rest(&self, plan: &Plan) {
        let (board, none) = (&self.engine.board, Desired::default());
        board.reach(Reached {
            flushed: true,
            ..Reached::of(board.wanted().revision, &none, plan, &self.indexed)
        });
    }
}

fn late() -> String {
    format!("it takes longer than {} s", DEADLINE.as_secs())
}

/// What comes of this by then, or why nothing.
async fn by<T, E: fmt::Display>(
    deadline: Instant,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout_at(deadline, work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(late()),
    }
}

/// What is said of these rules, if there are any or it is not known.
fn told(rules: &[KernelRule], why: Option<String>) -> Option<String> {
    match (rules.first(), why) {
        (None, None) => None,
        (None, Some(why)) => Some(format!("rules: {why}")),
        (Some(first), why) => {
            let why =
                why.unwrap_or_else(|| "the kernel would take others in their place".to_owned());
            Some(format!("{} rules, such as {first}: {why}", rules.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fipd_core::{
        Family,
        host::{Rule, RuleAction},
    };

    #[test]
    fn what_is_left_is_told_with_an_example_and_the_reason() {
        let rule = KernelRule::from(Rule {
            priority: 10_000,
            family: Family::V4,
            source: None,
            destination: None,
            input: None,
            output: None,
            mark: None,
            action: RuleAction::Table(100),
            protocol: 200,
        });
        assert_eq!(told(&[], None), None);
        let unknown = told(&[], Some(late())).unwrap();
        assert_eq!(unknown, "rules: it takes longer than 7 s");
        let two = [rule.clone(), rule];
        let text = told(&two, Some(late())).unwrap();
        let expected = "2 rules, such as 10000: from all lookup 100 proto 200: it takes longer";
        assert!(text.starts_with(expected), "{text}");
        assert!(told(&two, None).unwrap().contains("others in their place"));
    }
}
