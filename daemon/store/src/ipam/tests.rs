//! The writer on a real file: answers, restarts, batches, stops.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use fipd_core::{
    Answer, Family, Holder, LeaseKey, PoolId, PoolSpec, Refusal, Release, ReleaseScope, Request,
    Timestamp, testing,
};

use super::{Clock, Ipam, IpamError, Writer};

mod clock;
mod walk;

/// A clock that goes on by a millisecond a look.
fn clock() -> Clock {
    let ticks = AtomicU64::new(1_000);
    Arc::new(move || Timestamp(ticks.fetch_add(1, Ordering::Relaxed)))
}

fn start(directory: &Path) -> (Ipam, Writer) {
    Ipam::start(directory, clock()).unwrap()
}

async fn stop(ipam: &Ipam, writer: Writer) {
    ipam.shutdown().await;
    writer.join();
}

fn pool_spec(name: &str, addresses: &str) -> PoolSpec {
    PoolSpec {
        ends: fipd_core::Ends::own_default(Family::V4),
        ..testing::pool_spec(name, &[addresses])
    }
}

async fn make_pool(ipam: &Ipam, name: &str, addresses: &str) -> PoolId {
    let request = Request::CreatePool {
        spec: pool_spec(name, addresses),
        actor: "test".into(),
    };
    let Answer::Pool(pool) = ipam.submit(request).await.unwrap() else {
        panic!("no pool")
    };
    pool.id
}

fn holder(number: usize) -> Holder {
    testing::holder(format!("fipd/Service/apps/s{number}"), "i")
}

fn ask(pool: PoolId, number: usize) -> Request {
    Request::Allocate(testing::allocate(
        holder(number),
        [testing::want(pool, None)],
    ))
}

fn give_back(number: usize) -> Request {
    let scope = ReleaseScope::Holder(holder(number));
    Request::Release(Release {
        scope,
        actor: "test".into(),
        reason: "".into(),
    })
}

async fn allocate(ipam: &Ipam, pool: PoolId, number: usize) -> Result<LeaseKey, IpamError> {
    let answer = ipam.submit(ask(pool, number)).await?;
    let Answer::Granted { leases, .. } = answer else {
        panic!("{answer:?}")
    };
    Ok(leases.first().unwrap().key)
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    let pool = make_pool(&ipam, "front", "10.0.0.0/24").await;
    let first = allocate(&ipam, pool, 1).await.unwrap();
    let second = allocate(&ipam, pool, 2).await.unwrap();
    assert_ne!(first, second);
    ipam.submit(give_back(1)).await.unwrap();
    let revision = *ipam.revisions().borrow();
    stop(&ipam, writer).await;

    let (ipam, writer) = start(dir.path());
    assert!(ipam.read(|ledger| ledger.lease(first).is_none()));
    assert!(ipam.read(|ledger| ledger.lease(second).is_some()));
    assert!(
        *ipam.revisions().borrow() >= revision,
        "the revision went back"
    );
    assert_eq!(
        allocate(&ipam, pool, 2).await,
        Ok(second),
        "asking again gave another address"
    );
    let actions: Vec<_> = ipam
        .reader()
        .audit_page(None, 10)
        .unwrap()
        .into_iter()
        .map(|(number, e)| (number, e.action))
        .collect();
    use fipd_core::Action::{Allocated, PoolCreated, Released};
    assert_eq!(
        actions,
        [
            (4, Released),
            (3, Allocated),
            (2, Allocated),
            (1, PoolCreated)
        ]
    );
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn a_deleted_pools_number_is_not_used_again_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    let old = make_pool(&ipam, "old", "10.0.0.0/24").await;
    ipam.submit(Request::DeletePool {
        pool: old,
        actor: "test".into(),
    })
    .await
    .unwrap();
    stop(&ipam, writer).await;
    let (ipam, writer) = start(dir.path());
    assert_ne!(make_pool(&ipam, "new", "10.0.0.0/24").await, old);
    stop(&ipam, writer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_at_once_get_distinct_addresses_and_share_commits() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    let pool = make_pool(&ipam, "front", "10.1.0.0/22").await;
    let before = ipam.reader().stats();
    let tasks: Vec<_> = (0..1000)
        .map(|number| {
            let ipam = ipam.clone();
            tokio::spawn(async move { allocate(&ipam, pool, number).await })
        })
        .collect();
    let mut keys = std::collections::BTreeSet::new();
    for task in tasks {
        keys.insert(task.await.unwrap().unwrap());
    }
    assert_eq!(keys.len(), 1000);
    let after = ipam.reader().stats();
    assert_eq!(after.decisions - before.decisions, 1000);
    assert!(
        after.commits - before.commits < 500,
        "{} commits for 1000 decisions",
        after.commits - before.commits
    );
    assert_eq!(ipam.waiting(), 0);
    stop(&ipam, writer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_37_counts_add_up_while_addresses_are_given() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    let pool = make_pool(&ipam, "front", "10.1.0.0/24").await;
    let usage = || ipam.read(|ledger| ledger.usage(pool).unwrap());
    let size = usage().size;
    let tasks = (0..200).map(|number| {
        let ipam = ipam.clone();
        tokio::spawn(async move { allocate(&ipam, pool, number).await.unwrap() })
    });
    let mut tasks: tokio::task::JoinSet<_> = tasks.collect();
    let mut seen = 0;
    loop {
        let now = usage();
        assert_eq!((now.used + now.free, now.size), (size, size));
        assert!(now.used >= seen, "{} after {seen}", now.used);
        seen = now.used;
        if tasks.join_next().await.is_none() {
            break;
        }
    }
    assert_eq!(usage().used, 200);
    stop(&ipam, writer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_02_one_identity_asking_at_once_gets_one_address() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    let pool = make_pool(&ipam, "front", "10.1.0.0/24").await;
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let ipam = ipam.clone();
            tokio::spawn(async move { allocate(&ipam, pool, 7).await.unwrap() })
        })
        .collect();
    let mut keys = std::collections::BTreeSet::new();
    for task in tasks {
        keys.insert(task.await.unwrap());
    }
    assert_eq!(keys.len(), 1);
    assert_eq!(
        ipam.reader().audit_page(None, 100).unwrap().len(),
        2,
        "the pool and one allocation"
    );
    stop(&ipam, writer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_addresses_go_to_as_many_callers_and_the_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    let pool = make_pool(&ipam, "small", "10.1.0.10-10.1.0.19").await;
    let tasks: Vec<_> = (0..40)
        .map(|number| {
            let ipam = ipam.clone();
            tokio::spawn(async move { allocate(&ipam, pool, number).await })
        })
        .collect();
    let (mut given, mut refused) = (std::collections::BTreeSet::new(), 0);
    for task in tasks {
        match task.await.unwrap() {
            Ok(key) => assert!(given.insert(key)),
            Err(IpamError::Refused(Refusal::Exhausted { .. })) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((given.len(), refused), (10, 30));
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn a_caller_that_goes_away_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    let pool = make_pool(&ipam, "front", "10.1.0.0/24").await;
    for number in 0..20 {
        let asking = ipam.submit(ask(pool, number));
        // Polled once: the request is queued, then its caller is gone.
        futures::pin_mut!(asking);
        assert!(futures::poll!(asking).is_pending());
    }
    stop(&ipam, writer).await;
    let (ipam, writer) = start(dir.path());
    assert_eq!(
        ipam.read(|ledger| ledger.pool_leases(pool, None, 100).len()),
        20
    );
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn a_queue_that_gets_shorter_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    let pool = make_pool(&ipam, "p", "10.0.0.1/32").await;
    allocate(&ipam, pool, 1).await.unwrap();
    let wait = |number| {
        let Request::Allocate(mut ask) = ask(pool, number) else {
            unreachable!()
        };
        ask.waiting_since = Some(Timestamp(1));
        ipam.submit(Request::Allocate(ask))
    };
    let mut revisions = ipam.revisions();
    for number in [2, 3] {
        wait(number).await.unwrap_err();
    }
    assert_eq!(ipam.read(|ledger| ledger.waiters(pool, 9).len()), 2);
    revisions.borrow_and_update();
    ipam.forget_waiter(&holder(2).identity);
    assert!(revisions.has_changed().unwrap());
    revisions.borrow_and_update();
    ipam.submit(give_back(3)).await.unwrap();
    assert!(revisions.has_changed().unwrap());
    revisions.borrow_and_update();
    ipam.forget_waiter(&holder(3).identity);
    assert!(!revisions.has_changed().unwrap(), "nothing was left");
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn a_stop_answers_what_was_taken_and_refuses_what_comes_later() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    let pool = make_pool(&ipam, "front", "10.1.0.0/24").await;
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let ipam = ipam.clone();
            tokio::spawn(async move { allocate(&ipam, pool, number).await })
        })
        .collect();
    tokio::task::yield_now().await;
    ipam.shutdown().await;
    let mut answered = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => answered += 1,
            Err(IpamError::Stopping) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(allocate(&ipam, pool, 99).await, Err(IpamError::Stopping));
    writer.join();
    let (ipam, writer) = start(dir.path());
    assert_eq!(
        ipam.read(|ledger| ledger.pool_leases(pool, None, 100).len()),
        answered
    );
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn time_does_not_run_backwards_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = Ipam::start(dir.path(), Arc::new(|| Timestamp(50_000))).unwrap();
    make_pool(&ipam, "front", "10.1.0.0/24").await;
    stop(&ipam, writer).await;
    let (ipam, writer) = Ipam::start(dir.path(), Arc::new(|| Timestamp(10))).unwrap();
    assert_eq!(ipam.now(), Timestamp(50_000));
    stop(&ipam, writer).await;
}

#[tokio::test]
async fn a_writer_that_dies_unasked_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    ipam.die();
    tokio::time::timeout(std::time::Duration::from_secs(5), ipam.ended())
        .await
        .expect("the end was not told");
    let health = ipam.health();
    assert!(
        matches!(health, crate::store::Condition::Stopped { .. }),
        "{health:?}"
    );
    writer.join();
}

/// Until `seen`, within ten seconds.
fn wait_until(what: &str, seen: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !seen() {
        assert!(begun.elapsed().as_secs() < 10, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_store_is_rewritten_though_nobody_asks() {
    let dir = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let path = dir.path().join("fipd.redb");
    std::fs::copy(fixtures.join("store-v1-full.redb"), path).unwrap();
    let before = std::time::Instant::now();
    let (ipam, writer) = start(dir.path());
    wait_until("all rows are rewritten", || {
        // Nothing is due as early as that: it only says whether something will be.
        let mut store = ipam.shared.store.lock();
        store
            .as_mut()
            .is_some_and(|store| store.upkeep(before).is_none())
    });
    stop(&ipam, writer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_writer_beats_and_one_that_cannot_have_the_ledger_is_silent() {
    const LONGER_THAN_IDLE: std::time::Duration = std::time::Duration::from_millis(2_500);
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    let long = std::time::Duration::from_millis(400);
    wait_until("it is silent for a while", || ipam.silent_for() > long);
    wait_until("an idle writer beats", || ipam.silent_for() < long);

    let (free, wait) = std::sync::mpsc::channel::<()>();
    let reader = ipam.clone();
    let (held, holds) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        reader.read(|_| {
            held.send(()).unwrap();
            wait.recv().ok()
        })
    });
    holds.recv().unwrap();
    let asker = ipam.clone();
    let asking = tokio::spawn(async move { make_pool(&asker, "lab", "10.0.0.0/29").await });
    wait_until("it is silent", || ipam.silent_for() > LONGER_THAN_IDLE);
    assert_eq!(ipam.waits_for_disk(), None);
    free.send(()).unwrap();
    reading.join().unwrap();
    asking.await.unwrap();
    wait_until("it beats again", || ipam.silent_for() < LONGER_THAN_IDLE);
    stop(&ipam, writer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_waits_for_the_disk_is_not_silent() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = start(dir.path());
    // Who commits needs the store.
    let disk = ipam.shared.store.lock();
    let asker = ipam.clone();
    let asking = tokio::spawn(async move { make_pool(&asker, "lab", "10.0.0.0/29").await });
    let long = std::time::Duration::from_millis(1_200);
    wait_until("it waits for the disk", || {
        ipam.waits_for_disk().is_some_and(|age| age > long)
    });
    assert!(ipam.silent_for().is_zero());
    drop(disk);
    asking.await.unwrap();
    assert_eq!(ipam.waits_for_disk(), None);
    stop(&ipam, writer).await;
}
