//! The engine that brings rules into this host's kernel and keeps them there.
//!
//! ```text
//!  RuleBoard --wishes--> desired --> diff <-- list of the kernel's rules <--- sockets
//!                                     |                                         ^
//!              journal <-- intent -- adds --> sources in the packet filter --> removals
//! ```
//!
//! One task owns the sockets, the journal and the table of the packet filter. It looks at the kernel's whole list whenever
//! something changed, rather than keep a copy of it up to date, which could only ever be wrong. It never fails: what keeps
//! it from working is a state on the board, and is tried again.

mod apply;
mod command;
mod contention;
mod converge;
mod engine;
mod events;
mod filter;
mod finish;
mod journal;
mod journal_writer;
mod kernel;
mod links;
mod listing;
mod lock;
mod message;
mod netlink_reply;
mod nft;
mod nft_events;
mod outcome;
mod preflight;
pub mod probe;
mod rejected_echo;
mod removal;
mod session;
mod socket;

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use fipd_core::{Text, host::HostSettings};
use tokio_util::sync::CancellationToken;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use {message::fuzz, nft::fuzz as fuzz_nft};

use crate::rules::RuleBoard;

/// What the engine of this host is told.
#[derive(Clone, Debug)]
pub struct Options {
    pub settings: HostSettings,
    /// The Node that this host is, for those who look on.
    pub node: Option<Text>,
    /// Own rules go at the stop.
    pub cleanup_on_stop: bool,
    /// The program `nft`; `None`: where it usually is.
    pub nft: Option<PathBuf>,
    /// The file of what is remembered over a restart.
    pub journal: PathBuf,
    /// The longest time between two looks at the kernel.
    pub resync: Duration,
    /// Those who are going to say what they want. Until each of them has, or what it wanted before the restart is known,
    /// nothing is removed.
    pub expected: BTreeSet<Text>,
    /// Who begins like this may be found later: what they wanted before the restart counts until [`RuleBoard::expect`] says
    /// who there is.
    pub found_later: Vec<&'static str>,
}

/// Runs until `stop`.
pub async fn run(options: Options, board: RuleBoard, stop: CancellationToken) {
    let Some(orders) = board.take_orders() else {
        tracing::error!("a second engine for the rules of this host was started; it ends");
        return;
    };
    board.expect_also(&options.expected);
    engine::Engine::new(options, board).run(orders, stop).await;
}
