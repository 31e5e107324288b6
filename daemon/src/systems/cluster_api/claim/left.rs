//! The pools that are left to the in-cluster provider. What it allocates of them is kept from everybody else, whatever the claim is
//! for: the claim holds it in the address book, and loses it by its absence. What is for a Cluster the Cluster itself holds
//! (`vip::reserve`).

use fipd_core::{LeaseKey, LeasePrefix, Ledger, NetworkId, ReleaseScope};

use super::{
    IpClaimController,
    ip_address::hold,
    observe::AddressView,
    wish::{in_cluster_kind, pool_key},
};
use crate::{
    controller::{
        Reconciled, confirm_absence::RECHECK_AFTER, kind::Kind, queue::Next, site::Site, store::Key,
    },
    systems::cluster_api::{
        names::CLUSTER,
        pool::{growth::has, network_by_rules, object_of},
        settings::ClusterApiSettings,
        vip::leave::cluster_of,
    },
};

/// Whether the in-cluster provider made the IPAddress, and not fipd before its pools were left to that.
pub fn is_left(site: &Site, there: &AddressView) -> bool {
    let settings = site.settings::<ClusterApiSettings>();
    !settings.serves_in_cluster_kinds()
        && there.grace_ends.is_none()
        && in_cluster_kind(&there.pool).is_some()
}

/// What the IPAddress takes that the address book does not know of. What a Cluster beside it shows is the Cluster's.
pub fn unknown(claims: &IpClaimController, key: &Key, there: &AddressView) -> Option<LeasePrefix> {
    let prefix = place(claims, key, there)?;
    let (context, identity) = (&claims.context, claims.context.identity(key));
    let is_known = context.read(|ledger| {
        let owner = ledger
            .lease_around(prefix.key)
            .and_then(|lease| lease.owner());
        let beside = owner.is_some_and(|owner| {
            let owner = &owner.identity;
            *owner.kind == *CLUSTER.kind
                && owner.cluster.as_ref() == Some(&context.site.id)
                && owner.namespace == key.namespace
        });
        beside || has(ledger, prefix, &identity)
    });
    (!is_known && !is_of_cluster(claims, key)).then_some(prefix)
}

/// Keeps from everybody else what the IPAddress of this name shows.
pub async fn keep(claims: &IpClaimController, key: &Key) -> Reconciled {
    let site = &claims.context.site;
    let there = claims.user.addresses.get(key);
    let Some(there) = there.filter(|there| is_left(site, there)) else {
        return Ok(Next::Done);
    };
    if is_of_cluster(claims, key) {
        return Ok(match claims.user.clusters.is_complete() {
            true => Next::Done,
            false => Next::After(RECHECK_AFTER),
        });
    }
    let Some(prefix) = place(claims, key, &there) else {
        return Ok(Next::Done);
    };
    release_others(claims, key, prefix).await?;
    match unknown(claims, key, &there) {
        Some(prefix) => hold(claims, key, &there, prefix).await,
        None => Ok(Next::Done),
    }
}

/// Releases what earlier IPAddresses of the name had.
async fn release_others(
    claims: &IpClaimController,
    key: &Key,
    shown: LeasePrefix,
) -> Reconciled<()> {
    let identity = claims.context.identity(key);
    let others = claims.context.read(|ledger| {
        let held = ledger.leases_of(&identity).into_iter();
        let held =
            held.filter_map(|lease| Some((lease.member(&identity)?.holder.clone(), lease.key)));
        let contended = ledger.contentions_of(&identity).into_iter();
        let contended = contended.filter_map(|lease| {
            let contender = lease.contender(&identity)?;
            let used = contender.used_of(lease.prefix()).next()?;
            Some((contender.holder.clone(), used.key))
        });
        let mut others: Vec<_> = held.chain(contended).collect();
        others.retain(|(_, key)| *key != shown.key);
        others
    });
    for (holder, key) in others {
        let scope = ReleaseScope::HolderAddresses(holder, vec![key]);
        let reason = "its IPAddress shows another address";
        claims.context.site.release(scope, reason).await?;
    }
    Ok(())
}

/// Whether the claim of this name is, or may be, the claim of a Cluster.
fn is_of_cluster(claims: &IpClaimController, key: &Key) -> bool {
    let Some(cluster) = cluster_of(key) else {
        return false;
    };
    let clusters = &claims.user.clusters;
    match clusters.get(&cluster) {
        Some(cluster) => {
            let claim = claims.context.objects.get(key);
            claim.is_none_or(|claim| claim.is_owned_by(&cluster.meta.uid))
        }
        None => !clusters.is_complete(),
    }
}

/// What an IPAddress takes in the network of its pool, where a pool of the address book has it.
fn place(claims: &IpClaimController, key: &Key, there: &AddressView) -> Option<LeasePrefix> {
    let (kind, address) = (in_cluster_kind(&there.pool)?, there.address?);
    let name = pool_key(kind, &key.namespace, &there.pool.name);
    let pools = claims.user.pools_of(kind.kind);
    let pool = pools.and_then(|(_, pools)| pools.get(&name));
    let network = match &pool {
        Some(_) => network_of_pool(claims, kind, &name),
        // One that fipd may not read, or that is gone.
        None => by_rules(claims, &name, None),
    }?;
    let place = LeaseKey { network, address };
    let has = |ledger: &Ledger| ledger.pool_in_range(place).is_some();
    let rules = pool.and_then(|pool| pool.spec.rules().ok());
    let prefix = || rules.map_or_else(|| LeasePrefix::from(place), |rules| rules.prefix_at(place));
    claims.context.read(has).then(prefix)
}

/// The network of a pool object: by the rules, where another provider serves its kind.
pub fn network_of_pool(claims: &IpClaimController, kind: Kind, pool: &Key) -> Option<NetworkId> {
    let site = &claims.context.site;
    let object = object_of(kind.plural, pool);
    let mirror = |ledger: &Ledger| Some(site.mirror_in(ledger, &object)?.spec.network);
    let mirror = claims.context.read(mirror);
    let settings = site.settings::<ClusterApiSettings>();
    if mirror.is_some() || settings.serves_in_cluster_kinds() {
        return mirror;
    }
    let (_, pools) = claims.user.pools_of(kind.kind)?;
    by_rules(claims, pool, pools.get(pool)?.network.as_deref())
}

/// The network of a pool with this annotation, by the rules.
pub fn by_rules(
    claims: &IpClaimController,
    pool: &Key,
    annotation: Option<&str>,
) -> Option<NetworkId> {
    let name = network_by_rules(&claims.context.site, pool, annotation);
    let network = |ledger: &Ledger| Some(ledger.network_by_name(&name)?.id);
    claims.context.read(network)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::{PoolSpec, System, testing::create_pool};
    use fipd_crds::cluster_api::{IPAddress, IPAddressClaim};
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
        },
        ipam::Ipam,
        systems::cluster_api::{
            claim::{IpClaims, observe::IpClaimView},
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
            let claims = IpClaims::controller(&site, remote, &Arc::new(events));
            claims.user.clusters.complete();
            let pool = PoolSpec::own("own", vec!["10.0.0.0/24".parse().expect("addresses")]);
            ipam.submit(create_pool(pool)).await.expect("a pool");
            Self { _dir: dir, claims }
        }

        /// The provider made an IPAddress of this name, and fipd hears of it.
        async fn shows(&self, name: &str, kind: &str, address: &str) {
            let object = json!({
                "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
                "metadata": { "name": name, "namespace": "ns", "uid": address },
                "spec": {
                    "claimRef": { "name": name }, "address": address, "prefix": 24,
                    "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": "net" },
                },
            });
            let object: IPAddress = serde_json::from_value(object).expect("an IPAddress");
            let addresses = &self.claims.user.addresses;
            addresses.set(&Key::new("ns", name), AddressView::of(object));
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
            let (network, address) = (NetworkId::DEFAULT, [10, 0, 0, last].into());
            let place = LeaseKey { network, address };
            self.claims.context.read(|ledger| {
                let owner = ledger.lease_around(place)?.owner()?;
                Some(owner.identity.name.to_string())
            })
        }
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
}
