//! The engine of the host in this process, in the namespace of its runtime.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fipd::host::{self, Options};
use fipd::rules::{EngineState, RuleBoard};
use fipd_core::host::{HostSettings, Mode, RuleSet};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::TABLE;

const DEADLINE: Duration = Duration::from_secs(60);
/// Longer than the engine puts changes of others together.
const CALM: Duration = Duration::from_millis(250);

pub struct Engine {
    board: RuleBoard,
    stop: CancellationToken,
    task: JoinHandle<()>,
    _folder: TempDir,
}

/// Sources of one set.
pub fn set(sources: &[IpAddr], priority: Option<u32>, mode: Mode) -> RuleSet {
    RuleSet {
        name: "bench".into(),
        sources: sources.iter().copied().collect(),
        table: TABLE,
        priority,
        fail_closed: false,
        mode,
    }
}

impl Engine {
    /// With its first look behind it.
    pub async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let options = Options {
            settings: HostSettings::default(),
            node: None,
            cleanup_on_stop: false,
            nft: None,
            journal: folder.path().join("host.redb"),
            resync: Duration::from_secs(3_600),
            expected: BTreeSet::new(),
            found_later: Vec::new(),
        };
        let (board, stop) = (RuleBoard::default(), CancellationToken::new());
        let task = tokio::spawn(host::run(options, board.clone(), stop.clone()));
        let engine = Self {
            board,
            stop,
            task,
            _folder: folder,
        };
        engine.applies(Vec::new(), 0).await?;
        Ok(engine)
    }

    /// Until so many sources of these sets have their rule.
    pub async fn applies(&self, sets: Vec<RuleSet>, sources: u32) -> Result<()> {
        let mut views = self.board.views();
        self.board.want(&"bench".into(), sets);
        let done = views.wait_for(|view| {
            view.state == EngineState::Active
                && view.plan.is_empty()
                && view.desired.owners.len() == sources as usize
        });
        let done = tokio::time::timeout(DEADLINE, done).await;
        let view = self.board.view();
        done.with_context(|| format!("not applied: {:?}", view.state))??;
        if view.desired.not_indexed > 0 {
            bail!("not indexed: {:?}", view.warnings);
        }
        Ok(())
    }

    /// How long it takes to look at everything once after this happened.
    pub async fn pass(&self, happens: impl FnOnce() -> Result<()>) -> Result<Duration> {
        tokio::time::sleep(CALM).await;
        let mut views = self.board.views();
        views.borrow_and_update();
        let start = Instant::now();
        happens()?;
        tokio::time::timeout(DEADLINE, views.changed()).await??;
        Ok(start.elapsed())
    }

    pub async fn stop(self) {
        self.stop.cancel();
        // It ends by itself; a panic in it was told.
        let _ = self.task.await;
    }
}
