//! The task of the engine: sessions with the kernel, one after another.

use std::{collections::BTreeSet, io, sync::Arc, time::Duration};

use fipd_core::{
    Text,
    host::{Places, Rule},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Options, journal::Wishes, lock::LockError, session::Session, socket::NetlinkError};
use crate::rules::{CommandError, Drift, EngineState, Ordered, RuleBoard, View};
use crate::{
    backoff::Backoff,
    host::{contention::Contention, journal_writer::Notes, rejected_echo::RejectedEchoes},
};

/// Between two sessions.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What ends a session; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    #[error(
        "CAP_NET_ADMIN is missing, so the kernel refuses to change rules: give it to fipd (AmbientCapabilities= in its \
         unit, capabilities.add in its DaemonSet)"
    )]
    NotAllowed,
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Kernel(#[from] NetlinkError),
    #[error("the socket to the kernel's routing tables: {0}")]
    Socket(#[from] io::Error),
}

/// What outlives a session.
pub(super) struct Engine {
    pub options: Options,
    pub board: RuleBoard,
    pub drift: Drift,
    pub contention: Contention,
    /// Own rules that were in the kernel after the last pass.
    pub left: Option<Arc<BTreeSet<Rule>>>,
    /// Own rules that were surely added in this life, and not deleted since.
    pub added: BTreeSet<Rule>,
    pub rejected_echoes: RejectedEchoes,
    pub notes: Notes,
    /// An admin flushed the rules.
    pub paused: bool,
    /// What was wanted before the restart.
    pub remembered: Wishes,
    /// Where rules are that took the place of older ones.
    pub places: Places,
}

impl Engine {
    pub fn new(options: Options, board: RuleBoard) -> Self {
        Self {
            notes: Notes::new(options.journal.clone()),
            options,
            board,
            drift: Drift::default(),
            contention: Contention::new(),
            left: None,
            added: BTreeSet::new(),
            rejected_echoes: RejectedEchoes::default(),
            paused: false,
            remembered: Wishes::new(),
            places: Places::new(),
        }
    }

    pub fn protocol(&self) -> u8 {
        self.options.settings.protocol
    }

    pub async fn run(mut self, mut orders: mpsc::Receiver<Ordered>, stop: CancellationToken) {
        self.show(|view| view.state = EngineState::Starting("it looks at the kernel".to_owned()));
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let session = tokio::select! {
                () = stop.cancelled() => break,
                session = Session::start(&mut self) => session,
            };
            let problem = match session {
                Err(problem) => problem,
                Ok(mut session) => match session.serve(&mut orders, &stop, &mut backoff).await {
                    Ok(()) => return session.finish().await,
                    Err(problem) => problem,
                },
            };
            let pause = backoff.pause();
            let text = problem.to_string();
            tracing::warn!(
                problem = text,
                ?pause,
                "the rules of this host are not kept; it is tried again"
            );
            self.show(|view| view.state = EngineState::Degraded(text.clone()));
            if !wait(pause, &text, &mut orders, &stop).await {
                break;
            }
        }
        self.finish().await;
    }

    /// Opens the journal if it is not, and takes over what is in it. Answers whether it did.
    pub async fn open_notes(&mut self) -> bool {
        let Some(found) = self.notes.open().await else {
            return false;
        };
        self.paused = found.paused;
        for prefix in std::mem::take(&mut self.options.found_later) {
            let before = found.wishes.keys().filter(|who| who.starts_with(prefix));
            self.board.expect_also(&before.map(Text::clone).collect());
        }
        self.remembered = found.wishes;
        let added: Vec<Rule> = self.added.iter().cloned().collect();
        self.notes.intend(&added).await;
        // What was said in this life counts more.
        let since = std::mem::replace(&mut self.places, found.places);
        self.places.extend(since);
        if let Err(why) = self.notes.place(&self.places).await {
            tracing::debug!(why, "the places of rules are noted later");
        }
        true
    }

    /// Changes what is shown.
    pub fn show(&self, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.board.view());
        view.node.clone_from(&self.options.node);
        view.protocol = self.protocol();
        view.drift = self.drift;
        view.band = *self.options.settings.band.start();
        if *view.places != self.places {
            view.places = Arc::new(self.places.clone());
        }
        change(&mut view);
        self.board.show(view);
    }
}

/// Answers commands meanwhile. `false`: stopped.
async fn wait(
    pause: Duration,
    problem: &str,
    orders: &mut mpsc::Receiver<Ordered>,
    stop: &CancellationToken,
) -> bool {
    let pause = tokio::time::sleep(pause);
    tokio::pin!(pause);
    loop {
        tokio::select! {
            () = stop.cancelled() => return false,
            () = &mut pause => return true,
            Some(order) = orders.recv() => {
                // Whoever asked may be gone.
                let _ = order.answer.send(Err(CommandError::Degraded(problem.to_owned())));
            }
        }
    }
}
