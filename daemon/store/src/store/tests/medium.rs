//! A medium in memory that can be stopped at any sync and made to fail at any call.
//!
//! It keeps two images, as a computer does: `live` is what reads see (the page cache), `durable` what a power cut
//! leaves. A write is pending until a sync; a power cut keeps any part of what is pending, in sectors.

use std::{io, path::Path, sync::Arc};

use parking_lot::Mutex;
use redb::{Builder, Database, DatabaseError, StorageBackend};

use super::history::Dice;
use crate::store::{HighWater, Medium, RecordFile};

const SECTOR: usize = 512;

/// A call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Write,
    SetLen,
    Sync,
}

/// How much of a failing call reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persists {
    Nothing,
    Part,
    All,
}

/// The calls numbered `from` on fail, `times` of them, counted per kind from when the fault is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub call: Call,
    pub from: u32,
    pub times: u32,
    pub persists: Persists,
}

enum Pending {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

/// What a power cut may leave.
pub(super) struct Cut {
    pub image: Vec<u8>,
    /// The high-water record of that moment, which may be on the disk.
    pub record: Option<HighWater>,
}

#[derive(Default)]
struct State {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    fault: Option<Fault>,
    seen: u32,
    /// Failures that happened since the fault was set.
    failed: u32,
    /// Images of power cuts, where they are wanted.
    cuts: Option<Vec<Cut>>,
    dice: Dice,
    /// At the next settle the disk is found empty: somebody has put another file there.
    replaced: bool,
}

/// The medium; clones are the same disk.
#[derive(Clone, Default)]
pub(super) struct Faulty {
    state: Arc<Mutex<State>>,
    /// A reopen goes on with cached pages, as it must not.
    pub unsettled: bool,
    /// The high-water record, in a file of its own on a disk that does not fail.
    record: Option<Arc<RecordFile>>,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}

impl Faulty {
    /// A disk with this content.
    pub fn of(image: Vec<u8>) -> Self {
        let state = State {
            live: image.clone(),
            durable: image,
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            ..Self::default()
        }
    }

    /// The same disk with the record of the store `beside`.
    pub fn recorded(self, beside: &Path) -> Self {
        Self {
            record: Some(Arc::new(RecordFile::beside(beside, None))),
            ..self
        }
    }

    /// What a power cut would leave now if nothing pending had reached the disk.
    pub fn durable(&self) -> Vec<u8> {
        self.state.lock().durable.clone()
    }

    /// From now on keeps images of power cuts around each sync.
    pub fn keep_cuts(&self, seed: u64) {
        let mut state = self.state.lock();
        state.cuts = Some(Vec::new());
        state.dice = Dice::new(seed);
    }

    /// The images kept since the last call.
    pub fn take_cuts(&self) -> Vec<Vec<u8>> {
        let cuts = self.take_recorded_cuts().into_iter();
        cuts.map(|cut| cut.image).collect()
    }

    /// The same with the records of their moments.
    pub fn take_recorded_cuts(&self) -> Vec<Cut> {
        self.state
            .lock()
            .cuts
            .replace(Vec::new())
            .unwrap_or_default()
    }

    /// At the next settle the file is found replaced by an empty one.
    pub fn replace_at_settle(&self) {
        self.state.lock().replaced = true;
    }

    /// Sets or clears the fault; says how often the one before struck.
    pub fn set_fault(&self, fault: Option<Fault>) -> u32 {
        let mut state = self.state.lock();
        state.fault = fault;
        state.seen = 0;
        std::mem::take(&mut state.failed)
    }
}

impl State {
    /// Whether this call fails, and how.
    fn strikes(&mut self, call: Call) -> Option<Persists> {
        let fault = self.fault.filter(|fault| fault.call == call)?;
        self.seen += 1;
        let strikes = self.seen > fault.from && self.seen <= fault.from + fault.times;
        self.failed += u32::from(strikes);
        strikes.then_some(fault.persists)
    }

    /// The disk if power fails now and `keep` chooses what of the pending writes got there.
    fn cut(&mut self, mut keep: impl FnMut(&mut Dice) -> bool) -> Vec<u8> {
        let mut image = self.durable.clone();
        for pending in &self.pending {
            match pending {
                Pending::SetLen(len) => {
                    if keep(&mut self.dice) {
                        image.resize(*len, 0);
                    }
                }
                Pending::Write(offset, data) => {
                    for (index, sector) in data.chunks(SECTOR).enumerate() {
                        if keep(&mut self.dice) {
                            put(&mut image, offset + index * SECTOR, sector);
                        }
                    }
                }
            }
        }
        image
    }

    fn sync(&mut self) {
        self.durable = self.cut(|_| true);
        self.pending.clear();
    }
}

/// Writes, and makes the image longer where it must be.
fn put(image: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[offset..end].copy_from_slice(data);
}

/// A store in which nothing was ever decided.
fn fresh() -> Vec<u8> {
    let medium = Faulty::default();
    drop(
        crate::store::Store::open_medium(
            Arc::new(medium.clone()),
            crate::store::StoreOptions::default(),
        )
        .unwrap(),
    );
    medium.durable()
}

fn broken() -> io::Error {
    io::Error::other("the disk says no")
}

#[derive(Debug)]
struct Backend(Faulty);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.state.lock().live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.state.lock();
        let start = usize::try_from(offset).unwrap();
        let part = state
            .live
            .get(start..start + out.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(part);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.0.state.lock();
        let len = usize::try_from(len).unwrap();
        let failed = state.strikes(Call::SetLen);
        if failed != Some(Persists::Nothing) {
            state.live.resize(len, 0);
            state.pending.push(Pending::SetLen(len));
        }
        if failed.is_some() {
            Err(broken())
        } else {
            Ok(())
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        let record = self.0.record.as_ref().and_then(|file| file.read().unwrap());
        let record = record.map(|record| record.reached);
        let mut state = self.0.state.lock();
        if state.cuts.is_some() {
            // Power may fail before any, after some and after all of the writes have reached the disk.
            let cuts = [
                state.cut(|_| false),
                state.cut(Dice::coin),
                state.cut(Dice::coin),
                state.cut(|_| true),
            ];
            if let Some(kept) = &mut state.cuts {
                kept.extend(cuts.map(|image| Cut { image, record }));
            }
        }
        match state.strikes(Call::Sync) {
            None => {
                state.sync();
                Ok(())
            }
            Some(persists) => {
                // The kernel counts the pages as clean whether or not they got there.
                state.durable = match persists {
                    Persists::Nothing => state.cut(|_| false),
                    Persists::Part => state.cut(Dice::coin),
                    Persists::All => state.cut(|_| true),
                };
                state.pending.clear();
                Err(broken())
            }
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.0.state.lock();
        let offset = usize::try_from(offset).unwrap();
        let failed = state.strikes(Call::Write);
        let kept = match failed {
            None | Some(Persists::All) => data.len(),
            Some(Persists::Part) => data.len() / 2,
            Some(Persists::Nothing) => 0,
        };
        put(&mut state.live, offset, &data[..kept]);
        state
            .pending
            .push(Pending::Write(offset, data[..kept].to_vec()));
        if failed.is_some() {
            Err(broken())
        } else {
            Ok(())
        }
    }
}

impl Medium for Faulty {
    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn open(&self, builder: &Builder) -> Result<Database, DatabaseError> {
        builder.create_with_backend(Backend(self.clone()))
    }

    fn record(&self) -> Option<&RecordFile> {
        self.record.as_deref()
    }

    fn settle(&self) -> io::Result<()> {
        if self.unsettled {
            return Ok(());
        }
        let backend = Backend(self.clone());
        backend.sync_data()?;
        let mut state = self.state.lock();
        if std::mem::take(&mut state.replaced) {
            state.durable = fresh();
        }
        state.live = state.durable.clone();
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn used(&self) -> io::Result<u64> {
        Ok(self.state.lock().live.len() as u64)
    }

    fn drop_ballast(&self) {}

    fn keep_ballast(&self) {}
}
