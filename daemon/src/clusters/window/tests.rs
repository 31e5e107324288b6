use fipd_core::{Adopt, Holder, LeaseKey, NetworkId, Release, ReleaseScope, Request};

use super::*;

const HOUR: u64 = WINDOW;

#[test]
fn what_went_counts_for_an_hour() {
    let mut window = Window::default();
    window.add(Timestamp(10), 4);
    window.add(Timestamp(10), 1);
    window.add(Timestamp(20), 2);
    assert_eq!(window.spent(Timestamp(20)), 7);
    assert_eq!(window.spent(Timestamp(10 + HOUR - 1)), 7);
    assert_eq!(window.spent(Timestamp(10 + HOUR)), 2);
    assert_eq!(window.spent(Timestamp(20 + HOUR)), 0);
    assert_eq!(window, Window::default());
}

fn entry(action: Action, identity: &str, detail: &str) -> AuditEntry {
    AuditEntry {
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
        let holder = Holder {
            identity: format!("rancher-fip/X/Service/ns/s{n}").parse().unwrap(),
            instance: "1".into(),
        };
        let key = LeaseKey {
            network: NetworkId::DEFAULT,
            address: format!("10.7.0.{}", n + 1).parse().unwrap(),
        };
        let adopt = Adopt {
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
    assert_eq!(window.lock().await.spent(windows.now()), 3);
    let other = ClusterId("Y".into());
    let other = windows.of(&other, &ipam).await.unwrap();
    assert_eq!(other.lock().await.spent(windows.now()), 0);
    // A second session of the cluster has the window of the first.
    window.lock().await.add(windows.now(), 2);
    let again = windows.of(&id, &ipam).await.unwrap();
    assert_eq!(again.lock().await.spent(windows.now()), 5);
    let later = Timestamp(windows.now().0 + HOUR / 2);
    assert_eq!(again.lock().await.spent(later), 2);
    ipam.shutdown().await;
    writer.join();

    let late = day + HOUR;
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(move || Timestamp(late))).unwrap();
    let windows = Windows::default();
    let window = windows.of(&id, &ipam).await.unwrap();
    assert_eq!(window.lock().await.spent(windows.now()), 0);
}
