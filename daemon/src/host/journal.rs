//! What the engine remembers over a restart: what was wanted last, and the rules it put into the kernel.
//!
//! A small file of its own, since a host that decides nothing has no other. Rules are written down before they are added and
//! crossed out after they are deleted, so that it never has fewer than the kernel has of fipd's.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use fipd_core::{
    Text,
    host::{Place, Places, Rule, RuleSet},
};
use redb::{
    Builder, Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction,
};

/// Key: a name below. Value: one byte.
const META: TableDefinition<'_, &str, u8> = TableDefinition::new("meta-1");
/// Key: who. Value: [`encode`] of its sets.
const WISHES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("wishes-1");
/// Key: [`encode`] of a rule. No value.
const RULES: TableDefinition<'_, &[u8], ()> = TableDefinition::new("rules-1");
/// Key: [`encode`] of a source. Value: that of its [`Place`].
const PLACES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("places-1");

/// 1: an admin flushed the rules.
const PAUSED: &str = "paused";

/// Before what is encoded.
const VERSION: u8 = 1;
/// The file has a few kilobytes.
const CACHE: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    #[error(transparent)]
    Redb(Box<redb::Error>),
    #[error("the row of {0:?} is of another version of fipd, or damaged")]
    Unreadable(String),
    #[error("the row of {0:?} cannot be encoded: {1}")]
    Encode(String, postcard::Error),
    #[error("the task that writes it ended")]
    Ended,
    #[error("the disk did not answer within {0} s")]
    Late(u64),
}

impl<E: Into<redb::Error>> From<E> for JournalError {
    fn from(error: E) -> Self {
        Self::Redb(Box::new(error.into()))
    }
}

pub(super) type Wishes = BTreeMap<Text, Arc<Vec<RuleSet>>>;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remembered {
    pub paused: bool,
    pub wishes: Wishes,
    pub rules: BTreeSet<Rule>,
    pub places: Places,
}

pub(super) struct Journal {
    database: Arc<Database>,
    /// As it is in the file.
    known: Remembered,
}

impl Journal {
    /// Opens it, or makes it.
    pub fn open(path: &Path) -> Result<(Self, Remembered), JournalError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(redb::StorageError::from)?;
        }
        let database = Builder::new().set_cache_size(CACHE).create(path)?;
        let txn = database.begin_write()?;
        open_tables(&txn)?;
        txn.commit()?;
        let known = read(&database)?;
        let journal = Self {
            database: Arc::new(database),
            known: known.clone(),
        };
        Ok((journal, known))
    }

    /// Replaces what everybody wants; those who are not among these are struck out.
    pub async fn wish(&mut self, wishes: &Wishes) -> Result<(), JournalError> {
        let rows = changed(&self.known.wishes, wishes).map(|(who, sets)| {
            let sets = sets.map(|sets| encode(who, &**sets)).transpose()?;
            Ok((Text::clone(who), sets))
        });
        let rows: Vec<_> = rows.collect::<Result<_, JournalError>>()?;
        self.write(rows, |txn, rows| {
            let rows = rows.iter();
            put(
                txn,
                WISHES,
                rows.map(|(who, sets)| (&**who, sets.as_deref())),
            )
        })
        .await?;
        self.known.wishes.clone_from(wishes);
        Ok(())
    }

    /// These are going to be added.
    pub async fn intend(&mut self, rules: &[Rule]) -> Result<(), JournalError> {
        let new = rules
            .iter()
            .filter(|rule| !self.known.rules.contains(*rule));
        let new: Vec<Rule> = new.cloned().collect();
        self.write_rules(&new, Some(())).await?;
        self.known.rules.extend(new);
        Ok(())
    }

    /// Of all that were intended, only these are in the kernel.
    pub async fn keep(&mut self, rules: &BTreeSet<Rule>) -> Result<(), JournalError> {
        let gone: Vec<Rule> = self.known.rules.difference(rules).cloned().collect();
        self.write_rules(&gone, None).await?;
        self.known.rules.retain(|rule| rules.contains(rule));
        Ok(())
    }

    /// Those that may be in the kernel.
    pub fn rules(&self) -> &BTreeSet<Rule> {
        &self.known.rules
    }

    /// Replaces the places.
    pub async fn place(&mut self, places: &Places) -> Result<(), JournalError> {
        let rows = changed(&self.known.places, places).map(|(source, place)| {
            let place = place.map(|place| encode("a place", place)).transpose()?;
            Ok((encode("a place", source)?, place))
        });
        let rows: Vec<_> = rows.collect::<Result<_, JournalError>>()?;
        self.write(rows, |txn, rows| {
            let rows = rows.iter();
            put(
                txn,
                PLACES,
                rows.map(|(source, place)| (source.as_slice(), place.as_deref())),
            )
        })
        .await?;
        self.known.places.clone_from(places);
        Ok(())
    }

    pub async fn pause(&mut self, paused: bool) -> Result<(), JournalError> {
        let rows = (self.known.paused != paused).then_some((PAUSED, Some(u8::from(paused))));
        let rows = rows.into_iter().collect();
        self.write(rows, |txn, rows| put(txn, META, rows)).await?;
        self.known.paused = paused;
        Ok(())
    }

    async fn write_rules(&self, rules: &[Rule], value: Option<()>) -> Result<(), JournalError> {
        let keys = rules.iter().map(|rule| encode("a rule", rule));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        self.write(keys, move |txn, keys| {
            put(txn, RULES, keys.iter().map(|key| (key.as_slice(), value)))
        })
        .await
    }

    /// Does it in a transaction, if there are rows to be changed.
    async fn write<R: Send + 'static>(
        &self,
        rows: Vec<R>,
        write: impl FnOnce(&WriteTransaction, Vec<R>) -> Result<(), JournalError> + Send + 'static,
    ) -> Result<(), JournalError> {
        if rows.is_empty() {
            return Ok(());
        }
        let database = Arc::clone(&self.database);
        let written = tokio::task::spawn_blocking(move || {
            let txn = database.begin_write()?;
            write(&txn, rows)?;
            txn.commit()?;
            Ok(())
        });
        written.await.map_err(|_| JournalError::Ended)?
    }
}

/// What is not as before; `None`: it is gone.
fn changed<'m, K: Ord, V: PartialEq>(
    before: &'m BTreeMap<K, V>,
    now: &'m BTreeMap<K, V>,
) -> impl Iterator<Item = (&'m K, Option<&'m V>)> {
    let gone = before.keys().filter(|key| !now.contains_key(key));
    let new = now
        .iter()
        .filter(|(key, value)| before.get(key) != Some(value));
    gone.map(|key| (key, None))
        .chain(new.map(|(key, value)| (key, Some(value))))
}

/// Inserts the rows that have a value, and removes the others.
fn put<'r, K: redb::Key + 'static, V: redb::Value + 'static>(
    txn: &WriteTransaction,
    table: TableDefinition<'_, K, V>,
    rows: impl IntoIterator<Item = (K::SelfType<'r>, Option<V::SelfType<'r>>)>,
) -> Result<(), JournalError> {
    let mut table = txn.open_table(table)?;
    for (key, value) in rows {
        match value {
            Some(value) => drop(table.insert(key, value)?),
            None => drop(table.remove(key)?),
        }
    }
    Ok(())
}

fn open_tables(txn: &WriteTransaction) -> Result<(), JournalError> {
    txn.open_table(META)?;
    txn.open_table(WISHES)?;
    txn.open_table(RULES)?;
    txn.open_table(PLACES)?;
    Ok(())
}

fn read(database: &Database) -> Result<Remembered, JournalError> {
    let txn = database.begin_read()?;
    let meta = txn.open_table(META)?;
    let mut found = Remembered {
        paused: meta.get(PAUSED)?.is_some_and(|paused| paused.value() == 1),
        ..Remembered::default()
    };
    for row in txn.open_table(WISHES)?.iter()? {
        let (who, sets) = row?;
        let sets = decode(who.value(), sets.value())?;
        found.wishes.insert(who.value().into(), Arc::new(sets));
    }
    for row in txn.open_table(RULES)?.iter()? {
        let (rule, ()) = row.map(|(rule, value)| (rule, value.value()))?;
        found.rules.insert(decode("a rule", rule.value())?);
    }
    for row in txn.open_table(PLACES)?.iter()? {
        let (source, place) = row?;
        let place: Place = decode("a place", place.value())?;
        found
            .places
            .insert(decode("a place", source.value())?, place);
    }
    Ok(found)
}

fn encode<T: serde::Serialize + ?Sized>(of: &str, value: &T) -> Result<Vec<u8>, JournalError> {
    let bytes = postcard::to_extend(value, vec![VERSION]);
    bytes.map_err(|error| JournalError::Encode(of.to_owned(), error))
}

fn decode<T: serde::de::DeserializeOwned>(of: &str, bytes: &[u8]) -> Result<T, JournalError> {
    let unreadable = || JournalError::Unreadable(of.to_owned());
    match bytes.split_first() {
        Some((&VERSION, value)) => postcard::from_bytes(value).map_err(|_| unreadable()),
        Some(_) | None => Err(unreadable()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fipd_core::{
        Family,
        host::{Mode, RuleAction},
    };

    fn rule(last: u8) -> Rule {
        Rule {
            priority: 10_000,
            family: Family::V4,
            source: Some(format!("10.0.0.{last}/32").parse().unwrap()),
            destination: None,
            input: None,
            output: None,
            mark: None,
            action: RuleAction::Table(100),
            protocol: 200,
        }
    }

    fn wishes(table: u32) -> Arc<Vec<RuleSet>> {
        Arc::new(vec![RuleSet {
            name: "lb".into(),
            sources: ["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()].into(),
            table,
            priority: None,
            fail_closed: true,
            mode: Mode::Indexed,
        }])
    }

    #[tokio::test]
    async fn what_was_written_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper/host.redb");
        let (mut journal, empty) = Journal::open(&path).unwrap();
        assert_eq!(empty, Remembered::default());
        let mut all = Wishes::from([("a".into(), wishes(100)), ("b".into(), wishes(200))]);
        journal.wish(&all).await.unwrap();
        all.remove("b");
        all.insert("a".into(), wishes(300));
        journal.wish(&all).await.unwrap();
        journal.intend(&[rule(1), rule(2)]).await.unwrap();
        journal.keep(&[rule(2)].into()).await.unwrap();
        journal.intend(&[rule(3)]).await.unwrap();
        journal.pause(true).await.unwrap();
        let place = |priority| Place {
            table: 100,
            priority,
        };
        let places = |all: &[(&str, u32)]| -> Places {
            let all = all
                .iter()
                .map(|(source, at)| (source.parse().unwrap(), place(*at)));
            all.collect()
        };
        let first = places(&[("10.0.0.1", 998), ("10.0.0.2", 998)]);
        journal.place(&first).await.unwrap();
        let places = places(&[("10.0.0.2", 997), ("2001:db8::1", 4_999)]);
        journal.place(&places).await.unwrap();
        assert_eq!(journal.rules(), &[rule(2), rule(3)].into());
        drop(journal);
        let (_, found) = Journal::open(&path).unwrap();
        let expected = Remembered {
            paused: true,
            wishes: all,
            rules: [rule(2), rule(3)].into(),
            places,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_row_of_another_version_is_told() {
        let mut bytes = encode("x", &rule(1)).unwrap();
        assert_eq!(decode::<Rule>("x", &bytes).unwrap(), rule(1));
        bytes[0] = 9;
        assert!(decode::<Rule>("x", &bytes).is_err());
        assert!(decode::<Rule>("x", &[]).is_err());
    }
}
