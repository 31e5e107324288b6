//! A stand-in for the daemon: it answers at a socket what a test scripts.

use std::{
    io::Write as _,
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use fipd_cni::{Answer, Ask, AskStep, CniError, Reply, Verb, attachment::Attachment};

pub struct StandIn {
    socket: PathBuf,
    asked: Arc<Mutex<Vec<(Verb, AskStep)>>>,
    reported: Arc<Mutex<Vec<(Verb, CniError)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StandIn {
    /// Answers each question by `script`, and everything up to `replayed` as replayed.
    pub fn new(
        socket: &Path,
        replayed: u64,
        mut script: impl FnMut(&Ask) -> Reply + Send + 'static,
    ) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let reported = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (heard, told, end) = (Arc::clone(&asked), Arc::clone(&reported), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let ask: Ask = serde_json::from_reader(&stream).unwrap();
                let reply = match &ask.step {
                    AskStep::Report(failure) => {
                        told.lock().unwrap().push((ask.command, failure.clone()));
                        done()
                    }
                    _ => {
                        let reply = script(&ask);
                        heard.lock().unwrap().push((ask.command, ask.step));
                        reply
                    }
                };
                let answer = serde_json::to_vec(&Answer { reply, replayed }).unwrap();
                stream.write_all(&answer).unwrap();
                stream.shutdown(Shutdown::Both).unwrap();
            }
        });
        Self {
            socket: socket.to_owned(),
            asked,
            reported,
            stop,
            thread: Some(thread),
        }
    }

    /// Gives one attachment and agrees with everything else.
    pub fn giving(socket: &Path, attachment: Attachment) -> Self {
        Self::new(socket, 0, move |ask| match (ask.command, &ask.step) {
            (Verb::Add, AskStep::Begin) => Reply::Attachment(Box::new(attachment.clone())),
            _ => done(),
        })
    }

    /// Verb and code of each failure that the plugin reported.
    pub fn reported(&self) -> Vec<(Verb, u32)> {
        let reported = self.reported.lock().unwrap();
        reported
            .iter()
            .map(|(verb, one)| (*verb, one.code))
            .collect()
    }

    /// What it was asked so far, beside reports.
    pub fn asked(&self) -> Vec<(Verb, AskStep)> {
        self.asked.lock().unwrap().clone()
    }

    pub fn verbs(&self) -> Vec<Verb> {
        self.asked().into_iter().map(|(verb, _)| verb).collect()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.socket);
        let _ = self.thread.take().unwrap().join();
        let _ = std::fs::remove_file(&self.socket);
    }
}

pub fn done() -> Reply {
    Reply::Output(String::new())
}
