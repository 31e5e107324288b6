//! A session with the kernel: it converges, and waits for something to happen.

use std::{borrow::Cow, collections::BTreeSet, io, sync::Arc, time::Duration};

use fipd_core::{
    Text,
    host::{
        Desired, HostSettings, Marks, Plan, Rule, RuleSet, Step, Unclaimed, desired, diff, is_own,
        marks_of,
    },
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    engine::{Engine, Problem},
    events::News,
    filter::{Filter, FilterError},
    journal::{Journal, JournalError, Wishes},
    kernel::{Kernel, Listing},
    links,
    lock::Lock,
    nft::Index,
    preflight,
};
use crate::{
    clock,
    clusters::backoff::{Backoff, jittered},
    metrics::rules as figures,
    rules::{EngineState, Ordered, Reached, Warning},
};

/// The least between two passes.
const SOON: Duration = Duration::from_millis(3);
/// What others do to their own rules, and links, are looked at together.
const CALM: Duration = Duration::from_millis(100);
/// While others change rules all the time, removals wait.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Between two repairs of the table of the packet filter, each of which runs `nft`.
const MENDED: Duration = Duration::from_millis(500);
/// For the last removals at the stop; the daemon waits a little longer.
const FINISH: Duration = Duration::from_secs(7);

pub(super) struct Session<'a> {
    pub engine: &'a mut Engine,
    pub kernel: Kernel,
    pub journal: Journal,
    pub paused: bool,
    filter: Filter,
    /// Why sets are not indexed.
    filter_problem: Option<Warning>,
    /// Sources that were indexed before the restart, and that nobody is known to have wanted.
    indexed_before: Index,
    /// Those that the packet filter knows, as far as is known.
    indexed: Index,
    remembered: Wishes,
    /// `None`: there was no whole list yet.
    pub unclaimed: Option<Unclaimed>,
    marks: Option<Marks>,
    /// `None`: not looked for yet.
    preflight: Option<Vec<Warning>>,
    unquiet: Backoff,
    /// Removals are still to be done.
    unfinished: bool,
    wanted: bool,
    passed: Instant,
    /// When everything was last looked at, whatever was heard.
    resynced: Instant,
    resync: Duration,
    /// When the table of the packet filter was last found changed by others.
    mended: Option<Instant>,
    _lock: Lock,
}

enum Woken {
    Stop,
    Order(Ordered),
    Due,
    News(io::Result<News>),
    Wanted,
    Filter,
}

/// How the kernel is after a pass.
struct Outcome {
    desired: Desired,
    listing: Listing,
    plan: Plan,
    /// `None`: others changed rules all the time, so that nothing can be said.
    reached: Option<Reached>,
    missing: Vec<Text>,
    refused: Vec<String>,
}

impl<'a> Session<'a> {
    pub async fn start(engine: &'a mut Engine) -> Result<Self, Problem> {
        let lock = Lock::take(engine.protocol()).await?;
        let path = engine.options.journal.clone();
        let opened = tokio::task::spawn_blocking(move || Journal::open(&path)).await;
        let opened = opened.unwrap_or(Err(JournalError::Ended));
        let path = || engine.options.journal.clone();
        let (journal, remembered) = opened.map_err(|error| Problem::Journal(path(), error))?;
        if let Some(prefix) = engine.options.found_later.take() {
            let before = remembered.wishes.keys();
            let before = before.filter(|who| who.starts_with(prefix));
            engine.board.expect_also(&before.map(Text::clone).collect());
        }
        let kernel = Kernel::open(engine.protocol())?;
        let settings = &engine.options.settings;
        let tags = remembered.rules.iter().map(|rule| rule.protocol);
        let tags: BTreeSet<u8> = tags.collect();
        let nft = engine.options.nft.as_deref();
        let tags = tags.into_iter().collect();
        let mut filter = Filter::new(nft, settings.protocol, settings.mark_mask, tags);
        let started = match settings.can_index && filter.is_there() {
            true => filter.start().await,
            false => Ok(Index::new()),
        };
        let resync = engine.options.resync;
        let mut session = Self {
            engine,
            kernel,
            journal,
            paused: remembered.paused,
            filter,
            filter_problem: None,
            indexed_before: Index::new(),
            indexed: Index::new(),
            remembered: remembered.wishes,
            unclaimed: None,
            marks: None,
            preflight: None,
            unquiet: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            unfinished: false,
            wanted: false,
            passed: Instant::now(),
            resynced: Instant::now(),
            resync,
            mended: None,
            _lock: lock,
        };
        match started {
            Ok(index) => {
                session.indexed.clone_from(&index);
                session.indexed_before = index;
            }
            Err(error) => session.cannot_index(&error),
        }
        // The VRFs are to be known.
        session.kernel.news.links = true;
        Ok(session)
    }

    /// Until `stop`, or a problem.
    pub async fn serve(
        &mut self,
        orders: &mut mpsc::Receiver<Ordered>,
        stop: &CancellationToken,
        backoff: &mut Backoff,
    ) -> Result<(), Problem> {
        let mut changes = self.engine.board.changes();
        loop {
            changes.borrow_and_update();
            self.pass().await?;
            backoff.reset();
            loop {
                let due = self.due();
                let woken = tokio::select! {
                    biased;
                    () = stop.cancelled() => Woken::Stop,
                    Some(order) = orders.recv() => Woken::Order(order),
                    () = tokio::time::sleep_until(due) => Woken::Due,
                    news = self.kernel.events.next() => Woken::News(news),
                    Ok(()) = changes.changed() => Woken::Wanted,
                    () = self.filter.changed() => Woken::Filter,
                };
                match woken {
                    Woken::Stop => return self.finish().await,
                    Woken::Order(order) => self.obey(order).await?,
                    Woken::Due => break,
                    Woken::News(news) => self.kernel.news.add(news?),
                    Woken::Wanted => self.wanted = true,
                    Woken::Filter => self.filter.doubt(),
                }
            }
        }
    }

    /// When the next pass is.
    fn due(&mut self) -> Instant {
        let mut due = self.resynced + self.resync;
        let news = self.kernel.news;
        if self.wanted {
            due = due.min(self.passed + SOON);
        }
        if self.indexes() && self.filter.is_doubted() {
            let soon = self.passed + SOON;
            due = due.min(self.mended.map_or(soon, |mended| soon.max(mended + MENDED)));
        }
        if news.tagged || news.overrun {
            let soon = self.passed + SOON;
            let fight = self.engine.fights.until();
            due = due.min(fight.map_or(soon, |until| soon.max(until)));
        }
        if news.foreign || news.links {
            due = due.min(self.passed + CALM);
        }
        if self.unfinished {
            due = due.min(self.passed + self.unquiet.clone().pause());
        }
        due
    }

    /// Brings the kernel to what is wanted, and shows how it is.
    pub async fn pass(&mut self) -> Result<(), Problem> {
        let began = Instant::now();
        let resync = self.resynced.elapsed() >= self.resync;
        let news = std::mem::take(&mut self.kernel.news);
        self.engine.drift.overruns += u64::from(news.overrun);
        if resync {
            self.filter_problem = None;
            self.filter.doubt();
            self.resynced = Instant::now();
            self.resync = jittered(self.engine.options.resync);
        }
        if news.links || resync {
            self.read_links().await?;
        }
        let check = self.wanted || news.links || resync || self.preflight.is_none();
        self.wanted = false;
        let outcome = self.converge().await?;
        if check {
            let vrfs = self.engine.board.view().vrfs.clone();
            let vrfs = vrfs.is_some_and(|vrfs| !vrfs.is_empty());
            self.preflight = Some(preflight::warnings(&outcome.desired, vrfs).await);
        }
        let sources = outcome.desired.owners.len();
        self.conclude(outcome);
        self.passed = Instant::now();
        figures::passed(sources, self.passed - began);
        Ok(())
    }

    async fn read_links(&mut self) -> Result<(), Problem> {
        let vrfs = links::vrfs(&mut self.kernel.requests).await?;
        if self.engine.board.view().vrfs.as_deref() != Some(&vrfs) {
            self.engine.show(|view| view.vrfs = Some(Arc::new(vrfs)));
        }
        Ok(())
    }

    async fn converge(&mut self) -> Result<Outcome, Problem> {
        let protocol = self.engine.protocol();
        for who in self.engine.board.missing() {
            if let Some(sets) = self.remembered.get(&who) {
                self.engine.board.recall(&who, sets.to_vec());
            }
        }
        let (revision, wanted) = self.engine.board.wanted();
        let missing = self.engine.board.missing();
        let wishes: Wishes = wanted.into_iter().collect();
        self.remember(&wishes, missing.is_empty()).await?;
        let listing = self.kernel.list().await?;
        self.count_drift(&listing);
        let mut desired = self.desired(&wishes, &listing);
        let held = !missing.is_empty() && !self.paused;
        self.claim(&desired, &listing);
        let plan = diff(&desired.rules, &listing.rules, protocol);
        let mut refused = self.add(&plan.adds).await?;
        if !self.index(&desired.index, held).await {
            // The rules of these sources are flat from here on.
            desired = self.desired(&wishes, &listing);
            let flat = diff(&desired.rules, &listing.rules, protocol);
            refused.extend(self.add(&flat.adds).await?);
        }
        let mut changed = !plan.adds.is_empty();
        if listing.quiet {
            let stay = self.staying(&desired, &listing, held);
            let plan = diff(&stay, &listing.rules, protocol);
            refused.extend(self.remove(&plan.removals).await?);
            changed |= !plan.removals.is_empty();
            changed |= self.remove_old_tags(&listing).await?;
            self.keep(&stay).await?;
        }
        let listing = match changed {
            true => self.kernel.list().await?,
            false => listing,
        };
        let plan = diff(&desired.rules, &listing.rules, protocol);
        self.unfinished = !listing.quiet;
        if refused.is_empty() && !plan.is_empty() {
            let stay = self.staying(&desired, &listing, held);
            self.unfinished |= !diff(&stay, &listing.rules, protocol).is_empty();
        }
        match self.unfinished {
            true => drop(self.unquiet.pause()),
            false => self.unquiet.reset(),
        }
        self.marks = Some(desired.marks.clone());
        let reached = listing.quiet.then(|| Reached {
            flushed: self.paused,
            ..Reached::of(revision, &desired, &plan, &self.indexed)
        });
        Ok(Outcome {
            desired,
            listing,
            plan,
            reached,
            missing,
            refused,
        })
    }

    /// What is there and wanted is somebody's from here on.
    fn claim(&mut self, desired: &Desired, listing: &Listing) {
        let protocol = self.engine.protocol();
        if self.unclaimed.is_none() && listing.quiet {
            let recorded = self.desired_of(&self.remembered, listing);
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

    /// What is to be there. `held`: somebody is silent, and what nobody else is known to have wanted may be theirs.
    fn staying<'d>(
        &self,
        desired: &'d Desired,
        listing: &Listing,
        held: bool,
    ) -> Cow<'d, BTreeSet<Rule>> {
        match &self.unclaimed {
            Some(unclaimed) if held => {
                let protocol = self.engine.protocol();
                Cow::Owned(unclaimed.beside(&desired.rules, &listing.rules, protocol))
            }
            Some(_) | None => Cow::Borrowed(&desired.rules),
        }
    }

    /// What is wanted, and as long as somebody is to speak also what others wanted last.
    async fn remember(&mut self, wishes: &Wishes, complete: bool) -> Result<(), Problem> {
        let mut all = wishes.clone();
        if !complete {
            for (who, sets) in &self.remembered {
                all.entry(Text::clone(who))
                    .or_insert_with(|| Arc::clone(sets));
            }
        }
        let wished = self.journal.wish(&all).await;
        wished.map_err(|error| self.journal_problem(error))
    }

    fn journal_problem(&self, error: JournalError) -> Problem {
        Problem::Journal(self.engine.options.journal.clone(), error)
    }

    fn desired(&self, wishes: &Wishes, listing: &Listing) -> Desired {
        match self.paused {
            true => Desired::default(),
            false => self.desired_of(wishes, listing),
        }
    }

    fn desired_of(&self, wishes: &Wishes, listing: &Listing) -> Desired {
        let settings = self.settings();
        let seed;
        let marks = match &self.marks {
            Some(marks) => marks,
            None => {
                seed = marks_of(&listing.rules, &settings);
                &seed
            }
        };
        let sets = wishes.values().flat_map(|sets| sets.iter().cloned());
        let sets: Vec<RuleSet> = sets.collect();
        desired(&sets, &settings, marks)
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
        let Some(left) = self.engine.left.take().filter(|_| listing.quiet) else {
            return;
        };
        let mut there: BTreeSet<&Rule> = BTreeSet::new();
        let mut added = 0;
        for one in listing.rules.iter().filter(|one| is_own(one, protocol)) {
            added += u64::from(!there.insert(&one.rule) || !left.contains(&one.rule));
        }
        let removed: Vec<&Rule> = left.iter().filter(|rule| !there.contains(rule)).collect();
        let drift = &mut self.engine.drift;
        drift.added += added;
        drift.removed += u64::try_from(removed.len()).unwrap_or(u64::MAX);
        if !removed.is_empty() || added > 0 {
            let example = removed.first().map(ToString::to_string);
            tracing::info!(
                removed = removed.len(),
                added,
                example,
                "others changed rules of fipd; they are mended"
            );
            self.engine.fights.removed(&removed, Instant::now());
        }
    }

    /// Answers what the kernel refused.
    pub async fn add(&mut self, rules: &[Rule]) -> Result<Vec<String>, Problem> {
        let intended = self.journal.intend(rules).await;
        intended.map_err(|error| self.journal_problem(error))?;
        let refused = self.kernel.requests.add(rules).await?;
        figures::added(rules.len(), refused.len());
        told(rules, refused)
    }

    pub async fn remove(&mut self, steps: &[Step]) -> Result<Vec<String>, Problem> {
        let mut all = Vec::new();
        let kind = |step: &Step| matches!(step, Step::Add(_));
        for steps in steps.chunk_by(|one, next| kind(one) == kind(next)) {
            let rules = steps.iter().map(|step| match step {
                Step::Add(rule) | Step::Delete(rule) => rule.clone(),
            });
            let rules: Vec<Rule> = rules.collect();
            if steps.first().is_some_and(kind) {
                all.extend(self.add(&rules).await?);
                continue;
            }
            let mut refused = self.kernel.requests.delete(&rules).await?;
            figures::deleted(rules.len(), refused.len());
            // Another was quicker; the next list tells.
            refused.retain(|(_, error)| error.raw_os_error() != Some(nix::libc::ENOENT));
            all.extend(told(&rules, refused)?);
        }
        Ok(all)
    }

    /// Deletes what an earlier run wrote with another tag: exactly that, whatever else has this tag. `true`: there was some.
    async fn remove_old_tags(&mut self, listing: &Listing) -> Result<bool, Problem> {
        let protocol = self.engine.protocol();
        let old = self.journal.rules().iter();
        let old: BTreeSet<Rule> = old
            .filter(|rule| rule.protocol != protocol)
            .cloned()
            .collect();
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

    async fn keep(&mut self, rules: &BTreeSet<Rule>) -> Result<(), Problem> {
        let kept = self.journal.keep(rules).await;
        kept.map_err(|error| self.journal_problem(error))
    }

    /// `false`: these sources cannot be indexed after all.
    async fn index(&mut self, wanted: &Index, held: bool) -> bool {
        if !self.indexes() {
            return true;
        }
        let mut index = wanted.clone();
        if held {
            for (source, mark) in &self.indexed_before {
                index.entry(*source).or_insert(*mark);
            }
        } else {
            self.indexed_before.clear();
        }
        match self.filter.apply(&index).await {
            Ok(drifted) => {
                self.indexed = index;
                if drifted {
                    self.engine.drift.index += 1;
                    self.mended = Some(Instant::now());
                }
                true
            }
            Err(error) => {
                self.cannot_index(&error);
                self.indexed.extend(index);
                wanted.is_empty()
            }
        }
    }

    fn indexes(&self) -> bool {
        self.filter_problem.is_none() && self.engine.options.settings.can_index
    }

    fn cannot_index(&mut self, error: &FilterError) {
        tracing::warn!(%error, "no set of sources is indexed; it is tried again");
        self.filter_problem = Some(Warning {
            code: "packet-filter",
            text: format!("{error}. Sets of sources are not indexed meanwhile, but flat rules"),
        });
    }

    fn conclude(&mut self, outcome: Outcome) {
        let protocol = self.engine.protocol();
        let own = outcome.listing.rules.iter();
        let own = own
            .filter(|one| is_own(one, protocol))
            .map(|one| one.rule.clone());
        self.engine.left = outcome.listing.quiet.then(|| Arc::new(own.collect()));
        if let Some(reached) = outcome.reached.clone() {
            self.engine.board.reach(reached);
        }
        let warnings = self.warnings(&outcome);
        let state = match (self.paused, outcome.refused.first()) {
            (true, _) => EngineState::Paused,
            (_, Some(refused)) => EngineState::Degraded(refused.clone()),
            _ if !outcome.missing.is_empty() => EngineState::Starting(format!(
                "{} did not say yet which rules are wanted; until then rules are added, and none is removed that may be theirs",
                outcome.missing.join(", ")
            )),
            _ => EngineState::Active,
        };
        self.engine.show(|view| {
            view.state = state;
            view.at = clock::now();
            view.desired = Arc::new(outcome.desired);
            view.kernel = Arc::new(outcome.listing.rules);
            view.plan = Arc::new(outcome.plan);
            view.warnings = warnings;
        });
    }

    fn warnings(&self, outcome: &Outcome) -> Vec<Warning> {
        let stuck = outcome.plan.stuck.iter().map(|rule| Warning {
            code: "stuck",
            text: format!(
                "{rule} cannot be deleted: another's rule of the same tag would go in its place"
            ),
        });
        let index = match outcome.desired.not_indexed {
            0 => None,
            // Without a packet filter that was asked for there is no warning.
            count => Some(Warning {
                code: "not-indexed",
                text: format!(
                    "{count} sources should be indexed and are flat rules, which slows down every packet"
                ),
            }),
        };
        let fight = self.engine.fights.warning(Instant::now()).cloned();
        let problem = self.filter_problem.clone();
        let some = [fight, problem, index].into_iter().flatten();
        let node = self.engine.board.node_warnings();
        self.preflight
            .iter()
            .flatten()
            .cloned()
            .chain(node)
            .chain(some)
            .chain(stuck)
            .collect()
    }

    async fn finish(&mut self) -> Result<(), Problem> {
        if !self.engine.options.cleanup_on_stop {
            return Ok(());
        }
        let cleanup = tokio::time::timeout(FINISH, self.clean_up()).await;
        match cleanup {
            Ok(Ok(())) => tracing::info!("the rules of fipd were removed at the stop"),
            Ok(Err(problem)) => tracing::warn!(%problem, "rules of fipd are left behind"),
            Err(_) => tracing::warn!("the removal of rules takes too long; some are left behind"),
        }
        Ok(())
    }

    async fn clean_up(&mut self) -> Result<(), Problem> {
        let listing = self.kernel.list().await?;
        let nothing = BTreeSet::new();
        let plan = diff(&nothing, &listing.rules, self.engine.protocol());
        self.remove(&plan.removals).await?;
        self.indexed_before.clear();
        self.index(&Index::new(), false).await;
        self.keep(&nothing).await?;
        let listing = self.kernel.list().await?;
        let left = diff(&nothing, &listing.rules, self.engine.protocol());
        let (board, none) = (&self.engine.board, Desired::default());
        if listing.quiet {
            board.reach(Reached {
                flushed: true,
                ..Reached::of(board.wanted().0, &none, &left, &self.indexed)
            });
        }
        Ok(())
    }
}

fn told(rules: &[Rule], refused: Vec<(usize, io::Error)>) -> Result<Vec<String>, Problem> {
    let mut all = Vec::new();
    for (index, error) in refused {
        if matches!(
            error.raw_os_error(),
            Some(nix::libc::EPERM | nix::libc::EACCES)
        ) {
            return Err(Problem::NotAllowed);
        }
        let rule = rules
            .get(index)
            .map(ToString::to_string)
            .unwrap_or_default();
        all.push(format!("the kernel refuses {rule}: {error}"));
    }
    Ok(all)
}
