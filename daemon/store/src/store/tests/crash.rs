//! Power cuts and I/O errors at every point: nothing that was answered is lost, nothing is there twice.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use fipd_core::{Account, Authority as _, Decision, Ledger, Op, Outcome, Role, Timestamp};
use redb::ReadableDatabase as _;

use super::{
    file::decision,
    history::{Dice, History},
    medium::{Call, Fault, Faulty, Persists},
    rounds,
};
use crate::store::{HighWater, Medium as _, OpenError, Store, StoreOptions, builder, check, open};

/// What is decided while the disk fails.
const EVERYTHING: [&str; 33] = [
    "NetworksSeparated",
    "SeparationWithdrawn",
    "Allocated",
    "Reserved",
    "Adopted",
    "Contended",
    "PortsChanged",
    "HandedOver",
    "Labelled",
    "Released",
    "Expired",
    "PassedOn",
    "Orphaned",
    "Forgotten",
    "NetworkCreated",
    "PoolCreated",
    "PoolUpdated",
    "PoolDeleted",
    "PoolMoved",
    "Probing",
    "FoundInUse",
    "QuotaSet",
    "QuotaDeleted",
    "ClusterRecorded",
    "ClusterAdopted",
    "AdoptionSkipped",
    "AccountChanged",
    "AccountDeleted",
    "TokenCreated",
    "TokenDeleted",
    "InstanceChanged",
    "Imported",
    "RestoreHoldEnded",
];

fn options() -> StoreOptions {
    // A small audit log, so that its trimming is under test as well.
    StoreOptions {
        audit_limit: 150,
        retry: Duration::ZERO,
        ..StoreOptions::default()
    }
}

fn start(medium: &Faulty) -> (Store, Ledger) {
    let (store, loaded) = Store::open_medium(Arc::new(medium.clone()), options()).unwrap();
    (store, loaded.ledger)
}

/// Every third one begins with a restore.
fn history(store: Store, ledger: Ledger, seed: u64) -> History {
    if seed.is_multiple_of(3) {
        History::restored(store, ledger, seed)
    } else {
        History::new(store, ledger, seed)
    }
}

/// The rows of a disk after power is back. Everything the offline check looks at must hold.
fn rows_after_cut(image: Vec<u8>) -> Result<Vec<Op>, OpenError> {
    let open::Opened {
        database,
        loaded,
        state,
        ..
    } = open::open(&Faulty::of(image), options().history)?;
    let (_, problems) = check::contents(&database.begin_read().unwrap(), &state).unwrap();
    assert!(problems.is_empty(), "{}", problems[0]);
    Ok(loaded.ledger.dump().collect())
}

#[test]
fn a_power_cut_at_any_sync_loses_nothing_that_was_answered() {
    for seed in 1..=rounds("FIPD_CUT_ROUNDS", 3) {
        let medium = Faulty::default();
        let (store, ledger) = start(&medium);
        let mut history = history(store, ledger, seed);
        medium.keep_cuts(seed);
        let mut cuts = 0;
        for _ in 0..70 {
            let flight = history.plan();
            let (before, after) = (flight.before.clone(), flight.after.clone());
            let now = history.commit(flight);
            assert_eq!(now, after, "a commit failed on a good disk");
            for image in medium.take_cuts() {
                let rows = rows_after_cut(image).unwrap();
                assert!(
                    rows == before || rows == after,
                    "seed {seed}: a cut shows half a batch"
                );
                cuts += 1;
            }
            assert_eq!(
                rows_after_cut(medium.durable()).unwrap(),
                after,
                "seed {seed}: an answer was lost"
            );
        }
        assert!(
            history.answered > 100 && cuts > 200,
            "{} answers, {cuts} cuts",
            history.answered
        );
    }
}

/// Whether a store that is found so beside this record begins a new epoch, in which free addresses are held.
fn starts_held(image: Vec<u8>, reached: HighWater) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let medium = Faulty::of(image).recorded(&dir.path().join("fipd.redb"));
    medium.record().unwrap().write(reached).unwrap();
    let opened = open::open(&medium, options().history).unwrap();
    opened.loaded.epoch > reached.epoch
}

#[test]
fn no_power_cut_leaves_a_high_water_record_ahead_of_the_store() {
    for seed in 1..=rounds("FIPD_CUT_ROUNDS", 3) {
        let dir = tempfile::tempdir().unwrap();
        let medium = Faulty::default().recorded(&dir.path().join("fipd.redb"));
        let (store, ledger) = start(&medium);
        let mut history = History::new(store, ledger, seed);
        let reached = || medium.record().unwrap().read().unwrap().unwrap().reached;
        medium.keep_cuts(seed);
        let (mut cuts, mut older) = (0, 0);
        for _ in 0..30 {
            let (before, image) = (reached(), medium.durable());
            let flight = history.plan();
            history.commit(flight);
            // The record is written between the commit and its answers, and may be on the disk at once.
            for cut in medium.take_recorded_cuts() {
                let record = cut.record.unwrap();
                assert!(!starts_held(cut.image, record), "seed {seed}: {record:?}");
                cuts += 1;
            }
            let now = reached();
            assert!(!starts_held(medium.durable(), now), "seed {seed}: {now:?}");
            if now > before {
                assert!(starts_held(image, now), "the file of before shows");
                older += 1;
            }
        }
        assert!(cuts > 80 && older > 20, "{cuts} cuts, {older} commits");
    }
}

#[test]
fn a_power_cut_while_tables_are_made_leaves_a_store_that_opens() {
    let medium = Faulty::default();
    drop(medium.open(&builder()).unwrap());
    medium.keep_cuts(9);
    let (_store, ledger) = start(&medium);
    let rows: Vec<_> = ledger.dump().collect();
    let cuts = medium.take_cuts();
    assert!(cuts.len() > 4, "{} cuts", cuts.len());
    for image in cuts {
        let (_, loaded) = Store::open_medium(Arc::new(Faulty::of(image)), options()).unwrap();
        assert_eq!(loaded.ledger.dump().collect::<Vec<_>>(), rows);
    }
}

/// One history with a fault set before some of its commits.
fn faulty_history(seed: u64, unsettled: bool) -> (History, u32) {
    let mut medium = Faulty::default();
    medium.unsettled = unsettled;
    let (store, ledger) = start(&medium);
    let mut history = history(store, ledger, seed);
    let mut dice = Dice::new(seed + 1_000);
    let mut struck = 0;
    for step in 0..80 {
        let flight = history.plan();
        if dice.below(3) == 0 {
            let call = [Call::Write, Call::SetLen, Call::Sync, Call::Sync][dice.below(4) as usize];
            let persists =
                [Persists::Nothing, Persists::Part, Persists::All][dice.below(3) as usize];
            let from = if call == Call::Write {
                dice.below(12)
            } else {
                dice.below(2)
            } as u32;
            // More than one failure also strikes the attempts to reopen.
            let times = 1 + dice.below(4) as u32;
            medium.set_fault(Some(Fault {
                call,
                from,
                times,
                persists,
            }));
        }
        let rows = history.commit(flight);
        struck += medium.set_fault(None);
        match rows_after_cut(medium.durable()) {
            Ok(found) if found == rows => {}
            Ok(_) => panic!("seed {seed}, step {step}: the answer is not what the disk says"),
            Err(error) => {
                panic!("seed {seed}, step {step}: the answer is not what the disk says: {error}")
            }
        }
    }
    (history, struck)
}

#[test]
fn a_failed_commit_is_answered_by_what_the_file_says() {
    let (mut answered, mut refused, mut struck) = (0, 0, 0);
    let mut actions = BTreeSet::new();
    for seed in 1..=20 {
        let (mut history, times) = faulty_history(seed, false);
        answered += history.answered;
        refused += history.refused;
        struck += times;
        actions.append(&mut history.actions);
    }
    let missing: Vec<_> = EVERYTHING
        .iter()
        .filter(|action| !actions.contains(**action))
        .collect();
    assert!(missing.is_empty(), "never decided: {missing:?}");
    assert!(
        answered > 800 && refused > 50 && struck > 100,
        "{answered} answered, {refused} refused, {struck}"
    );
}

/// The test above would notice a store that trusts the page cache after a failed sync: the same histories end with a
/// wrong answer, or in redb.
#[test]
fn trusting_cached_pages_after_a_failed_sync_loses_answers() {
    let fails = |seed| std::panic::catch_unwind(|| faulty_history(seed, true)).is_err();
    assert!((1..=12).any(fails));
}

#[test]
fn growing_the_file_may_fail() {
    let medium = Faulty::default();
    let (store, ledger) = start(&medium);
    let mut history = History::new(store, ledger, 5);
    let mut struck = 0;
    for _ in 0..400 {
        medium.set_fault(Some(Fault {
            call: Call::SetLen,
            from: 0,
            times: 1,
            persists: Persists::Nothing,
        }));
        let flight = history.plan();
        let rows = history.commit(flight);
        struck += medium.set_fault(None);
        if struck > 0 {
            assert_eq!(rows_after_cut(medium.durable()).unwrap(), rows);
            return;
        }
    }
    panic!("the file never grew");
}

#[test]
fn a_store_that_was_replaced_meanwhile_decides_nothing_more() {
    use fipd_core::Authority as _;
    let medium = Faulty::default();
    let (mut store, _) = start(&medium);
    for number in 0..5 {
        store.commit(&[decision(number)]);
    }
    medium.set_fault(Some(Fault {
        call: Call::Sync,
        from: 0,
        times: 1,
        persists: Persists::All,
    }));
    medium.replace_at_settle();
    assert_eq!(
        store.commit(&[decision(60)]),
        [],
        "an outcome nobody can know was told"
    );
    assert!(matches!(
        store.reader().stats().condition,
        crate::store::Condition::Stopped { .. }
    ));
    assert_eq!(store.commit(&[decision(61)]), []);
}

#[test]
fn a_stop_ends_the_wait_for_a_broken_disk() {
    use fipd_core::Authority as _;
    let medium = Faulty::default();
    let patient = StoreOptions {
        retry: Duration::from_secs(3_600),
        ..options()
    };
    let (mut store, _) = Store::open_medium(Arc::new(medium.clone()), patient).unwrap();
    medium.set_fault(Some(Fault {
        call: Call::Sync,
        from: 0,
        times: u32::MAX,
        persists: Persists::Nothing,
    }));
    store.stop_handle().stop();
    assert_eq!(store.commit(&[decision(1)]), []);
}

/// A store of 10 accounts and 40 MB of air around them.
fn mostly_air() -> Vec<u8> {
    let medium = Faulty::default();
    let (mut store, _) = start(&medium);
    let account = |number: u32| Account {
        name: format!("account-{number}").into(),
        role: Role::Viewer,
        password_hash: "x".repeat(8_000).into(),
        created: Timestamp(1),
        disabled: false,
    };
    let mut commit = |ops: Vec<Op>| {
        let audit = Vec::new();
        let outcomes = store.commit(&[Decision { ops, audit }]);
        assert_eq!(outcomes, [Outcome::Committed]);
    };
    commit((0..5_500).map(|n| Op::PutAccount(account(n))).collect());
    let gone = (10..5_500).map(|n| Op::DeleteAccount(account(n).name));
    commit(gone.collect());
    drop(store);
    medium.durable()
}

#[test]
fn a_store_that_cannot_be_compacted_opens() {
    let image = mostly_air();
    let medium = Faulty::of(image.clone());
    let before = medium.used().unwrap();
    assert!(before > 32 << 20, "only {before} bytes");
    drop(start(&medium));
    assert!(medium.used().unwrap() < before, "nothing to compact");
    let mut survived = 0;
    for call in [Call::Write, Call::Sync] {
        for from in 0..8 {
            let medium = Faulty::of(image.clone());
            medium.set_fault(Some(Fault {
                call,
                from,
                times: 1,
                persists: Persists::Part,
            }));
            match Store::open_medium(Arc::new(medium.clone()), options()) {
                Ok((mut store, loaded)) => {
                    assert_eq!(loaded.ledger.accounts().count(), 10);
                    let outcomes = store.commit(&[decision(1)]);
                    assert_eq!(outcomes, [Outcome::Committed], "{call:?} {from}");
                    survived += medium.set_fault(None);
                }
                Err(error) => assert!(matches!(error, OpenError::Io { .. }), "{error}"),
            }
        }
    }
    assert!(survived > 4, "{survived} failures in a compaction");
}
