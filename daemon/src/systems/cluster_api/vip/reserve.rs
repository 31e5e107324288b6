//! An address that somebody else chose for a Cluster is kept from others.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{LeaseKey, Ledger, NetworkId, PoolId, ReleaseScope};

use super::{
    VipController,
    choose::{VipPool, VipSlot, VipWish},
    drift,
    observe::CapiClusterView,
    write::claim_key,
};
use crate::{
    controller::{
        Reconciled,
        kind::Kind,
        store::Key,
        unserved::{Unserved, contended},
        waiters::Cause,
    },
    systems::cluster_api::{
        claim::{
            observe::IpClaimView,
            wish::{pool_key, sort_of},
        },
        names::IN_CLUSTER,
        pool::{
            growth::{is_of_copy, is_of_other, of_cluster},
            network_by_rules, object_of,
        },
        settings::ClusterApiSettings,
    },
};

impl VipController {
    /// Keeps an address that somebody else chose from others, where a pool has it.
    pub(super) async fn reserve(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
        slot: VipSlot,
        address: IpAddr,
        pools: &[VipPool],
    ) -> Reconciled<()> {
        // From the look at the pools on: one that appears meanwhile counts.
        let is_first = self.unplaced.lock().insert(key.clone());
        let Some(network) = self.network_of((key, cluster), slot, address, pools) else {
            return Ok(());
        };
        if is_first {
            self.unplaced.lock().remove(key);
        }
        let place = LeaseKey { network, address };
        self.take_in((key, cluster), place).await
    }

    /// Takes an address into the address book that the Cluster shows.
    pub(super) async fn take_in(
        &self,
        of: (&Key, &CapiClusterView),
        place: LeaseKey,
    ) -> Reconciled<()> {
        let request = |ledger: &Ledger| of_cluster(ledger, &self.context.site, of, place);
        match self.context.read(request) {
            Some(request) => self.context.take_in(request).await,
            None => Ok(()),
        }
    }

    /// The same of what another provider allocated for the claims of a Cluster, before the Cluster shows it: the address book has
    /// no leases of those claims.
    pub(super) async fn reserve_allocated(
        &self,
        of: (&Key, &CapiClusterView),
        pools: &[VipPool],
    ) -> Reconciled<()> {
        for slot in VipSlot::ALL {
            if let Some((_, address)) = self.allocated_by_other(of, slot) {
                self.reserve(of, slot, address, pools).await?;
            }
        }
        Ok(())
    }

    /// The same of all that a Cluster shows for which nothing else is done. What it has where it is moved from passes to its claims,
    /// which are yet to come. What it waits for: an address that another object of its management cluster has.
    pub(super) async fn reserve_shown(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
    ) -> Reconciled<Option<Cause>> {
        let (site, pools) = (&self.context.site, self.pools());
        let mut cause = None;
        for (slot, address) in cluster.shown() {
            let network = self.network_of((key, cluster), slot, address, &pools);
            let place = network.map(|network| LeaseKey { network, address });
            let is_moved =
                |place| (self.context).read(|ledger| is_of_copy(ledger, site, key, place));
            if !place.is_some_and(is_moved) {
                self.reserve((key, cluster), slot, address, &pools).await?;
            }
            let is_of_other = |place: &LeaseKey| {
                (self.context).read(|ledger| is_of_other(ledger, site, cluster, *place))
            };
            cause = cause.or(place.filter(is_of_other).map(Cause::Address));
        }
        Ok(cause)
    }

    /// The claim of an address of the Cluster that another provider has answered, and with what.
    pub(super) fn allocated_by_other(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
        slot: VipSlot,
    ) -> Option<(Arc<IpClaimView>, IpAddr)> {
        let name = claim_key(key, slot);
        let claim = self.claims.context.objects.get(&name)?;
        let is_served = sort_of(&claim.pool, self.context.site.settings()).is_some();
        if is_served || !claim.is_owned_by(&cluster.meta.uid) {
            return None;
        }
        let address = self.address_of(&name, &claim)?;
        Some((claim, address))
    }

    /// Whether another provider allocated the address for a claim of the Cluster.
    fn is_allocated_by_other(&self, of: (&Key, &CapiClusterView), address: IpAddr) -> bool {
        let mut all = VipSlot::ALL.into_iter();
        all.any(|slot| {
            let allocated = self.allocated_by_other(of, slot);
            allocated.is_some_and(|(_, one)| one == address)
        })
    }

    /// Gives back what the Cluster itself holds and neither shows nor is about to: of an earlier Cluster of its name, and what its
    /// endpoint was before anything was built by it. Nor does it contend for such any more: it would get it, and never use it.
    pub(super) async fn release_unshown(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
    ) -> Reconciled<()> {
        let identity = self.context.identity(key);
        let is_to_come = |address| self.is_allocated_by_other((key, cluster), address);
        let (mut held, contended) = self.context.read(|ledger| {
            let contended = ledger.contentions_of(&identity);
            (ledger.addresses_of(&identity), contended)
        });
        for lease in contended {
            let Some(contender) = lease.contender(&identity) else {
                continue;
            };
            let used = contender.used_of(lease.prefix()).map(|used| used.key);
            let is_left = |key: &LeaseKey| !cluster.shows(key.address) && !is_to_come(key.address);
            let left: Vec<_> = used.filter(is_left).collect();
            if !left.is_empty() {
                let scope = ReleaseScope::HolderAddresses(contender.holder.clone(), left);
                let reason = "the Cluster does not show the address any more";
                self.context.site.release(scope, reason).await?;
            }
        }
        held.retain(|lease| !is_to_come(lease.key.address));
        for lease in held {
            let Some(member) = lease.member(&identity) else {
                continue;
            };
            if let Some(reason) = drift::unneeded(cluster, &lease, &member.holder) {
                let scope = ReleaseScope::HolderAddresses(member.holder.clone(), vec![lease.key]);
                self.context.site.release(scope, reason).await?;
            }
        }
        Ok(())
    }

    /// The address that an endpoint without a claim had first, if it has another one now. What a pool gave that serves ingresses
    /// alone was of no endpoint.
    pub(super) fn replaced(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
        [endpoint, front]: [VipWish<'_>; 2],
        pools: &[VipPool],
    ) -> Option<IpAddr> {
        cluster.endpoint.as_ref()?;
        let identity = self.context.identity(key);
        let mut held = self.context.read(|ledger| ledger.addresses_of(&identity));
        // An earlier Cluster of that name has nothing to do with it, nor has what its claims have.
        held.retain(|lease| {
            let member = lease.member(&identity);
            member.is_some_and(|one| one.holder.instance == cluster.meta.uid)
                && !self.is_allocated_by_other((key, cluster), lease.key.address)
        });
        if held.is_empty() {
            // As with most: their claims hold what they show.
            return None;
        }
        let planes = endpoint.of_either().candidates(pools);
        let mut fronts = front.of_either().candidates(pools);
        fronts.retain(|pool| !planes.contains(pool));
        let fronts: Vec<PoolId> = self.context.read(|ledger| {
            let mirror = |pool: &&VipPool| {
                let mirror = self.context.site.mirror_in(ledger, &pool.key.to_string());
                mirror.map(|pool| pool.id)
            };
            fronts.iter().filter_map(mirror).collect()
        });
        drift::replaced(cluster, &held, |lease| {
            lease.pool.is_none_or(|pool| !fronts.contains(&pool))
        })
    }

    /// Who has an address in the place of the Cluster that shows it.
    pub(super) fn rival(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
        slot: VipSlot,
        address: IpAddr,
        pools: &[VipPool],
    ) -> Option<Unserved> {
        let network = self.network_of((key, cluster), slot, address, pools)?;
        let own = [
            self.context.identity(key),
            self.claims.context.identity(&claim_key(key, slot)),
        ];
        self.context.read(|ledger| {
            let lease = ledger.lease_around(LeaseKey { network, address })?;
            let is_own = own.iter().any(|identity| lease.held_by(identity));
            (!is_own && lease.owner().is_some()).then(|| contended(lease))
        })
    }

    /// The network of an address of the Cluster. What another provider allocated is in that of its pool. Else it is that of the first
    /// pool of its class that has the address, else of any pool that its namespace may use.
    pub(super) fn network_of(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
        slot: VipSlot,
        address: IpAddr,
        pools: &[VipPool],
    ) -> Option<NetworkId> {
        let namespace = &key.namespace;
        let has = |ledger: &Ledger, network| {
            let place = LeaseKey { network, address };
            ledger.pool_in_range(place).is_some()
        };
        let allocated = self.allocated_by_other((key, cluster), slot);
        if let Some((claim, _)) = allocated.filter(|(_, one)| *one == address) {
            let mut kinds = IN_CLUSTER.into_iter();
            let kind = kinds.find(|kind| *kind.kind == *claim.pool.kind);
            let network = kind.and_then(|kind| {
                self.network_of_pool(kind, &pool_key(kind, namespace, &claim.pool.name))
            });
            // Of a kind that fipd does not know, or a pool that is no pool now, nothing more is known than of any address.
            if let Some(network) = network {
                let has = self.context.read(|ledger| has(ledger, network));
                return has.then_some(network);
            }
        }
        let site = &self.context.site;
        let settings = site.settings::<ClusterApiSettings>();
        let wish = VipWish {
            slot,
            class: cluster.class_name().unwrap_or_default(),
            namespace,
            family: None,
        };
        let near = |key: &Key| key.namespace.is_empty() || key.namespace == *namespace;
        let stores = self.claims.user.pools.iter();
        let visible = stores.flat_map(|(_, pools)| pools.keys()).filter(near);
        let fits = wish.candidates(pools).into_iter();
        let fits = fits.filter_map(|pool| self.network_of_pool(pool.kind, &pool.key));
        let fits: Vec<NetworkId> = fits.collect();
        self.context.read(|ledger| {
            let mirror = |key: Key| site.mirror_in(ledger, &key.to_string());
            let mirrors = visible.filter_map(mirror).map(|pool| pool.spec.network);
            let mapped = || match settings.network_per_namespace {
                true => Default::default(),
                false => site.session.networks(&site.system),
            };
            // Mostly the first has it, and no other is looked at.
            let others = std::iter::once_with(mapped).flatten();
            let mut networks = fits.into_iter().chain(mirrors).chain(others);
            networks.find(|network| has(ledger, *network))
        })
    }

    /// The network of a pool object: by the rules, where another provider serves its kind.
    fn network_of_pool(&self, kind: Kind, key: &Key) -> Option<NetworkId> {
        let site = &self.context.site;
        let mirror = self.context.read(|ledger| {
            let mirror = site.mirror_in(ledger, &object_of(kind.plural, key))?;
            Some(mirror.spec.network)
        });
        let settings = site.settings::<ClusterApiSettings>();
        if mirror.is_some() || settings.serves_in_cluster_kinds() {
            return mirror;
        }
        let mut stores = self.claims.user.pools.iter();
        let (_, pools) = stores.find(|(one, _)| one.kind == kind.kind)?;
        let pool = pools.get(key)?;
        let name = network_by_rules(site, key, &pool);
        let network = |ledger: &Ledger| Some(ledger.network_by_name(&name)?.id);
        self.context.read(network)
    }
}
