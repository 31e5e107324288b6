use fipd_core::{Adopt, Release, ReleaseScope, Request};

use super::*;
use crate::store::{Store, StoreOptions};

const HOUR: u64 = WINDOW;

#[test]
fn what_went_counts_for_an_hour() {
    let mut window = Window::default();
    window.add(Timestamp(10), 4);
    window.add(Timestamp(10), 1);
    window.add(Timestamp(20), 2);
    assert_eq!(window.spent(Timestamp(20)), Some(7));
    assert_eq!(window.spent(Timestamp(10 + HOUR - 1)), Some(7));
    assert_eq!(window.spent(Timestamp(10 + HOUR)), Some(2));
    assert_eq!(window.spent(Timestamp(20 + HOUR)), Some(0));
    assert_eq!(window, Window::default());
    window.add(Timestamp(30), 3);
    window.take_back(Timestamp(30), 1);
    assert_eq!(window.spent(Timestamp(30)), Some(2));
}

fn entry(action: Action, identity: &str, detail: &str) -> AuditEntry {
    AuditEntry {
        length: None,
        at: Timestamp(1),
        actor: "test".into(),
        action,
        network: None,
        address: None,
        pool: None,
        identity: Some(identity.parse().unwrap()),
        detail: detail.into(),
    }
}

#[test]
fn only_unconfirmed_releases_by_absence_count() {
    let (lost, other) = ("rancher-fip/X/Service/ns/a", "rancher-fip/Y/Service/ns/b");
    let passed = format!("from {lost}: {REASON}");
    let x = Some(ClusterId("X".into()));
    assert_eq!(lost_by(&entry(Action::Released, lost, REASON)), x);
    assert_eq!(lost_by(&entry(Action::PassedOn, other, &passed)), x);
    assert_eq!(lost_by(&entry(Action::HandedOver, other, &passed)), x);
    for (action, detail) in [
        (Action::Released, "deleted"),
        (Action::Released, CONFIRMED),
        (Action::ContenderLeft, REASON),
        (Action::PassedOn, "from rancher-fip/X/Service/ns/a: deleted"),
    ] {
        assert_eq!(lost_by(&entry(action, lost, detail)), None, "{detail}");
    }
}

/// An address book in `dir`, whose cluster X loses `reasons.len()` leases, one for each of the reasons.
async fn lose(ipam: &Ipam, reasons: &[&str]) {
    for (n, reason) in reasons.iter().enumerate() {
        let holder = fipd_core::testing::holder(format!("rancher-fip/X/Service/ns/s{n}"), "1");
        let key = fipd_core::testing::key_of(format!("10.7.0.{}", n + 1));
        let adopt = Adopt {
            length: None,
            key,
            holder: holder.clone(),
            tenant: None,
            since: Timestamp(1),
            actor: "test".into(),
        };
        ipam.submit(Request::Adopt(adopt)).await.unwrap();
        let release = Release {
            scope: ReleaseScope::Holder(holder),
            actor: "test".into(),
            reason: (*reason).into(),
        };
        ipam.submit(Request::Release(release)).await.unwrap();
    }
}

#[tokio::test]
async fn another_life_of_the_daemon_goes_on_with_the_same_window() {
    let dir = tempfile::tempdir().unwrap();
    let id = ClusterId("X".into());
    let day = 86_400_000;
    let (ipam, writer) = Ipam::start(dir.path(), Arc::new(move || Timestamp(day))).unwrap();
    lose(&ipam, &[REASON, CONFIRMED, REASON, "deleted", REASON]).await;
    ipam.shutdown().await;
    writer.join();

    let half = day + HOUR / 2;
    let (ipam, writer) = Ipam::start(dir.path(), Arc::new(move || Timestamp(half))).unwrap();
    let windows = Windows::default();
    let window = windows.of(&id, &ipam).await.unwrap();
    assert_eq!(window.lock().await.spent(windows.now()), Some(3));
    let other = ClusterId("Y".into());
    let other = windows.of(&other, &ipam).await.unwrap();
    assert_eq!(other.lock().await.spent(windows.now()), Some(0));
    // A second session of the cluster has the window of the first.
    window.lock().await.add(windows.now(), 2);
    let again = windows.of(&id, &ipam).await.unwrap();
    assert_eq!(again.lock().await.spent(windows.now()), Some(5));
    let later = Timestamp(windows.now().0 + HOUR / 2);
    assert_eq!(again.lock().await.spent(later), Some(2));
    ipam.shutdown().await;
    writer.join();

    let late = day + HOUR;
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(move || Timestamp(late))).unwrap();
    let windows = Windows::default();
    let window = windows.of(&id, &ipam).await.unwrap();
    assert_eq!(window.lock().await.spent(windows.now()), Some(0));
}

#[tokio::test]
async fn a_log_that_forgot_part_of_the_hour_fills_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        audit_limit: 10,
        ..StoreOptions::default()
    };
    let day = 86_400_000;
    let life = |at: u64| {
        let (store, loaded) = Store::open(&dir.path().join("fipd.redb"), options.clone()).unwrap();
        Ipam::with_store(store, loaded, Arc::new(move || Timestamp(at))).unwrap()
    };
    let (ipam, writer) = life(day);
    lose(&ipam, &[REASON; 20]).await;
    assert_eq!(
        ipam.reader().stats().audit_first,
        1,
        "nothing is trimmed yet"
    );
    let (windows, id) = (Windows::default(), ClusterId("X".into()));
    let window = windows.of(&id, &ipam).await.unwrap();
    assert_eq!(window.lock().await.spent(windows.now()), Some(20));
    lose(&ipam, &[REASON; 40]).await;
    ipam.shutdown().await;
    writer.join();

    let (ipam, writer) = life(day + HOUR / 2);
    assert!(ipam.reader().stats().audit_first > 1);
    let windows = Windows::default();
    for id in ["X", "Y"] {
        let window = windows.of(&ClusterId(id.into()), &ipam).await.unwrap();
        assert_eq!(window.lock().await.spent(windows.now()), None, "{id}");
        let late = Timestamp(windows.now().0 + HOUR / 2);
        assert_eq!(window.lock().await.spent(late), Some(0), "{id}");
    }
    ipam.shutdown().await;
    writer.join();

    let (ipam, _writer) = life(day + HOUR);
    let windows = Windows::default();
    let window = windows.of(&id, &ipam).await.unwrap();
    assert_eq!(window.lock().await.spent(windows.now()), Some(0));
}
