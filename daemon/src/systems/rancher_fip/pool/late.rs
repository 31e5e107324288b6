//! Pools whose network is decided late, since the VLAN of a Harvester cluster was not read before. Whoever shows an address
//! of such a pool is taken in when the network is known, before the pool gives any.

use std::{collections::BTreeSet, net::IpAddr};

use fipd_core::{Holder, LeaseKey, Ledger, NetworkId, System, Text, Timestamp};
use fipd_crds::floating_ip::FloatingIPPool;

use super::{
    harvester,
    validate::{Ranges, raw, validate},
};
use crate::{
    clusters::adoption::Sighting,
    controller::{
        address_user::ShownAddress,
        attachments::AttachmentLookup,
        meta::{Meta, created},
        store::Key,
    },
    systems::rancher_fip::{
        Site,
        floating_ip::{observe::Fip, shown_in},
        kinds::FLOATING_IP,
        names,
        rancher::{Data, Rancher},
    },
};

/// Whether the object will define a pool once its VLAN is known.
pub fn is_undecided(ledger: &Ledger, data: &Data, name: &str, pool: &FloatingIPPool) -> bool {
    let lookup = |of| {
        let attachments = data.attachments.get();
        attachments.map_or(AttachmentLookup::Foreign, |all| all.lookup(of))
    };
    let mirror = ledger.mirror(&System::rancher_fip(), &data.cluster, name);
    mirror.is_none()
        && harvester(&pool.spec).is_some_and(|of| lookup(of) != AttachmentLookup::Foreign)
        && ranges(pool).is_some()
}

/// Whether the address is of a pool that is not decided yet.
pub fn is_of_undecided(ledger: &Ledger, data: &Data, address: IpAddr) -> bool {
    let mut pools = data.pools.all().into_iter();
    pools.any(|(key, pool)| {
        ranges(&pool).is_some_and(|ranges| ranges.subnet.contains(&address))
            && is_undecided(ledger, data, &key.name, &pool)
    })
}

fn ranges(pool: &FloatingIPPool) -> Option<Ranges> {
    validate(raw(&pool.spec).as_ref()).ok()
}

/// What FloatingIPs and Services show of a pool that names a network of a cluster, where the pool is in this network.
pub(super) fn uses(
    site: &Site,
    (data, rancher): (&Data, Option<&Rancher>),
    (key, pool): (&Key, &FloatingIPPool),
    network: NetworkId,
) -> Vec<Sighting> {
    if harvester(&pool.spec).is_none() {
        return Vec::new();
    }
    let since = created(pool.metadata.creation_timestamp.as_ref());
    let fips = data.fips.all().into_iter();
    let of_pool = fips.filter(|(_, fip)| *fip.pool == *key.name && believed(fip, since));
    let mut found: Vec<Sighting> = of_pool
        .filter_map(|(key, fip)| sighting(site, (&key, &fip), network))
        .collect();
    let Some(ranges) = ranges(pool).filter(|_| rancher.is_some()) else {
        return found;
    };
    let shown = found.iter().flat_map(|one| &one.uses);
    let shown: BTreeSet<IpAddr> = shown.map(|key| key.address).collect();
    let is_free = |address: &IpAddr| {
        let place = LeaseKey {
            network,
            address: *address,
        };
        ranges.addresses.span().contains(*address)
            && !shown.contains(address)
            && site.ipam.read(|ledger| ledger.lease(place).is_none())
    };
    let guests = rancher.map(Rancher::guests).into_iter().flatten();
    for user in guests.flat_map(|guest| guest.users()) {
        let addresses = user.addresses.into_iter().filter(is_free);
        let uses = addresses.map(|address| LeaseKey { network, address });
        let uses: Vec<LeaseKey> = uses.collect();
        if !uses.is_empty() {
            found.push(Sighting {
                holder: user.service.holder(),
                tenant: user.tenant,
                uses,
                since: user.since,
            });
        }
    }
    found
}

/// One that is gone but for its finalizers shows nothing, and a specification counts only where it was written for this pool.
fn believed(fip: &Fip, since: Timestamp) -> bool {
    let over = fip.meta.is_terminating() && !fip.has_finalizer();
    !over && (fip.recorded().is_some() || fip.meta.created >= since)
}

fn sighting(site: &Site, (key, fip): (&Key, &Fip), network: NetworkId) -> Option<Sighting> {
    let shown = |ledger: &Ledger| shown_in(ledger, site, (key, fip), network);
    let ShownAddress { address, user, .. } = site.ipam.read(shown)?;
    let meta: &Meta = &fip.meta;
    let own = || Holder {
        identity: names::identity(&site.id, FLOATING_IP.kind, key),
        instance: Text::clone(&meta.uid),
    };
    Some(Sighting {
        holder: user.unwrap_or_else(own),
        tenant: fip.project.clone(),
        uses: vec![LeaseKey { network, address }],
        since: meta.created,
    })
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc, time::Duration};

    use fipd_core::{
        Adoption, Allocate, Answer, Choice, Pool, Quota, Refusal, Request, Tenant, Want,
    };
    use futures::future::BoxFuture;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::{
        clock,
        clusters::{adoption::Inventory as _, testing},
        config::{Config, PoolLink},
        controller::{
            address_user::inventory::AddressInventory,
            attachments::{Attachments, HarvesterAccess, HarvesterWay},
            client::Remote,
            events::Events,
            fake_api_tests::{FakeApi, client},
            pool_source::pool_facts,
        },
        ipam::{Ipam, IpamError},
        systems::rancher_fip::{
            floating_ip,
            kinds::POOL,
            names::PROJECT,
            pool::{FloatingIpPoolSource, FloatingIpPools, facts},
            rancher::Ranchers,
        },
    };

    /// Networks that cannot be read.
    struct Dead;

    impl HarvesterAccess for Dead {
        fn find(&self, _: &str) -> Result<Option<Text>, String> {
            Err("no answer".to_owned())
        }

        fn way<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<HarvesterWay, String>> {
            Box::pin(std::future::ready(Err("no answer".to_owned())))
        }
    }

    fn pool(network: Option<&str>) -> FloatingIPPool {
        let notes = network.map(|network| json!({ "fipd.io/network": network }));
        let range = json!({ "start": "10.0.0.5", "end": "10.0.0.6" });
        let pool = serde_json::from_value(json!({
            "metadata": { "name": "web", "uid": "u-web", "annotations": notes },
            "spec": {
                "ipConfig": { "subnet": "10.0.0.0/24", "pool": range },
                "targetCluster": "hv", "targetNetwork": "vlan7",
            },
        }));
        pool.expect("a pool")
    }

    async fn allocate(ipam: &Ipam, pool: &Pool, address: [u8; 4]) -> Result<Answer, IpamError> {
        let allocate = Allocate {
            holder: Holder {
                identity: "rancher-fip/X/FloatingIP//b".parse().expect("an identity"),
                instance: "u-b".into(),
            },
            tenant: Some(Tenant("p-1".into())),
            wants: vec![Want {
                pool: Choice::Pool(pool.id),
                address: Some(address.into()),
                count: 1,
            }],
            waiting_since: None,
            by_admin: false,
            share: None,
            probe: false,
            actor: "test".into(),
        };
        ipam.submit(Request::Allocate(allocate)).await
    }

    #[tokio::test]
    async fn addresses_in_use_of_a_pool_whose_vlan_is_read_late_are_never_given_again() {
        let rules = "[[network]]\nname = \"blue\"\nmatch = [{ vlan = 7 }]\n";
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let server = Arc::<Mutex<FakeApi>>::default();
        let config = Config::parse(rules, Path::new("/")).expect("a configuration");
        let session = testing::session_under(client(&server), &ipam, config).await;
        let site = Arc::new(Site::new(session, System::rancher_fip()));
        let remote = Remote::new(site.session.client.clone());
        let data = Data::new(site.id.clone(), remote, site.cancel());
        let attachments = Attachments::new(Box::new(Dead), site.memory());
        let _ = data.attachments.set(attachments);
        let quiet = || std::future::ready(());
        let events = Events::start(site.session.recorder.clone(), site.cancel(), quiet);
        let events = Arc::new(events);
        let context = data.context(POOL, &site, &events, &data.pools);
        let pools = FloatingIpPools::new(context, FloatingIpPoolSource::new(&site, &data));
        let context = data.context(FLOATING_IP, &site, &events, &data.fips);
        let fips =
            floating_ip::controller(context, Ranchers::default().get("x"), Arc::clone(&data));

        let (pool_key, key) = (Key::new("", "web"), Key::new("", "a"));
        data.pools.set(&pool_key, pool(None));
        let fip = json!({
            "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIP",
            "metadata": { "labels": { PROJECT: "p-1" } },
            "spec": { "floatingIPPool": "web" }, "status": { "ipAddr": "10.0.0.5" },
        });
        server.lock().make(&key, fip);
        let object = serde_json::from_value(server.lock().object(&key)).expect("an object");
        data.fips.set(&key, floating_ip::observe::slim(object));
        let mirror = || ipam.read(|ledger| site.mirror_in(ledger, "web").cloned());
        let object = pool(None);
        let says = facts(&object);
        let facts = pool_facts(&site, &pool_key, &says, &PoolLink::NONE);
        let until_waiting = async {
            // The rules are known a moment after the start.
            while !site.session.rules_ask_for_vlan(&facts) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let within = Duration::from_secs(5);
        let known = tokio::time::timeout(within, until_waiting).await;
        assert!(known.is_ok(), "a rule asks for the VLAN");
        assert!(pools.define_all().await.is_ok());
        assert!(mirror().is_none(), "its network is not decided");

        let seen = AddressInventory(fips).list().await.expect("a list");
        assert_eq!(seen.len(), 1, "the object is there");
        assert_eq!(seen[0].uses, [], "no network is made up for it");

        // The network has adopted the cluster before the pool is in it.
        let name = Request::CreateNetwork {
            name: "blue".into(),
            actor: "test".into(),
        };
        let _ = ipam.submit(name).await;
        let blue = ipam.read(|ledger| ledger.network_by_name("blue").map(|one| one.id));
        let blue = blue.expect("a network");
        let marker = Adoption {
            network: blue,
            cluster: site.id.0.clone(),
            system: site.system.clone(),
            at: ipam.now(),
            skipped: false,
        };
        let actor = "test".into();
        let mark = Request::MarkAdopted { marker, actor };
        ipam.submit(mark).await.expect("a marker");
        data.pools.set(&pool_key, pool(Some("blue")));
        assert!(pools.define_all().await.is_ok());
        let pool = mirror().expect("a pool");
        assert_eq!(pool.spec.network, blue);
        let held = ipam.read(|ledger| {
            let address = [10, 0, 0, 5].into();
            ledger
                .lease(LeaseKey {
                    network: blue,
                    address,
                })
                .cloned()
        });
        let held = held.expect("a lease");
        assert_eq!(&*held.owner().expect("an owner").identity.name, "a");
        assert_eq!(held.pool, Some(pool.id), "it counts for the pool");
        let quota = Quota {
            pool: pool.id,
            tenant: Tenant("p-1".into()),
            limit: 9,
        };
        let actor = "test".into();
        let limited = ipam.submit(Request::SetQuota { quota, actor }).await;
        limited.expect("a quota");
        let again = allocate(&ipam, &pool, [10, 0, 0, 5]).await;
        let taken = matches!(
            &again,
            Err(IpamError::Refused(Refusal::AddressTaken { .. }))
        );
        assert!(taken, "{again:?}");
        let other = allocate(&ipam, &pool, [10, 0, 0, 6]).await;
        assert!(other.is_ok(), "{other:?}");
    }
}
