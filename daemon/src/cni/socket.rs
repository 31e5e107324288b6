//! The socket that CNI plugins ask, for uid 0 only.

use std::{io, sync::Arc, time::Duration};

use fipd_cni::{Answer, Ask, AskStep, CniError, Code, MAX_MESSAGE, NEWEST, Reply, Verb};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::UnixStream,
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{Served, board::CniBoard, service::CniService};
use crate::sockets::{self, Listening};

/// Mode of the socket's file where the daemon makes it.
pub const MODE: u32 = 0o600;
/// Most questions fit.
const BUFFER: usize = 4 << 10;
pub(super) const LIMITS: CallLimits = CallLimits {
    at_once: 1_024,
    deadline: Duration::from_secs(10),
};
/// How long an answer may take: less than the plugin waits, which asks again then.
const WORK: Duration = Duration::from_secs(50);
/// How long calls that were taken have to end when the daemon stops.
const DRAIN: Duration = Duration::from_secs(2);
/// Before the next call is taken when the system has no more descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// What plugins may take of the daemon.
#[derive(Clone, Copy)]
pub(super) struct CallLimits {
    /// More calls wait in the socket's queue. More than a node has pods: those that wait for their addresses keep nobody else
    /// waiting.
    pub at_once: usize,
    /// How long a plugin may take to send its question, and to take the answer.
    pub deadline: Duration,
}

/// Serves until `stop`. What was not taken by then stays in the queue where the socket outlives the daemon.
pub(super) async fn serve(
    socket: Listening,
    uid: u32,
    service: watch::Receiver<Served>,
    board: CniBoard,
    limits: CallLimits,
    stop: CancellationToken,
) {
    let (listener, file) = socket.into_parts();
    let places = Arc::new(Semaphore::new(limits.at_once));
    let mut calls = JoinSet::new();
    loop {
        let taken = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = calls.join_next() => {}
            (place, accepted) = taken => match accepted {
                Ok((stream, _)) => {
                    let service = service.borrow().clone();
                    let board = board.clone();
                    calls.spawn(async move {
                        let _place = place;
                        if let Err(error) = call(stream, uid, service, &board, limits.deadline).await {
                            tracing::warn!(%error, "a call at the CNI socket was not answered");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "no call can be taken at the CNI socket");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let ended = async { while calls.join_next().await.is_some() {} };
    // The plugin asks again whose call is cut off.
    let _ = tokio::time::timeout(DRAIN, ended).await;
    sockets::remove(file).await;
}

async fn call(
    mut stream: UnixStream,
    uid: u32,
    service: Served,
    board: &CniBoard,
    deadline: Duration,
) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    let text = in_time(deadline, read(&mut stream)).await?;
    // Who has given up may have asked again by now, for something else.
    if stream.ready(Interest::WRITABLE).await?.is_write_closed() {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let answer = match service {
        _ if peer != uid => refused(
            Code::DecodingFailure,
            &format!("only uid {uid} may ask here, not {peer}"),
        ),
        _ if text.len() as u64 > MAX_MESSAGE => refused(
            Code::DecodingFailure,
            &format!("the question is longer than {MAX_MESSAGE} bytes"),
        ),
        Err(why) => unavailable(&text, &why, board),
        Ok(service) => answer(service, text, WORK).await?,
    };
    let text = serde_json::to_vec(&answer)?;
    in_time(deadline, stream.write_all(&text)).await
}

/// What takes too long goes on to its end: cut off in the middle, nobody would take back what it did.
///
/// # Errors
/// It takes longer than `within`. The connection ends without an answer then: a refusal would say that nothing is kept.
pub(super) async fn answer(
    service: Arc<CniService>,
    text: Vec<u8>,
    within: Duration,
) -> io::Result<Answer> {
    let work = tokio::spawn(async move { service.answer(&text).await });
    let answer = tokio::time::timeout(within, work).await?;
    Ok(answer.unwrap_or_else(|_| refused(Code::TryAgain, "fipd could not do it; ask again")))
}

/// The answer where nothing is served. The node's health shows the call; STATUS has a code of its own.
fn unavailable(text: &[u8], why: &str, board: &CniBoard) -> Answer {
    let Ok(ask) = serde_json::from_slice::<Ask>(text) else {
        return refused(Code::TryAgain, why);
    };
    let code = match ask.command {
        Verb::Status => Code::NotAvailable,
        Verb::Add | Verb::Del | Verb::Check | Verb::Gc | Verb::Version => Code::TryAgain,
    };
    board.asked_by(&ask.version);
    let error = refusal(code, why);
    match &ask.step {
        AskStep::Report(failure) => board.failed(ask.command, failure),
        AskStep::Begin | AskStep::Probed(_) | AskStep::Made(_) | AskStep::Failed(_) => {
            board.failed(ask.command, &error);
        }
    }
    answered(error)
}

async fn read(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(BUFFER);
    stream.take(MAX_MESSAGE + 1).read_to_end(&mut text).await?;
    Ok(text)
}

async fn in_time<T>(
    deadline: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let done = tokio::time::timeout(deadline, work).await;
    done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn refused(code: Code, why: &str) -> Answer {
    answered(refusal(code, why))
}

fn refusal(code: Code, why: &str) -> CniError {
    CniError::new(NEWEST, code, "fipd does not take the call", why)
}

fn answered(error: CniError) -> Answer {
    Answer {
        reply: Reply::Error(error),
        replayed: 0,
    }
}
