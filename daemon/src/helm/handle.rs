//! The handle on charts for the rest of the daemon.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::{
    sync::{Mutex as Turn, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    awaited::Awaited,
    cli::{Cli, HelmCall},
    command::Operation,
    error::{ChartError, HelmError},
    files::{ReleaseTarget, Workplace},
    memory::Memory,
    plan::{Plan, Removal, plan, plan_removal},
    progress::{Board, Progress},
    release::{Chart, ChartVersion, Release},
};
use crate::{clock, config};

/// More operations than any state takes to become the wanted one.
const MOST_STEPS: usize = 5;

/// Charts in clusters; cheap to clone.
#[derive(Clone)]
pub struct Helm(Arc<HelmState>);

struct HelmState {
    /// Without a private directory nothing is done.
    cli: Result<Cli, HelmError>,
    slots: Semaphore,
    deadline: Duration,
    turns: Mutex<BTreeMap<String, Arc<Turn<()>>>>,
    board: Board,
    awaited: Awaited,
    memory: Mutex<BTreeMap<ReleaseTarget, Memory>>,
    newest: Mutex<Vec<NewestChart>>,
    checks: Mutex<Vec<(Chart, Arc<ChartTurn>)>>,
}

/// Only one cluster at a time looks whether a chart is to be had: where its repository does not answer that takes a minute.
type ChartTurn = Turn<Option<FailedCheck>>;

/// A chart was not to be had.
struct FailedCheck {
    error: HelmError,
    /// It is not looked for again before. The time that it took, so that its slot is free for others half of the time.
    until: Instant,
}

/// The newest version of a chart, as it was looked up then.
struct NewestChart {
    chart: Chart,
    version: ChartVersion,
    at: Instant,
}

/// For so long the newest version of a chart is not looked up again: many clusters ask for it at once.
const NEWEST: Duration = Duration::from_secs(20);

/// The way to a cluster.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    /// What the cluster is called; releases of one cluster are worked on one after the other.
    pub cluster: &'a str,
    /// Self-contained YAML.
    pub kubeconfig: &'a str,
    /// The value of [`super::SYSTEM_LABEL`] on the releases of who asks.
    pub system: Option<&'static str>,
}

/// Operations that changed something so that a release is as it should be, in order; none where it was so already.
pub type Operations = Vec<&'static str>;

/// How another engine is doing with a release.
#[derive(Clone, Copy, Debug)]
pub enum Noted<'a> {
    Running(&'static str),
    Done,
    Failed(&'a ChartError),
}

impl Helm {
    /// Makes the private directory below `data_dir` and removes what a killed daemon left there.
    pub fn start(config: &config::Helm, data_dir: &Path, stop: CancellationToken) -> Self {
        let cli = match Workplace::open(data_dir) {
            Ok((workplace, cut_off)) => Ok(Cli::new(config.clone(), workplace, cut_off, stop)),
            Err(error) => {
                tracing::error!(%error, data_dir = %data_dir.display(), "no charts are installed: helm has no private directory");
                Err(HelmError::file(data_dir.join("helm"), &error))
            }
        };
        Self(Arc::new(HelmState {
            cli,
            slots: Semaphore::new(config.at_once.0),
            deadline: config.timeout.0,
            turns: Mutex::default(),
            board: Board::default(),
            awaited: Awaited::default(),
            memory: Mutex::default(),
            newest: Mutex::default(),
            checks: Mutex::default(),
        }))
    }

    /// Brings a release to its chart, version and values. Cheap where that was done a short while ago, and where it failed
    /// a short while ago: the same error comes back then. `state` identifies the state of the release; once nothing had to be done
    /// in a state, helm is not asked about it again. `begins` is called whenever an operation begins that changes something.
    ///
    /// # Errors
    /// Why it is not as it should be; [`HelmError::reason`] is for conditions.
    pub async fn ensure(
        &self,
        access: Access<'_>,
        release: &Release,
        state: Option<&str>,
        begins: &(dyn Fn() + Sync),
    ) -> Result<Operations, HelmError> {
        let target = ReleaseTarget::new(access.cluster, &release.namespace, &release.name);
        if let Some(outcome) = self.0.remembered(&target, Some(release), state) {
            return outcome.map(|()| Operations::new());
        }
        let work =
            async |cli: &Cli, call: HelmCall<'_>| self.0.converge(cli, call, release, begins).await;
        let done = self.0.attempt(access, &target, Some(release), work).await?;
        if done.is_empty()
            && let Some(last) = self.0.memory.lock().get_mut(&target)
        {
            last.found_at = state.map(str::to_owned);
        }
        Ok(done)
    }

    /// Uninstalls a release that carries the labels of fipd and of the system that asks. One that is not there is fine;
    /// whether it was says the answer.
    ///
    /// # Errors
    /// [`HelmError::Foreign`] where it does not carry them, else why it is still there.
    pub async fn uninstall(
        &self,
        access: Access<'_>,
        namespace: &str,
        name: &str,
    ) -> Result<bool, HelmError> {
        let target = ReleaseTarget::new(access.cluster, namespace, name);
        if let Some(Err(error)) = self.0.remembered(&target, None, None) {
            return Err(error);
        }
        let attempt = self.0.attempt(access, &target, None, async |cli, call| {
            self.0.remove(cli, call).await
        });
        let outcome = attempt.await;
        if outcome.is_ok() {
            self.0.board.remove(&target);
        }
        outcome
    }

    /// Whether the chart is to be had in its version. Where it was not a short while ago the same error comes back.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn check_chart(&self, chart: &Chart) -> Result<(), HelmError> {
        let cli = self.0.cli.as_ref().map_err(Clone::clone)?;
        let turn = self.0.turn_of(chart);
        let mut last = turn.lock().await;
        if let Some(failed) = last.as_ref().filter(|failed| failed.stands()) {
            return Err(failed.error.clone());
        }
        let _slot = (self.0.slots.acquire().await).map_err(|_| HelmError::Stopping)?;
        let began = Instant::now();
        let checked = cli.check(chart).await;
        *last = checked.as_ref().err().map(|error| FailedCheck {
            error: error.clone(),
            until: Instant::now() + began.elapsed(),
        });
        checked
    }

    /// The newest version of a chart.
    ///
    /// # Errors
    /// Why that cannot be looked up.
    pub async fn newest(&self, chart: &Chart) -> Result<ChartVersion, HelmError> {
        let cli = self.0.cli.as_ref().map_err(Clone::clone)?;
        let _slot = (self.0.slots.acquire().await).map_err(|_| HelmError::Stopping)?;
        let now = Instant::now();
        let known = {
            let mut newest = self.0.newest.lock();
            newest.retain(|one| now - one.at < NEWEST);
            let known = newest.iter().find(|one| one.chart == *chart);
            known.map(|one| one.version.clone())
        };
        if let Some(version) = known {
            return Ok(version);
        }
        let version = cli.newest(chart).await?;
        self.0.newest.lock().push(NewestChart {
            chart: chart.clone(),
            version: version.clone(),
            at: now,
        });
        Ok(version)
    }

    /// Another engine found out at which version a release without one stays.
    pub fn found(&self, target: &ReleaseTarget, version: &ChartVersion) {
        self.0.board.found(target, version);
    }

    /// All releases that were asked for since the start, and how they stand.
    pub fn progress(&self) -> BTreeMap<ReleaseTarget, Progress> {
        self.0.board.all()
    }

    /// What another engine does about a release, for who looks at progress.
    pub fn noted(&self, target: &ReleaseTarget, wanted: Option<String>, noted: Noted<'_>) {
        let (board, now) = (&self.0.board, clock::now());
        board.waiting(target, wanted, now);
        match noted {
            Noted::Running(operation) => return board.running(target, operation, now),
            Noted::Done => {
                self.0.awaited.reached(target);
                board.ended(target, None, now);
            }
            Noted::Failed(error) => board.ended(target, Some(error.clone()), now),
        }
        board.idle(target);
    }

    /// Somebody else saw that a release is not there: that it was found deployed counts no more.
    pub fn distrust(&self, target: &ReleaseTarget) {
        let mut memory = self.0.memory.lock();
        if memory.get(target).is_some_and(|last| last.outcome.is_ok()) {
            memory.remove(target);
        }
    }

    /// For how long another engine is to bring about exactly this, and why its last attempt failed, until one succeeds.
    pub fn awaited(&self, target: &ReleaseTarget, wanted: &Release) -> (Duration, Option<String>) {
        let now = clock::now();
        let wish = self.0.awaited.wish(target, wanted, now);
        let awaited = now.0.saturating_sub(wish.since.0);
        (Duration::from_millis(awaited), wish.failure)
    }

    /// An attempt of another engine at exactly this failed.
    pub fn attempt_failed(&self, target: &ReleaseTarget, wanted: &Release, why: &str) {
        (self.0.awaited).failed(target, wanted, why, clock::now());
    }

    /// How long one operation may take.
    pub fn deadline(&self) -> Duration {
        self.0.deadline
    }

    /// Looks at everything of a cluster afresh when it is asked for next.
    pub fn recheck(&self, cluster: &str) {
        self.0
            .memory
            .lock()
            .retain(|target, _| target.cluster != cluster);
    }

    /// A cluster does not answer: what another engine does there is not seen.
    pub fn out_of_sight(&self, cluster: &str) {
        self.0.board.idle_all(cluster);
    }

    /// A cluster is gone.
    pub fn forget(&self, cluster: &str) {
        self.recheck(cluster);
        self.0.board.remove_cluster(cluster);
        self.0.awaited.forget(cluster);
        // One that is in use stays, or there could be two.
        let mut turns = self.0.turns.lock();
        turns.retain(|name, turn| name != cluster || Arc::strong_count(turn) > 1);
    }

    /// Adds its series.
    pub fn register(&self, registry: &mut Registry) {
        if let Ok(cli) = &self.0.cli {
            cli.counters.register(registry);
        }
    }
}

impl FailedCheck {
    fn stands(&self) -> bool {
        Instant::now() < self.until
    }
}

impl HelmState {
    /// Who looks for the chart. Turns that nobody waits for go, unless an error stands.
    fn turn_of(&self, chart: &Chart) -> Arc<ChartTurn> {
        let mut checks = self.checks.lock();
        checks.retain(|(_, turn)| {
            let last = turn.try_lock();
            let stands = last.map_or(true, |last| last.as_ref().is_some_and(FailedCheck::stands));
            stands || Arc::strong_count(turn) > 1
        });
        if let Some((_, turn)) = checks.iter().find(|(of, _)| of == chart) {
            return Arc::clone(turn);
        }
        let turn = Arc::<ChartTurn>::default();
        checks.push((chart.clone(), Arc::clone(&turn)));
        turn
    }

    /// Waits for the cluster's turn first and for a slot then: a cluster has one place in the queue for slots, which is in
    /// the order of asking, so that none keeps the others waiting for more than one operation.
    async fn in_turn<T>(
        &self,
        access: Access<'_>,
        target: &ReleaseTarget,
        work: impl AsyncFnOnce(&Cli, HelmCall<'_>) -> Result<T, HelmError>,
    ) -> Result<T, HelmError> {
        let cli = self.cli.as_ref().map_err(Clone::clone)?;
        let turn = Arc::clone(self.turns.lock().entry(target.cluster.clone()).or_default());
        let _idle_afterwards = Idle(&self.board, target);
        let _turn = turn.lock().await;
        let _slot = (self.slots.acquire().await).map_err(|_| HelmError::Stopping)?;
        self.board.running(target, "look", clock::now());
        let call = HelmCall {
            target,
            kubeconfig: access.kubeconfig,
            system: access.system,
        };
        work(cli, call).await
    }

    /// The same, which the board and the memory tell of; `None`: the release is to go.
    async fn attempt<T>(
        &self,
        access: Access<'_>,
        target: &ReleaseTarget,
        wanted: Option<&Release>,
        work: impl AsyncFnOnce(&Cli, HelmCall<'_>) -> Result<T, HelmError>,
    ) -> Result<T, HelmError> {
        let version = wanted.map(|release| release.chart.version.to_string());
        self.board.waiting(target, version, clock::now());
        let outcome = self.in_turn(access, target, work).await;
        let outcome = outcome.map_err(|error| error.without_values_of(wanted));
        let plain = outcome.as_ref().map(drop).map_err(Clone::clone);
        self.remember(target, wanted.cloned(), plain);
        outcome
    }

    async fn converge(
        &self,
        cli: &Cli,
        call: HelmCall<'_>,
        release: &Release,
        begins: &(dyn Fn() + Sync),
    ) -> Result<Operations, HelmError> {
        let mut done = Operations::new();
        for _ in 0..MOST_STEPS {
            let state = cli.observe(call).await?;
            let release = &*release.kept_at(state.as_ref(), None);
            self.board.found(call.target, &release.chart.version);
            let now = clock::now();
            let next = plan(release, state.as_ref(), now, cli.patience(call.target));
            let operation = match next {
                Plan::Nothing => {
                    cli.settled(call.target);
                    return Ok(done);
                }
                Plan::Wait { until } => return Err(HelmError::Busy { until }),
                Plan::Refuse(refusal) => return Err(refusal.into()),
                Plan::Install => Operation::Install { replace: false },
                Plan::Reinstall => Operation::Install { replace: true },
                Plan::Upgrade(_) => Operation::Upgrade {
                    adopt: state.is_some_and(|seen| !seen.ours),
                },
                Plan::Restore => Operation::Rollback { to: 0 },
                Plan::UninstallFirst => Operation::Uninstall,
            };
            tracing::info!(cluster = call.target.cluster, release = call.target.name, plan = ?next, "helm {}", operation.name());
            self.board.running(call.target, operation.name(), now);
            begins();
            match next {
                Plan::UninstallFirst => cli.uninstall(call).await?,
                Plan::Restore => cli.restore(call).await?,
                Plan::Install | Plan::Reinstall | Plan::Upgrade(_) => {
                    cli.bring(operation, release, call).await?;
                }
                Plan::Nothing | Plan::Wait { .. } | Plan::Refuse(_) => {}
            }
            done.push(operation.name());
        }
        Err(HelmError::NoProgress(MOST_STEPS))
    }

    async fn remove(&self, cli: &Cli, call: HelmCall<'_>) -> Result<bool, HelmError> {
        let state = cli.observe(call).await?;
        match plan_removal(state.as_ref(), clock::now(), cli.patience(call.target)) {
            Removal::Nothing => Ok(false),
            Removal::Foreign => Err(HelmError::Foreign),
            Removal::Wait { until } => Err(HelmError::Busy { until }),
            Removal::Uninstall => {
                self.board.running(call.target, "uninstall", clock::now());
                cli.uninstall(call).await?;
                Ok(true)
            }
        }
    }

    fn remembered(
        &self,
        target: &ReleaseTarget,
        wanted: Option<&Release>,
        state: Option<&str>,
    ) -> Option<Result<(), HelmError>> {
        let memory = self.memory.lock();
        let last = memory.get(target);
        let last = last.filter(|last| last.wanted.as_ref() == wanted)?;
        if let (Ok(()), Some(found), Some(state)) = (&last.outcome, &last.found_at, state) {
            return (found == state).then_some(Ok(()));
        }
        let age = Duration::from_millis(clock::now().0.saturating_sub(last.at.0));
        (age < last.lasts()).then(|| last.outcome.clone())
    }

    fn remember(
        &self,
        target: &ReleaseTarget,
        wanted: Option<Release>,
        outcome: Result<(), HelmError>,
    ) {
        let now = clock::now();
        let error = outcome.as_ref().err();
        let error = error.map(|error| ChartError::new(error.reason(), error.to_string()));
        self.board.ended(target, error, now);
        let mut memory = self.memory.lock();
        let before = memory.get(target).filter(|last| last.wanted == wanted);
        let failures = match &outcome {
            Ok(()) => 0,
            Err(_) => before.map_or(0, |last| last.failures) + 1,
        };
        let last = Memory {
            wanted,
            outcome,
            failures,
            at: now,
            found_at: None,
        };
        memory.insert(target.clone(), last);
    }
}

/// Takes the release off what goes on, also where the work is dropped.
struct Idle<'a>(&'a Board, &'a ReleaseTarget);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.idle(self.1);
    }
}

#[cfg(test)]
mod tests;
