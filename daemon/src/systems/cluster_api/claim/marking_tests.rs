//! The finalizer of a claim is written beside the decision of the ledger. Here that write fails, and the ledger allocates.

use std::sync::Arc;

use fipd_core::{
    Lease, NetworkId, System,
    testing::{create_pool, key as place},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{IpClaimController, IpClaims, observe::IpClaimView};
use crate::{
    clock,
    clusters::{adoption::Inventory as _, testing},
    controller::{
        Reconciled,
        address_user::{
            AddressUser as _, conformance_tests::Subject as _, inventory::AddressInventory,
        },
        client::Remote,
        confirm_absence::RECHECK_AFTER,
        events::Events,
        fake_api_tests::{Death, FakeApi, client},
        meta::View as _,
        queue::Next,
        reconcile::Controller as _,
        site::Site,
        store::Key,
    },
    ipam::Ipam,
    systems::cluster_api::names::{PROTECT_ADDRESS, RELEASE_ADDRESS},
};

const OTHER: &str = "example.org/other";

fn key() -> Key {
    Key::new("ns", "a")
}

struct Bench {
    _dir: tempfile::TempDir,
    ipam: Ipam,
    server: Arc<Mutex<FakeApi>>,
    claims: Arc<IpClaimController>,
}

impl Bench {
    /// A claim that may have 10.0.0.5 or 10.0.0.6.
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let server = Arc::<Mutex<FakeApi>>::default();
        server.lock().makes = IpClaims::MAKES;
        let session = testing::session(client(&server), &ipam).await;
        testing::map_to(&session, &System::cluster_api(), NetworkId::DEFAULT);
        let pool = IpClaims::pool(&session.id, "net", "10.0.0.5-10.0.0.6");
        ipam.submit(create_pool(pool)).await.expect("a pool");
        let site = Arc::new(Site::new(session.clone(), System::cluster_api()));
        let quiet = || std::future::ready(());
        let events = Events::start(session.recorder.clone(), site.cancel(), quiet);
        let remote = Remote::new(client(&server));
        let claims = IpClaims::controller(&site, remote, &Arc::new(events));
        server.lock().make(&key(), IpClaims::object());
        Self {
            _dir: dir,
            ipam,
            server,
            claims,
        }
    }

    fn claim(&self) -> Value {
        self.server.lock().object(&key())
    }

    /// The claim as the API server has it.
    fn read(&self) -> Option<IpClaimView> {
        let claim = Some(self.claim()).filter(|claim| !claim.is_null())?;
        Some(IpClaims::view(
            serde_json::from_value(claim).expect("a claim"),
        ))
    }

    /// Works once on the claim as the watch shows it.
    async fn work(&self, seen: Option<IpClaimView>) -> Reconciled {
        IpClaims::observe(&self.claims, &self.server.lock());
        let objects = &self.claims.context.objects;
        match &seen {
            Some(claim) => objects.set(&key(), claim.clone()),
            None => objects.remove(&key()),
        }
        self.claims.reconcile(&key(), seen.map(Arc::new)).await
    }

    fn lease(&self, last: u8) -> Option<Arc<Lease>> {
        let place = place([10, 0, 0, last]);
        self.ipam.read(|ledger| ledger.lease(place).cloned())
    }

    /// The ledger allocated an address, and the claim does not show it.
    fn is_allocated_and_not_shown(&self) {
        let lease = self.lease(5).expect("it is allocated");
        let owner = lease.owner().expect("an owner");
        assert_eq!(*owner, self.claims.context.holder(&key(), &"u-a".into()));
        let claim = self.claim();
        assert_eq!(claim["status"], Value::Null, "{claim}");
        let finalizers = claim["metadata"]["finalizers"].to_string();
        assert!(!finalizers.contains(RELEASE_ADDRESS), "{claim}");
    }

    /// The claim has the address, and its finalizer.
    async fn comes_to_have_it(&self) {
        for _ in 0..3 {
            self.work(self.read()).await.expect("no failure");
        }
        let claim = self.claim();
        let finalizers = &claim["metadata"]["finalizers"];
        assert_eq!(*finalizers, json!([RELEASE_ADDRESS]), "{claim}");
        assert_eq!(IpClaims::address(&self.server.lock(), &claim), "10.0.0.5");
        assert_eq!(self.lease(6), None, "it has nothing else");
    }
}

#[tokio::test]
async fn a_claim_whose_finalizer_is_not_written_does_not_show_its_address() {
    let bench = Bench::new().await;
    let seen = bench.read();
    let edit = json!({ "metadata": { "labels": { "a": "b" } } });
    bench.server.lock().edit(&key(), &edit);
    let conflict = bench.work(seen).await;
    assert!(conflict.is_err(), "{conflict:?}");
    bench.is_allocated_and_not_shown();
    bench.comes_to_have_it().await;

    let bench = Bench::new().await;
    bench.server.lock().die(Death::Before(0));
    let unanswered = bench.work(bench.read()).await;
    assert!(unanswered.is_err(), "{unanswered:?}");
    bench.is_allocated_and_not_shown();
    assert!(bench.server.lock().made.is_empty(), "nothing shows it");
    bench.server.lock().die(Death::Never);
    bench.comes_to_have_it().await;
}

/// Nothing kept the claim, so nobody saw its deletion.
#[tokio::test]
async fn the_address_of_a_claim_that_went_before_its_finalizer_was_on_it_is_not_lost() {
    let bench = Bench::new().await;
    let seen = bench.read();
    bench.server.lock().objects.remove(&key());
    let gone = bench.work(seen).await;
    assert!(gone.is_err(), "{gone:?}");
    bench.is_allocated_and_not_shown();
    let next = bench.work(None).await.expect("no failure");
    // The two writes may have gone out together.
    let made = bench.server.lock().made.get(&key()).cloned();
    match made {
        None => assert_eq!(next, Next::Done),
        Some(made) => {
            assert_eq!(made["metadata"]["finalizers"], json!([PROTECT_ADDRESS]));
            let again = matches!(next, Next::After(wait) if wait <= RECHECK_AFTER);
            assert!(again, "{next:?}: it goes once the claim is missed twice");
        }
    }
    // Lists do not have the owner of the lease: by that it is released.
    let inventory = AddressInventory(Arc::clone(&bench.claims));
    let listed = inventory.list().await.expect("a list");
    assert!(listed.is_empty(), "{listed:?}");
    let lease = bench.lease(5).expect("until then");
    let owner = lease.owner().expect("an owner");
    assert!(inventory.kinds().contains(&*owner.identity.kind));
}

#[tokio::test]
async fn a_deleted_claim_that_another_finalizer_keeps_gives_back_what_it_never_showed() {
    let bench = Bench::new().await;
    let kept = json!({ "metadata": { "finalizers": [OTHER] } });
    bench.server.lock().edit(&key(), &kept);
    bench.server.lock().die(Death::Before(0));
    let unanswered = bench.work(bench.read()).await;
    assert!(unanswered.is_err(), "{unanswered:?}");
    bench.is_allocated_and_not_shown();
    bench.server.lock().die(Death::Never);
    bench.server.lock().delete(&key(), "2024-01-02T00:00:00Z");
    let claim = bench.read().expect("it is kept");
    let (name, meta) = (key(), claim.meta());
    let released = bench.claims.release(&name, &meta, Some(Arc::new(claim)));
    assert_eq!(released.await.expect("no failure"), Next::Done);
    assert_eq!(bench.lease(5), None);
    assert_eq!(bench.claim()["metadata"]["finalizers"], json!([OTHER]));
}
