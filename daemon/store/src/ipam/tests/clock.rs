//! Quarantines and the clocks of the host: none ends early, and nothing is frozen for good.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};

use fipd_core::{Action, Answer, BootId, ClockReading, LeaseKey, PoolSpec, Request, Timestamp};

use super::{
    super::{DATABASE, Ipam, Writer, time::HELD_BACK},
    allocate, give_back, pool_spec, stop,
};
use crate::{
    clock::{HostClock, Synchronised},
    store::{AuditFilter, ClockWasReset, OpenError, ResetClock, ResetError, StoreOptions},
};

/// The clocks of a host, moved by hand.
#[derive(Default)]
struct Hand {
    boot: AtomicU8,
    uptime: AtomicU64,
    wall: AtomicU64,
    synchronised: AtomicBool,
}

impl Hand {
    const NEW_YEAR: u64 = 1_767_225_600_000;
    const YEAR_2100: u64 = 4_102_444_800_000;
    const HOUR: u64 = 3_600_000;
    const MINUTE: u64 = 60_000;

    fn new() -> Arc<Self> {
        let hand = Self::default();
        hand.wall.store(Self::NEW_YEAR, Ordering::Relaxed);
        Arc::new(hand)
    }

    fn jump(&self, hours: u64) {
        self.wall.fetch_add(hours * Self::HOUR, Ordering::Relaxed);
    }

    /// The host runs.
    fn run(&self, millis: u64) {
        self.uptime.fetch_add(millis, Ordering::Relaxed);
        self.wall.fetch_add(millis, Ordering::Relaxed);
    }

    fn start(self: &Arc<Self>, directory: &Path) -> (Ipam, Writer) {
        let clock = Arc::clone(self) as Arc<dyn HostClock>;
        Ipam::start_on(directory, StoreOptions::default(), clock).unwrap()
    }

    fn reset(&self, directory: &Path) -> Result<ClockWasReset, ResetError> {
        ResetClock {
            store: &directory.join(DATABASE),
            options: StoreOptions::default(),
            reason: "the clock was wrong".into(),
            actor: "offline:0".into(),
            reading: self.read(),
        }
        .run()
    }
}

impl HostClock for Hand {
    fn read(&self) -> ClockReading {
        ClockReading {
            boot: Some(BootId([self.boot.load(Ordering::Relaxed); 16])),
            uptime: self.uptime.load(Ordering::Relaxed),
            wall: Timestamp(self.wall.load(Ordering::Relaxed)),
        }
    }

    fn synchronised(&self) -> Synchronised {
        match self.synchronised.load(Ordering::Relaxed) {
            true => Synchronised::Yes,
            false => Synchronised::Unknown("EPERM".to_owned()),
        }
    }
}

/// A released address of a pool whose addresses cool for an hour.
async fn cooling(ipam: &Ipam) -> LeaseKey {
    let request = Request::CreatePool {
        spec: PoolSpec {
            quarantine: 3_600,
            ..pool_spec("front", "10.0.0.0/24")
        },
        actor: "test".into(),
    };
    let Answer::Pool(pool) = ipam.submit(request).await.unwrap() else {
        panic!("no pool")
    };
    let key = allocate(ipam, pool.id, 1).await.unwrap();
    ipam.submit(give_back(1)).await.unwrap();
    key
}

async fn cools(ipam: &Ipam, key: LeaseKey) -> bool {
    let request = Request::Expire {
        most: 10,
        actor: "test".into(),
    };
    ipam.submit(request).await.unwrap();
    ipam.read(|ledger| ledger.lease(key).is_some())
}

#[tokio::test]
async fn a_wrong_second_ends_no_quarantine_and_a_confirmed_jump_does() {
    let dir = tempfile::tempdir().unwrap();
    let hand = Hand::new();
    let (ipam, writer) = hand.start(dir.path());
    let key = cooling(&ipam).await;
    hand.jump(24 * 365);
    assert!(cools(&ipam, key).await, "nobody confirms the clock");
    assert_eq!(ipam.time().held_back.as_secs(), 365 * 86_400);
    assert_eq!(ipam.now(), Timestamp(Hand::NEW_YEAR));
    stop(&ipam, writer).await;
    let (ipam, writer) = hand.start(dir.path());
    assert!(cools(&ipam, key).await, "nor does a restart");
    hand.synchronised.store(true, Ordering::Relaxed);
    assert!(!cools(&ipam, key).await);
    assert!(ipam.time().held_back.is_zero());
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn a_quarantine_ends_by_the_boot_clock_while_the_wall_clock_is_in_the_past() {
    let dir = tempfile::tempdir().unwrap();
    let hand = Hand::new();
    let (ipam, writer) = hand.start(dir.path());
    let key = cooling(&ipam).await;
    hand.wall.store(1, Ordering::Relaxed);
    hand.uptime.store(Hand::HOUR - 1, Ordering::Relaxed);
    assert!(cools(&ipam, key).await);
    stop(&ipam, writer).await;
    let (ipam, writer) = hand.start(dir.path());
    assert!(cools(&ipam, key).await);
    hand.uptime.store(Hand::HOUR, Ordering::Relaxed);
    assert!(!cools(&ipam, key).await);
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn an_accepted_clock_is_audited_and_stays_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let hand = Hand::new();
    let (ipam, writer) = hand.start(dir.path());
    let key = cooling(&ipam).await;
    hand.jump(48);
    ipam.accept_clock("alice".into()).await.unwrap();
    assert_eq!(ipam.now(), Timestamp(Hand::NEW_YEAR + 48 * Hand::HOUR));
    stop(&ipam, writer).await;
    let (ipam, writer) = hand.start(dir.path());
    assert!(ipam.time().held_back.is_zero());
    assert!(!cools(&ipam, key).await);
    let filter = AuditFilter {
        action: Some(Action::ClockAccepted),
        ..AuditFilter::default()
    };
    let found = ipam.reader().audit_search(&filter, None, 9, 99).unwrap();
    let actors: Vec<_> = found
        .entries
        .iter()
        .map(|(_, entry)| &*entry.actor)
        .collect();
    assert_eq!(actors, ["alice"]);
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn the_time_that_the_host_was_off_counts_once_it_is_confirmed() {
    let dir = tempfile::tempdir().unwrap();
    let hand = Hand::new();
    hand.uptime.store(9 * Hand::HOUR, Ordering::Relaxed);
    let (ipam, writer) = hand.start(dir.path());
    let key = cooling(&ipam).await;
    stop(&ipam, writer).await;
    hand.boot.store(2, Ordering::Relaxed);
    hand.uptime.store(1, Ordering::Relaxed);
    hand.jump(2);
    let (ipam, writer) = hand.start(dir.path());
    assert!(cools(&ipam, key).await);
    assert_eq!(ipam.time().held_back.as_secs(), 7_200);
    hand.synchronised.store(true, Ordering::Relaxed);
    assert!(!cools(&ipam, key).await);
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn noise_of_the_clock_is_not_worth_a_word_and_a_minute_is() {
    let dir = tempfile::tempdir().unwrap();
    let hand = Hand::new();
    let (ipam, writer) = hand.start(dir.path());
    cooling(&ipam).await;
    hand.wall.fetch_add(5 * Hand::MINUTE, Ordering::Relaxed);
    assert_eq!(ipam.now(), Timestamp(Hand::NEW_YEAR + 5 * Hand::MINUTE));
    assert!(ipam.time().held_back.is_zero());
    hand.wall.fetch_add(3, Ordering::Relaxed);
    assert_eq!(ipam.time().held_back.as_millis(), 3);
    assert_eq!(ipam.time().warning(), None);
    hand.wall.fetch_add(Hand::MINUTE, Ordering::Relaxed);
    assert!(ipam.time().held_back >= HELD_BACK);
    let sentence = ipam.time().warning().unwrap();
    assert!(
        sentence.contains("1 minutes ahead") && sentence.contains("(EPERM)"),
        "{sentence}"
    );
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn a_jump_of_almost_five_minutes_every_minute_ends_no_quarantine() {
    let dir = tempfile::tempdir().unwrap();
    let hand = Hand::new();
    let (ipam, writer) = hand.start(dir.path());
    let key = cooling(&ipam).await;
    for _ in 0..50 {
        hand.run(Hand::MINUTE);
        hand.wall
            .fetch_add(5 * Hand::MINUTE - 1_000, Ordering::Relaxed);
        assert!(cools(&ipam, key).await);
    }
    stop(&ipam, writer).await;
    let (ipam, writer) = hand.start(dir.path());
    assert!(cools(&ipam, key).await, "the sum is in the store");
    stop(&ipam, writer).await;
}

/// Times of the audit log in the order of its numbers, and its last action.
fn audit(ipam: &Ipam) -> (Vec<Timestamp>, Option<Action>) {
    let mut page = ipam.reader().audit_page(None, 99).unwrap();
    page.reverse();
    let last = page.last().map(|(_, entry)| entry.action);
    (page.into_iter().map(|(_, entry)| entry.at).collect(), last)
}

#[tokio::test]
async fn a_start_in_2100_freezes_nothing_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let hand = Hand::new();
    hand.wall.store(Hand::YEAR_2100, Ordering::Relaxed);
    let (ipam, writer) = hand.start(dir.path());
    let key = cooling(&ipam).await;
    hand.run(20 * Hand::MINUTE);
    stop(&ipam, writer).await;
    // The host's clock is put right, which alone takes nothing back.
    hand.wall.store(Hand::NEW_YEAR, Ordering::Relaxed);
    let (ipam, writer) = hand.start(dir.path());
    assert!(cools(&ipam, key).await);
    assert_eq!(ipam.now(), Timestamp(Hand::YEAR_2100 + 20 * Hand::MINUTE));
    let sentence = ipam.time().warning().unwrap();
    assert!(sentence.contains("fipd clock reset"), "{sentence}");
    stop(&ipam, writer).await;

    let done = hand.reset(dir.path()).unwrap();
    assert_eq!(done.from, Timestamp(Hand::YEAR_2100 + 20 * Hand::MINUTE));
    assert_eq!((done.to, done.entries), (Timestamp(Hand::NEW_YEAR), 3));
    let (ipam, writer) = hand.start(dir.path());
    assert_eq!(ipam.now(), Timestamp(Hand::NEW_YEAR));
    assert_eq!(ipam.time().warning(), None);
    hand.run(40 * Hand::MINUTE - 1);
    assert!(cools(&ipam, key).await, "40 minutes were left");
    hand.run(1);
    assert!(!cools(&ipam, key).await);
    let (times, last) = audit(&ipam);
    assert!(times.is_sorted(), "{times:?}");
    assert!(times.iter().all(|at| *at <= ipam.now()), "{times:?}");
    assert_eq!(last, Some(Action::Expired));
    let filter = AuditFilter {
        action: Some(Action::ClockReset),
        from: Some(Timestamp(Hand::NEW_YEAR)),
        ..AuditFilter::default()
    };
    let found = ipam.reader().audit_search(&filter, None, 9, 99).unwrap();
    let (_, entry) = &found.entries[0];
    assert_eq!(&*entry.actor, "offline:0");
    assert!(entry.detail.ends_with(": the clock was wrong"), "{entry:?}");
    stop(&ipam, writer).await;
    // Nothing of it comes back with another start, or once the kernel confirms the clock.
    hand.synchronised.store(true, Ordering::Relaxed);
    let (ipam, writer) = hand.start(dir.path());
    assert_eq!(ipam.now(), ipam.wall());
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn a_reset_ends_no_quarantine_that_began_before_a_wrong_clock_was_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let hand = Hand::new();
    let (ipam, writer) = hand.start(dir.path());
    let key = cooling(&ipam).await;
    hand.jump(24 * 365);
    ipam.accept_clock("alice".into()).await.unwrap();
    stop(&ipam, writer).await;
    hand.wall.store(Hand::NEW_YEAR, Ordering::Relaxed);
    hand.run(Hand::MINUTE);
    hand.reset(dir.path()).unwrap();
    let (ipam, writer) = hand.start(dir.path());
    hand.run(59 * Hand::MINUTE - 1);
    assert!(cools(&ipam, key).await, "an hour has not passed");
    hand.run(1);
    assert!(!cools(&ipam, key).await);
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn a_reset_is_refused_beside_a_running_daemon_and_where_the_book_is_not_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let hand = Hand::new();
    let none = hand.reset(dir.path());
    assert!(matches!(none, Err(ResetError::Io { .. })), "{none:?}");
    assert!(!dir.path().join(DATABASE).exists());
    let (ipam, writer) = hand.start(dir.path());
    cooling(&ipam).await;
    let running = hand.reset(dir.path());
    assert!(
        matches!(running, Err(ResetError::Open(OpenError::Locked(_)))),
        "{running:?}"
    );
    stop(&ipam, writer).await;
    hand.jump(2);
    let ahead = hand.reset(dir.path());
    assert!(
        matches!(ahead, Err(ResetError::NotAhead { .. })),
        "{ahead:?}"
    );
    let (ipam, writer) = hand.start(dir.path());
    assert_eq!(audit(&ipam).0.len(), 3, "nothing was changed");
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn the_time_before_a_reboot_counts_though_nothing_was_decided_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let hand = Hand::new();
    let (ipam, writer) = hand.start(dir.path());
    let key = cooling(&ipam).await;
    hand.run(Hand::HOUR - Hand::MINUTE);
    stop(&ipam, writer).await;
    // Two minutes are within what needs no confirmation; the hour before is no part of them.
    hand.boot.store(1, Ordering::Relaxed);
    hand.uptime.store(0, Ordering::Relaxed);
    hand.wall.fetch_add(2 * Hand::MINUTE, Ordering::Relaxed);
    let (ipam, writer) = hand.start(dir.path());
    assert!(ipam.time().held_back.is_zero());
    assert!(!cools(&ipam, key).await, "it has cooled for an hour");
    stop(&ipam, writer).await;
}

/// A wall clock that is wrong when it is read first, and set back and synchronised before the kernel is asked.
struct SetBack(AtomicBool);

impl HostClock for SetBack {
    fn read(&self) -> ClockReading {
        let wall = match self.0.load(Ordering::Relaxed) {
            false => Hand::YEAR_2100,
            true => Hand::NEW_YEAR,
        };
        ClockReading {
            boot: Some(BootId([1; 16])),
            uptime: Hand::HOUR,
            wall: Timestamp(wall),
        }
    }

    fn synchronised(&self) -> Synchronised {
        self.0.store(true, Ordering::Relaxed);
        Synchronised::Yes
    }
}

#[tokio::test]
async fn a_time_that_was_set_back_before_the_kernel_confirmed_it_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let hand = Hand::new();
    let (ipam, writer) = hand.start(dir.path());
    cooling(&ipam).await;
    stop(&ipam, writer).await;
    let clock = Arc::new(SetBack(AtomicBool::new(false)));
    let (ipam, writer) = Ipam::start_on(dir.path(), StoreOptions::default(), clock).unwrap();
    let first = ipam.now();
    assert!(first.0 < Hand::YEAR_2100, "{first}");
    assert_eq!(ipam.now(), first.max(Timestamp(Hand::NEW_YEAR)));
    stop(&ipam, writer).await;
}
