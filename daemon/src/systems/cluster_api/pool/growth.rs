//! What a pool is about to have that it did not have before. Whoever shows such an address has it before the pool gives anything:
//! it was chosen, or allocated by another program, while no pool of fipd's had it.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use fipd_core::{
    Holder, Identity, LeaseKey, LeasePrefix, Ledger, Pool, PoolSpec, Request, Text, Timestamp,
};

use crate::{
    controller::{
        address_user::settle::AddressAsker,
        site::Site,
        store::{Key, Objects},
    },
    systems::cluster_api::{
        claim::{
            ip_address::is_served,
            left::is_left,
            observe::AddressView,
            wish::{PoolSort, pool_key, sort_of},
        },
        names::{CLAIM, CLUSTER},
        pool::holds_prefixes,
        settings::ClusterApiSettings,
        vip::{CapiClusterView, choose::VipSlot, write::claim_key},
    },
    validation::held_address::gives,
};

/// Of one read of the ledger.
const CHUNK: usize = 500;

/// Objects that may show addresses of a pool.
#[derive(Clone, Default)]
pub struct PoolUsers {
    pub clusters: Arc<Objects<CapiClusterView>>,
    pub addresses: Arc<Objects<AddressView>>,
}

/// A pool that is new, or changes.
pub struct PoolGrowth<'a> {
    pub pool: &'a Key,
    pub existing: Option<&'a Pool>,
    pub wanted: &'a PoolSpec,
    /// Its kind gives prefixes.
    pub has_prefixes: bool,
}

/// An object that shows an address.
enum ShownBy {
    Cluster(Key, Arc<CapiClusterView>),
    /// The claim, whichever it is by now, has the address of its IPAddress next.
    Address(Key, Arc<AddressView>),
}

impl PoolUsers {
    /// What takes into the ledger whatever they show of it, of the oldest first. A pool in use goes to no other network.
    pub fn shown_in(&self, site: &Site, growth: &PoolGrowth<'_>) -> Vec<Request> {
        let network = growth.wanted.network;
        let stays = |ledger: &Ledger| growth.stays(ledger);
        if !growth.may_gain() || site.ipam.read(stays) {
            return Vec::new();
        }
        let mut shown = growth.of_addresses(site, &self.addresses);
        shown.extend(growth.of_clusters(site, self));
        let gained = growth.gained(shown.iter().map(|(address, _)| *address));
        shown.retain(|(address, _)| gained.contains(address));
        shown.sort_by_key(|(_, by)| by.since());
        let requests = shown.chunks(CHUNK).flat_map(|some| {
            site.ipam.read(|ledger| {
                let requests = some.iter().filter_map(|(address, by)| {
                    let (network, address) = (network, *address);
                    by.request(ledger, site, growth.wanted, LeaseKey { network, address })
                });
                requests.collect::<Vec<_>>()
            })
        });
        requests.collect()
    }
}

impl ShownBy {
    fn since(&self) -> Timestamp {
        match self {
            Self::Cluster(_, cluster) => cluster.meta.created,
            Self::Address(_, there) => there.meta.created,
        }
    }

    /// `None`: it is in the ledger.
    fn request(
        &self,
        ledger: &Ledger,
        site: &Site,
        wanted: &PoolSpec,
        place: LeaseKey,
    ) -> Option<Request> {
        match self {
            Self::Cluster(key, cluster) => {
                let is_left =
                    is_elsewhere(ledger, site, key, place) || is_of_copy(ledger, site, key, place);
                let request = || of_cluster(ledger, site, (key, cluster), place);
                (!is_left).then(request).flatten()
            }
            Self::Address(key, there) => {
                let prefix = wanted.prefix_at(place);
                let identity = key.identity(site.system.clone(), &site.id, CLAIM.kind);
                let is_known = has(ledger, prefix, &identity);
                let holder = Holder {
                    identity,
                    instance: "".into(),
                };
                let of = (holder, there.meta.created, &*key.namespace);
                (!is_known).then(|| adopt(site, of, prefix))
            }
        }
    }
}

impl PoolGrowth<'_> {
    /// The pool as it gives now in the network.
    fn before(&self) -> Option<&PoolSpec> {
        let before = self.existing.map(|pool| &pool.spec);
        before.filter(|spec| spec.network == self.wanted.network && !spec.closed)
    }

    /// Whether the edit is one of addresses at all.
    fn may_gain(&self) -> bool {
        let given = |spec: &PoolSpec| (spec.gateway, spec.subnet, spec.ends);
        self.before().is_none_or(|before| {
            before.addresses != self.wanted.addresses
                || before.exclusions != self.wanted.exclusions
                || given(before) != given(self.wanted)
        })
    }

    /// Whether the pool is in use in another network, which the ledger does not let it leave.
    fn stays(&self, ledger: &Ledger) -> bool {
        let moves = |pool: &&Pool| pool.spec.network != self.wanted.network;
        let usage = self
            .existing
            .filter(moves)
            .map(|pool| ledger.usage(pool.id));
        usage.flatten().is_some_and(|usage| usage.in_use())
    }

    /// Those that the pool has now and did not have before.
    fn gained(&self, addresses: impl Iterator<Item = IpAddr>) -> BTreeSet<IpAddr> {
        let all: BTreeSet<IpAddr> = addresses.collect();
        let network = self.wanted.network;
        let given = |spec: &PoolSpec| -> BTreeSet<IpAddr> {
            // A prefix takes every address in it.
            if spec.allocation_length.is_some() {
                let given = all.iter().filter(|address| gives(spec, **address));
                return given.copied().collect();
            }
            let places = all.iter().map(|address| {
                let address = *address;
                LeasePrefix::from(LeaseKey { network, address })
            });
            let Ok(lost) = spec.outside(places) else {
                return BTreeSet::new();
            };
            let lost: BTreeSet<IpAddr> = lost.iter().map(|one| one.key.address).collect();
            all.difference(&lost).copied().collect()
        };
        let before = self.before().map(given).unwrap_or_default();
        given(self.wanted).difference(&before).copied().collect()
    }

    /// What Clusters show but for what their claims do.
    fn of_clusters(&self, site: &Site, users: &PoolUsers) -> Vec<(IpAddr, ShownBy)> {
        let settings = site.settings::<ClusterApiSettings>();
        // An address is in use in its network, whoever may use the pool.
        let is_near = |key: &Key| {
            let namespace = &self.pool.namespace;
            !settings.network_per_namespace || namespace.is_empty() || key.namespace == *namespace
        };
        let claimed = claimed(site, &users.addresses);
        let all = users.clusters.all().into_iter();
        let shown = all
            .filter(|(key, _)| is_near(key))
            .flat_map(|(key, cluster)| {
                let is_claimed = |slot, address| {
                    let there = users.addresses.get(&claim_key(&key, slot));
                    there.is_some_and(|there| there.address == Some(address))
                        || cluster.class_name().is_none() && is_claimed(&claimed, &key, address)
                };
                let shown = cluster.shown();
                let shown: Vec<_> = shown
                    .filter(|(slot, address)| !is_claimed(*slot, *address))
                    .map(|(_, address)| {
                        (address, ShownBy::Cluster(key.clone(), Arc::clone(&cluster)))
                    })
                    .collect();
                shown
            });
        shown.collect()
    }

    /// IPAddresses of the pool's kind and name; what is in its grace is nobody's any more.
    fn of_addresses(
        &self,
        site: &Site,
        addresses: &Objects<AddressView>,
    ) -> Vec<(IpAddr, ShownBy)> {
        let is_of_pool = |key: &Key, there: &AddressView| {
            let Some(PoolSort::InCluster(kind)) = sort_of(&there.pool, site.settings()) else {
                return false;
            };
            holds_prefixes(kind.plural) == self.has_prefixes
                && kind.namespaced != self.pool.namespace.is_empty()
                && pool_key(kind, &key.namespace, &there.pool.name) == *self.pool
        };
        let all = addresses.all().into_iter();
        let all = all.filter(|(key, there)| {
            there.grace_ends.is_none() && is_served(site, key, there) && is_of_pool(key, there)
        });
        all.filter_map(|(key, there)| Some((there.address?, ShownBy::Address(key, there))))
            .collect()
    }
}

/// The Cluster and its claims in the address book.
fn identities(site: &Site, key: &Key) -> impl Iterator<Item = Identity> {
    let identity = |key: &Key, kind| key.identity(site.system.clone(), &site.id, kind);
    let claims = VipSlot::ALL.map(|slot| identity(&claim_key(key, slot), CLAIM.kind));
    claims.into_iter().chain([identity(key, CLUSTER.kind)])
}

/// Whether the Cluster has this address in another network, where it is another address.
fn is_elsewhere(ledger: &Ledger, site: &Site, key: &Key, place: LeaseKey) -> bool {
    identities(site, key).any(|one| {
        let mut leases = ledger.leases_of(&one).into_iter().map(|lease| lease.key);
        leases.any(|key| key.network != place.network && key.address == place.address)
    })
}

/// Whether who has it is the Cluster, or a claim of it, in another management cluster. That passes to its claim here.
pub fn is_of_copy(ledger: &Ledger, site: &Site, key: &Key, place: LeaseKey) -> bool {
    let owner = ledger.lease_around(place).and_then(|lease| lease.owner());
    owner.is_some_and(|owner| {
        identities(site, key).any(|own| own.is_same_elsewhere(&owner.identity))
    })
}

/// The IPAddresses in use, by namespace.
pub fn claimed(site: &Site, addresses: &Objects<AddressView>) -> BTreeSet<(Text, IpAddr)> {
    let all = addresses.all().into_iter();
    let used = all.filter(|(key, there)| {
        there.grace_ends.is_none() && is_served(site, key, there) || is_left(site, there)
    });
    used.filter_map(|(key, there)| Some((key.namespace, there.address?)))
        .collect()
}

/// Whether an IPAddress beside the Cluster has the address: whoever chose it for a Cluster without a class claimed it first.
pub fn is_claimed(claimed: &BTreeSet<(Text, IpAddr)>, key: &Key, address: IpAddr) -> bool {
    claimed.contains(&(Text::clone(&key.namespace), address))
}

/// Whether a Cluster without a class shows what another object of its management cluster has: that is where it has it from.
pub fn is_of_other(
    ledger: &Ledger,
    site: &Site,
    cluster: &CapiClusterView,
    place: LeaseKey,
) -> bool {
    let owner = ledger.lease_around(place).and_then(|lease| lease.owner());
    cluster.class_name().is_none()
        && owner.is_some_and(|owner| {
            let identity = &owner.identity;
            identity.cluster.as_ref() == Some(&site.id) && *identity.kind != *CLUSTER.kind
        })
}

/// `None`: the Cluster has the address, be it by its claim, or leaves it to another object.
pub fn of_cluster(
    ledger: &Ledger,
    site: &Site,
    (key, cluster): (&Key, &CapiClusterView),
    place: LeaseKey,
) -> Option<Request> {
    let prefix = LeasePrefix::from(place);
    if identities(site, key).any(|one| has(ledger, prefix, &one))
        || is_of_other(ledger, site, cluster, place)
    {
        return None;
    }
    let holder = Holder {
        identity: key.identity(site.system.clone(), &site.id, CLUSTER.kind),
        instance: Text::clone(&cluster.meta.uid),
    };
    let of = (holder, cluster.meta.created, &*key.namespace);
    Some(adopt(site, of, prefix))
}

/// Whether it holds all of the prefix, or is noted as one who shows it.
pub fn has(ledger: &Ledger, prefix: LeasePrefix, identity: &Identity) -> bool {
    let lease = ledger.lease_around(prefix.key);
    let lease = lease.filter(|lease| lease.span().covers(&prefix.span()));
    lease.is_some_and(|lease| lease.held_by(identity) || lease.contender(identity).is_some())
}

/// Takes into the address book what somebody shows.
pub fn adopt(
    site: &Site,
    (holder, created, namespace): (Holder, Timestamp, &str),
    prefix: LeasePrefix,
) -> Request {
    let asker = AddressAsker {
        holder,
        created,
        actor: site.actor(),
    };
    asker.adopt(prefix, Some(site.tenant_of(namespace)))
}

#[cfg(test)]
mod tests {
    use fipd_core::{ClusterId, NetworkId, System, testing::create_pool};
    use fipd_crds::cluster_api::{Cluster, IPAddress};
    use serde_json::{Value, json};

    use super::*;
    use crate::{clock, clusters::testing, controller::fake_api_tests::client, ipam::Ipam};

    fn known(clusters: &[(&str, &str, Value)]) -> PoolUsers {
        let users = PoolUsers::default();
        for (namespace, name, spec) in clusters {
            let cluster = json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": { "name": name, "namespace": namespace, "uid": format!("u-{name}") },
                "spec": spec,
            });
            let cluster: Cluster = serde_json::from_value(cluster).expect("a Cluster");
            let cluster = CapiClusterView::of(cluster);
            users.clusters.set(&Key::new(namespace, name), cluster);
        }
        for (kind, name, address) in [
            ("GlobalInClusterIPPool", "x", "10.0.0.7"),
            ("GlobalInClusterIPPool", "y", "10.0.2.7"),
            ("InClusterIPPool", "z", "10.0.0.8"),
            ("GlobalInClusterIPPool", "vip-cp-f", "10.0.0.9"),
        ] {
            let pool = json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": "net" });
            let object = json!({
                "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
                "metadata": { "name": name, "namespace": "ns", "uid": "u" },
                "spec": { "claimRef": { "name": name }, "poolRef": pool, "address": address, "prefix": 24 },
            });
            let object: IPAddress = serde_json::from_value(object).expect("an IPAddress");
            users
                .addresses
                .set(&Key::new("ns", name), AddressView::of(object));
        }
        users
    }

    fn at(host: &str) -> Value {
        let class = json!({ "classRef": { "name": "rke2" } });
        json!({ "topology": class, "controlPlaneEndpoint": { "host": host, "port": 6443 } })
    }

    fn pool(addresses: &str) -> PoolSpec {
        let addresses = addresses
            .split(' ')
            .map(|one| one.parse().expect("addresses"));
        PoolSpec::own("net", addresses.collect())
    }

    #[tokio::test]
    async fn what_objects_show_is_theirs_before_a_pool_gives_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let session = testing::session(client(&Arc::default()), &ipam).await;
        let site = Site::new(session, System::cluster_api());
        let unclassed =
            |host: &str| json!({ "controlPlaneEndpoint": { "host": host, "port": 6443 } });
        let users = known(&[
            ("ns", "a", at("10.0.0.2")),
            ("other", "b", at("10.0.0.3")),
            ("ns", "c", unclassed("10.0.0.4")),
            ("ns", "d", at("10.0.1.5")),
            ("ns", "e", at("api.example")),
            ("ns", "f", at("10.0.0.9")),
            ("ns", "g", unclassed("10.0.0.7")),
        ]);
        let taken = |namespace, existing: Option<&Pool>, wanted: &PoolSpec| -> Vec<String> {
            let growth = PoolGrowth {
                pool: &Key::new(namespace, "net"),
                existing,
                wanted,
                has_prefixes: false,
            };
            let requests = users.shown_in(&site, &growth);
            let shown = requests.into_iter().map(|request| {
                let Request::Adopt(adopt) = request else {
                    panic!("{request:?}");
                };
                let (holder, address) = (adopt.holder, adopt.key.address);
                format!("{} {} {address}", holder.identity.name, holder.instance)
            });
            shown.collect()
        };
        let narrow = pool("10.0.0.0/24");
        assert_eq!(
            taken("", None, &narrow),
            [
                "vip-cp-f  10.0.0.9",
                "x  10.0.0.7",
                "a u-a 10.0.0.2",
                "c u-c 10.0.0.4",
                "b u-b 10.0.0.3"
            ],
            "what a claim has its Cluster does not contend for, nor does one without a class"
        );
        assert_eq!(
            taken("ns", None, &narrow),
            [
                "z  10.0.0.8",
                "a u-a 10.0.0.2",
                "c u-c 10.0.0.4",
                "b u-b 10.0.0.3"
            ],
            "they are in one network with the pool"
        );

        // Of one that is wider only what it did not have before.
        let submit = async |request| ipam.submit(request).await.expect("it is granted");
        submit(create_pool(narrow.clone())).await;
        let wide = pool("10.0.0.0/24 10.0.1.0/24");
        let existing = || ipam.read(|ledger| ledger.pool_in_range(key_of("10.0.0.1")).cloned());
        let before = existing();
        assert_eq!(taken("", before.as_deref(), &narrow), [""; 0]);
        assert_eq!(taken("", before.as_deref(), &wide), ["d u-d 10.0.1.5"]);

        // Nor what a Cluster has by its claim.
        let claim = claim_key(&Key::new("ns", "a"), VipSlot::ENDPOINT);
        submit(asker_of(&claim.name, &site).adopt(key_of("10.0.0.2").into(), None)).await;
        for (claim, address) in [("x", "10.0.0.7"), ("vip-cp-f", "10.0.0.9")] {
            submit(asker_of(claim, &site).adopt(key_of(address).into(), None)).await;
        }
        let others = ["c u-c 10.0.0.4", "b u-b 10.0.0.3"];
        assert_eq!(taken("", None, &narrow), others);

        // Nor what one without a class has from another object of the management cluster.
        submit(asker_of("machine", &site).adopt(key_of("10.0.0.4").into(), None)).await;
        assert_eq!(taken("", None, &narrow), ["b u-b 10.0.0.3"]);

        // What it has where it is moved from is left to its claim.
        let mut copy = asker_of("vip-ingress-b", &site);
        copy.holder.identity.namespace = "other".into();
        copy.holder.identity.cluster = Some(ClusterId("elsewhere".into()));
        submit(copy.adopt(key_of("10.0.0.3").into(), None)).await;
        assert_eq!(taken("", None, &narrow), [""; 0]);

        // In another network it is another address; one in use goes to none.
        let blue = testing::new_network(&ipam, "blue").await;
        let moved = PoolSpec {
            network: blue,
            ..narrow
        };
        let all = [
            "vip-cp-f  10.0.0.9",
            "x  10.0.0.7",
            "c u-c 10.0.0.4",
            "b u-b 10.0.0.3",
        ];
        assert_eq!(taken("", None, &moved), all, "the copy is not there");
        assert_eq!(taken("", existing().as_deref(), &moved), [""; 0]);
    }

    /// A claim of this name.
    fn asker_of(claim: &str, site: &Site) -> AddressAsker {
        let claim = Key::new("ns", claim);
        AddressAsker {
            holder: Holder {
                identity: claim.identity(System::cluster_api(), &site.id, CLAIM.kind),
                instance: "u-claim".into(),
            },
            created: clock::now(),
            actor: site.actor(),
        }
    }

    fn key_of(address: &str) -> LeaseKey {
        LeaseKey {
            network: NetworkId::DEFAULT,
            address: address.parse().expect("an address"),
        }
    }
}
