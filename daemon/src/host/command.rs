//! What an admin has the engine do.

use std::collections::BTreeSet;

use fipd_core::{
    Family,
    host::{
        Here, KERNEL, KernelRule, Rule, Takeover, UNTAGGED, asked, diff, is_own, own_rules,
        take_over,
    },
};
use netlink_packet_route::rule::RuleMessage;

use super::{engine::EngineError, message, removal, session::Session};
use crate::rules::{Command, CommandError, Ordered};

/// Rules of others that go by one list.
const PART: usize = 512;
/// Tables that the kernel makes itself (`RT_TABLE_DEFAULT` to `RT_TABLE_LOCAL`): a rule for all packets that asks one of them
/// is the way of everything, whoever made it.
const BUILT_IN: std::ops::RangeInclusive<u32> = 253..=255;

/// Why a command was not done, and whether the session goes on.
enum FailedCommand {
    Refused(CommandError),
    Ended(EngineError),
}

impl<P: Into<EngineError>> From<P> for FailedCommand {
    fn from(problem: P) -> Self {
        Self::Ended(problem.into())
    }
}

fn refused(text: String) -> FailedCommand {
    FailedCommand::Refused(CommandError::Kernel(text))
}

type Answer = Result<Vec<KernelRule>, FailedCommand>;

impl Session<'_> {
    /// Does it and answers; then looks at the kernel anew.
    pub async fn obey(&mut self, order: Ordered) -> Result<(), EngineError> {
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
            Err(FailedCommand::Refused(error)) => (Err(error), Ok(())),
            Err(FailedCommand::Ended(problem)) => {
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
        if dry_run {
            return Ok(own);
        }
        self.pause(true).await?;
        self.engine.left = None;
        self.pass().await?;
        // What is left, as others change rules right now, goes in a later pass.
        let listing = self.kernel.list().await?;
        Ok(removal::gone(&own, &listing.rules))
    }

    async fn resume(&mut self) -> Answer {
        self.pause(false).await?;
        self.engine.left = None;
        self.pass().await?;
        Ok(Vec::new())
    }

    async fn pause(&mut self, paused: bool) -> Result<(), FailedCommand> {
        let noted = self.engine.notes.pause(paused).await;
        noted.map_err(|why| FailedCommand::Refused(CommandError::Degraded(why)))?;
        self.engine.paused = paused;
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
                let asks = rule.action.table() == Some(table);
                let way = is_for_all(one) && BUILT_IN.contains(&table);
                foreign && asks && !way && (first..=last).contains(&rule.priority)
            }));
        }
        let shown: Vec<KernelRule> = victims.iter().map(|(rule, _)| rule.clone()).collect();
        let Some(confirmed) = confirmed else {
            return Ok(shown);
        };
        if !shown.iter().map(ToString::to_string).eq(confirmed) {
            return Err(FailedCommand::Refused(CommandError::Changed));
        }
        let gone = self.remove_foreign(victims).await?;
        self.pass().await?;
        Ok(gone)
    }

    /// Removes these and nothing else, some by each list. Answers those that are gone.
    async fn remove_foreign(&mut self, victims: Vec<(KernelRule, RuleMessage)>) -> Answer {
        let mut gone = Vec::new();
        for part in victims.chunks(PART) {
            let removed = self.remove_part(part).await;
            if let Err(FailedCommand::Refused(why)) = removed {
                let count = gone.len();
                return Err(refused(format!("{why}; {count} rules were removed before")));
            }
            gone.extend(removed?);
        }
        Ok(gone)
    }

    async fn remove_part(&mut self, part: &[(KernelRule, RuleMessage)]) -> Answer {
        let listing = self.kernel.list().await?;
        if !listing.quiet {
            return Err(refused(
                "others change rules right now; try again".to_owned(),
            ));
        }
        let rules: Vec<KernelRule> = part.iter().map(|(rule, _)| rule.clone()).collect();
        let plan = removal::plan(&rules, &listing.rules, self.engine.protocol());
        if let Some(why) = self.add(&plan.adds).await?.into_iter().next() {
            return Err(refused(why));
        }
        let messages = plan.requests.iter().filter_map(|index| part.get(*index));
        let messages: Vec<_> = messages.map(|(_, whole)| whole.clone()).collect();
        let answers = self.kernel.requests.delete_whole(messages).await?;
        let error = |number: i32| {
            let mut errors = answers.iter().map(|(_, error)| error.raw_os_error());
            errors.any(|one| one == Some(number))
        };
        if error(nix::libc::EPERM) {
            return Err(EngineError::NotAllowed.into());
        }
        let after = self.kernel.list().await?;
        let gone = removal::gone(&rules, &after.rules);
        let others = answers.iter().map(|(_, error)| error);
        let others = others.filter(|error| error.raw_os_error() != Some(nix::libc::ENOENT));
        let why = plan.refused.into_iter().next();
        match why.or_else(|| others.map(ToString::to_string).next()) {
            Some(why) => Err(refused(format!(
                "{why}; {} others of this part are gone",
                gone.len()
            ))),
            None => Ok(gone),
        }
    }

    /// The own rules first, then the rules without tag. Those stay without which packets would take another table.
    async fn adopt(&mut self, rules: &[Rule], dry_run: bool) -> Answer {
        if self.engine.paused {
            return Err(refused("the rules of this host are paused".to_owned()));
        }
        let protocol = self.engine.protocol();
        let listing = self.kernel.list().await?;
        let known: BTreeSet<Rule> = rules.iter().map(|rule| tagged(rule, UNTAGGED)).collect();
        let victims = listing.rules.iter();
        let victims = victims.filter(|one| one.more.is_none() && known.contains(&one.rule));
        let mut victims: Vec<KernelRule> = victims.cloned().collect();
        let plan = self.plan_takeover(&victims, &listing.rules);
        victims.retain(|one| plan.taken.contains_key(&one.rule));
        if dry_run || victims.is_empty() {
            return Ok(victims);
        }
        self.keep_places(&plan).await?;
        let own = plan.taken.iter().map(|(rule, priority)| Rule {
            priority: *priority,
            ..tagged(rule, protocol)
        });
        let twins: BTreeSet<Rule> = own.collect();
        let mut stay = own_rules(&listing.rules, protocol);
        // Those that they are for may be silent.
        if let Some(unclaimed) = &mut self.unclaimed {
            unclaimed.keep(twins.iter().cloned());
        }
        stay.extend(twins);
        let adds = diff(&stay, &listing.rules, protocol).adds;
        if let Some(why) = self.add(&adds).await?.into_iter().next() {
            return Err(refused(format!("{why}; nothing was removed")));
        }
        let whole = victims.into_iter().map(|victim| {
            let message = message::write(&victim.rule);
            (victim, message)
        });
        let gone = self.remove_foreign(whole.collect()).await?;
        self.engine.left = None;
        self.settled = None;
        self.pass().await?;
        Ok(gone)
    }

    fn plan_takeover(&self, victims: &[KernelRule], list: &[KernelRule]) -> Takeover {
        let wanted = self.engine.board.wanted();
        let here = Here {
            list,
            asked: &asked(wanted.sets()),
            places: &self.engine.places,
            protocol: self.engine.protocol(),
            band: *self.engine.options.settings.band.start(),
        };
        let victims = victims.iter().map(|one| one.rule.clone());
        take_over(&victims.collect(), &here)
    }

    /// Writes the new places down, so that they last over a restart of the host.
    async fn keep_places(&mut self, plan: &Takeover) -> Result<(), FailedCommand> {
        if plan.places.is_empty() {
            return Ok(());
        }
        let before = self.engine.places.clone();
        self.engine.places.extend(&plan.places);
        let noted = self.engine.notes.place(&self.engine.places).await;
        noted.map_err(|why| {
            self.engine.places = before;
            refused(format!("{why}; nothing was removed"))
        })
    }
}

fn tagged(rule: &Rule, protocol: u8) -> Rule {
    Rule {
        protocol,
        ..rule.clone()
    }
}

/// Whether it is about every packet.
fn is_for_all(one: &KernelRule) -> bool {
    one.more.is_none() && one.rule.source.is_none() && one.rule.is_by_source()
}
