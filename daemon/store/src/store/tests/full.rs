//! A disk that is really full: a small tmpfs in a mount namespace of the test's own thread, which ends with it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use fipd_core::{Authority as _, Outcome, Refused};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use redb::{Builder, Database, DatabaseError};

use super::{file::decision, rounds};
use crate::store::{Condition, Medium, OpenError, Store, StoreOptions, check, medium::Disk};

const NONE: Option<&str> = None;

/// Runs `test` on a thread of its own that sees a tmpfs of `size` at the path it is given. Needs root.
fn on_small_disk(size: &str, test: impl FnOnce(&Path) + Send) {
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNS) {
            assert!(
                !nix::unistd::geteuid().is_root(),
                "root may not unshare: {error}"
            );
            println!("skipped: needs root for a mount namespace of its own");
            return;
        }
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
        mount(
            Some("tmpfs"),
            dir.path(),
            Some("tmpfs"),
            MsFlags::empty(),
            Some(format!("size={size}").as_str()),
        )
        .unwrap();
        test(dir.path());
    };
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap();
}

/// Fills the disk but for `left` bytes.
fn fill(dir: &Path, left: u64) -> PathBuf {
    let path = dir.join("filler");
    let stat = nix::sys::statvfs::statvfs(dir).unwrap();
    let free = stat.blocks_available() * stat.fragment_size();
    fs::write(&path, vec![1; usize::try_from(free - left).unwrap()]).unwrap();
    path
}

#[test]
fn a_full_disk_refuses_decisions_before_redb_notices() {
    on_small_disk("24m", |dir| {
        let path = dir.join("fipd.redb");
        let options = StoreOptions {
            reserve: 1 << 20,
            ballast: 1 << 20,
            ..StoreOptions::default()
        };
        let (mut store, _) = Store::open(&path, options.clone()).unwrap();
        assert_eq!(store.commit(&[decision(1)]), [Outcome::Committed]);
        let filler = fill(dir, 512 << 10);
        let outcomes = store.commit(&[decision(2), decision(3)]);
        assert!(
            matches!(
                outcomes[..],
                [Outcome::Refused(Refused::DiskFull { free, .. }), Outcome::Refused(Refused::DiskFull { .. })]
                if free <= 512 << 10
            ),
            "{outcomes:?}"
        );
        let stats = store.reader().stats();
        assert!(
            matches!(stats.condition, Condition::Full { .. }) && stats.failed_commits == 0,
            "{stats:?}"
        );
        assert_eq!(
            store.reader().audit_page(None, 10).unwrap().len(),
            1,
            "reading must go on"
        );
        fs::remove_file(filler).unwrap();
        assert_eq!(
            store.reader().stats().condition,
            Condition::Serving,
            "room was made, and nobody noticed"
        );
        assert_eq!(store.commit(&[decision(4)]), [Outcome::Committed]);
        assert_eq!(store.reader().stats().condition, Condition::Serving);
        drop(store);
        assert!(check(&path).unwrap().is_empty());
    });
}

#[test]
fn many_rows_need_no_page_each() {
    on_small_disk("24m", |dir| {
        let options = StoreOptions {
            reserve: 1 << 20,
            ballast: 1 << 20,
            ..StoreOptions::default()
        };
        let (mut store, _) = Store::open(&dir.join("fipd.redb"), options.clone()).unwrap();
        let mut many = decision(1);
        for number in 2..=2_000 {
            let one = decision(number);
            many.ops.extend(one.ops);
            many.audit.extend(one.audit);
        }
        assert_eq!(store.commit(&[many]), [Outcome::Committed]);
        assert_eq!(store.reader().stats().condition, Condition::Serving);
    });
}

/// A disk that always claims to have room, as one does when another process takes it in between.
#[derive(Debug)]
struct Liar(Disk);

impl Medium for Liar {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn open(&self, builder: &Builder) -> Result<Database, DatabaseError> {
        self.0.open(builder)
    }
    fn settle(&self) -> io::Result<()> {
        self.0.settle()
    }
    fn free(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    fn used(&self) -> io::Result<u64> {
        self.0.used()
    }
    fn drop_ballast(&self) {
        self.0.drop_ballast();
    }
    fn keep_ballast(&self) {}
}

#[test]
fn running_out_of_room_inside_a_commit_is_survived_on_the_ballast() {
    for round in 0..rounds("FIPD_FULL_ROUNDS", 1) {
        runs_out_of_room((64 << 10) + 4_096 * round);
    }
}

/// Commits until the `left` bytes of the disk are full, and goes on.
fn runs_out_of_room(left: u64) {
    on_small_disk("32m", |dir| {
        let path = dir.join("fipd.redb");
        let options = StoreOptions {
            ballast: 4 << 20,
            ..StoreOptions::default()
        };
        let disk = Disk::new(&path, options.ballast);
        disk.keep_ballast();
        assert!(dir.join("fipd.redb.ballast").exists());
        let (mut store, _) = Store::open_medium(Arc::new(Liar(disk)), options.clone()).unwrap();
        let filler = fill(dir, left);
        let (mut number, mut committed) = (0, 0);
        let refused = loop {
            number += 1;
            assert!(number < 20_000, "the disk never became full");
            match store.commit(&[decision(number)]).pop().unwrap() {
                Outcome::Committed => committed += 1,
                Outcome::Refused(refused) => break refused,
            }
        };
        assert!(
            matches!(&refused, Refused::Failed(why) if why.contains("space")),
            "{refused:?}"
        );
        assert!(
            !dir.join("fipd.redb.ballast").exists(),
            "the ballast was not given up"
        );
        let stats = store.reader().stats();
        assert_eq!(
            (stats.condition, stats.failed_commits),
            (Condition::Serving, 1)
        );
        assert_eq!(store.reader().audit_page(None, 1).unwrap()[0].0, committed);
        // On the room of the ballast it goes on at once.
        assert_eq!(store.commit(&[decision(number + 1)]), [Outcome::Committed]);
        drop(store);
        fs::remove_file(filler).unwrap();
        assert_eq!(
            check(&path)
                .unwrap()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            [""; 0]
        );
        let (_, loaded) = Store::open(&path, StoreOptions::default()).unwrap();
        assert_eq!(loaded.ledger.accounts().count() as u64, committed + 1);
    });
}

#[test]
fn a_full_disk_is_opened_on_the_room_of_the_ballast() {
    on_small_disk("32m", |dir| {
        let path = dir.join("fipd.redb");
        let ballast = dir.join("fipd.redb.ballast");
        let options = StoreOptions {
            reserve: 64 << 10,
            ballast: 4 << 20,
            ..StoreOptions::default()
        };
        Disk::new(&path, options.ballast).keep_ballast();
        let filler = fill(dir, 0);
        let (mut store, _) = Store::open(&path, options.clone()).unwrap();
        assert!(!ballast.exists(), "there is no room for it");
        assert_eq!(store.commit(&[decision(1)]), [Outcome::Committed]);
        assert!(!ballast.exists());
        fs::remove_file(filler).unwrap();
        assert_eq!(store.commit(&[decision(2)]), [Outcome::Committed]);
        assert!(ballast.exists(), "there is room again");
        let killed = fs::read(&path).unwrap();
        drop(store);
        fs::write(&path, killed).unwrap();
        fill(dir, 0);
        let (_, loaded) = Store::open(&path, options.clone()).unwrap();
        assert_eq!(loaded.ledger.accounts().count(), 2);
    });
}

#[test]
fn without_ballast_a_full_disk_is_called_so() {
    on_small_disk("24m", |dir| {
        fill(dir, 0);
        let error = Store::open(&dir.join("fipd.redb"), StoreOptions::default()).unwrap_err();
        let left = fs::read_dir(dir).unwrap().count();
        assert_eq!(left, 1, "only what filled the disk");
        assert!(
            matches!(&error, OpenError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull),
            "{error}"
        );
    });
}
