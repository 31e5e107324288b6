//! A store that is older than it was, that is replaced or lost, and a backup in its place.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use fipd_core::{Authority as _, Ledger, Outcome, Timestamp};
use tempfile::TempDir;

use super::file::decision;
use crate::store::{Condition, Create, Loaded, OpenError, Restore, Store, StoreOptions, check};

const NOW: Timestamp = Timestamp(1_767_225_600_000);

fn options() -> StoreOptions {
    StoreOptions {
        ballast: 0,
        ..StoreOptions::default()
    }
}

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn store(&self) -> PathBuf {
        self.file("fipd.redb")
    }

    fn record(&self) -> PathBuf {
        self.file("fipd.redb.high-water")
    }

    fn open(&self) -> (Store, Loaded) {
        Store::open(&self.store(), options()).unwrap()
    }

    fn refused(&self) -> OpenError {
        Store::open(&self.store(), options()).err().unwrap()
    }

    /// Opens it, takes these decisions and closes it.
    fn run(&self, numbers: std::ops::Range<u64>) {
        let (mut store, _) = self.open();
        numbers.for_each(|number| commit(&mut store, number));
    }

    /// What the files are after kill -9 at this moment.
    fn killed(&self) -> Self {
        let after = Self::new();
        fs::copy(self.store(), after.store()).unwrap();
        fs::copy(self.record(), after.record()).unwrap();
        after
    }
}

fn commit(store: &mut Store, number: u64) {
    assert_eq!(store.commit(&[decision(number)]), [Outcome::Committed]);
}

fn is_held(loaded: &Loaded) -> bool {
    Ledger::restore_hold(&loaded.ledger).is_some()
}

#[test]
fn an_older_store_starts_held_in_a_new_epoch() {
    let place = Place::new();
    place.run(1..4);
    fs::copy(place.store(), place.file("old")).unwrap();
    place.run(4..6);
    fs::copy(place.file("old"), place.store()).unwrap();
    let (store, loaded) = place.open();
    assert!(is_held(&loaded));
    assert_eq!(loaded.epoch, 1);
    drop(store);
    let (store, loaded) = place.open();
    assert_eq!(loaded.epoch, 1, "it is older only once");
    assert!(is_held(&loaded), "a start does not end the hold");
    drop(store);
    assert!(check(&place.store()).unwrap().is_empty());
    fs::copy(place.file("old"), place.store()).unwrap();
    assert_eq!(place.open().1.epoch, 2, "an earlier epoch is older as well");
}

#[test]
fn a_store_whose_record_is_lost_or_damaged_counts_as_older() {
    for spoil in [
        (|record| fs::remove_file(record).unwrap()) as fn(&Path),
        |record| fs::write(record, "nonsense").unwrap(),
    ] {
        let place = Place::new();
        place.run(1..3);
        assert!(!is_held(&place.open().1));
        spoil(&place.record());
        assert!(is_held(&place.open().1));
    }
}

#[test]
fn a_store_of_an_earlier_fipd_gets_a_record_without_a_hold() {
    let place = Place::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store-v1.redb");
    fs::copy(fixture, place.store()).unwrap();
    let (store, loaded) = place.open();
    assert!(!is_held(&loaded) && place.record().exists());
    drop(store);
    fs::remove_file(place.record()).unwrap();
    assert!(is_held(&place.open().1), "from now on it counts");
}

#[test]
fn after_a_kill_the_record_is_exact() {
    let place = Place::new();
    let (mut store, _) = place.open();
    for number in 1..20 {
        commit(&mut store, number);
        let after = place.killed();
        let (killed, loaded) = after.open();
        assert!(!is_held(&loaded), "after {number}");
        assert_eq!(killed.reader().stats().high_water.commit, number);
    }
    // The store of a moment before under the record of now.
    fs::copy(place.store(), place.file("before")).unwrap();
    commit(&mut store, 20);
    let after = place.killed();
    fs::copy(place.file("before"), after.store()).unwrap();
    assert!(is_held(&after.open().1), "one commit is enough");
}

#[test]
fn a_record_that_is_behind_is_no_harm() {
    let place = Place::new();
    place.run(1..3);
    fs::copy(place.record(), place.file("behind")).unwrap();
    place.run(3..5);
    fs::copy(place.file("behind"), place.record()).unwrap();
    assert!(!is_held(&place.open().1));
}

#[test]
fn a_backup_is_not_served() {
    let place = Place::new();
    let (mut store, _) = place.open();
    commit(&mut store, 1);
    store.reader().backup(&place.file("backup")).unwrap();
    drop(store);
    fs::copy(place.file("backup"), place.store()).unwrap();
    let error = place.refused();
    assert!(matches!(error, OpenError::Sealed(_)), "{error}");
    assert!(error.to_string().contains("fipd restore FILE"), "{error}");
    assert!(check(&place.store()).unwrap().is_empty(), "it can be read");
    fs::remove_file(place.store()).unwrap();
    restore(&place);
    let (_store, loaded) = place.open();
    assert!(is_held(&loaded));
    assert_eq!(loaded.epoch, 1, "the restore is no older store");
}

#[test]
fn a_backup_of_an_earlier_fipd_is_refused_with_its_bytes_unchanged() {
    let place = Place::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store-v1.redb");
    fs::copy(fixture, place.store()).unwrap();
    // Schema 1, and the backup that is made of it before the first rewrite is of schema 1 too.
    drop(place.open());
    let backups = fs::read_dir(place.file("backups")).unwrap();
    let backup = backups.flatten().next().unwrap().path();
    fs::copy(&backup, place.store()).unwrap();
    let error = place.refused();
    assert!(matches!(error, OpenError::Sealed(_)), "{error}");
    assert_eq!(fs::read(place.store()).unwrap(), fs::read(backup).unwrap());
}

#[test]
fn a_store_that_is_replaced_while_it_is_opened_again_is_not_taken() {
    use crate::store::{Medium as _, builder, medium::Disk};
    let place = Place::new();
    place.run(1..3);
    fs::copy(place.store(), place.file("other")).unwrap();
    let disk = Disk::new(&place.store(), 0);
    drop(disk.open(&builder()).unwrap());
    drop(disk.open(&builder()).unwrap());
    fs::rename(place.file("other"), place.store()).unwrap();
    let error = disk.open(&builder()).unwrap_err().to_string();
    assert!(error.contains("another file"), "{error}");
}

fn restore(place: &Place) {
    let restore = Restore {
        backup: &place.file("backup"),
        store: &place.store(),
        no_hold: None,
        actor: "offline:0".into(),
        now: NOW,
        host: None,
    };
    restore.run().unwrap();
}

/// What may become of the file under a running fipd, and how.
type Replacement = (&'static str, fn(&Place));

fn replacements() -> Vec<Replacement> {
    vec![
        ("rm", |place| fs::remove_file(place.store()).unwrap()),
        ("mv", |place| {
            fs::rename(place.file("other"), place.store()).unwrap();
        }),
        ("cp", |place| {
            fs::copy(place.file("other"), place.store()).unwrap();
        }),
        ("truncate", |place| {
            let file = fs::OpenOptions::new().write(true).open(place.store());
            file.unwrap().set_len(0).unwrap();
        }),
        ("rsync --inplace", |place| {
            let other = fs::read(place.file("other")).unwrap();
            let mut file = fs::OpenOptions::new()
                .write(true)
                .open(place.store())
                .unwrap();
            file.write_all(&other).unwrap();
        }),
    ]
}

#[test]
fn a_store_that_is_replaced_while_it_serves_answers_nothing_more() {
    for (what, replace) in replacements() {
        for idle in [false, true] {
            let place = Place::new();
            place.run(1..3);
            fs::copy(place.store(), place.file("other")).unwrap();
            let (mut store, _) = place.open();
            commit(&mut store, 3);
            store.watch();
            assert_eq!(store.reader().stats().condition, Condition::Serving);
            replace(&place);
            if idle {
                store.watch();
            } else {
                assert_eq!(store.commit(&[decision(4)]), [], "{what}");
            }
            let condition = store.reader().stats().condition;
            let Condition::Stopped { reason } = condition else {
                panic!("{what}: {condition:?}");
            };
            assert!(reason.contains("is not the one"), "{what}: {reason}");
            assert_eq!(store.commit(&[decision(5)]), [], "{what}");
            let there = fs::read(place.store()).ok();
            drop(store);
            assert_eq!(
                fs::read(place.store()).ok(),
                there,
                "{what}: it is left alone"
            );
        }
    }
}

#[test]
fn a_missing_or_empty_store_in_a_used_directory_is_refused() {
    let place = Place::new();
    place.run(1..3);
    for empty in [false, true] {
        fs::remove_file(place.store()).unwrap();
        if empty {
            fs::write(place.store(), "").unwrap();
        }
        let error = place.refused();
        let text = error.to_string();
        assert!(
            matches!(error, OpenError::Missing { newest: None, .. })
                && text.contains("fipd store create --reason"),
            "{text}"
        );
        fs::write(place.store(), "").unwrap();
    }
}

#[test]
fn a_missing_store_is_refused_with_the_newest_backup() {
    let place = Place::new();
    fs::create_dir(place.file("backups")).unwrap();
    for name in ["a.redb", "b.redb", "b.redb.note"] {
        fs::write(place.file("backups").join(name), "x").unwrap();
    }
    let older = fs::File::open(place.file("backups").join("b.redb")).unwrap();
    older.set_modified(std::time::UNIX_EPOCH).unwrap();
    let text = place.refused().to_string();
    assert!(text.contains("backups/a.redb"), "{text}");
    let elsewhere = StoreOptions {
        backups: Some(place.file("none")),
        ..options()
    };
    Store::open(&place.store(), elsewhere).unwrap();
}

#[test]
fn a_first_start_that_was_killed_starts_again() {
    // Nothing but a record, or a store that has no record yet.
    let place = Place::new();
    drop(place.open());
    fs::remove_file(place.store()).unwrap();
    assert!(!is_held(&place.open().1), "no decision was lost");
    let place = Place::new();
    drop(place.open());
    let again = Place::new();
    fs::copy(place.record(), again.record()).unwrap();
    assert!(!is_held(&again.open().1));
}

#[test]
fn a_store_is_created_once_in_a_new_epoch_and_held() {
    let place = Place::new();
    place.run(1..3);
    let store = place.store();
    let create = || {
        Create {
            store: &store,
            reason: "the disk is lost".into(),
            actor: "offline:0".into(),
            now: NOW,
            host: None,
        }
        .run()
    };
    let text = create().unwrap_err().to_string();
    assert!(text.contains("there is a store"), "{text}");
    fs::remove_file(&store).unwrap();
    assert_eq!(create().unwrap().number, 1);
    assert!(create().is_err(), "once");
    let (opened, loaded) = place.open();
    assert!(is_held(&loaded));
    assert_eq!(loaded.epoch, 1);
    drop(opened);
    assert!(check(&store).unwrap().is_empty());
}
