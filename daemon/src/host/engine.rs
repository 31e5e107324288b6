//! The task of the engine: sessions with the kernel, one after another.

use std::{collections::BTreeSet, io, path::PathBuf, sync::Arc, time::Duration};

use fipd_core::host::Rule;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Options, fights::Fights, journal::JournalError, lock::LockError, session::Session,
    socket::Trouble,
};
use crate::{
    clusters::backoff::Backoff,
    rules::{CommandError, Drift, EngineState, Ordered, RuleBoard, View},
};

/// Between two sessions.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What ends a session; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error(
        "CAP_NET_ADMIN is missing, so the kernel refuses to change rules: give it to fipd (AmbientCapabilities= in its \
         unit, capabilities.add in its DaemonSet)"
    )]
    NotAllowed,
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("the journal of rules {0} cannot be used: {1}")]
    Journal(PathBuf, JournalError),
    #[error(transparent)]
    Kernel(#[from] Trouble),
    #[error("the socket to the kernel's routing tables: {0}")]
    Socket(#[from] io::Error),
}

/// What outlives a session.
pub(super) struct Engine {
    pub options: Options,
    pub board: RuleBoard,
    pub drift: Drift,
    pub fights: Fights,
    /// Own rules that were in the kernel after the last pass.
    pub left: Option<Arc<BTreeSet<Rule>>>,
}

impl Engine {
    pub fn new(options: Options, board: RuleBoard) -> Self {
        Self {
            options,
            board,
            drift: Drift::default(),
            fights: Fights::new(),
            left: None,
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
                () = stop.cancelled() => return,
                session = Session::start(&mut self) => session,
            };
            let ended = match session {
                Ok(mut session) => session.serve(&mut orders, &stop, &mut backoff).await,
                Err(problem) => Err(problem),
            };
            let Err(problem) = ended else { return };
            let pause = backoff.pause();
            let text = problem.to_string();
            tracing::warn!(
                problem = text,
                ?pause,
                "the rules of this host are not kept; it is tried again"
            );
            self.show(|view| view.state = EngineState::Degraded(text.clone()));
            if !wait(pause, &text, &mut orders, &stop).await {
                return;
            }
        }
    }

    /// Changes what is shown.
    pub fn show(&self, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.board.view());
        view.node.clone_from(&self.options.node);
        view.protocol = self.protocol();
        view.drift = self.drift;
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
