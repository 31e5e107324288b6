//! What the store lies on: a file in the data directory, or what a test puts in its place.
//!
//! Owns the file's mode, the ballast beside it and the question how much room is left. Knows nothing of
//! tables and rows.

use std::{
    ffi::{OsStr, OsString},
    fmt, fs,
    io::{self, Read as _},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, RenameFlags, renameat2},
};
use parking_lot::Mutex;
use redb::{Builder, Database, DatabaseError};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::{high_water::RecordFile, host_id::HostId};
use crate::private_file;

/// Bytes of the page that every commit writes.
const HEADER: usize = 4096;
/// After the first ballast that could not be written; doubles with each further one.
const BALLAST_PAUSE: Duration = Duration::from_secs(1);
const BALLAST_PAUSE_MAX: Duration = Duration::from_secs(300);
/// A file that was begun longer ago belongs to nobody who is still at it.
const STALE: Duration = Duration::from_secs(60);

/// What the names of databases in the making have after that of the database.
pub(super) const NEW: &str = ".new-";
/// The same of backups that are not in place yet.
pub(super) const RESTORE: &str = ".restore-";

/// Where a database lies.
pub trait Medium: fmt::Debug + Send + Sync {
    /// What to call it in messages.
    fn path(&self) -> &Path;
    /// Opens the database, makes it where there is none.
    ///
    /// # Errors
    /// What redb says; nothing is changed when the file is locked.
    fn open(&self, builder: &Builder) -> Result<Database, DatabaseError>;
    /// Called between closing a database whose write failed and opening it again: afterwards reads show what is
    /// really on the disk.
    ///
    /// # Errors
    /// When that cannot be had; the caller tries again later.
    fn settle(&self) -> io::Result<()>;
    /// Bytes that can still be written.
    ///
    /// # Errors
    /// When the file system does not say.
    fn free(&self) -> io::Result<u64>;
    /// Bytes of disk the database uses.
    ///
    /// # Errors
    /// When the file system does not say.
    fn used(&self) -> io::Result<u64>;
    /// The file, to read beside the database; `None` where there is none.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn file(&self) -> io::Result<Option<fs::File>> {
        Ok(None)
    }
    /// Where it is recorded how far the database has come; `None`: nowhere.
    fn record(&self) -> Option<&RecordFile> {
        None
    }
    /// Called after each write to the database: what is there now is this process's.
    fn note_own_write(&self) {}
    /// Why what is at the path is not what this process opened and wrote last; `None`: it is.
    fn replaced(&self) -> Option<String> {
        None
    }
    /// Frees the room kept for emergencies.
    fn drop_ballast(&self);
    /// Keeps room for emergencies again, where it does not yet and there is room to keep.
    fn keep_ballast(&self);
}

/// A file and its ballast (`NAME.ballast` beside it).
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    ballast: PathBuf,
    ballast_bytes: u64,
    /// It is there: a commit need not look.
    laid: AtomicBool,
    /// It could not be written although there was room: when it may be tried again, and the pause after that.
    retry: Mutex<Option<(Instant, Duration)>>,
    record: RecordFile,
    /// What this process has open.
    opened: Mutex<Option<OpenFile>>,
}

/// A file, and what this process wrote last to its first page.
#[derive(Debug)]
struct OpenFile {
    /// To read beside the database; a handle of its own, as locks belong to handles.
    file: fs::File,
    entry: FileEntry,
    header: [u8; HEADER],
}

/// Which file it is, and its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileEntry {
    device: (u32, u32),
    inode: u64,
    length: u64,
}

impl FileEntry {
    /// Of the file with this name.
    fn at(path: &Path) -> io::Result<Self> {
        Self::of(CWD, path.as_os_str(), AtFlags::empty())
    }

    fn of_file(file: &fs::File) -> io::Result<Self> {
        Self::of(file.as_fd(), OsStr::new(""), AtFlags::EMPTY_PATH)
    }

    /// Asks for no times: once mtime was read, Linux (6.13, multigrain timestamps) gives the next write a time of its own, and
    /// that change of the inode costs a commit an eighth of its time.
    fn of(dir: BorrowedFd<'_>, path: &OsStr, flags: AtFlags) -> io::Result<Self> {
        let found = statx(dir, path, flags, StatxFlags::INO | StatxFlags::SIZE)?;
        Ok(Self {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            length: found.stx_size,
        })
    }

    fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl OpenFile {
    fn of(path: &Path) -> io::Result<Self> {
        let file = fs::File::open(path)?;
        Ok(Self {
            entry: FileEntry::of_file(&file)?,
            header: header(&file)?,
            file,
        })
    }

    fn look(&mut self) -> io::Result<()> {
        self.entry = FileEntry::of_file(&self.file)?;
        self.header = header(&self.file)?;
        Ok(())
    }

    fn replaced(&self, path: &Path) -> Option<String> {
        let entry = match FileEntry::at(path) {
            Ok(entry) => entry,
            Err(error) => return Some(format!("it cannot be found any more ({error})")),
        };
        if !entry.is_same_file(&self.entry) {
            return Some("another file has its name".to_owned());
        }
        match header(&self.file) {
            Ok(header) if entry == self.entry && header == self.header => None,
            Ok(_) => Some("another program has written to it".to_owned()),
            Err(error) => Some(format!("its first page cannot be read ({error})")),
        }
    }
}

fn header(file: &fs::File) -> io::Result<[u8; HEADER]> {
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0)?;
    Ok(header)
}

impl Disk {
    /// `ballast_bytes`: room kept beside the file; 0 keeps none.
    pub(super) fn new(path: &Path, ballast_bytes: u64) -> Self {
        Self::on_host(path, ballast_bytes, None)
    }

    /// As [`Self::new`], on a host that is known.
    pub(super) fn on_host(path: &Path, ballast_bytes: u64, host: Option<HostId>) -> Self {
        Self {
            path: path.to_owned(),
            ballast: path.with_added_extension("ballast"),
            ballast_bytes,
            laid: AtomicBool::new(false),
            retry: Mutex::new(None),
            record: RecordFile::beside(path, host),
            opened: Mutex::new(None),
        }
    }

    /// An empty database gets its name only when it is complete, so that a power cut leaves none or one that opens.
    fn make(&self, builder: &Builder) -> Result<(), DatabaseError> {
        let new = beside(&self.path, NEW);
        let made = self.make_as(&new, builder);
        if made.is_err() {
            // Mostly gone already. One that stays is swept by a later start.
            let _ = fs::remove_file(&new);
        }
        made
    }

    /// Removes what earlier starts left half made.
    pub(super) fn sweep(&self) {
        let prefixes = [NEW, RESTORE].map(|what| prefix(&self.path, what));
        let left = fs::read_dir(directory(&self.path)).into_iter().flatten();
        for path in left.flatten().map(|entry| entry.path()) {
            let name = path.as_os_str().as_encoded_bytes();
            let ours = prefixes
                .iter()
                .any(|prefix| name.starts_with(prefix.as_encoded_bytes()));
            if ours && is_stale(&path) {
                match fs::remove_file(&path) {
                    Ok(()) => {
                        tracing::info!(path = %path.display(), "removed; a start or a restore left it")
                    }
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "cannot be removed");
                    }
                }
            }
        }
    }

    fn make_as(&self, new: &Path, builder: &Builder) -> Result<(), DatabaseError> {
        drop(builder.create_file(private_file::create(new)?)?);
        fs::File::open(new)?.sync_all()?;
        publish(new, &self.path).or_else(|error| {
            fs::remove_file(new)?;
            // Somebody else has just made one: theirs is as good.
            if error.kind() == io::ErrorKind::AlreadyExists {
                Ok(())
            } else {
                Err(error)
            }
        })?;
        Ok(())
    }

    fn write_ballast(&self) -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.ballast)?;
        let wanted = i64::try_from(self.ballast_bytes).unwrap_or(i64::MAX);
        if nix::fcntl::posix_fallocate(&file, 0, wanted).is_err() {
            // A file system without fallocate: write it out.
            io::copy(&mut io::repeat(0).take(self.ballast_bytes), &mut file)?;
        }
        file.sync_all()
    }
}

impl Medium for Disk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, builder: &Builder) -> Result<Database, DatabaseError> {
        if fs::symlink_metadata(&self.path).is_err() {
            self.make(builder)?;
        }
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.path)?;
        let locked = FileEntry::of_file(&file)?;
        let database = builder.create_file(file)?;
        let opened = OpenFile::of(&self.path)?;
        let mut slot = self.opened.lock();
        let before = slot.as_ref().map_or(locked, |before| before.entry);
        if !opened.entry.is_same_file(&locked) || !opened.entry.is_same_file(&before) {
            let error = io::Error::other("another file has its name now; start fipd again");
            return Err(DatabaseError::Storage(error.into()));
        }
        *slot = Some(opened);
        drop(slot);
        Ok(database)
    }

    fn record(&self) -> Option<&RecordFile> {
        Some(&self.record)
    }

    fn note_own_write(&self) {
        let mut slot = self.opened.lock();
        if let Some(opened) = &mut *slot
            && let Err(error) = opened.look()
        {
            // The next comparison fails as well, and says so.
            tracing::warn!(%error, "the first page of the store cannot be read");
        }
    }

    fn replaced(&self) -> Option<String> {
        self.opened.lock().as_ref()?.replaced(&self.path)
    }

    /// After a failed fsync Linux counts the lost pages as clean: a read would show what never reached the disk.
    /// So write out what still can be, then forget the cached pages.
    fn settle(&self) -> io::Result<()> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.path)?;
        file.sync_all()?;
        nix::fcntl::posix_fadvise(
            &file,
            0,
            0,
            nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED,
        )?;
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        let stat = nix::sys::statvfs::statvfs(directory(&self.path))?;
        Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
    }

    fn file(&self) -> io::Result<Option<fs::File>> {
        fs::File::open(&self.path).map(Some)
    }

    fn used(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.path)?.blocks().saturating_mul(512))
    }

    fn drop_ballast(&self) {
        self.laid.store(false, Ordering::Relaxed);
        if let Err(error) = fs::remove_file(&self.ballast)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.ballast.display(), %error, "the ballast cannot be removed");
        }
    }

    fn keep_ballast(&self) {
        if self.ballast_bytes == 0 || self.laid.load(Ordering::Relaxed) {
            return;
        }
        let mut retry = self.retry.lock();
        if retry.is_some_and(|(at, _)| Instant::now() < at) {
            return;
        }
        let there = fs::metadata(&self.ballast)
            .is_ok_and(|meta| meta.is_file() && meta.len() >= self.ballast_bytes);
        let room = || {
            self.free()
                .is_ok_and(|free| free >= self.ballast_bytes.saturating_mul(4))
        };
        if !there && !room() {
            return;
        }
        if !there && let Err(error) = self.write_ballast() {
            let pause = retry.map_or(BALLAST_PAUSE, |(_, next)| next);
            tracing::warn!(path = %self.ballast.display(), %error, ?pause, "the ballast cannot be kept; tried again");
            *retry = Some((Instant::now() + pause, (pause * 2).min(BALLAST_PAUSE_MAX)));
            self.drop_ballast();
            return;
        }
        *retry = None;
        self.laid.store(true, Ordering::Relaxed);
    }
}

/// Whether nobody writes it any more; where that is not known, somebody may.
fn is_stale(path: &Path) -> bool {
    let touched = fs::metadata(path).and_then(|meta| meta.modified());
    touched.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= STALE))
}

/// A name beside `path` that nobody else makes.
pub(super) fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = prefix(path, what);
    name.push(std::process::id().to_string());
    name.into()
}

fn prefix(path: &Path, what: &str) -> OsString {
    let mut prefix = path.as_os_str().to_owned();
    prefix.push(what);
    prefix
}

/// The directory that `path` is in.
pub(super) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

/// Gives a complete file its name for good, unless something has that name.
pub(super) fn publish(from: &Path, to: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        Ok(()) => {}
        // A file system that cannot promise not to replace: the name was free when we looked.
        Err(Errno::EINVAL | Errno::ENOSYS) => fs::rename(from, to)?,
        Err(error) => return Err(error.into()),
    }
    fs::File::open(directory(to))?.sync_all()
}
