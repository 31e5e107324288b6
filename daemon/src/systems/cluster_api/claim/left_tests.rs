//! What the in-cluster provider allocates, over an API server in memory.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{Holder, PoolSpec, System, Timestamp, testing::create_pool};
use fipd_crds::cluster_api::{GlobalInClusterIPPool, IPAddress, IPAddressClaim};
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::{
    clock,
    clusters::testing,
    controller::{
        address_user::conformance_tests::Subject as _,
        client::Remote,
        events::Events,
        fake_api_tests::{FakeApi, client},
        meta::Meta,
        reconcile::Controller as _,
        store::{Malformed, Objects},
    },
    ipam::Ipam,
    systems::cluster_api::{
        claim::{IpClaims, observe::IpClaimView},
        names::{CLUSTER, GLOBAL_POOL, GLOBAL_PREFIX_POOL},
        pool::growth::adopt,
        settings::InClusterKinds,
        vip::CapiClusterView,
    },
};

struct Bench {
    _dir: tempfile::TempDir,
    claims: Arc<IpClaimController>,
}

impl Bench {
    /// fipd has a pool of 10.0.0.0/24, and leaves those of the in-cluster provider to that.
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let server = Arc::<Mutex<FakeApi>>::default();
        let mut session = testing::session(client(&server), &ipam).await;
        *session.settings.of_mut() = ClusterApiSettings {
            in_cluster_kinds: InClusterKinds::Leave,
            ..ClusterApiSettings::default()
        };
        testing::map_to(&session, &System::cluster_api(), NetworkId::DEFAULT);
        let site = Arc::new(Site::new(session.clone(), System::cluster_api()));
        let quiet = || std::future::ready(());
        let events = Events::start(session.recorder.clone(), site.cancel(), quiet);
        let remote = Remote::new(client(&server));
        let mut claims = IpClaims::controller(&site, remote, &Arc::new(events));
        let kinds = [GLOBAL_POOL, GLOBAL_PREFIX_POOL].into_iter();
        let user = &mut Arc::get_mut(&mut claims).expect("it is nobody else's").user;
        user.pools = kinds.map(|kind| (kind, Objects::new())).collect();
        claims.user.clusters.complete();
        let bench = Self { _dir: dir, claims };
        bench
            .own_pool("own", NetworkId::DEFAULT, "10.0.0.0/24")
            .await;
        bench
    }

    async fn own_pool(&self, name: &str, network: NetworkId, addresses: &str) {
        let pool = PoolSpec {
            network,
            ..PoolSpec::own(name, vec![addresses.parse().expect("addresses")])
        };
        let made = self.claims.context.submit(create_pool(pool)).await;
        made.expect("a pool");
    }

    /// The pools of the kind that addresses are of.
    fn pools(&self) -> &Objects<InClusterView> {
        let pools = self.claims.user.pools_of(GLOBAL);
        pools.expect("such pools are known").1
    }

    /// The Cluster beside holds the address, which somebody wrote into it.
    async fn cluster_holds(&self, last: u8) -> Holder {
        let (context, key) = (&self.claims.context, Key::new("ns", "c"));
        let holder = Holder {
            identity: key.identity(System::cluster_api(), &context.site.id, CLUSTER.kind),
            instance: "u-c".into(),
        };
        let (network, address) = (NetworkId::DEFAULT, [10, 0, 0, last].into());
        let place = LeaseKey { network, address };
        let of = (holder.clone(), Timestamp(0), "ns");
        let taken = context.take_in(adopt(&context.site, of, place.into()));
        taken.await.expect("no failure");
        holder
    }

    /// The provider made an IPAddress of this name, and fipd hears of it.
    async fn shows(&self, name: &str, kind: &str, address: &str) {
        self.shows_prefix(name, kind, (address, 24)).await;
    }

    async fn shows_prefix(&self, name: &str, kind: &str, (address, prefix): (&str, u8)) {
        let there = there(name, kind, (address, prefix));
        self.claims.user.addresses.set(&Key::new("ns", name), there);
        self.hear(name).await;
    }

    async fn hear(&self, name: &str) -> Next {
        let key = Key::new("ns", name);
        let claim = self.claims.context.objects.get(&key);
        let done = self.claims.reconcile(&key, claim).await;
        done.expect("no failure")
    }

    /// Who has the address.
    fn holder(&self, last: u8) -> Option<String> {
        self.holder_in(NetworkId::DEFAULT, [10, 0, 0, last].into())
    }

    fn holder_in(&self, network: NetworkId, address: IpAddr) -> Option<String> {
        let place = LeaseKey { network, address };
        self.claims.context.read(|ledger| {
            let owner = ledger.lease_around(place)?.owner()?;
            Some(owner.identity.name.to_string())
        })
    }
}

fn there(name: &str, kind: &str, (address, prefix): (&str, u8)) -> AddressView {
    let object = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": { "name": name, "namespace": "ns", "uid": address },
        "spec": {
            "claimRef": { "name": name }, "address": address, "prefix": prefix,
            "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": "net" },
        },
    });
    let object: IPAddress = serde_json::from_value(object).expect("an IPAddress");
    AddressView::of(object)
}

const GLOBAL: &str = "GlobalInClusterIPPool";

#[tokio::test]
async fn what_a_machine_has_of_the_in_cluster_provider_nobody_else_gets() {
    let bench = Bench::new().await;
    let holds = |last| bench.holder(last);
    bench.shows("a", GLOBAL, "10.0.0.9").await;
    assert_eq!(holds(9).as_deref(), Some("a"));
    let key = Key::new("ns", "a");
    let there = bench.claims.user.addresses.get(&key).expect("it is known");
    assert!(is_left(&bench.claims.context.site, &there));
    assert_eq!(unknown(&bench.claims, &key, &there), None, "it is known");
    // Somebody else has it already: the claim is the next.
    bench.shows("twice", GLOBAL, "10.0.0.9").await;
    assert_eq!(holds(9).as_deref(), Some("a"));
    // The claim was made again, and has another one.
    bench.shows("a", GLOBAL, "10.0.0.10").await;
    assert_eq!(holds(9).as_deref(), Some("twice"));
    assert_eq!(holds(10).as_deref(), Some("a"));
    // Once it is gone its absence is confirmed first.
    bench.claims.user.addresses.remove(&key);
    assert_eq!(bench.hear("a").await, Next::After(RECHECK_AFTER));
    assert_eq!(holds(10).as_deref(), Some("a"));
    // What no pool of fipd's has, and what another provider made, is nothing to keep.
    bench.shows("far", GLOBAL, "10.9.0.20").await;
    bench.shows("other", "InfobloxIPPool", "10.0.0.20").await;
    assert_eq!(holds(20), None);
}

#[tokio::test]
async fn what_is_for_a_cluster_is_left_to_the_cluster() {
    let bench = Bench::new().await;
    let cluster = CapiClusterView {
        meta: Meta {
            uid: "u-c".into(),
            ..Meta::default()
        },
        ..CapiClusterView::default()
    };
    bench
        .claims
        .user
        .clusters
        .set(&Key::new("ns", "c"), cluster);
    // Its claim may be yet to be seen.
    bench.shows("vip-cp-c", GLOBAL, "10.0.0.9").await;
    assert_eq!(bench.holder(9), None);
    for (owner, holder) in [("u-c", None), ("u-other", Some("vip-cp-c"))] {
        let mut claim = IpClaims::object();
        claim["metadata"] = json!({ "name": "vip-cp-c", "namespace": "ns", "ownerReferences": [{
            "apiVersion": "v1", "kind": "X", "name": "c", "uid": owner,
        }] });
        let claim: IPAddressClaim = serde_json::from_value(claim).expect("a claim");
        let claim = IpClaimView {
            served: false,
            ..IpClaimView::of(claim)
        };
        let objects = &bench.claims.context.objects;
        objects.set(&Key::new("ns", "vip-cp-c"), claim);
        bench.hear("vip-cp-c").await;
        assert_eq!(bench.holder(9).as_deref(), holder, "{owner}");
    }
}

#[tokio::test]
async fn what_a_cluster_has_by_hand_a_machine_gets_once_the_cluster_lets_it_go() {
    let bench = Bench::new().await;
    let cluster = bench.cluster_holds(9).await;
    bench.shows("machine", GLOBAL, "10.0.0.9").await;
    assert_eq!(bench.holder(9).as_deref(), Some("c"));
    let scope = ReleaseScope::Holder(cluster);
    let released = bench.claims.context.site.release(scope, "test").await;
    released.expect("no failure");
    assert_eq!(bench.holder(9).as_deref(), Some("machine"));
}

#[tokio::test]
async fn a_prefix_is_kept_where_an_own_pool_has_any_of_it() {
    let bench = Bench::new().await;
    let default = NetworkId::DEFAULT;
    let range = "2001:db8:0:1::10-2001:db8:0:1::20";
    bench.own_pool("within", default, range).await;
    let holder = |text: &str| bench.holder_in(default, text.parse().expect("an address"));
    let kind = GLOBAL_PREFIX_POOL.kind;
    bench.shows_prefix("p", kind, ("2001:db8:0:1::", 64)).await;
    assert_eq!(holder("2001:db8:0:1::15").as_deref(), Some("p"));
    let key = Key::new("ns", "p");
    let there = bench.claims.user.addresses.get(&key).expect("it is known");
    assert_eq!(unknown(&bench.claims, &key, &there), None, "it is known");
    bench.shows_prefix("q", kind, ("2001:db8:0:2::", 64)).await;
    assert_eq!(holder("2001:db8:0:2::"), None);
}

/// The lease of one address of a prefix is not that of the prefix.
#[tokio::test]
async fn a_prefix_is_kept_whole_although_its_first_address_is_held() {
    let bench = Bench::new().await;
    let (kind, key) = (GLOBAL_PREFIX_POOL.kind, Key::new("ns", "p"));
    bench.shows_prefix("p", kind, ("10.0.0.16", 32)).await;
    assert_eq!(bench.holder(16).as_deref(), Some("p"));
    assert_eq!(bench.holder(17), None);
    bench.shows_prefix("p", kind, ("10.0.0.16", 28)).await;
    let there = bench.claims.user.addresses.get(&key).expect("it is known");
    assert_eq!(unknown(&bench.claims, &key, &there), None, "it is known");
    assert_eq!(bench.holder(17).as_deref(), Some("p"));
}

#[tokio::test]
async fn a_pool_that_goes_or_is_malformed_takes_its_addresses_to_no_other_network() {
    let bench = Bench::new().await;
    let blue = testing::new_network(&bench.claims.context.site.ipam, "blue").await;
    bench.own_pool("blue", blue, "10.0.0.0/24").await;
    let name = Key::new("", "net");
    let annotations = json!({ NETWORK: "blue" });
    let pool = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": GLOBAL,
        "metadata": { "name": "net", "annotations": annotations },
        "spec": { "addresses": ["10.0.0.0/24"], "prefix": 24 },
    });
    let pool: GlobalInClusterIPPool = serde_json::from_value(pool).expect("a pool");
    let pools = bench.pools();
    pools.set(&name, InClusterView::global_addresses(pool));
    bench.shows("a", GLOBAL, "10.0.0.9").await;
    let malformed = Malformed {
        meta: Meta::default(),
        annotations: serde_json::from_value(annotations).expect("annotations"),
        error: "no pool".into(),
    };
    let malformed = Observed::Malformed(Arc::new(malformed));
    for seen in [None, Some(malformed), None] {
        let holds = |last: u8| bench.holder_in(blue, [10, 0, 0, last].into());
        assert_eq!(holds(9).as_deref(), Some("a"));
        assert_eq!(bench.holder(9), None, "in the network of no pool");
        pools.put(&name, seen).expect("there is room");
        bench.hear("a").await;
    }
    // Only another address shows that it does not have this one any more.
    bench.shows("a", GLOBAL, "10.9.0.9").await;
    assert_eq!(bench.holder_in(blue, [10, 0, 0, 9].into()), None);
}

#[tokio::test]
async fn what_an_ip_address_had_is_free_also_where_no_own_pool_has_its_new_address() {
    let bench = Bench::new().await;
    bench.shows("a", GLOBAL, "10.0.0.9").await;
    assert_eq!(bench.holder(9).as_deref(), Some("a"));
    bench.shows("a", GLOBAL, "10.9.0.9").await;
    assert_eq!(bench.holder(9), None);
}

#[tokio::test]
async fn what_is_kept_of_a_pool_is_looked_at_again_once_that_changes() {
    let bench = Bench::new().await;
    bench.shows("a", GLOBAL, "10.9.0.9").await;
    let waiters = &bench.claims.context.waiters;
    let waiting = || waiters.waiting_on(GLOBAL_POOL.kind, &Key::new("", "net"));
    assert_eq!(waiting(), [Key::new("ns", "a")]);
    bench.claims.user.addresses.remove(&Key::new("ns", "a"));
    bench.hear("a").await;
    assert!(waiting().is_empty());
}

/// Its lease is its own, and may be another one.
#[tokio::test]
async fn a_claim_that_fipd_serves_keeps_its_lease_itself() {
    let bench = Bench::new().await;
    let key = Key::new("ns", "a");
    let mut claim = IpClaims::object();
    claim["metadata"] = json!({ "name": "a", "namespace": "ns" });
    let claim: IPAddressClaim = serde_json::from_value(claim).expect("a claim");
    let objects = &bench.claims.context.objects;
    objects.set(&key, IpClaimView::of(claim));
    let there = there("a", GLOBAL, ("10.0.0.9", 24));
    bench.claims.user.addresses.set(&key, there);
    keep(&bench.claims, &key).await.expect("no failure");
    assert_eq!(bench.holder(9), None);
}

#[tokio::test]
async fn the_lease_of_a_malformed_ip_address_stays() {
    let bench = Bench::new().await;
    bench.shows("a", GLOBAL, "10.0.0.9").await;
    let malformed = Malformed {
        meta: Meta::default(),
        annotations: BTreeMap::new(),
        error: "no IPAddress".into(),
    };
    let malformed = Observed::Malformed(Arc::new(malformed));
    let addresses = &bench.claims.user.addresses;
    let put = addresses.put(&Key::new("ns", "a"), Some(malformed));
    put.expect("there is room");
    assert_eq!(bench.hear("a").await, Next::Done);
    assert_eq!(bench.holder(9).as_deref(), Some("a"));
}
