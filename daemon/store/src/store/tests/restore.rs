//! A backup takes the place of a store, and begins a new epoch.

use std::{fs, path::Path};

use fipd_core::{
    Action, Adoption, Authority as _, Decision, Epoch, NetworkId, Op, Outcome, System, Timestamp,
};
use redb::ReadableDatabase as _;
use tempfile::TempDir;

use super::file::decision;
use crate::store::{
    Loaded, Restore, Restored, Store, StoreOptions, check, error::RestoreError, schema, seal,
    tables,
};

const NOW: Timestamp = Timestamp(1_767_225_600_000);

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn open(&self) -> (Store, Loaded) {
        Store::open(&self.path("fipd.redb"), StoreOptions::default()).unwrap()
    }

    fn restore(&self, backup: &str, now: Timestamp) -> Result<Restored, RestoreError> {
        Restore {
            backup: &self.path(backup),
            store: &self.path("fipd.redb"),
            no_hold: None,
            actor: "offline:0".into(),
            now,
            host: None,
        }
        .run()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn commit(store: &mut Store, decisions: &[Decision]) {
    let outcomes = store.commit(decisions);
    assert!(
        outcomes
            .iter()
            .all(|outcome| *outcome == Outcome::Committed)
    );
}

fn adopted() -> Decision {
    Decision {
        ops: vec![Op::PutAdoption(Adoption {
            network: NetworkId::DEFAULT,
            cluster: "c1".into(),
            system: System::rancher_fip(),
            at: Timestamp(1),
            skipped: false,
        })],
        ..decision(1)
    }
}

/// Accounts 1 to 3 and a marker in the backup, accounts to 5 in the store.
fn with_backup() -> Place {
    let place = Place::new();
    let (mut store, _) = place.open();
    commit(
        &mut store,
        &[adopted(), decision(1), decision(2), decision(3)],
    );
    store.reader().backup(&place.path("backup")).unwrap();
    commit(&mut store, &[decision(4), decision(5)]);
    place
}

fn accounts(loaded: &Loaded) -> usize {
    loaded.ledger.accounts().count()
}

fn audit(store: &Store) -> Vec<(Action, String)> {
    let page = store.reader().audit_page(None, 1).unwrap();
    page.into_iter()
        .map(|(_, entry)| (entry.action, entry.detail.to_string()))
        .collect()
}

#[test]
fn what_the_backup_holds_is_there_and_a_new_epoch_has_begun() {
    let place = with_backup();
    let restored = place.restore("backup", NOW).unwrap();
    let seal = restored.seal.unwrap();
    assert_eq!(seal.version, env!("CARGO_PKG_VERSION"));
    assert_eq!((seal.schema, seal.revision), (schema::known(), 5));
    assert!(check(&place.path("fipd.redb")).unwrap().is_empty());

    let (store, loaded) = place.open();
    assert_eq!(accounts(&loaded), 3);
    let hold = loaded.ledger.restore_hold().unwrap();
    assert_eq!(hold.left, Epoch::HOLD);
    assert_eq!(hold.until, Timestamp(NOW.0 + Epoch::HOLD));
    let c1 = fipd_core::ClusterId("c1".into());
    let rancher = System::rancher_fip();
    assert!(!loaded.ledger.adopted(NetworkId::DEFAULT, &c1, &rancher));
    assert_eq!(loaded.last_time, NOW);
    let [(action, detail)] = &audit(&store)[..] else {
        panic!("no audit entry")
    };
    assert_eq!(*action, Action::Restored);
    assert!(detail.starts_with("epoch 1, the backup of "), "{detail}");
    assert!(
        detail.ends_with("until about 2026-01-02T00:00Z"),
        "{detail}"
    );
    let txn = redb::Database::open(place.path("backup"))
        .unwrap()
        .begin_read()
        .unwrap();
    assert!(
        seal::read(&txn).unwrap().is_some(),
        "the backup is untouched"
    );
    drop(store);

    let kept = restored.kept.unwrap();
    assert_eq!(
        kept.file_name().unwrap(),
        "fipd.redb.before-restore-20260101T000000.000Z"
    );
    assert_eq!(
        place.names(),
        [
            "backup",
            "fipd.redb",
            "fipd.redb.ballast",
            "fipd.redb.before-restore-20260101T000000.000Z",
            "fipd.redb.high-water"
        ]
    );
    let (_, before) = Store::open(&kept, StoreOptions::default()).unwrap();
    assert_eq!(accounts(&before), 5);
}

#[test]
fn each_restore_is_an_epoch_of_its_own() {
    let place = with_backup();
    for number in 1..=3 {
        let later = Timestamp(NOW.0 + number);
        let restored = place.restore("backup", later).unwrap();
        assert_eq!(restored.epoch.number, number);
    }
    let copy = "fipd.redb.before-restore-20260101T000000.003Z";
    let restored = place.restore(copy, Timestamp(NOW.0 + 9)).unwrap();
    assert_eq!((restored.epoch.number, restored.seal), (4, None));
}

#[test]
fn without_a_hold_the_reason_is_kept() {
    let place = with_backup();
    let restore = Restore {
        backup: &place.path("backup"),
        store: &place.path("fipd.redb"),
        no_hold: Some("nothing was given since".into()),
        actor: "offline:0".into(),
        now: NOW,
        host: None,
    };
    assert_eq!(restore.run().unwrap().epoch.hold, None);
    let (store, loaded) = place.open();
    assert_eq!(loaded.ledger.restore_hold(), None);
    assert_eq!(loaded.ledger.epoch().unwrap().number, 1);
    let detail = &audit(&store)[0].1;
    assert!(
        detail.ends_with("held: nothing was given since"),
        "{detail}"
    );
}

#[test]
fn a_clock_behind_the_file_does_not_make_the_hold_end_sooner() {
    let place = with_backup();
    let (mut store, _) = place.open();
    commit(&mut store, &[decision(NOW.0 + 777)]);
    store.reader().backup(&place.path("later")).unwrap();
    drop(store);
    let hold = place.restore("later", NOW).unwrap().epoch.hold.unwrap();
    assert_eq!(hold.until.0, NOW.0 + 777 + Epoch::HOLD);
}

#[test]
fn a_store_in_use_is_left_alone() {
    let place = with_backup();
    let (store, _) = place.open();
    let before = place.names();
    let error = place.restore("backup", NOW).unwrap_err();
    assert!(matches!(error, RestoreError::Running(_)), "{error}");
    assert!(error.to_string().contains("stop that one first"), "{error}");
    assert_eq!(place.names(), before);
    drop(store);
    place.restore("backup", NOW).unwrap();
}

#[test]
fn a_missing_or_damaged_store_is_replaced() {
    for damaged in [false, true] {
        let place = with_backup();
        let store = place.path("fipd.redb");
        if damaged {
            fs::write(&store, "a letter to a friend").unwrap();
        } else {
            fs::remove_file(&store).unwrap();
        }
        let restored = place.restore("backup", NOW).unwrap();
        assert_eq!(restored.kept.is_some(), damaged);
        assert_eq!(accounts(&place.open().1), 3);
    }
}

/// Changes the file as no fipd does.
fn tamper(file: &Path, change: impl FnOnce(&redb::WriteTransaction)) {
    let database = redb::Database::open(file).unwrap();
    let txn = database.begin_write().unwrap();
    change(&txn);
    txn.commit().unwrap();
}

#[test]
fn a_backup_that_is_not_whole_is_refused_and_the_store_stays() {
    type Wrong<'a> = (&'a str, &'a dyn Fn(&Path));
    let wrongs: [Wrong<'_>; 4] = [
        ("checksum", &|file| {
            tamper(file, |txn| {
                let mut accounts = txn.open_table(tables::ACCOUNTS).unwrap();
                accounts.remove("account-2").unwrap();
            });
        }),
        ("schema version", &|file| {
            tamper(file, |txn| {
                let mut meta = txn.open_table(tables::META).unwrap();
                let newer = (schema::known() + 1).to_be_bytes();
                meta.insert(tables::SCHEMA, newer.as_slice()).unwrap();
            });
        }),
        ("cannot be", &|file| {
            fs::write(file, "a letter to a friend").unwrap()
        }),
        ("cannot be", &|file| fs::remove_file(file).unwrap()),
    ];
    for (words, wrong) in wrongs {
        let place = with_backup();
        wrong(&place.path("backup"));
        let before = fs::read(place.path("fipd.redb")).unwrap();
        let error = place.restore("backup", NOW).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
        assert!(!error.contains('\n'), "{error}");
        assert_eq!(fs::read(place.path("fipd.redb")).unwrap(), before);
        let names = place.names();
        assert!(
            names.iter().all(|name| !name.contains("restore")),
            "{names:?}"
        );
    }
}

#[test]
fn what_a_restore_left_half_made_is_swept() {
    let place = with_backup();
    let left = place.path("fipd.redb.restore-77");
    fs::write(&left, "half").unwrap();
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3_600);
    let file = fs::File::options().write(true).open(&left).unwrap();
    file.set_modified(hour_ago).unwrap();
    let kept = place.path("fipd.redb.before-restore-20260101T000000.000Z");
    fs::copy(&left, &kept).unwrap();
    drop(place.open());
    assert!(!left.exists() && kept.exists());
}
