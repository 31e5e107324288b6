//! A database file seen through a layer that keeps all writes in memory.
//!
//! Lets a check open, repair and verify a file that a crash left, or that is in use, without changing a byte of it.

use std::{collections::BTreeMap, fs, io, ops::Bound, path::Path};

use parking_lot::Mutex;
use redb::{BackendError, StorageBackend, backends::FileBackend};

/// The file below, the written pages above.
#[derive(Debug)]
pub(super) struct Overlay {
    file: FileBackend,
    /// Whether the file's locks are taken; not of a file that this process has open anyway.
    locks: bool,
    above: Mutex<Above>,
}

#[derive(Debug)]
struct Above {
    len: u64,
    /// Bytes at and beyond this offset of the file below do not show: the file was once set shorter.
    shows: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

const PAGE: u64 = Overlay::PAGE as u64;

impl Overlay {
    /// Bytes of what is kept in memory of a file at once; redb's header is in the first.
    pub(super) const PAGE: usize = 4096;

    /// Opens the file for reading only.
    pub(super) fn open(path: &Path) -> Result<Self, redb::DatabaseError> {
        Self::over(fs::File::open(path)?, true, BTreeMap::new())
    }

    /// The file as it was when its first page was `header`; that page may change meanwhile.
    pub(super) fn of_snapshot(
        file: fs::File,
        header: Vec<u8>,
    ) -> Result<Self, redb::DatabaseError> {
        Self::over(file, false, BTreeMap::from([(0, header)]))
    }

    fn over(
        file: fs::File,
        locks: bool,
        pages: BTreeMap<u64, Vec<u8>>,
    ) -> Result<Self, redb::DatabaseError> {
        let file = FileBackend::new(file)?;
        let len = file.len()?;
        Ok(Self {
            file,
            locks,
            above: Mutex::new(Above {
                len,
                shows: len,
                pages,
            }),
        })
    }

    /// The file, if its locks are taken.
    fn locks(&self) -> Option<&FileBackend> {
        self.locks.then_some(&self.file)
    }

    /// The page as it is seen now.
    fn page(&self, above: &Above, number: u64) -> io::Result<Vec<u8>> {
        if let Some(page) = above.pages.get(&number) {
            return Ok(page.clone());
        }
        let mut page = vec![0; Self::PAGE];
        let start = number * PAGE;
        let there = above.shows.saturating_sub(start).min(PAGE) as usize;
        if let Some(part) = page.get_mut(..there) {
            self.file.read(start, part)?;
        }
        Ok(page)
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.above.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let above = self.above.lock();
        let end = offset + out.len() as u64;
        if end > above.len {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "beyond the end of the file",
            ));
        }
        let mut written = above.pages.range(offset / PAGE..end.div_ceil(PAGE));
        if written.next().is_none() && end <= above.shows {
            return self.file.read(offset, out);
        }
        let mut at = offset;
        let mut out = out;
        while !out.is_empty() {
            let page = self.page(&above, at / PAGE)?;
            let from = page.get((at % PAGE) as usize..).unwrap_or_default();
            let count = from.len().min(out.len());
            let (head, tail) = out.split_at_mut(count);
            head.copy_from_slice(from.get(..count).unwrap_or_default());
            out = tail;
            at += count as u64;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut above = self.above.lock();
        above.len = len;
        above.shows = above.shows.min(len);
        let cut = above.pages.split_off(&len.div_ceil(PAGE));
        drop(cut);
        if let Some(page) = above.pages.get_mut(&(len / PAGE)) {
            page.iter_mut()
                .skip((len % PAGE) as usize)
                .for_each(|byte| *byte = 0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut above = self.above.lock();
        let mut at = offset;
        let mut data = data;
        while !data.is_empty() {
            let mut page = self.page(&above, at / PAGE)?;
            let into = page.get_mut((at % PAGE) as usize..).unwrap_or_default();
            let count = into.len().min(data.len());
            let (head, tail) = data.split_at(count);
            if let Some(into) = into.get_mut(..count) {
                into.copy_from_slice(head);
            }
            above.pages.insert(at / PAGE, page);
            data = tail;
            at += count as u64;
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    /// A shared lock is enough to keep a daemon out, and all that a file opened for reading can have.
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.try_lock_shared_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        let locks = self.locks();
        locks.map_or(Ok(true), |file| file.try_lock_shared_range(start, end))
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.lock_shared_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        let locks = self.locks();
        locks.map_or(Ok(()), |file| file.lock_shared_range(start, end))
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        let locks = self.locks();
        locks.map_or(Ok(()), |file| file.unlock_range(start, end))
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        let locks = self.locks();
        locks.map_or(Ok(false), |file| file.query_lock_range(start, end))
    }
}
