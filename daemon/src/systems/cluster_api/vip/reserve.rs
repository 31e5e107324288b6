//! An address that somebody else chose for a Cluster is kept from others.

use std::net::IpAddr;

use fipd_core::{LeaseKey, Ledger, NetworkId, PoolId, ReleaseScope};

use super::{
    VipController,
    choose::{VipPool, VipWish},
    drift,
    observe::CapiClusterView,
};
use crate::{
    controller::{
        Reconciled,
        store::Key,
        unserved::{Unserved, contended},
    },
    systems::cluster_api::{
        pool::growth::{is_of_copy, of_cluster},
        settings::ClusterApiSettings,
    },
};

impl VipController {
    /// Keeps an address that somebody else chose from others, where a pool has it.
    pub(super) async fn reserve(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
        address: IpAddr,
        fits: &[&VipPool],
    ) -> Reconciled<()> {
        // From the look at the pools on: one that appears meanwhile counts.
        let is_first = self.unplaced.lock().insert(key.clone());
        let Some(network) = self.network_of(address, &key.namespace, fits) else {
            return Ok(());
        };
        if is_first {
            self.unplaced.lock().remove(key);
        }
        let (site, place) = (&self.context.site, LeaseKey { network, address });
        let request = |ledger: &Ledger| of_cluster(ledger, site, (key, cluster), place);
        match self.context.read(request) {
            Some(request) => self.context.take_in(request).await,
            None => Ok(()),
        }
    }

    /// The same of all that a Cluster shows for which nothing else is done. What it has where it is moved from passes to its claims,
    /// which are yet to come.
    pub(super) async fn reserve_shown(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
    ) -> Reconciled<()> {
        let Some(class) = cluster.class_name() else {
            return Ok(());
        };
        let pools = self.pools();
        for (slot, address) in cluster.shown() {
            let wish = VipWish {
                slot,
                class,
                namespace: &key.namespace,
                family: None,
            };
            let fits = wish.candidates(&pools);
            let network = self.network_of(address, &key.namespace, &fits);
            let is_moved = |network| {
                let (site, place) = (&self.context.site, LeaseKey { network, address });
                (self.context).read(|ledger| is_of_copy(ledger, site, key, place))
            };
            if !network.is_some_and(is_moved) {
                self.reserve(key, cluster, address, &fits).await?;
            }
        }
        Ok(())
    }

    /// Gives back what the Cluster itself holds and shows nowhere: of an earlier Cluster of its name, and what its endpoint was before
    /// anything was built by it.
    pub(super) async fn release_unshown(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
    ) -> Reconciled<()> {
        let identity = self.context.identity(key);
        let held = self.context.read(|ledger| ledger.addresses_of(&identity));
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
        // An earlier Cluster of that name has nothing to do with it.
        held.retain(|lease| {
            let member = lease.member(&identity);
            member.is_some_and(|one| one.holder.instance == cluster.meta.uid)
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
        key: &Key,
        claim: &Key,
        address: IpAddr,
        fits: &[&VipPool],
    ) -> Option<Unserved> {
        let network = self.network_of(address, &key.namespace, fits)?;
        let own = [
            self.context.identity(key),
            self.claims.context.identity(claim),
        ];
        self.context.read(|ledger| {
            let lease = ledger.lease_around(LeaseKey { network, address })?;
            let is_own = own.iter().any(|identity| lease.held_by(identity));
            (!is_own && lease.owner().is_some()).then(|| contended(lease))
        })
    }

    /// The network of the first pool of its class that has the address, else of any pool that its namespace may use.
    pub(super) fn network_of(
        &self,
        address: IpAddr,
        namespace: &str,
        fits: &[&VipPool],
    ) -> Option<NetworkId> {
        let site = &self.context.site;
        let settings = site.settings::<ClusterApiSettings>();
        let near = |key: &Key| key.namespace.is_empty() || *key.namespace == *namespace;
        let stores = self.claims.user.pools.iter();
        let visible = stores.flat_map(|(_, pools)| pools.keys()).filter(near);
        let fits = fits.iter().map(|pool| pool.key.clone());
        self.context.read(|ledger| {
            let mirror = |key: Key| site.mirror_in(ledger, &key.to_string());
            let mirrors = fits.chain(visible).filter_map(mirror);
            let mapped = || match settings.network_per_namespace {
                true => Default::default(),
                false => site.session.networks(&site.system),
            };
            // Mostly the first has it, and no other is looked at.
            let others = std::iter::once_with(mapped).flatten();
            let mut networks = mirrors.map(|pool| pool.spec.network).chain(others);
            networks.find(|network| {
                let key = LeaseKey {
                    network: *network,
                    address,
                };
                ledger.pool_in_range(key).is_some()
            })
        })
    }
}
