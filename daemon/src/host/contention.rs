//! Another program that removes a rule as often as it is put back.

use std::{collections::BTreeMap, time::Duration};

use fipd_core::host::Rule;
use tokio::time::Instant;

use crate::{backoff::Backoff, rules::Warning};

/// Times within [`WINDOW`] that a rule is put back at once.
const MOST: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);
/// How long it is left alone then.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// It is over when nothing was removed for so long.
const OVER: Duration = Duration::from_secs(60);
/// Rules that are watched at a time; a fight over more is one over these.
const WATCHED: usize = 1_000;

pub(super) struct Contention {
    /// Since when, and how often since.
    heals: BTreeMap<Rule, (Instant, u32)>,
    backoff: Backoff,
    fight: Option<Fight>,
}

struct Fight {
    until: Instant,
    warning: Warning,
}

impl Contention {
    pub fn new() -> Self {
        Self {
            heals: BTreeMap::new(),
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            fight: None,
        }
    }

    /// Another program removes or adds these, which is repaired.
    pub fn repaired(&mut self, rules: &[&Rule], does: &str, now: Instant) {
        self.heals.retain(|_, (since, _)| now - *since < WINDOW);
        let mut fought = None;
        for rule in rules.iter().take(WATCHED).copied() {
            let (_, count) = self.heals.entry(rule.clone()).or_insert((now, 0));
            *count += 1;
            if *count >= MOST {
                fought = Some(rule);
            }
        }
        let over = |fight: &Fight| now.saturating_duration_since(fight.until) > OVER;
        if self.fight.as_ref().is_some_and(over) {
            self.fight = None;
            self.backoff.reset();
        }
        if let Some(rule) = fought {
            let text = format!(
                "another program {does} rules of protocol {} as soon as that is repaired, such as {rule}; it is repaired less \
                 often until that program is told to leave that protocol to fipd",
                rule.protocol
            );
            tracing::warn!("{text}");
            self.fight = Some(Fight {
                until: now + self.backoff.pause(),
                warning: Warning::new("fight", text),
            });
            self.heals.clear();
        }
    }

    /// Nothing is put back before.
    pub fn until(&self) -> Option<Instant> {
        self.fight.as_ref().map(|fight| fight.until)
    }

    pub fn warning(&self, now: Instant) -> Option<&Warning> {
        let lasting = |fight: &&Fight| now.saturating_duration_since(fight.until) <= OVER;
        let fight = self.fight.as_ref().filter(lasting);
        fight.map(|fight| &fight.warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fipd_core::{Family, host::RuleAction};

    fn rule(priority: u32) -> Rule {
        Rule {
            priority,
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

    #[test]
    fn a_rule_that_is_removed_again_and_again_is_left_alone_for_longer_and_longer() {
        let mut contention = Contention::new();
        let mut now = Instant::now();
        let tick = Duration::from_millis(20);
        for _ in 1..MOST {
            now += tick;
            contention.repaired(&[&rule(1)], "removes", now);
        }
        assert_eq!(contention.until(), None, "often, but not too often");
        contention.repaired(&[&rule(2)], "removes", now);
        assert_eq!(contention.until(), None, "another rule");
        contention.repaired(&[&rule(1)], "removes", now);
        let until = contention.until().unwrap();
        assert!(until > now && until <= now + FIRST_PAUSE);
        assert!(contention.warning(now).unwrap().text.contains("proto 200"));
        now += OVER * 3;
        assert_eq!(contention.warning(now), None);
        for _ in 0..MOST {
            now += WINDOW;
            contention.repaired(&[&rule(1)], "removes", now);
        }
        assert_eq!(contention.until(), None, "once a second is no fight");
    }
}
