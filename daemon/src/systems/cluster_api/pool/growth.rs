//! What a pool is about to have that it did not have before. Whoever shows such an address has it before the pool gives anything:
//! it was chosen, or allocated by another program, while no pool of fipd's had it. Pure.

use std::{net::IpAddr, sync::Arc};

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

impl PoolUsers {
    /// What takes into the ledger whatever they show of it.
    pub fn shown_in(&self, ledger: &Ledger, site: &Site, growth: &PoolGrowth<'_>) -> Vec<Request> {
        let mut requests = growth.of_addresses(ledger, site, &self.addresses);
        requests.extend(growth.of_clusters(ledger, site, &self.clusters));
        requests
    }
}

impl PoolGrowth<'_> {
    /// The place of an address that the pool has now and did not have before.
    fn gained(&self, address: IpAddr) -> Option<LeaseKey> {
        let network = self.wanted.network;
        let key = LeaseKey { network, address };
        // A prefix takes every address in it.
        let gives = |spec: &PoolSpec| match spec.allocation_length {
            Some(_) => gives(spec, address),
            None => {
                let lost = spec.outside(std::iter::once(key.into()));
                lost.is_ok_and(|lost| lost.is_empty())
            }
        };
        let mut before = self.existing.map(|pool| &pool.spec);
        before = before.filter(|spec| spec.network == network && !spec.closed);
        (gives(self.wanted) && !before.is_some_and(gives)).then_some(key)
    }

    fn of_clusters(
        &self,
        ledger: &Ledger,
        site: &Site,
        clusters: &Objects<CapiClusterView>,
    ) -> Vec<Request> {
        let settings = site.settings::<ClusterApiSettings>();
        // An address is in use in its network, whoever may use the pool.
        let is_near = |key: &Key| {
            let namespace = &self.pool.namespace;
            !settings.network_per_namespace || namespace.is_empty() || key.namespace == *namespace
        };
        let all = clusters.all().into_iter();
        let all = all.filter(|(key, one)| is_near(key) && one.class_name().is_some());
        let requests = all.flat_map(|(key, cluster)| {
            let shown: Vec<IpAddr> = cluster.shown().map(|(_, address)| address).collect();
            let gained = shown.into_iter().filter_map(|address| self.gained(address));
            gained.filter_map(move |place| of_cluster(ledger, site, (&key, &cluster), place))
        });
        requests.collect()
    }

    /// IPAddresses of the pool's kind and name; what is in its grace is nobody's any more.
    fn of_addresses(
        &self,
        ledger: &Ledger,
        site: &Site,
        addresses: &Objects<AddressView>,
    ) -> Vec<Request> {
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
        let requests = all.filter_map(|(key, there)| {
            let prefix = self.wanted.prefix_at(self.gained(there.address?)?);
            let identity = key.identity(site.system.clone(), &site.id, CLAIM.kind);
            let is_known = has(ledger, prefix, &identity);
            // The claim, whichever it is by now, has it next.
            let holder = Holder {
                identity,
                instance: "".into(),
            };
            let of = (holder, there.meta.created, &*key.namespace);
            (!is_known).then(|| adopt(site, of, prefix))
        });
        requests.collect()
    }
}

/// `None`: the Cluster has the address, be it by its claim.
pub fn of_cluster(
    ledger: &Ledger,
    site: &Site,
    (key, cluster): (&Key, &CapiClusterView),
    place: LeaseKey,
) -> Option<Request> {
    let prefix = LeasePrefix::from(place);
    let identity = |key: &Key, kind| key.identity(site.system.clone(), &site.id, kind);
    let claims = VipSlot::ALL.map(|slot| identity(&claim_key(key, slot), CLAIM.kind));
    let own = identity(key, CLUSTER.kind);
    let is_there = |one: &Identity| has(ledger, prefix, one);
    if is_there(&own) || claims.iter().any(is_there) {
        return None;
    }
    let holder = Holder {
        identity: own,
        instance: Text::clone(&cluster.meta.uid),
    };
    let of = (holder, cluster.meta.created, &*key.namespace);
    Some(adopt(site, of, prefix))
}

/// Whether it holds the prefix, or is noted as one who shows it.
fn has(ledger: &Ledger, prefix: LeasePrefix, identity: &Identity) -> bool {
    let lease = ledger.lease_around(prefix.key);
    lease.is_some_and(|lease| lease.held_by(identity) || lease.contender(identity).is_some())
}

fn adopt(
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
    use fipd_core::{NetworkId, System, testing::create_pool};
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
        let unclassed = json!({ "controlPlaneEndpoint": { "host": "10.0.0.4", "port": 6443 } });
        let users = known(&[
            ("ns", "a", at("10.0.0.2")),
            ("other", "b", at("10.0.0.3")),
            ("ns", "c", unclassed),
            ("ns", "d", at("10.0.1.5")),
            ("ns", "e", at("api.example")),
        ]);
        let taken = |namespace, existing: Option<&Pool>, wanted: &PoolSpec| -> Vec<String> {
            let growth = PoolGrowth {
                pool: &Key::new(namespace, "net"),
                existing,
                wanted,
                has_prefixes: false,
            };
            let requests = ipam.read(|ledger| users.shown_in(ledger, &site, &growth));
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
            ["x  10.0.0.7", "a u-a 10.0.0.2", "b u-b 10.0.0.3"]
        );
        assert_eq!(
            taken("ns", None, &narrow),
            ["z  10.0.0.8", "a u-a 10.0.0.2", "b u-b 10.0.0.3"],
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
        submit(asker_of("x", &site).adopt(key_of("10.0.0.7").into(), None)).await;
        assert_eq!(taken("", None, &narrow), ["b u-b 10.0.0.3"]);
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
