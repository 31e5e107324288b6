//! How much room the disk has, asked so that a disk that hangs holds up nobody.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use super::{StoreState, health::Condition};

/// How long whoever asks waits for the disk. Askers may be on threads that serve others too.
const PATIENCE: Duration = Duration::from_millis(50);

/// What is known of the room on the disk.
#[derive(Debug, Default)]
pub(super) struct DiskRoom {
    /// Somebody waits for the disk: nobody else does.
    looking: AtomicBool,
    /// Bytes used by the store, and free beside it.
    known: Mutex<Option<(u64, u64)>>,
}

impl DiskRoom {
    pub(super) fn known(&self) -> Option<(u64, u64)> {
        *self.known.lock()
    }
}

/// Asks the disk on a thread of its own and waits for it a moment. An answer that comes later counts as well; until
/// then what was known before stands.
pub(super) fn look(shared: &Arc<StoreState>) {
    if shared.room.looking.swap(true, Ordering::AcqRel) {
        return;
    }
    let (done, seen) = mpsc::sync_channel(1);
    let asked = Arc::clone(shared);
    let look = move || {
        ask(&asked);
        asked.room.looking.store(false, Ordering::Release);
        // Nobody may wait any more.
        let _ = done.send(());
    };
    match thread::Builder::new().name("disk".to_owned()).spawn(look) {
        Ok(_) => drop(seen.recv_timeout(PATIENCE)),
        Err(error) => {
            shared.room.looking.store(false, Ordering::Release);
            tracing::warn!(%error, "no thread to ask for the room on the disk");
        }
    }
}

fn ask(shared: &StoreState) {
    let (used, free) = (shared.medium.used(), shared.medium.free());
    *shared.room.known.lock() = used.ok().zip(free.as_ref().ok().copied());
    let Ok(now) = free else { return };
    let mut stats = shared.stats.lock();
    if let Condition::Full { free, needed } = &mut stats.condition {
        *free = now;
        if now >= *needed {
            stats.condition = Condition::Serving;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::store::{Medium, Store, StoreOptions, medium::Disk};

    /// A disk that does not say how much room it has while it is locked.
    #[derive(Debug)]
    struct Hanging {
        disk: Disk,
        hangs: Arc<Mutex<()>>,
    }

    impl Medium for Hanging {
        fn path(&self) -> &std::path::Path {
            self.disk.path()
        }
        fn open(&self, builder: &redb::Builder) -> Result<redb::Database, redb::DatabaseError> {
            self.disk.open(builder)
        }
        fn settle(&self) -> std::io::Result<()> {
            self.disk.settle()
        }
        fn free(&self) -> std::io::Result<u64> {
            drop(self.hangs.lock());
            self.disk.free()
        }
        fn used(&self) -> std::io::Result<u64> {
            self.disk.used()
        }
        fn drop_ballast(&self) {}
        fn keep_ballast(&self) {}
    }

    #[test]
    fn a_disk_that_hangs_holds_up_one_asker_for_a_moment() {
        let dir = tempfile::tempdir().unwrap();
        let hangs = Arc::new(Mutex::new(()));
        let disk = Disk::new(&dir.path().join("fipd.redb"), 0);
        let medium = Hanging {
            disk,
            hangs: Arc::clone(&hangs),
        };
        let (store, _) = Store::open_medium(Arc::new(medium), StoreOptions::default()).unwrap();
        let reader = store.reader();
        let full = Condition::Full { free: 0, needed: 1 };
        let known = reader.disk().unwrap();

        let guard = hangs.lock();
        store.shared.stats.lock().condition = full.clone();
        let start = Instant::now();
        for _ in 0..100 {
            assert_eq!(reader.stats().condition, full);
            assert_eq!(reader.disk().unwrap().0, known.0);
        }
        assert!(start.elapsed() < 20 * PATIENCE, "{:?}", start.elapsed());
        drop(guard);
        let deadline = Instant::now() + Duration::from_secs(10);
        while reader.stats().condition != Condition::Serving {
            assert!(Instant::now() < deadline, "the late answer counts");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
