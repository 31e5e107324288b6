//! Records on their way to the log: a bounded queue and the one thread that writes.
//!
//! Whoever logs never waits. A reader that does not read (journald that is stopped, a pipe nobody empties) holds up the
//! thread alone; what finds the queue full is dropped and counted.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, LazyLock},
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use prometheus_client::metrics::counter::Counter;

/// Records that may wait.
const MOST: usize = 8_192;
/// Bytes of them that may wait.
const MOST_BYTES: usize = 8 << 20;

/// Records that the log of the process has dropped since the start.
pub static DROPPED: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Where records wait; cheap to clone. `R` is a record in the form that its sink writes.
pub(super) struct Queue<R>(Arc<Shared<R>>);

struct Shared<R> {
    waiting: Mutex<Waiting<R>>,
    /// A record came.
    came: Condvar,
    /// All that came is written.
    done: Condvar,
    /// Counts what is dropped.
    dropped: Counter,
}

struct Waiting<R> {
    records: VecDeque<(R, usize)>,
    bytes: usize,
    /// Dropped since a record was written last.
    dropped: u64,
    /// The thread has taken a record that it has not written yet.
    writing: bool,
}

impl<R> Clone for Queue<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Send + 'static> Queue<R> {
    /// Starts the thread that hands every record to `write`. `lost` makes the record that reports how many were dropped, which
    /// `dropped` counts.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        mut write: impl FnMut(R) + Send + 'static,
        lost: impl Fn(u64) -> R + Send + 'static,
        dropped: Counter,
    ) -> io::Result<Self> {
        let queue = Self(Arc::new(Shared {
            waiting: Mutex::new(Waiting {
                records: VecDeque::new(),
                bytes: 0,
                dropped: 0,
                writing: false,
            }),
            came: Condvar::new(),
            done: Condvar::new(),
            dropped,
        }));
        let shared = Arc::clone(&queue.0);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                loop {
                    let (record, dropped) = shared.next();
                    if dropped > 0 {
                        write(lost(dropped));
                    }
                    write(record);
                }
            })?;
        Ok(queue)
    }

    /// Queues a record of so many bytes, or drops it where too many wait. Never waits for the thread that writes.
    pub fn push(&self, record: R, bytes: usize) {
        let mut waiting = self.0.waiting.lock();
        if waiting.records.len() >= MOST || waiting.bytes.saturating_add(bytes) > MOST_BYTES {
            waiting.dropped += 1;
            self.0.dropped.inc();
            return;
        }
        waiting.bytes += bytes;
        waiting.records.push_back((record, bytes));
        drop(waiting);
        self.0.came.notify_one();
    }

    /// Waits until everything is written, for `most` at most.
    pub fn flush(&self, most: Duration) {
        let end = Instant::now() + most;
        let mut waiting = self.0.waiting.lock();
        while waiting.writing || !waiting.records.is_empty() {
            if self.0.done.wait_until(&mut waiting, end).timed_out() {
                return;
            }
        }
    }
}

impl<R> Shared<R> {
    /// The next record, and how many were dropped before it.
    fn next(&self) -> (R, u64) {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some((record, bytes)) = waiting.records.pop_front() {
                waiting.bytes -= bytes;
                waiting.writing = true;
                return (record, std::mem::take(&mut waiting.dropped));
            }
            waiting.writing = false;
            self.done.notify_all();
            self.came.wait(&mut waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::UnixDatagram,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// Long enough for a loaded machine; nothing waits that long unless it hangs.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_journald_that_does_not_read_holds_up_nobody_and_what_it_misses_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let journald = UnixDatagram::bind(dir.path().join("socket")).unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        socket.connect(dir.path().join("socket")).unwrap();
        let counter = Counter::default();
        let queue = Queue::start(
            move |record: Vec<u8>| drop(socket.send(&record)),
            |dropped| format!("{dropped} dropped").into_bytes(),
            counter.clone(),
        )
        .unwrap();
        let sent = 3 * MOST;
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || {
                for _ in 0..sent {
                    queue.push(vec![b'x'; 100], 100);
                }
            })
        };
        let end = Instant::now() + LONG;
        while !worker.is_finished() {
            assert!(Instant::now() < end, "the worker waits for the log");
            thread::yield_now();
        }
        let dropped = counter.get();
        assert!(dropped > 0, "more came than may wait");
        // It reads again: all that waited arrives, and one record reports the rest.
        let mut buffer = [0; 200];
        let mut reports = Vec::new();
        let mut records = 0;
        journald.set_read_timeout(Some(LONG)).unwrap();
        while records < sent - usize::try_from(dropped).unwrap() {
            let length = journald.recv(&mut buffer).unwrap();
            match std::str::from_utf8(&buffer[..length]).unwrap() {
                report if report.ends_with(" dropped") => reports.push(report.to_owned()),
                _ => records += 1,
            }
        }
        // Where the last one was dropped the report comes with the next record.
        queue.push(b"last".to_vec(), 4);
        while reports.is_empty() {
            let length = journald.recv(&mut buffer).unwrap();
            let text = std::str::from_utf8(&buffer[..length]).unwrap().to_owned();
            if text.ends_with(" dropped") {
                reports.push(text);
            }
        }
        let reported = reports.iter().map(|report| {
            let number = report.split(' ').next().unwrap();
            number.parse::<u64>().unwrap()
        });
        assert!(reported.sum::<u64>() <= dropped);
    }

    #[test]
    fn large_records_count_by_their_bytes() {
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock();
        let wait = Arc::clone(&gate);
        let write = move |_: ()| drop(wait.lock());
        let queue = Queue::start(write, |_| (), Counter::default()).unwrap();
        for _ in 0..20 {
            queue.push((), MOST_BYTES / 8);
        }
        let waiting = queue.0.waiting.lock();
        assert!(waiting.records.len() <= 8 && waiting.dropped >= 11);
        drop(waiting);
        drop(closed);
        queue.flush(LONG);
        assert_eq!(queue.0.waiting.lock().bytes, 0);
    }

    #[test]
    fn flush_waits_until_all_is_written() {
        let written = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&written);
        let write = move |()| {
            count.fetch_add(1, Ordering::SeqCst);
        };
        let queue = Queue::start(write, |_| (), Counter::default()).unwrap();
        for _ in 0..500 {
            queue.push((), 1);
        }
        queue.flush(LONG);
        assert_eq!(written.load(Ordering::SeqCst), 500);
    }
}
