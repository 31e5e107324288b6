//! What a file is and who may open it.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use fipd_core::{
    Account, Action, AuditEntry, Authority as _, ClusterId, ClusterRecord, Decision, Op, Outcome,
    Planned, PoolId, Quota, Request, Role, Tenant, Timestamp,
};

use crate::store::{
    Condition, Loaded, Medium as _, OpenError, Restore, Store, StoreOptions, check, codec,
    medium::Disk, schema, tables,
};

/// A decision with a row and an audit entry.
pub(super) fn decision(number: u64) -> Decision {
    let account = Account {
        name: format!("account-{number}").into(),
        role: Role::Viewer,
        password_hash: "x".into(),
        created: Timestamp(number),
        disabled: false,
    };
    Decision {
        ops: vec![Op::PutAccount(account)],
        audit: vec![entry(number)],
    }
}

fn entry(number: u64) -> AuditEntry {
    AuditEntry {
        length: None,
        at: Timestamp(number),
        actor: "test".into(),
        action: Action::AccountChanged,
        network: None,
        address: None,
        pool: None,
        identity: None,
        detail: format!("entry {number}").into(),
    }
}

#[test]
fn the_file_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    let (store, _) = Store::open(&path, StoreOptions::default()).unwrap();
    drop(store);
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        3,
        "something was left behind"
    );
    for name in ["fipd.redb", "fipd.redb.ballast", "fipd.redb.high-water"] {
        let mode = fs::metadata(dir.path().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
}

/// Otherwise a reader that comes back would take the changes of the new run for those that follow what it has seen.
#[test]
fn revisions_of_an_earlier_run_are_too_old_even_if_the_clock_stood_still() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    let mut seen = 0;
    for run in 0..3 {
        let (mut store, Loaded { mut ledger, .. }) =
            Store::open(&path, StoreOptions::default()).unwrap();
        assert!(ledger.changes_page(seen, usize::MAX).is_err(), "run {run}");
        for number in 0..40 {
            let record = ClusterRecord {
                id: ClusterId(format!("c-{run}-{number}").into()),
                names: Vec::new(),
                discovered: false,
                first_seen: Timestamp(9),
                proof: None,
            };
            let request = Request::RecordCluster { record };
            let Planned::Tentative {
                ticket, decision, ..
            } = ledger.plan(&request, Timestamp(9))
            else {
                panic!("nothing to write");
            };
            assert_eq!(store.commit(&[decision]), [Outcome::Committed]);
            ledger.confirm(ticket);
        }
        seen = ledger.revision();
    }
}

#[test]
fn a_second_opener_gets_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    let (store, _) = Store::open(&path, StoreOptions::default()).unwrap();
    for error in [
        Store::open(&path, StoreOptions::default()).map(drop),
        check(&path).map(drop),
    ] {
        let error = error.unwrap_err();
        assert!(matches!(error, OpenError::Locked(_)), "{error:?}");
        let line = error.to_string();
        assert!(
            line.contains("in use by another fipd") && !line.contains('\n'),
            "{line}"
        );
    }
    drop(store);
    Store::open(&path, StoreOptions::default()).unwrap();
}

#[test]
fn a_newer_file_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    drop(Store::open(&path, StoreOptions::default()).unwrap());
    let newer = schema::known() + 1;
    let database = redb::Database::open(&path).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(tables::META)
        .unwrap()
        .insert(tables::SCHEMA, newer.to_be_bytes().as_slice())
        .unwrap();
    txn.commit().unwrap();
    drop(database);
    for result in [
        Store::open(&path, StoreOptions::default()).map(drop),
        check(&path).map(drop),
    ] {
        let error = result.unwrap_err();
        let OpenError::Newer { found, known, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((*found, *known), (newer, schema::known()));
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn what_is_no_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    fs::write(
        &path,
        "this is a letter to a friend, not a database of any kind",
    )
    .unwrap();
    assert!(Store::open(&path, StoreOptions::default()).is_err());
    assert!(check(&path).is_err());
    assert!(check(&dir.path().join("missing")).is_err());
    assert!(!dir.path().join("missing").exists());
}

#[test]
fn the_audit_log_keeps_to_its_limit_without_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    let options = StoreOptions {
        audit_limit: 500,
        ballast: 0,
        ..StoreOptions::default()
    };
    let (mut store, _) = Store::open(&path, options.clone()).unwrap();
    let mut number = 0;
    let mut most = 0;
    for size in [1, 300, 7, 512, 1, 512, 40, 1, 1, 1, 90] {
        let decisions: Vec<_> = (0..size)
            .map(|_| {
                number += 1;
                decision(number)
            })
            .collect();
        assert!(
            store
                .commit(&decisions)
                .iter()
                .all(|outcome| *outcome == Outcome::Committed)
        );
        let stats = store.reader().stats();
        assert_eq!(stats.audit_next, number + 1);
        most = most.max(stats.audit_next - stats.audit_first);
    }
    assert!(
        (500..500 + 64 + 512).contains(&most),
        "{most} entries at most"
    );
    let page = store.reader().audit_page(Some(number), 3).unwrap();
    let numbers: Vec<_> = page.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [number - 1, number - 2, number - 3]);
    assert_eq!(&*page[0].1.detail, format!("entry {}", number - 1));
    drop(store);
    assert_eq!(
        check(&path)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        [""; 0]
    );
    // A lowered limit is reached by and by.
    let (mut store, _) = Store::open(
        &path,
        StoreOptions {
            audit_limit: 100,
            ..options.clone()
        },
    )
    .unwrap();
    for _ in 0..10 {
        number += 1;
        store.commit(&[decision(number)]);
    }
    let stats = store.reader().stats();
    assert!(stats.audit_next - stats.audit_first <= 164, "{stats:?}");
}

#[test]
fn a_backup_is_a_store_of_its_own_and_replaces_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("fipd.redb"), dir.path().join("copy.redb"));
    let (mut store, _) = Store::open(&path, StoreOptions::default()).unwrap();
    for number in 1..=30 {
        store.commit(&[decision(number)]);
    }
    let reader = store.reader();
    reader.backup(&copy).unwrap();
    assert_eq!(
        fs::metadata(&copy).unwrap().permissions().mode() & 0o777,
        0o600
    );
    store.commit(&[decision(31)]);
    assert!(
        reader
            .backup(&copy)
            .unwrap_err()
            .to_string()
            .contains("exists already")
    );
    let names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        names
            .iter()
            .all(|name| !name.to_string_lossy().contains("partial")),
        "{names:?}"
    );

    let restored = dir.path().join("restored.redb");
    restore(&copy, &restored);
    let (store, loaded) = Store::open(&restored, StoreOptions::default()).unwrap();
    assert_eq!(loaded.ledger.accounts().count(), 30);
    assert_eq!(store.reader().stats().audit_next, 32, "and the restore");
}

/// Puts a backup in place where no store is.
pub(super) fn restore(backup: &Path, store: &Path) {
    let restore = Restore {
        backup,
        store,
        no_hold: None,
        actor: "test".into(),
        now: Timestamp(40),
        host: None,
    };
    restore.run().unwrap();
}

#[test]
fn the_check_finds_what_was_tampered_with_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    let (mut store, _) = Store::open(&path, StoreOptions::default()).unwrap();
    store.commit(&[decision(1), decision(2)]);
    drop(store);
    assert!(check(&path).unwrap().is_empty());
    let database = redb::Database::open(&path).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(tables::AUDIT)
        .unwrap()
        .remove(1_u64.to_be_bytes())
        .unwrap();
    txn.open_table(tables::POOLS)
        .unwrap()
        .insert([0, 0, 0, 9], [1, 255, 255].as_slice())
        .unwrap();
    txn.open_table(tables::ADOPTIONS)
        .unwrap()
        .insert([7].as_slice(), [9].as_slice())
        .unwrap();
    let mut quota = codec::encode_quota(&Quota {
        pool: PoolId(1),
        tenant: Tenant("t".into()),
        limit: 3,
    })
    .unwrap();
    txn.open_table(tables::QUOTAS)
        .unwrap()
        .insert([0, 0, 1].as_slice(), quota.finish("quotas", &[0, 0, 1]))
        .unwrap();
    txn.commit().unwrap();
    drop(database);
    let before = fs::read(&path).unwrap();
    let problems: Vec<_> = check(&path)
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    for part in [
        "audit log: entries Some(2)",
        "table pools, row [0, 0, 0, 9]",
        "version 9",
        "quota key [00, 00, 01]",
        "bytes, where",
    ] {
        assert!(
            problems.iter().any(|problem| problem.contains(part)),
            "{part} not in {problems:?}"
        );
    }
    assert_eq!(
        fs::read(&path).unwrap(),
        before,
        "the check wrote to the file"
    );
    assert!(matches!(
        Store::open(&path, StoreOptions::default()),
        Err(OpenError::Damaged { .. })
    ));
}

#[test]
fn a_flipped_bit_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    let (mut store, _) = Store::open(&path, StoreOptions::default()).unwrap();
    store.commit(&(0..200).map(decision).collect::<Vec<_>>());
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes
        .windows(9)
        .position(|window| window == b"entry 150")
        .unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(check(&path).map_or(true, |problems| !problems.is_empty()));
}

#[test]
fn a_store_that_serves_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) =
        Store::open(&dir.path().join("fipd.redb"), StoreOptions::default()).unwrap();
    store.commit(&[decision(1)]);
    let stats = store.reader().stats();
    assert_eq!(
        (stats.condition, stats.commits, stats.decisions),
        (Condition::Serving, 1, 1)
    );
}

#[test]
fn a_file_that_is_mostly_air_is_compacted_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    let options = StoreOptions {
        ballast: 0,
        ..StoreOptions::default()
    };
    let (mut store, _) = Store::open(&path, options.clone()).unwrap();
    let account = |number: u32, size: usize| Account {
        name: format!("account-{number}").into(),
        role: Role::Viewer,
        password_hash: "x".repeat(size).into(),
        created: Timestamp(1),
        disabled: false,
    };
    let mut commit = |ops: Vec<Op>| {
        let decision = Decision {
            ops,
            audit: vec![entry(1)],
        };
        assert_eq!(store.commit(&[decision]), [Outcome::Committed]);
    };
    commit(
        (0..6_000)
            .map(|number| Op::PutAccount(account(number, 8_000)))
            .collect(),
    );
    commit(
        (100..6_000)
            .map(|number| Op::DeleteAccount(account(number, 0).name))
            .collect(),
    );
    commit(Vec::new());
    let used = || std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&path).unwrap()) * 512;
    drop(store);
    let before = used();
    assert!(before > 40 << 20, "only {before} bytes: nothing to compact");
    let (store, loaded) = Store::open(&path, options.clone()).unwrap();
    assert_eq!(loaded.ledger.accounts().count(), 100);
    assert!(used() < 8 << 20, "{} of {before} bytes are left", used());
    drop(store);
    assert!(check(&path).unwrap().is_empty());
}

#[test]
fn the_ballast_is_tried_again_after_a_pause() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::new(&dir.path().join("fipd.redb"), 1 << 20);
    let ballast = dir.path().join("fipd.redb.ballast");
    fs::create_dir(&ballast).unwrap();
    disk.keep_ballast();
    fs::remove_dir(&ballast).unwrap();
    disk.keep_ballast();
    assert!(!ballast.exists(), "tried at once");
    std::thread::sleep(Duration::from_millis(1_100));
    disk.keep_ballast();
    assert_eq!(fs::metadata(&ballast).unwrap().len(), 1 << 20);
    disk.drop_ballast();
    assert!(!ballast.exists());
    disk.keep_ballast();
    assert!(ballast.exists());
}

#[test]
fn what_a_start_left_half_made_is_swept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    let file = |name: &str| {
        let file = fs::File::create(dir.path().join(name)).unwrap();
        let past = std::time::SystemTime::now() - Duration::from_secs(3_600);
        file.set_modified(past).unwrap();
    };
    file("fipd.redb.new-1");
    file("other.new-1");
    fs::write(dir.path().join("fipd.redb.new-2"), "in the making").unwrap();
    let options = StoreOptions {
        ballast: 0,
        ..StoreOptions::default()
    };
    drop(Store::open(&path, options.clone()).unwrap());
    let names = fs::read_dir(dir.path()).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "fipd.redb",
            "fipd.redb.high-water",
            "fipd.redb.new-2",
            "other.new-1"
        ]
    );
}
