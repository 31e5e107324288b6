//! A session with the kernel: it converges, and waits for something to happen.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fipd_core::{
    Text,
    host::{Marks, Rule, Unclaimed},
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    engine::{Engine, EngineError},
    filter::Filter,
    kernel::Kernel,
    links,
    lock::Lock,
    nft::Index,
    preflight,
};
use crate::{
    backoff::{Backoff, jittered},
    metrics::rules as figures,
    rules::{Ordered, Revision, Warning},
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
/// After `nft` has failed.
const FILTER_AGAIN: Duration = Duration::from_secs(2);
const FILTER_LATER: Duration = Duration::from_secs(60);

pub(super) struct Session<'a> {
    pub engine: &'a mut Engine,
    pub kernel: Kernel,
    pub filter: Filter,
    /// Why sets are not indexed.
    pub filter_problem: Option<Warning>,
    /// Whether it was seen what our table of before had.
    pub filter_begun: bool,
    /// When it is tried again, and how long after that.
    pub filter_again: Instant,
    pub filter_pause: Backoff,
    /// What the kernel refused in this pass.
    pub refused: BTreeSet<Rule>,
    /// Rules of the last pass that the kernel did not find when they were to be deleted.
    pub missed: BTreeSet<Rule>,
    /// Since when there is something left to be done.
    pub unfinished_since: Option<Instant>,
    /// Sources that were indexed before the restart, and that nobody is known to have wanted.
    pub indexed_before: Index,
    /// Those that the packet filter knows, as far as is known.
    pub indexed: Index,
    /// `None`: there was no whole list yet.
    pub unclaimed: Option<Unclaimed>,
    pub marks: Option<Marks>,
    /// `None`: not looked for yet.
    pub preflight: Option<Vec<Warning>>,
    /// VRFs that went while rules ask their tables.
    gone_vrfs: BTreeMap<u32, Text>,
    /// All was done for what was wanted at this revision, with the packet filter or without.
    pub settled: Option<(Revision, bool)>,
    pub unquiet: Backoff,
    /// Removals are still to be done.
    pub unfinished: bool,
    wanted: bool,
    passed: Instant,
    /// When everything was last looked at, whatever was heard.
    resynced: Instant,
    resync: Duration,
    /// When the table of the packet filter was last found changed by others.
    pub repaired: Option<Instant>,
    _lock: Lock,
}

impl<'a> Session<'a> {
    pub async fn start(engine: &'a mut Engine) -> Result<Self, EngineError> {
        let lock = Lock::take(engine.protocol()).await?;
        Self::with(engine, lock).await
    }

    pub async fn with(engine: &'a mut Engine, lock: Lock) -> Result<Self, EngineError> {
        engine.open_notes().await;
        let kernel = Kernel::open(engine.protocol())?;
        let settings = &engine.options.settings;
        let nft = engine.options.nft.as_deref();
        let mut filter = Filter::new(nft, settings.protocol, settings.mark_mask);
        filter.also_of(engine.notes.tags());
        let resync = engine.options.resync;
        let mut session = Self {
            engine,
            kernel,
            filter,
            filter_problem: None,
            filter_begun: false,
            filter_again: Instant::now(),
            filter_pause: Backoff::new(FILTER_AGAIN, FILTER_LATER),
            refused: BTreeSet::new(),
            missed: BTreeSet::new(),
            unfinished_since: None,
            indexed_before: Index::new(),
            indexed: Index::new(),
            unclaimed: None,
            marks: None,
            preflight: None,
            gone_vrfs: BTreeMap::new(),
            settled: None,
            unquiet: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            unfinished: false,
            wanted: false,
            passed: Instant::now(),
            resynced: Instant::now(),
            resync,
            repaired: None,
            _lock: lock,
        };
        session.begin_index().await;
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
    ) -> Result<(), EngineError> {
        let mut changes = self.engine.board.changes();
        loop {
            changes.borrow_and_update();
            self.pass().await?;
            backoff.reset();
            loop {
                let due = self.due();
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(()),
                    Some(order) = orders.recv() => self.obey(order).await?,
                    () = tokio::time::sleep_until(due) => break,
                    news = self.kernel.events.next() => self.kernel.news.add(news?),
                    Ok(()) = changes.changed() => self.wanted = true,
                    () = self.filter.changed() => self.filter.doubt(),
                }
            }
        }
    }

    /// When the next pass is.
    fn due(&self) -> Instant {
        let (news, soon) = (self.kernel.news, self.passed + SOON);
        let filter = self.indexes() && self.filter.is_doubted();
        let later = |than: Option<Instant>| than.map_or(soon, |than| soon.max(than));
        let all = [
            self.wanted.then_some(soon),
            filter.then(|| later(self.repaired.map(|repaired| repaired + MENDED))),
            (news.tagged || news.overrun).then(|| later(self.engine.contention.until())),
            (news.foreign || news.links).then_some(self.passed + CALM),
            self.engine.notes.due().map(|again| again.max(soon)),
            self.filter_problem
                .is_some()
                .then(|| self.filter_again.max(soon)),
            self.unfinished
                .then(|| self.passed + self.unquiet.clone().pause()),
        ];
        let all = all.into_iter().flatten();
        all.fold(self.resynced + self.resync, Instant::min)
    }

    /// Brings the kernel to what is wanted, and shows how it is.
    pub async fn pass(&mut self) -> Result<(), EngineError> {
        let began = Instant::now();
        let resync = self.resynced.elapsed() >= self.resync;
        let news = std::mem::take(&mut self.kernel.news);
        self.engine.drift.overruns += u64::from(news.overrun);
        if resync {
            self.filter_problem = None;
            self.settled = None;
            self.filter.seek();
            self.filter.doubt();
            self.engine.rejected_echoes.resynced();
            self.resynced = Instant::now();
            self.resync = jittered(self.engine.options.resync);
        }
        if self.filter_problem.is_some() && Instant::now() >= self.filter_again {
            self.filter_problem = None;
            self.filter.doubt();
        }
        if self.engine.open_notes().await {
            self.filter.also_of(self.engine.notes.tags());
            self.filter_problem = None;
            self.unclaimed = None;
        }
        if !self.filter_begun && self.filter_problem.is_none() {
            self.begin_index().await;
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
            let desired = &outcome.desired;
            self.gone_vrfs
                .retain(|table, _| preflight::asks(desired, *table));
            let warnings = preflight::warnings(desired, vrfs, &self.gone_vrfs).await;
            self.preflight = Some(warnings);
        }
        let sources = outcome.desired.owners.len();
        self.conclude(outcome);
        self.passed = Instant::now();
        figures::passed(sources, self.passed - began);
        Ok(())
    }

    async fn read_links(&mut self) -> Result<(), EngineError> {
        let vrfs = links::vrfs().await?;
        let before = self.engine.board.view().vrfs.clone();
        if before.as_deref() != Some(&vrfs) {
            let before = before.iter().flat_map(|before| before.iter());
            let before = before.map(|(name, table)| (*table, Text::clone(name)));
            self.gone_vrfs.extend(before);
            self.gone_vrfs
                .retain(|table, _| vrfs.values().all(|now| now != table));
            self.engine.show(|view| view.vrfs = Some(Arc::new(vrfs)));
        }
        Ok(())
    }
}
