//! An address that somebody else chose for a Cluster is kept from others.

use std::{collections::BTreeSet, iter, net::IpAddr, sync::Arc};

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
            left::{by_rules, network_of_pool},
            observe::IpClaimView,
            wish::{in_cluster_kind, pool_key, sort_of},
        },
        pool::growth::{is_of_copy, is_of_other, of_cluster},
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
    pub(super) fn is_allocated_by_other(
        &self,
        of: (&Key, &CapiClusterView),
        address: IpAddr,
    ) -> bool {
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
    /// pool of its class that has the address, else of any pool that its namespace may use, else one that its namespace stands for.
    pub(super) fn network_of(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
        slot: VipSlot,
        address: IpAddr,
        pools: &[VipPool],
    ) -> Option<NetworkId> {
        let namespace = &key.namespace;
        let has = |network: &NetworkId| {
            let network = *network;
            let place = LeaseKey { network, address };
            self.context
                .read(|ledger| ledger.pool_in_range(place).is_some())
        };
        let claims = &*self.claims;
        let of_pool = |kind: Kind, pool: &Key| network_of_pool(claims, kind, pool);
        let allocated = self.allocated_by_other((key, cluster), slot);
        if let Some((claim, _)) = allocated.filter(|(_, one)| *one == address) {
            let network = in_cluster_kind(&claim.pool)
                .and_then(|kind| of_pool(kind, &pool_key(kind, namespace, &claim.pool.name)));
            // Of a kind that fipd does not know, or a pool that is no pool now, nothing more is known than of any address.
            if network.is_some() {
                return network.filter(has);
            }
        }
        let wish = VipWish {
            slot,
            class: cluster.class_name().unwrap_or_default(),
            namespace,
            family: None,
        };
        let fits = wish.candidates(pools).into_iter();
        let fits = fits.filter_map(|pool| of_pool(pool.kind, &pool.key));
        let near = |key: &Key| key.namespace.is_empty() || key.namespace == *namespace;
        let visible = claims.user.pools.iter().flat_map(|(kind, pools)| {
            let (kind, keys) = (*kind, pools.keys().into_iter().filter(near));
            keys.filter_map(move |key| of_pool(kind, &key))
        });
        // Mostly the first has it, and no other is looked at.
        let others = iter::once_with(|| self.networks_of(namespace)).flatten();
        fits.chain(visible).chain(others).find(has)
    }

    /// The networks that an address of the namespace may be in, whichever pool has it.
    fn networks_of(&self, namespace: &str) -> BTreeSet<NetworkId> {
        let site = &self.context.site;
        match site.settings::<ClusterApiSettings>().network_per_namespace {
            true => {
                let own = by_rules(&self.claims, &Key::new(namespace, ""), None);
                own.into_iter().collect()
            }
            false => site.session.networks(&site.system),
        }
    }
}
