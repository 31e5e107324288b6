//! What an admin has the engine do.

use std::collections::BTreeSet;

use fipd_core::{
    Family,
    host::{KernelRule, Rule, diff, is_own},
};
use netlink_packet_route::rule::RuleMessage;

use super::{engine::Problem, message, session::Session};
use crate::rules::{Command, CommandError, Ordered};

/// `RTPROT_KERNEL`.
const KERNEL: u8 = 2;
/// `RTPROT_UNSPEC`: a request with it takes rules of any tag.
const UNTAGGED: u8 = 0;
/// Deletions on the way to one rule.
const MOST: usize = 8;

/// Why a command was not done, and whether the session goes on.
enum Failure {
    Refused(CommandError),
    Ended(Problem),
}

impl<P: Into<Problem>> From<P> for Failure {
    fn from(problem: P) -> Self {
        Self::Ended(problem.into())
    }
}

fn refused(text: String) -> Failure {
    Failure::Refused(CommandError::Kernel(text))
}

type Answer = Result<Vec<KernelRule>, Failure>;

impl Session<'_> {
    /// Does it and answers; then looks at the kernel anew.
    pub async fn obey(&mut self, order: Ordered) -> Result<(), Problem> {
        tracing::info!(command = ?order.command, "a command about the rules of this host");
        let answer = match order.command {
            Command::Flush { dry_run } => self.flush(dry_run).await,
            Command::Resume => self.resume().await,
            Command::PruneForeign {
                table,
                priorities,
                confirmed,
            } => self.prune(table, priorities, confirmed).await,
            Command::AdoptUntagged { rules, dry_run } => self.adopt(&rules, dry_run).await,
        };
        let (answer, ended) = match answer {
            Ok(rules) => (Ok(rules), Ok(())),
            Err(Failure::Refused(error)) => (Err(error), Ok(())),
            Err(Failure::Ended(problem)) => {
                let told = CommandError::Degraded(problem.to_string());
                (Err(told), Err(problem))
            }
        };
        // Whoever asked may be gone.
        let _ = order.answer.send(answer);
        ended
    }

    async fn flush(&mut self, dry_run: bool) -> Answer {
        let protocol = self.engine.protocol();
        let listing = self.kernel.list().await?;
        let own = listing
            .rules
            .into_iter()
            .filter(|one| is_own(one, protocol));
        let own: Vec<KernelRule> = own.collect();
        if !dry_run {
            self.pause(true).await?;
            self.engine.left = None;
            self.pass().await?;
        }
        Ok(own)
    }

    async fn resume(&mut self) -> Answer {
        self.pause(false).await?;
        self.engine.left = None;
        self.pass().await?;
        Ok(Vec::new())
    }

    async fn pause(&mut self, paused: bool) -> Result<(), Problem> {
        let path = self.engine.options.journal.clone();
        let noted = self.journal.pause(paused).await;
        noted.map_err(|error| Problem::Journal(path, error))?;
        self.paused = paused;
        Ok(())
    }

    /// Rules of others that ask this table. Whatever the kernel may take for one of them is one of them, too: it asks the
    /// same table with the same priority and tag.
    async fn prune(
        &mut self,
        table: u32,
        priorities: Option<(u32, u32)>,
        confirmed: Option<Vec<String>>,
    ) -> Answer {
        let protocol = self.engine.protocol();
        let (first, last) = priorities.unwrap_or((0, u32::MAX));
        let mut victims = Vec::new();
        for family in [Family::V4, Family::V6] {
            let rules = self.kernel.requests.rules_whole(family).await?;
            victims.extend(rules.into_iter().filter(|(one, _)| {
                let rule = &one.rule;
                let foreign = rule.protocol != protocol && rule.protocol != KERNEL;
                let asks = rule.action == fipd_core::host::RuleAction::Table(table);
                foreign && asks && (first..=last).contains(&rule.priority)
            }));
        }
        let shown: Vec<KernelRule> = victims.iter().map(|(rule, _)| rule.clone()).collect();
        let Some(confirmed) = confirmed else {
            return Ok(shown);
        };
        if !shown.iter().map(ToString::to_string).eq(confirmed) {
            return Err(Failure::Refused(CommandError::Changed));
        }
        for (rule, whole) in victims {
            match rule.rule.protocol {
                UNTAGGED => self.delete_untagged(&rule, whole).await?,
                _ => self.delete_like(&rule, whole).await?,
            }
        }
        self.pass().await?;
        Ok(shown)
    }

    async fn delete_like(&mut self, rule: &KernelRule, whole: RuleMessage) -> Result<(), Failure> {
        match self.kernel.requests.delete_like(whole).await? {
            Some(error) if error.raw_os_error() == Some(nix::libc::EPERM) => {
                Err(Problem::NotAllowed.into())
            }
            Some(error) if error.raw_os_error() != Some(nix::libc::ENOENT) => {
                Err(refused(format!("{rule} was not deleted: {error}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A request for a rule without tag takes the first that is like it, whatever its tag. An own twin that is before it is
    /// added once more, behind it.
    async fn delete_untagged(
        &mut self,
        victim: &KernelRule,
        whole: RuleMessage,
    ) -> Result<(), Failure> {
        let protocol = self.engine.protocol();
        for _ in 0..MOST {
            let listing = self.kernel.list().await?;
            if !listing.quiet {
                return Err(refused(
                    "others change rules right now; try again".to_owned(),
                ));
            }
            if !listing.rules.contains(victim) {
                return Ok(());
            }
            let hit = listing.rules.iter().find(|one| may_take(&victim.rule, one));
            match hit {
                Some(hit) if hit == victim => return self.delete_like(victim, whole).await,
                Some(hit) if is_own(hit, protocol) => {
                    let twin = hit.rule.clone();
                    let not_added = self.add(std::slice::from_ref(&twin)).await?;
                    if let Some(why) = not_added.into_iter().next() {
                        return Err(refused(why));
                    }
                    self.delete_like(victim, whole.clone()).await?;
                }
                Some(hit) => {
                    return Err(refused(format!(
                        "{victim} was not deleted: the kernel would take {hit} in its place"
                    )));
                }
                None => return Ok(()),
            }
        }
        Err(refused(format!(
            "{victim} was not deleted: others are always before it"
        )))
    }

    /// Own twins first, then the rules without tag.
    async fn adopt(&mut self, rules: &[Rule], dry_run: bool) -> Answer {
        let protocol = self.engine.protocol();
        let listing = self.kernel.list().await?;
        let known: BTreeSet<Rule> = rules.iter().map(|rule| tagged(rule, UNTAGGED)).collect();
        let victims = listing.rules.iter();
        let victims = victims.filter(|one| one.more.is_none() && known.contains(&one.rule));
        let victims: Vec<KernelRule> = victims.cloned().collect();
        if dry_run || victims.is_empty() {
            return Ok(victims);
        }
        let twins: BTreeSet<Rule> = victims
            .iter()
            .map(|one| tagged(&one.rule, protocol))
            .collect();
        let own = listing.rules.iter().filter(|one| is_own(one, protocol));
        let mut stay: BTreeSet<Rule> = own.map(|one| one.rule.clone()).collect();
        // Those that they are for may be silent.
        if let Some(unclaimed) = &mut self.unclaimed {
            unclaimed.keep(twins.iter().cloned());
        }
        stay.extend(twins);
        let adds = diff(&stay, &listing.rules, protocol).adds;
        if let Some(why) = self.add(&adds).await?.into_iter().next() {
            return Err(refused(format!("{why}; nothing was removed")));
        }
        for victim in &victims {
            self.delete_untagged(victim, message::write(&victim.rule))
                .await?;
        }
        self.engine.left = None;
        self.pass().await?;
        Ok(victims)
    }
}

fn tagged(rule: &Rule, protocol: u8) -> Rule {
    Rule {
        protocol,
        ..rule.clone()
    }
}

/// Whether a request without tag that says all of `rule` may take this one: what it does not say may be anything.
fn may_take(rule: &Rule, one: &KernelRule) -> bool {
    fn said<T: PartialEq>(rule: &Option<T>, one: &Option<T>) -> bool {
        rule.is_none() || rule == one
    }
    let other = &one.rule;
    rule.family == other.family
        && rule.priority == other.priority
        && rule.action == other.action
        && said(&rule.source, &other.source)
        && said(&rule.destination, &other.destination)
        && said(&rule.input, &other.input)
        && said(&rule.output, &other.output)
        && said(&rule.mark, &other.mark)
}
