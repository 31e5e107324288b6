//! The high-water record beside the store: how far its decisions have come. An older file in the store's place shows
//! by it.
//!
//! The record is written after each commit and before its answers, without a sync of its own; a second later at most it
//! is on the disk. It is never ahead of a durable commit: exact after a killed process, and at most a second behind
//! after a power cut, in which a fallback of one commit cannot be told from a torn one.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase as _};

use super::{
    batch::read_state,
    codec,
    error::ReadError,
    host_id::HostId,
    load,
    medium::directory,
    rows::StateV1,
    schema,
    tables::{HIGH_WATER, META},
};

const MAGIC: [u8; 8] = *b"FIPDHW1\n";
/// Magic, three numbers, the host, CRC-32. Within one sector: a power cut leaves the old bytes or the new ones.
const BYTES: usize = 8 + 3 * 8 + 32 + 4;

/// How far the decisions of a store have come. Orders by age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HighWater {
    /// Number of the epoch: grows with each restore. 0 before the first.
    pub epoch: u64,
    /// Number of the latest commit.
    pub commit: u64,
    /// Number of the next audit entry.
    pub audit: u64,
}

impl HighWater {
    pub(super) fn of(epoch: u64, state: &StateV1) -> Self {
        Self {
            epoch,
            commit: state.sequence,
            audit: state.audit_next,
        }
    }
}

/// What the record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HighWaterRecord {
    pub reached: HighWater,
    /// The host that the store belongs to, where that is known.
    pub host: Option<HostId>,
}

impl HighWaterRecord {
    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let (body, sum) = bytes.split_at_mut(BYTES - 4);
        let HighWater {
            epoch,
            commit,
            audit,
        } = self.reached;
        let numbers = [epoch, commit, audit].map(u64::to_le_bytes);
        let host = HostId::bytes(self.host);
        let parts = MAGIC.iter().chain(numbers.as_flattened()).chain(&host);
        body.iter_mut()
            .zip(parts)
            .for_each(|(to, from)| *to = *from);
        sum.copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        bytes
    }

    /// `None`: these bytes are no record, or a damaged one.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk()?;
        let (magic, rest) = body.split_first_chunk()?;
        let (numbers, host) = rest.split_first_chunk::<{ 3 * 8 }>()?;
        if *magic != MAGIC || *sum != crc32fast::hash(body).to_le_bytes() {
            return None;
        }
        let host = HostId::from_bytes(host.try_into().ok()?);
        let (numbers, _) = numbers.as_chunks();
        let [epoch, commit, audit] = numbers else {
            return None;
        };
        let reached = HighWater {
            epoch: u64::from_le_bytes(*epoch),
            commit: u64::from_le_bytes(*commit),
            audit: u64::from_le_bytes(*audit),
        };
        Some(Self { reached, host })
    }
}

/// The file with the record.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    file: Mutex<Option<File>>,
    /// The host that the record names when it is written.
    host: Mutex<Option<HostId>>,
}

impl RecordFile {
    /// That of the store at `path`, which belongs to `host` once the record is written.
    pub(super) fn beside(path: &Path, host: Option<HostId>) -> Self {
        Self {
            path: path.with_added_extension("high-water"),
            file: Mutex::new(None),
            host: Mutex::new(host),
        }
    }

    /// The host that the record names when it is written.
    pub(super) fn host(&self) -> Option<HostId> {
        *self.host.lock()
    }

    /// Whether `owner` is another host than this one; two that are not both known do not differ.
    pub(super) fn is_foreign(&self, owner: Option<HostId>) -> bool {
        let pair = owner.zip(self.host());
        pair.is_some_and(|(theirs, ours)| theirs != ours)
    }

    /// Goes on naming the owner where this host is not known.
    pub(super) fn keep_host(&self, owner: Option<HostId>) {
        let mut host = self.host.lock();
        *host = host.or(owner);
    }

    /// The record; `None` where there is none, or a damaged one.
    pub(super) fn read(&self) -> io::Result<Option<HighWaterRecord>> {
        match std::fs::read(&self.path) {
            Ok(bytes) => Ok(HighWaterRecord::decode(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the record, durable only after [`Self::sync`].
    pub(super) fn write(&self, reached: HighWater) -> io::Result<()> {
        let host = self.host();
        let mut slot = self.file.lock();
        let file = match slot.take() {
            Some(file) => file,
            None => self.open()?,
        };
        file.write_all_at(&HighWaterRecord { reached, host }.encode(), 0)?;
        *slot = Some(file);
        Ok(())
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        match &*self.file.lock() {
            Some(file) => file.sync_data(),
            None => Ok(()),
        }
    }

    /// Opens the file; a new one has a durable name.
    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        match options.open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = options.create_new(true).open(&self.path)?;
                File::open(directory(&self.path))?.sync_all()?;
                Ok(file)
            }
            opened => opened,
        }
    }
}

/// What the file says of itself.
pub(super) struct FileAge {
    pub reached: HighWater,
    /// Whether a record of that is kept beside it, and for which host.
    pub kept: Option<Option<HostId>>,
}

impl FileAge {
    pub(super) fn of(database: &Database) -> Result<Self, ReadError> {
        let txn = database.begin_read()?;
        let meta = txn.open_table(META)?;
        let epoch = load::epoch(&txn)?.map_or(0, |epoch| epoch.number);
        let format = schema::format(&meta)?;
        let kept = schema::read_meta(&meta, HIGH_WATER, format, codec::plain)?;
        Ok(Self {
            reached: HighWater::of(epoch, &read_state(&meta)?),
            kept: kept.map(HostId::from_bytes),
        })
    }
}

/// Why a store counts as older than what it once was; `None`: it does not.
pub(super) fn why_older(
    record: Option<HighWater>,
    file: HighWater,
    is_kept: bool,
) -> Option<String> {
    match record {
        Some(record) if (record.epoch, record.commit) > (file.epoch, file.commit) => Some(format!(
            "the store is of epoch {}, commit {}, and epoch {}, commit {} was reached",
            file.epoch, file.commit, record.epoch, record.commit
        )),
        Some(record)
            if (record.epoch, record.commit) == (file.epoch, file.commit)
                && record.audit != file.audit =>
        {
            Some(format!(
                "commit {} of the store is not the one that was reached: its next audit entry is {}, not {}",
                file.commit, file.audit, record.audit
            ))
        }
        None if is_kept => {
            Some("the high-water record beside the store is missing or damaged".to_owned())
        }
        Some(_) | None => None,
    }
}

/// Notes in the file that a record is kept beside it, for this host.
pub(super) fn note_kept(database: &Database, host: Option<HostId>) -> Result<(), ReadError> {
    let txn = database.begin_write()?;
    schema::write_meta(&txn, HIGH_WATER, &HostId::bytes(host))?;
    txn.commit().map_err(redb::Error::from)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, commit: u64) -> HighWater {
        HighWater {
            epoch,
            commit,
            audit: commit + 1,
        }
    }

    #[test]
    fn a_record_survives_its_bytes_and_any_flipped_bit_spoils_it() {
        for host in [None, HostId::of("3d1219c7c4c5404aaa1f6d2a48adfda4")] {
            let reached = at(3, 70_000);
            let record = HighWaterRecord { reached, host };
            let bytes = record.encode();
            assert_eq!(HighWaterRecord::decode(&bytes), Some(record));
            for bit in 0..BYTES * 8 {
                let mut flipped = bytes;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(HighWaterRecord::decode(&flipped), None, "bit {bit}");
            }
            for length in 0..BYTES {
                assert_eq!(HighWaterRecord::decode(&bytes[..length]), None);
            }
        }
    }

    #[test]
    fn only_two_known_hosts_differ() {
        let [a, b] = ["a", "b"].map(|digit| HostId::of(&digit.repeat(32)));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fipd.redb");
        let foreign = |theirs, ours| RecordFile::beside(&path, ours).is_foreign(theirs);
        assert!(a.is_some() && b.is_some() && foreign(a, b));
        assert!(!foreign(a, a) && !foreign(a, None) && !foreign(None, a) && !foreign(None, None));
    }

    #[test]
    fn a_store_is_older_by_epoch_first_and_then_by_commit() {
        let older = |record, file, kept| why_older(record, file, kept).is_some();
        assert!(older(Some(at(0, 8)), at(0, 7), true));
        assert!(!older(Some(at(0, 7)), at(0, 7), true));
        assert!(
            !older(Some(at(0, 7)), at(0, 8), true),
            "a record may be behind"
        );
        assert!(older(Some(at(1, 2)), at(0, 9), true));
        assert!(!older(Some(at(0, 9)), at(1, 2), true), "it was restored");
        assert!(!older(Some(at(0, 9)), at(1, 9), true), "it was restored");
        let branch = HighWater {
            audit: 99,
            ..at(0, 7)
        };
        assert!(older(Some(branch), at(0, 7), true), "another branch");
        assert!(older(None, at(0, 7), true), "it was kept");
        assert!(!older(None, at(0, 7), false), "it is of an earlier fipd");
    }

    #[test]
    fn a_record_is_made_read_back_and_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fipd.redb");
        let host = HostId::of("3d1219c7c4c5404aaa1f6d2a48adfda4");
        let file = RecordFile::beside(&path, host);
        assert_eq!(file.read().unwrap(), None);
        for reached in [at(0, 1), at(2, 3)] {
            file.write(reached).unwrap();
            file.sync().unwrap();
            assert_eq!(
                file.read().unwrap(),
                Some(HighWaterRecord { reached, host })
            );
        }
        // A start that does not know its host goes on with the one that is known.
        let again = RecordFile::beside(&path, None);
        let found = again.read().unwrap().unwrap();
        assert_eq!(found.reached, at(2, 3));
        again.keep_host(found.host);
        again.write(at(2, 4)).unwrap();
        assert_eq!(again.read().unwrap().unwrap().host, host);
    }
}
