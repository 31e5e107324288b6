//! Reads of files that others put there: a path may lead to a FIFO, a device or a file system that does not answer.
//!
//! Nothing but a regular file of a bounded length is read. What hangs takes one thread, not one at each try, and its caller has
//! a deadline.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use nix::fcntl::OFlag;
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, Semaphore};

/// The longest kubeconfig, token, key or CA file, in bytes.
pub const LONGEST: u64 = 1 << 20;
/// Until a file is read.
const DEADLINE: Duration = Duration::from_secs(5);
/// Files that are read at once; threads that hang count.
const AT_ONCE: usize = 32;

static SLOTS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(AT_ONCE)));
/// One reader of a path at a time.
static TURNS: Mutex<BTreeMap<PathBuf, Arc<Turn<()>>>> = Mutex::new(BTreeMap::new());

/// Opens a regular file for reading; never waits for somebody at the other end. Blocks on the disk.
///
/// # Errors
/// There is none, or it is something else.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Reads a regular file of at most `most` bytes. Blocks on the disk.
///
/// # Errors
/// It cannot be read, is something else or is longer.
pub fn read_now(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it is longer than {most} bytes")));
    }
    Ok(bytes)
}

/// The same on a thread for it, with a deadline.
///
/// # Errors
/// As [`read_now`], and where it does not answer.
pub async fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let of = path.to_owned();
    run(path, move || read_now(&of, most)).await
}

/// The same as text.
///
/// # Errors
/// As [`read`], and where it is no UTF-8.
pub async fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let bytes = read(path, most).await?;
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Runs `work`, which blocks on the file of that path, on a thread for it.
///
/// # Errors
/// Those of `work`, and where it has not ended by the deadline.
pub async fn run<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let turn = turn(path);
    let slots = Arc::clone(&SLOTS);
    let done = async {
        // Both are kept by the thread, so that one that hangs is not joined by another.
        let turn = turn.lock_owned().await;
        let slot = slots.acquire_owned().await.map_err(io::Error::other)?;
        let work = move || {
            let done = work();
            drop((turn, slot));
            done
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(io::Error::other)?
    };
    match tokio::time::timeout(DEADLINE, done).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("it was not read within {} s", DEADLINE.as_secs()),
        )),
    }
}

fn turn(path: &Path) -> Arc<Turn<()>> {
    let mut turns = TURNS.lock();
    // Those that nobody waits for or holds go.
    turns.retain(|_, turn| Arc::strong_count(turn) > 1);
    Arc::clone(turns.entry(path.to_owned()).or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    #[tokio::test]
    async fn a_fifo_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let error = read(&path, LONGEST).await.unwrap_err();
        assert_eq!(error.to_string(), "it is not a regular file");
    }

    #[tokio::test]
    async fn devices_directories_and_long_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("long");
        std::fs::write(&long, [b'x'; 100]).unwrap();
        for (path, says) in [
            (Path::new("/dev/zero"), "not a regular file"),
            (dir.path(), "not a regular file"),
            (&long, "longer than 99 bytes"),
        ] {
            let error = read(path, 99).await.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert_eq!(read(&long, 100).await.unwrap().len(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn what_hangs_takes_one_thread_and_others_go_on() {
        let path = Path::new("/a/hung/mount");
        let (release, hangs) = mpsc::channel::<()>();
        let began = Arc::new(Mutex::new(0));
        let hangs = Arc::new(Mutex::new(hangs));
        for _ in 0..10 {
            let (began, hangs) = (Arc::clone(&began), Arc::clone(&hangs));
            let tried = run(path, move || {
                *began.lock() += 1;
                let _ = hangs.lock().recv();
                Ok(())
            });
            // The paused clock does not move by itself while a thread works.
            let tried = tokio::spawn(async move { tried.await.map_err(|error| error.kind()) });
            tokio::task::yield_now().await;
            tokio::time::advance(DEADLINE).await;
            assert_eq!(tried.await.unwrap(), Err(io::ErrorKind::TimedOut));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "text").unwrap();
        assert_eq!(read_text(file.path(), LONGEST).await.unwrap(), "text");
        assert!(*began.lock() <= 1);
        drop(release);
    }
}
