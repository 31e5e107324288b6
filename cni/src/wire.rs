//! What the plugin and the daemon say to each other over `/run/fipd/cni.sock`.
//!
//! One question a connection: the plugin writes an [`Ask`] as JSON and shuts its side down; the daemon answers with one
//! [`Answer`] as JSON and closes. Asking again is free, so whoever lost the answer asks again.

use std::{
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    CniError, Verb,
    attachment::{Attachment, Made, ProbeResult},
};

/// Where the daemon listens, for uid 0 only.
pub const SOCKET: &str = "/run/fipd/cni.sock";
/// The largest question and the largest answer, in bytes: more than any runtime sends.
pub const MAX_MESSAGE: u64 = 1 << 20;
/// Before a question is asked again whose answer was lost.
const AGAIN: Duration = Duration::from_millis(100);

/// What a runtime asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ask {
    /// `CNI_COMMAND`.
    pub command: Verb,
    /// How far the plugin is.
    #[serde(default)]
    pub step: AskStep,
    /// The parameters of the specification's section 2, as the runtime gave them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub netns: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ifname: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub args: String,
    /// The network configuration from standard input.
    pub config: Box<RawValue>,
}

/// `ADD` asks more than once; other verbs once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AskStep {
    /// Answered by [`Reply::Attachment`].
    #[default]
    Begin,
    /// The addresses of the attachment have been probed; answered by [`Reply::Attachment`], with others where somebody else uses them.
    Probed(Vec<ProbeResult>),
    /// The interface is there; answered by an empty [`Reply::Output`].
    Made(Made),
    /// Of `DEL`: it takes back what `ADD` asked for, which failed in the container. Answered by an empty [`Reply::Output`].
    Failed(CniError),
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub reply: Reply,
    /// The spool's entries up to this number are done, and may be deleted.
    #[serde(default)]
    pub replayed: u64,
}

/// What the daemon says to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// It is done; the text is for standard output and mostly empty.
    Output(String),
    /// What to make. Nothing of it is there yet but the parent.
    Attachment(Box<Attachment>),
    Error(CniError),
}

/// Asks the daemon behind `socket`. A daemon that ends before it answers is asked again until `deadline`; a socket that nobody
/// listens on is told at once.
///
/// # Errors
/// When nobody listens, or no answer came within `deadline`.
pub fn ask(socket: &Path, ask: &Ask, deadline: Duration) -> io::Result<Answer> {
    let text = serde_json::to_vec(ask)?;
    let socket = socket.to_owned();
    let (tell, told) = mpsc::channel();
    // A thread of its own: neither connecting to a full queue nor waiting has a deadline otherwise.
    thread::spawn(move || {
        let end = Instant::now() + deadline;
        loop {
            match exchange(&socket, &text) {
                Err(error) if lost(&error) && Instant::now() < end => thread::sleep(AGAIN),
                result => {
                    // Nobody waits any more after the deadline.
                    let _ = tell.send(result);
                    return;
                }
            }
        }
    });
    told.recv_timeout(deadline)
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Whether the daemon was there and went away.
fn lost(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn exchange(socket: &Path, text: &[u8]) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(text)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.take(MAX_MESSAGE).read_to_end(&mut answer)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&answer).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn add() -> Ask {
        Ask {
            command: Verb::Add,
            step: AskStep::Begin,
            container_id: "c1".into(),
            netns: String::new(),
            ifname: "eth0".into(),
            args: String::new(),
            config: RawValue::from_string(r#"{"cniVersion":"1.1.0"}"#.into()).unwrap(),
        }
    }

    fn done() -> Answer {
        Answer {
            reply: Reply::Output("done".into()),
            replayed: 3,
        }
    }

    fn answer(stream: UnixStream) -> Ask {
        let asked = serde_json::from_reader(&stream).unwrap();
        serde_json::to_writer(&stream, &done()).unwrap();
        asked
    }

    #[test]
    fn a_question_whose_answer_is_lost_is_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let daemon = thread::spawn(move || {
            drop(listener.accept().unwrap());
            answer(listener.accept().unwrap().0)
        });
        let reply = ask(&path, &add(), Duration::from_secs(60)).unwrap();
        assert_eq!(reply, done());
        let asked = daemon.join().unwrap();
        assert_eq!((asked.command, asked.ifname.as_str()), (Verb::Add, "eth0"));
    }

    #[test]
    fn who_does_not_answer_is_given_up_and_who_is_not_there_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let error = ask(&path, &add(), Duration::from_secs(60)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let _silent = UnixListener::bind(&path).unwrap();
        let error = ask(&path, &add(), Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
