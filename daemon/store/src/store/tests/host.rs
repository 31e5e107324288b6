//! A store on another host than the one it belongs to.

use std::{fs, path::PathBuf};

use fipd_core::{Authority as _, Ledger, Outcome, Refused};
use tempfile::TempDir;

use super::file::decision;
use crate::store::{
    ClaimError, ClaimStore, Condition, HostId, Loaded, Store, StoreOptions, StoreReader, check,
};

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("fipd.redb")
    }

    fn open(&self, host: Option<HostId>) -> (Store, Loaded) {
        Store::open(&self.store(), options(host)).unwrap()
    }

    fn claim(&self, host: Option<HostId>) -> Result<fipd_core::Epoch, ClaimError> {
        ClaimStore {
            store: &self.store(),
            options: options(host),
            reason: "the old host is scrap".into(),
            actor: "offline:0".into(),
        }
        .run()
    }

    fn record(&self) -> Vec<u8> {
        fs::read(self.0.path().join("fipd.redb.high-water")).unwrap()
    }
}

fn options(host: Option<HostId>) -> StoreOptions {
    StoreOptions {
        ballast: 0,
        host,
        ..StoreOptions::default()
    }
}

fn host(digit: char) -> Option<HostId> {
    let host = HostId::of(&digit.to_string().repeat(32));
    assert!(host.is_some());
    host
}

fn condition(store: &Store) -> Condition {
    StoreReader::stats(&store.reader()).condition
}

fn commit(store: &mut Store, number: u64) {
    assert_eq!(store.commit(&[decision(number)]), [Outcome::Committed]);
}

#[test]
fn another_host_reads_the_store_and_decides_nothing() {
    let place = Place::new();
    let (mut store, _) = place.open(host('a'));
    commit(&mut store, 1);
    drop(store);
    let before = place.record();
    let (mut store, loaded) = place.open(host('b'));
    assert_eq!(condition(&store), Condition::OtherHost);
    assert!(loaded.ledger.account("account-1").is_some());
    let refused = Outcome::Refused(Refused::OtherHost);
    assert_eq!(store.commit(&[decision(2)]), [refused]);
    store.watch();
    assert_eq!(store.upkeep(std::time::Instant::now()), None);
    assert_eq!(condition(&store), Condition::OtherHost);
    drop(store);
    assert_eq!(place.record(), before, "it is the other host's");
    let (mut store, loaded) = place.open(host('a'));
    assert!(
        Ledger::restore_hold(&loaded.ledger).is_none(),
        "it came back"
    );
    commit(&mut store, 2);
}

#[test]
fn a_claimed_store_is_held_in_a_new_epoch_and_lost_to_the_host_before() {
    let place = Place::new();
    commit(&mut place.open(host('a')).0, 1);
    let epoch = place.claim(host('b')).unwrap();
    assert_eq!(epoch.number, 1);
    assert!(epoch.hold.is_some());
    let (mut store, loaded) = place.open(host('b'));
    assert_eq!(loaded.epoch, 1);
    assert!(Ledger::restore_hold(&loaded.ledger).is_some());
    let audit = store.reader().audit_page(None, 1).unwrap();
    let last = &audit[0].1;
    assert!(last.detail.contains("the old host is scrap"), "{last:?}");
    commit(&mut store, 2);
    drop(store);
    assert!(check(&place.store()).unwrap().is_empty());
    assert_eq!(condition(&place.open(host('a')).0), Condition::OtherHost);
}

#[test]
fn only_the_store_of_another_host_is_claimed() {
    let place = Place::new();
    assert!(matches!(place.claim(host('a')), Err(ClaimError::Io { .. })));
    let (store, _) = place.open(host('a'));
    assert!(
        matches!(place.claim(host('b')), Err(ClaimError::Open(_))),
        "it is in use"
    );
    drop(store);
    let refused = place.claim(host('a'));
    assert!(
        matches!(refused, Err(ClaimError::NotForeign(_))),
        "{refused:?}"
    );
    let refused = place.claim(None);
    assert!(
        matches!(refused, Err(ClaimError::UnknownHost)),
        "{refused:?}"
    );
    assert_eq!(place.open(host('a')).1.epoch, 0);
}

#[test]
fn a_store_that_was_copied_without_its_record_is_the_other_hosts_as_well() {
    let place = Place::new();
    commit(&mut place.open(host('a')).0, 1);
    let record = place.0.path().join("fipd.redb.high-water");
    fs::remove_file(&record).unwrap();
    let (store, loaded) = place.open(host('b'));
    assert_eq!(condition(&store), Condition::OtherHost);
    assert_eq!(
        loaded.epoch, 0,
        "only its own host makes an older store of it"
    );
    assert!(!record.exists());
    drop(store);
    assert_eq!(place.claim(host('b')).unwrap().number, 1);
    fs::remove_file(&record).unwrap();
    assert_eq!(condition(&place.open(host('a')).0), Condition::OtherHost);
}

#[test]
fn a_host_that_is_not_known_checks_nothing_and_forgets_nothing() {
    let place = Place::new();
    commit(&mut place.open(None).0, 1);
    // From the first start that knows its host.
    commit(&mut place.open(host('a')).0, 2);
    commit(&mut place.open(None).0, 3);
    assert_eq!(condition(&place.open(host('b')).0), Condition::OtherHost);
    assert_eq!(condition(&place.open(host('a')).0), Condition::Serving);
}
