//! The socket that CNI plugins ask, for uid 0 only.
//!
//! No pod network is served by this version: `STATUS` says so, `ADD` and `CHECK` are refused in the specification's form, and
//! `DEL` and `GC` have nothing to undo. The plugin enters namespaces, never the daemon.

use std::{io, sync::Arc, time::Duration};

use fipd_cni::{Ask, CniError, Code, MAX_MESSAGE, NetConf, Reply, Verb};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    sync::Semaphore,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::sockets::{self, Listening};

/// Mode of the socket's file where the daemon makes it.
pub const MODE: u32 = 0o600;
/// Calls at once; more wait in the socket's queue.
const AT_ONCE: usize = 64;
/// How long a plugin may take to send its question and to take the answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long calls that were taken have to end when the daemon stops.
const DRAIN: Duration = Duration::from_secs(2);
/// Before the next call is taken when the system has no more descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`. What was not taken by then stays in the queue where the socket outlives the daemon.
pub async fn serve(socket: Listening, uid: u32, stop: CancellationToken) {
    let (listener, file) = socket.into_parts();
    let places = Arc::new(Semaphore::new(AT_ONCE));
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
                    calls.spawn(async move {
                        let _place = place;
                        if let Err(error) = call(stream, uid).await {
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

async fn call(mut stream: UnixStream, uid: u32) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    let exchange = async {
        let mut text = Vec::new();
        (&mut stream)
            .take(MAX_MESSAGE)
            .read_to_end(&mut text)
            .await?;
        let reply = if peer == uid {
            reply(&text)
        } else {
            refused(&format!("only uid {uid} may ask here, not {peer}"))
        };
        stream.write_all(&serde_json::to_vec(&reply)?).await
    };
    tokio::time::timeout(DEADLINE, exchange)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn refused(why: &str) -> Reply {
    Reply::Error(CniError::new(
        "1.1.0",
        Code::DecodingFailure,
        "fipd does not take the call",
        why,
    ))
}

/// The answer to what a plugin sent.
pub fn reply(text: &[u8]) -> Reply {
    match serde_json::from_slice(text) {
        Ok(ask) => answer(&ask).map_or_else(Reply::Error, Reply::Output),
        Err(error) => refused(&error.to_string()),
    }
}

fn answer(ask: &Ask) -> Result<String, CniError> {
    if ask.command == Verb::Version {
        return fipd_cni::version(ask.config.get());
    }
    let conf = NetConf::parse(ask.config.get())?;
    tracing::debug!(command = ?ask.command, network = conf.name, container = ask.container_id, "a CNI plugin asks");
    match ask.command {
        Verb::Del | Verb::Gc | Verb::Version => Ok(String::new()),
        Verb::Add | Verb::Check | Verb::Status => Err(CniError::new(
            &conf.cni_version,
            Code::NotAvailable,
            "fipd serves no pod network on this host",
            format!(
                "network {:?}: this version of fipd has no pod networks; use another CNI plugin",
                conf.name
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(command: &str) -> Reply {
        let conf = r#"{"cniVersion":"1.0.0","name":"flat","type":"fipd-cni"}"#;
        reply(format!(r#"{{"command":"{command}","containerId":"c","config":{conf}}}"#).as_bytes())
    }

    #[test]
    fn adding_is_refused_and_deleting_has_nothing_to_undo() {
        for verb in ["ADD", "CHECK", "STATUS"] {
            let Reply::Error(error) = asked(verb) else {
                panic!("{verb} is served")
            };
            assert_eq!((error.code, error.cni_version.as_str()), (50, "1.0.0"));
        }
        for verb in ["DEL", "GC"] {
            assert_eq!(asked(verb), Reply::Output(String::new()));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "{}", r#"{"command":"PUT","config":{}}"#, "\u{0}"] {
            assert!(matches!(reply(text.as_bytes()), Reply::Error(_)), "{text}");
        }
    }

    #[tokio::test]
    async fn only_one_user_may_ask() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cni.sock");
        let own = nix::unistd::geteuid().as_raw();
        for (uid, expected) in [(own, "no pod network"), (own + 1, "does not take the call")] {
            let socket = Listening::open(None, &path, MODE).unwrap();
            let stop = CancellationToken::new();
            let serving = tokio::spawn(serve(socket, uid, stop.clone()));
            let mut stream = UnixStream::connect(&path).await.unwrap();
            let text = br#"{"command":"STATUS","config":{"cniVersion":"1.1.0"}}"#;
            stream.write_all(text).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.contains(expected), "{uid}: {answer}");
            stop.cancel();
            serving.await.unwrap();
            assert!(!path.exists());
        }
    }
}
