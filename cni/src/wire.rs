//! What the plugin and the daemon say to each other over `/run/fipd/cni.sock`.
//!
//! One question a connection: the plugin writes an [`Ask`] as JSON and shuts its side down; the daemon answers with one
//! [`Answer`] as JSON and closes. Asking again is free, so whoever lost the answer asks again.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown},
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
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
/// The most addresses in a question.
pub const MOST_ADDRESSES: usize = 16;
/// Before a question is asked again whose answer was lost.
const AGAIN: Duration = Duration::from_millis(100);
/// Most answers fit.
const BUFFER: usize = 4 << 10;

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
    /// Of the plugin.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Of `DEL` of a pod: what its interface had beside link-local ones, at most [`MOST_ADDRESSES`]; none where it was gone already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
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
    /// The call failed in the plugin, and asks for nothing. Answered by an empty [`Reply::Output`].
    Report(CniError),
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

/// What came of a question.
#[derive(Debug)]
pub struct AskOutcome {
    /// An error where nobody listens, or no answer came in time.
    pub answer: io::Result<Answer>,
    /// An answer before this one was lost: what was asked for may be done, whatever this one says.
    pub repeated: bool,
}

/// Asks the daemon behind `socket`. Asks again until `deadline` where the daemon ends or hangs up before it answers; fails at
/// once where nobody listens.
pub fn ask(socket: &Path, ask: &Ask, deadline: Duration) -> AskOutcome {
    let mut repeated = false;
    let end = Instant::now() + deadline;
    let text = serde_json::to_vec(ask).map_err(io::Error::from);
    let answer = text.and_then(|text| {
        loop {
            match exchange(socket, &text, end) {
                Err(error) if lost(&error) && Instant::now() < end => thread::sleep(AGAIN),
                result => return result,
            }
            repeated = true;
        }
    });
    AskOutcome { answer, repeated }
}

/// Whether the daemon was there and went away, or took too long and hung up.
fn lost(error: &io::Error) -> bool {
    // A signal ends a wait for a place in the queue.
    use io::ErrorKind::{BrokenPipe, ConnectionReset, Interrupted, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionReset | Interrupted | UnexpectedEof
    )
}

fn exchange(socket: &Path, text: &[u8], end: Instant) -> io::Result<Answer> {
    let mut connection = Connection::open(socket, end)?;
    connection.write_all(text)?;
    connection.stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::with_capacity(BUFFER);
    connection.take(MAX_MESSAGE).read_to_end(&mut answer)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&answer).map_err(io::Error::from)
}

/// A connection that ends in time: neither connecting to a full queue nor waiting has a deadline otherwise.
struct Connection {
    stream: UnixStream,
    end: Instant,
}

impl Connection {
    fn open(path: &Path, end: Instant) -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        let stream = UnixStream::from(socket);
        // Connecting waits as long as a write may.
        stream.set_write_timeout(Some(left(end)?))?;
        let connected = connect(stream.as_raw_fd(), &UnixAddr::new(path)?);
        connected.map_err(|error| late(error.into()))?;
        Ok(Self { stream, end })
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.end)?))?;
        self.stream.read(buffer).map_err(late)
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.end)?))?;
        self.stream.write(bytes).map_err(late)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// What the kernel says when a socket's timeout is over.
fn late(error: io::Error) -> io::Error {
    match error.kind() == io::ErrorKind::WouldBlock {
        true => io::ErrorKind::TimedOut.into(),
        false => error,
    }
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
            version: String::new(),
            addresses: Vec::new(),
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
        let asked = ask(&path, &add(), Duration::from_secs(60));
        assert_eq!(asked.answer.unwrap(), done());
        assert!(asked.repeated);
        let asked = daemon.join().unwrap();
        assert_eq!((asked.command, asked.ifname.as_str()), (Verb::Add, "eth0"));
    }

    #[test]
    fn who_does_not_answer_is_given_up_and_who_is_not_there_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let asked = ask(&path, &add(), Duration::from_secs(60));
        assert_eq!(asked.answer.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!asked.repeated);
        let _silent = UnixListener::bind(&path).unwrap();
        let asked = ask(&path, &add(), Duration::from_millis(50));
        assert_eq!(asked.answer.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
