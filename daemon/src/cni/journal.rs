//! What this host remembers of attachments over a restart: a small file of its own, since a host that decides nothing has no other.
//!
//! A use is written down before it is made in the kernel and crossed out after it is gone, so that the file never has fewer than
//! the kernel has of fipd's.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use fipd_cni::Ask;
use redb::{
    Builder, Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    record::{AttachmentKey, AttachmentRecord},
    uses::UseCounts,
};

/// Key and value: JSON of [`AttachmentKey`] and [`AttachmentRecord`].
const ATTACHMENTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("attachments-1");
/// Key: as of [`ATTACHMENTS`]. Value: JSON of the [`Ask`] of a deletion that is yet to be done.
const DEFERRED: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("deferred-1");
/// Key: what fipd has made of the host. Value: the boot in which it has.
const MADE: TableDefinition<'_, &str, &str> = TableDefinition::new("made-1");
/// Key: [`REPLAYED`].
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta-1");
/// The last entry of the spool that was done.
const REPLAYED: &str = "replayed";
/// The file has some hundred kilobytes.
const CACHE: usize = 1 << 20;

/// Why something was not remembered.
#[derive(Debug, thiserror::Error)]
pub enum CniJournalError {
    #[error("the journal of attachments: {0}")]
    Redb(Box<redb::Error>),
    #[error("a row of the journal of attachments is of another version of fipd, or damaged: {0}")]
    Row(serde_json::Error),
}

impl<E: Into<redb::Error>> From<E> for CniJournalError {
    fn from(error: E) -> Self {
        Self::Redb(Box::new(error.into()))
    }
}

/// The file, and all that is in it. Its methods wait for the disk. Those that change something first look at what a write that
/// failed has left in the file.
pub struct CniJournal {
    path: PathBuf,
    /// `None` after a write that failed: redb refuses all that follows, and whether it is on the disk is not known.
    database: Option<Database>,
    attachments: BTreeMap<AttachmentKey, AttachmentRecord>,
    /// Of the attachments.
    uses: UseCounts,
    made: BTreeMap<String, String>,
    deferred: BTreeMap<AttachmentKey, Ask>,
    replayed: u64,
}

impl CniJournal {
    /// Opens it, or makes it.
    pub fn open(path: &Path) -> Result<Self, CniJournalError> {
        let database = Builder::new().set_cache_size(CACHE).create(path)?;
        let txn = database.begin_write()?;
        txn.open_table(ATTACHMENTS)?;
        txn.open_table(MADE)?;
        txn.open_table(META)?;
        txn.open_table(DEFERRED)?;
        txn.commit()?;
        let mut journal = Self {
            path: path.to_owned(),
            database: None,
            attachments: BTreeMap::new(),
            uses: UseCounts::default(),
            made: BTreeMap::new(),
            deferred: BTreeMap::new(),
            replayed: 0,
        };
        journal.read(&database)?;
        journal.database = Some(database);
        Ok(journal)
    }

    /// Has what the file has; what it had where that cannot be read.
    fn read(&mut self, database: &Database) -> Result<(), CniJournalError> {
        let txn = database.begin_read()?;
        let attachments: BTreeMap<AttachmentKey, AttachmentRecord> = rows(&txn, ATTACHMENTS)?;
        let deferred = rows(&txn, DEFERRED)?;
        let mut made = BTreeMap::new();
        for row in txn.open_table(MADE)?.iter()? {
            let (thing, boot) = row?;
            made.insert(thing.value().to_owned(), boot.value().to_owned());
        }
        let replayed = txn.open_table(META)?.get(REPLAYED)?;
        self.replayed = replayed.map_or(0, |number| number.value());
        self.uses = UseCounts::default();
        for record in attachments.values() {
            self.uses.add(&record.uses);
        }
        (self.attachments, self.deferred, self.made) = (attachments, deferred, made);
        Ok(())
    }

    pub fn attachments(&self) -> &BTreeMap<AttachmentKey, AttachmentRecord> {
        &self.attachments
    }

    /// What the attachments use of the host.
    pub fn uses(&self) -> &UseCounts {
        &self.uses
    }

    /// What fipd has made of the host, and in which boot.
    pub fn made(&self) -> &BTreeMap<String, String> {
        &self.made
    }

    /// Deletions that are yet to be done, as they were asked for.
    pub fn deferred(&self) -> &BTreeMap<AttachmentKey, Ask> {
        &self.deferred
    }

    /// The last entry of the spool that was done or deferred; 0: none.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Writes an attachment down.
    pub fn put(
        &mut self,
        key: AttachmentKey,
        record: AttachmentRecord,
    ) -> Result<(), CniJournalError> {
        self.settle()?;
        if self.attachments.get(&key) == Some(&record) {
            return Ok(());
        }
        let row = (encode(&key)?, encode(&record)?);
        self.commit(|txn| {
            let mut table = txn.open_table(ATTACHMENTS)?;
            table.insert(&*row.0, &*row.1)?;
            Ok(())
        })?;
        self.uses.add(&record.uses);
        if let Some(before) = self.attachments.insert(key, record) {
            self.uses.remove(&before.uses);
        }
        Ok(())
    }

    /// Crosses attachments out.
    pub fn remove(&mut self, keys: &BTreeSet<AttachmentKey>) -> Result<(), CniJournalError> {
        self.settle()?;
        let there = keys
            .iter()
            .filter(|key| self.attachments.contains_key(*key));
        let rows = there.map(encode).collect::<Result<Vec<_>, _>>()?;
        if rows.is_empty() {
            return Ok(());
        }
        self.commit(|txn| {
            let mut table = txn.open_table(ATTACHMENTS)?;
            for row in &rows {
                table.remove(&**row)?;
            }
            Ok(())
        })?;
        for key in keys {
            if let Some(record) = self.attachments.remove(key) {
                self.uses.remove(&record.uses);
            }
        }
        Ok(())
    }

    /// Notes that fipd makes a thing of the host, or has taken it away.
    pub fn note_made(&mut self, thing: &str, boot: Option<&str>) -> Result<(), CniJournalError> {
        self.settle()?;
        if self.made.get(thing).map(String::as_str) == boot {
            return Ok(());
        }
        self.commit(|txn| {
            let mut table = txn.open_table(MADE)?;
            match boot {
                Some(boot) => drop(table.insert(thing, boot)?),
                None => drop(table.remove(thing)?),
            }
            Ok(())
        })?;
        match boot {
            Some(boot) => drop(self.made.insert(thing.to_owned(), boot.to_owned())),
            None => drop(self.made.remove(thing)),
        }
        Ok(())
    }

    /// Notes the last entry of the spool that was done, or else its deletion, which is yet to be done.
    pub fn note_replayed(
        &mut self,
        number: u64,
        deferred: Option<(AttachmentKey, Ask)>,
    ) -> Result<(), CniJournalError> {
        self.settle()?;
        if number <= self.replayed {
            return Ok(());
        }
        let row = match &deferred {
            Some((key, ask)) => Some((encode(key)?, encode(ask)?)),
            None => None,
        };
        self.commit(|txn| {
            txn.open_table(META)?.insert(REPLAYED, number)?;
            if let Some((key, ask)) = &row {
                let mut table = txn.open_table(DEFERRED)?;
                table.insert(&**key, &**ask)?;
            }
            Ok(())
        })?;
        self.replayed = number;
        self.deferred.extend(deferred);
        Ok(())
    }

    /// Crosses a deletion out that was to be done later.
    pub fn forget_deferred(&mut self, key: &AttachmentKey) -> Result<(), CniJournalError> {
        self.settle()?;
        if !self.deferred.contains_key(key) {
            return Ok(());
        }
        let row = encode(key)?;
        self.commit(|txn| {
            let mut table = txn.open_table(DEFERRED)?;
            table.remove(&*row)?;
            Ok(())
        })?;
        self.deferred.remove(key);
        Ok(())
    }

    /// As after a write that failed.
    #[cfg(test)]
    pub fn close(&mut self) {
        self.database = None;
    }

    /// Opens the file again after a write that failed, and has what that has.
    pub fn settle(&mut self) -> Result<(), CniJournalError> {
        let database = self.opened()?;
        self.database = Some(database);
        Ok(())
    }

    fn opened(&mut self) -> Result<Database, CniJournalError> {
        if let Some(database) = self.database.take() {
            return Ok(database);
        }
        let database = Builder::new().set_cache_size(CACHE).open(&self.path)?;
        self.read(&database)?;
        Ok(database)
    }

    /// After a failure the next one opens the file again, and begins with what that has.
    fn commit(
        &mut self,
        write: impl FnOnce(&redb::WriteTransaction) -> Result<(), CniJournalError>,
    ) -> Result<(), CniJournalError> {
        let database = self.opened()?;
        let txn = database.begin_write()?;
        write(&txn)?;
        txn.commit()?;
        self.database = Some(database);
        Ok(())
    }
}

/// A table whose keys and values are JSON.
fn rows<K: DeserializeOwned + Ord, V: DeserializeOwned>(
    txn: &ReadTransaction,
    table: TableDefinition<'_, &[u8], &[u8]>,
) -> Result<BTreeMap<K, V>, CniJournalError> {
    let mut rows = BTreeMap::new();
    for row in txn.open_table(table)?.iter()? {
        let (key, value) = row?;
        rows.insert(decode(key.value())?, decode(value.value())?);
    }
    Ok(rows)
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CniJournalError> {
    serde_json::to_vec(value).map_err(CniJournalError::Row)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CniJournalError> {
    serde_json::from_slice(bytes).map_err(CniJournalError::Row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::{
        record::{HostUse, PodOwner, VlanUse},
        testing::{deletion, key},
    };

    fn record() -> AttachmentRecord {
        AttachmentRecord {
            boot: "b".into(),
            netns: "/run/netns/a".into(),
            master: "eth0".into(),
            uses: vec![
                HostUse::Vlan(VlanUse {
                    master: "eth0".into(),
                    id: 10,
                    name: "eth0.10".into(),
                }),
                HostUse::Promiscuous("eth0".into()),
                HostUse::Route("10.0.0.5".parse().unwrap()),
            ],
            pod: Some(PodOwner {
                cluster: "c".into(),
                namespace: "n".into(),
                uid: "u".into(),
                objects: vec!["web-0".into()],
                addresses: vec!["10.0.0.5".into()],
            }),
        }
    }

    #[test]
    fn a_write_that_fails_stops_none_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cni.redb");
        let mut journal = CniJournal::open(&path).unwrap();
        let record = record();
        journal.put(key("a"), record.clone()).unwrap();
        let full = || redb::Error::Io(std::io::Error::from(std::io::ErrorKind::StorageFull));
        let failed = journal.commit(|_| Err(full().into()));
        assert!(failed.is_err() && journal.database.is_none());
        journal.put(key("b"), record.clone()).unwrap();
        journal.remove(&[key("a")].into()).unwrap();
        assert_eq!(journal.attachments(), &[(key("b"), record.clone())].into());
        drop(journal);
        let journal = CniJournal::open(&path).unwrap();
        assert_eq!(journal.attachments(), &[(key("b"), record)].into());
    }

    #[test]
    fn what_was_written_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cni.redb");
        let record = record();
        let mut journal = CniJournal::open(&path).unwrap();
        journal.put(key("a"), record.clone()).unwrap();
        journal.put(key("b"), record.clone()).unwrap();
        journal.remove(&[key("b"), key("c")].into()).unwrap();
        journal.note_made("eth0", Some("b")).unwrap();
        journal.note_made("eth1", Some("b")).unwrap();
        journal.note_made("eth1", None).unwrap();
        journal.note_replayed(5, None).unwrap();
        for (number, container) in [(6, "d"), (7, "e")] {
            let deferred = (key(container), deletion(container));
            journal.note_replayed(number, Some(deferred)).unwrap();
        }
        journal.forget_deferred(&key("d")).unwrap();
        journal.forget_deferred(&key("f")).unwrap();
        drop(journal);
        let journal = CniJournal::open(&path).unwrap();
        assert_eq!(journal.attachments(), &[(key("a"), record)].into());
        assert_eq!(
            journal.made(),
            &[("eth0".to_owned(), "b".to_owned())].into()
        );
        assert_eq!(journal.replayed(), 7);
        let deferred: Vec<_> = journal.deferred().iter().collect();
        let [(of, asked)] = &deferred[..] else {
            panic!("{deferred:?}")
        };
        assert_eq!((*of, &*asked.container_id), (&key("e"), "e"));
    }

    /// Otherwise it would be done after its container was added again.
    #[test]
    fn a_deletion_that_a_failed_write_left_in_the_file_is_crossed_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cni.redb");
        let mut journal = CniJournal::open(&path).unwrap();
        journal.close();
        let mut written = CniJournal::open(&path).unwrap();
        let deferred = (key("a"), deletion("a"));
        written.note_replayed(1, Some(deferred)).unwrap();
        drop(written);
        journal.forget_deferred(&key("a")).unwrap();
        assert!(journal.deferred().is_empty());
        drop(journal);
        let journal = CniJournal::open(&path).unwrap();
        assert_eq!((journal.deferred().len(), journal.replayed()), (0, 1));
    }
}
