use std::{collections::BTreeSet, time::Duration};

use fipd_core::{AddressSpec, Adopt, PoolSpec, Quota, Request, Timestamp, testing};
use tokio::sync::mpsc;

use super::*;
use crate::clock;

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn place(n: u8) -> LeaseKey {
    testing::key([10, 7, 0, n])
}

fn adopt(kind: &str, name: &str, n: u8) -> Request {
    let identity = format!("rancher-fip/X/{kind}/ns/{name}");
    Request::Adopt(Adopt {
        length: None,
        key: place(n),
        holder: testing::holder(identity, "1"),
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    })
}

fn pool() -> Request {
    let spec = PoolSpec::own(
        "net",
        vec![AddressSpec::Cidr("10.7.0.0/24".parse().expect("a CIDR"))],
    );
    testing::create_pool(spec)
}

fn quota(limit: u64) -> Request {
    let (pool, tenant) = (PoolId(1), Tenant("p-1".into()));
    let quota = Quota {
        pool,
        tenant,
        limit,
    };
    let actor = "test".into();
    Request::SetQuota { quota, actor }
}

fn network() -> Request {
    Request::CreateNetwork {
        name: "other".into(),
        actor: "test".into(),
    }
}

#[tokio::test]
async fn a_change_wakes_who_waits_for_it_and_nobody_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
    let wakes = Waiters::new(System::rancher_fip(), ClusterId("X".into()), "FloatingIP");
    for (name, cause) in [
        ("pools", Cause::Pools),
        ("networks", Cause::Networks),
        ("address", Cause::Address(place(1))),
        ("held", Cause::Held(NetworkId::DEFAULT)),
        ("quota", Cause::Quota(Tenant("p-1".into()))),
        ("other", Cause::Quota(Tenant("p-2".into()))),
        ("done", Cause::Pools),
        ("object", Cause::Object("Cluster", key("c"))),
    ] {
        wakes.wait(&key(name), Some(cause));
    }
    wakes.wait(&key("done"), None);
    assert_eq!(wakes.waiting_on("Cluster", &key("c")), [key("object")]);
    assert_eq!(wakes.waiting_on("Pool", &key("c")), []);
    let cancel = CancellationToken::new();
    let (sender, mut affected) = mpsc::unbounded_channel();
    let listener = listen(ipam.clone(), cancel.clone(), move |ledger, news| {
        sender.send(wakes.affected(ledger, news)).expect("a reader");
    });
    let script = async {
        let mut next = async || {
            let next = tokio::time::timeout(Duration::from_secs(5), affected.recv());
            let (keys, edited) = next.await.expect("in time").expect("news");
            let names: BTreeSet<String> = keys.iter().map(|key| key.name.to_string()).collect();
            (names.into_iter().collect::<Vec<_>>(), edited)
        };
        let (names, edited) = next().await;
        assert_eq!(
            names,
            [
                "address", "held", "networks", "object", "other", "pools", "quota"
            ]
        );
        assert!(edited, "at the start");
        for (request, expected) in [
            (pool(), &["networks", "other", "pools", "quota"][..]),
            (adopt("Service", "web", 2), &[]),
            (adopt("FloatingIP", "fip", 3), &["fip"]),
            (adopt("Service", "web", 1), &["address"]),
            (quota(1), &[]),
            (quota(2), &["quota"]),
            (network(), &["held", "networks"]),
        ] {
            let told = format!("{request:?}");
            ipam.submit(request).await.expect("an answer");
            let (names, edited) = next().await;
            assert_eq!(names, expected, "{told}");
            assert_eq!(edited, told.starts_with("CreatePool"), "{told}");
        }
        cancel.cancel();
    };
    tokio::join!(listener, script);
}

#[test]
fn what_a_large_change_names_is_looked_at_in_steps() {
    let change = |revision: u64, leases: u32| {
        let keys = (0..leases).map(|at| testing::key((0x0a00_0000 + at).to_be_bytes()));
        Arc::new(Change {
            revision,
            pools: [PoolId(1)].into_iter().collect(),
            leases: keys.map(|key| key.whole()).collect(),
            ..Change::default()
        })
    };
    let changes = [change(1, 1), change(2, 2_500), change(3, 1), change(4, 1)];
    let steps = steps(&changes);
    let rows = |step: &Vec<Arc<Change>>| step.iter().map(|part| part.rows()).sum();
    let rows: Vec<usize> = steps.iter().map(rows).collect();
    assert!(rows.iter().all(|rows| *rows <= Ledger::SCAN), "{rows:?}");
    assert_eq!(rows.iter().sum::<usize>(), 2_507);
    let revisions = steps.iter().flatten().map(|part| part.revision);
    assert!(revisions.is_sorted());
}
