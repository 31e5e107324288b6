//! Starting and stopping.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use fipd_core::Request;
use parking_lot::{Condvar, Mutex};
use redb::{Builder, Database, DatabaseError, StorageBackend, backends::InMemoryBackend};

use super::*;
use crate::store::{Medium, Store, StoreOptions};

/// A disk whose syncs wait while it hangs.
#[derive(Clone, Debug, Default)]
struct Disk {
    hangs: Arc<(Mutex<bool>, Condvar)>,
    waiting: Arc<AtomicBool>,
}

impl Disk {
    fn hang(&self, hangs: bool) {
        *self.hangs.0.lock() = hangs;
        self.hangs.1.notify_all();
    }
}

impl Medium for Disk {
    fn path(&self) -> &Path {
        Path::new("hanging")
    }
    fn open(&self, builder: &Builder) -> Result<Database, DatabaseError> {
        builder.create_with_backend(Backend(self.clone(), InMemoryBackend::new()))
    }
    fn settle(&self) -> io::Result<()> {
        Ok(())
    }
    fn free(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    fn used(&self) -> io::Result<u64> {
        Ok(0)
    }
    fn drop_ballast(&self) {}
    fn keep_ballast(&self) {}
}

#[derive(Debug)]
struct Backend(Disk, InMemoryBackend);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.1.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.1.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.1.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        let (hangs, affected) = &*self.0.hangs;
        self.0.waiting.store(*hangs.lock(), Ordering::SeqCst);
        affected.wait_while(&mut hangs.lock(), |hangs| *hangs);
        self.1.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.1.write(offset, data)
    }
}

#[test]
fn a_stop_does_not_wait_for_a_disk_that_hangs() {
    let disk = Disk::default();
    let (store, loaded) =
        Store::open_medium(Arc::new(disk.clone()), StoreOptions::default()).unwrap();
    let (ipam, writer) = Ipam::with_store(store, loaded, Arc::new(clock::now)).unwrap();
    // As `fipd serve` makes it.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let network = |name: &str| Request::CreateNetwork {
        name: name.into(),
        actor: "test".into(),
    };
    runtime.block_on(ipam.submit(network("before"))).unwrap();
    disk.hang(true);
    let asker = ipam.clone();
    let asked = runtime.spawn(async move { asker.submit(network("hanging")).await });
    // Not before the request has reached it: one that comes after the stop is answered.
    while !disk.waiting.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let began = Instant::now();
    runtime.block_on(shut_down(ipam.clone(), writer));
    let answered = asked.is_finished();
    runtime.shutdown_timeout(Duration::from_millis(500));
    let took = began.elapsed();
    // Read while it still hangs: once it does not, the request goes through.
    let shown = ipam.read(|ledger| ledger.network_by_name("hanging").is_some());
    disk.hang(false);
    assert!(!answered, "nobody can tell what became of it");
    assert!(!shown, "nothing is shown before it is on the disk");
    assert!(took < Duration::from_secs(9), "{took:?}");
}
