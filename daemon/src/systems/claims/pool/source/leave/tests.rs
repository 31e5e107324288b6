use std::time::Duration;

use fipd_core::{AddressSpec, Adopt, Holder, LeaseKey, NetworkId, System, Timestamp};

use super::*;
use crate::{
    clusters::testing,
    controller::{client::testing::canned, context::Context, events::Events, store::Objects},
    ipam::Ipam,
    systems::claims::names::NAMESPACED_POOL,
};

async fn unused(
    _: http::Request<kube::client::Body>,
) -> Result<http::Response<kube::client::Body>, std::convert::Infallible> {
    std::future::pending().await
}

/// The NamespacedPool `one/mine` of cluster X has the pool with 10.7.0.0/24, of which 10.7.0.1 is in use.
async fn in_use(ipam: &Ipam) {
    let spec = PoolSpec {
        addresses: vec![AddressSpec::Cidr("10.7.0.0/24".parse().expect("a CIDR"))],
        origin: Origin::Mirror {
            system: System::claims(),
            cluster: fipd_core::ClusterId("X".into()),
            object: "one/mine".into(),
            uid: "u".into(),
        },
        ..PoolSpec::own("claims/x/one/mine", vec![])
    };
    let actor = "test".into();
    let adopt = Adopt {
        key: LeaseKey {
            network: NetworkId::DEFAULT,
            address: [10, 7, 0, 1].into(),
        },
        holder: Holder {
            identity: "claims/X/AddressClaim/two/b".parse().expect("an owner"),
            instance: "b".into(),
        },
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    };
    for request in [Request::CreatePool { spec, actor }, Request::Adopt(adopt)] {
        ipam.submit(request).await.expect("an answer");
    }
}

#[tokio::test]
async fn a_pool_object_goes_after_ten_minutes_and_its_leases_stay() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
    in_use(&ipam).await;
    let client = kube::Client::new(tower::service_fn(unused), "default");
    let session = testing::session(client, &ipam).await;
    let site = Arc::new(Site::new(session, System::claims()));
    let quiet = || std::future::ready(());
    let events = Events::start(site.session.recorder.clone(), site.cancel(), quiet);
    let (remote, asked) = canned(&[("PATCH", 200, "{}")]);
    let (events, objects) = (Arc::new(events), Objects::new());
    let context = Context::new(NAMESPACED_POOL, site, remote, events, objects);
    let sources = Sources::new(context);
    let key = Key::new("one", "mine");
    let end = async |seconds: u64| {
        let since = clock::now().0.saturating_sub(seconds * 1000);
        let meta = Meta {
            uid: "u".into(),
            deleted: Some(Timestamp(since)),
            finalizers: vec![POOL_FINALIZER.to_owned()],
            ..Meta::default()
        };
        let next = sources.finalize(&key, &meta, None).await;
        next.expect("an answer")
    };
    let next = end(590).await;
    assert!(
        matches!(next, Next::After(rest) if rest <= Duration::from_secs(10)),
        "{next:?}"
    );
    assert!(asked.lock().is_empty(), "it is in use");
    assert_eq!(end(600).await, Next::Done);
    assert_eq!(asked.lock().len(), 1, "the finalizer is taken off");
    let pool = sources.existing(&key).expect("a pool");
    assert!(pool.spec.closed, "it gives nothing more");
    let leases = ipam.read(|ledger| ledger.pool_leases(pool.id, None, 9));
    assert_eq!(leases.len(), 1);
}
