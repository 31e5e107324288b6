//! An address that somebody else chose for a Cluster is kept from others.

use std::net::IpAddr;

use fipd_core::{LeaseKey, NetworkId};

use super::{VipController, choose::VipPool, observe::ClusterView};
use crate::{
    controller::{Reconciled, address_user::settle::AddressAsker, store::Key},
    ipam::IpamError,
};

impl VipController {
    /// Keeps an address that somebody else chose from others, where a pool has it.
    pub(super) async fn reserve(
        &self,
        key: &Key,
        cluster: &ClusterView,
        address: IpAddr,
        fits: &[&VipPool],
    ) -> Reconciled<()> {
        let holder = self.context.holder(key, &cluster.meta.uid);
        let Some(network) = self.network_of(address, fits) else {
            return Ok(());
        };
        let place = LeaseKey { network, address };
        let known = self.context.read(|ledger| {
            ledger.lease_around(place).is_some_and(|lease| {
                lease.held_by(&holder.identity) || lease.contender(&holder.identity).is_some()
            })
        });
        if known {
            return Ok(());
        }
        let asker = AddressAsker {
            holder,
            created: cluster.meta.created,
            actor: self.context.actor(),
        };
        let tenant = self.context.site.tenant_of(&key.namespace);
        match self
            .context
            .submit(asker.adopt(place.into(), Some(tenant)))
            .await
        {
            Ok(_) | Err(IpamError::Refused(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The network of the first pool of its class that has the address, else of any pool of the cluster that has.
    fn network_of(&self, address: IpAddr, fits: &[&VipPool]) -> Option<NetworkId> {
        let site = &self.context.site;
        self.context.read(|ledger| {
            let mirrors = fits
                .iter()
                .filter_map(|pool| site.mirror_in(ledger, &pool.key.to_string()));
            let mut networks: Vec<_> = mirrors.map(|pool| pool.spec.network).collect();
            networks.extend(site.session.networks(&site.system));
            networks.into_iter().find(|network| {
                let key = LeaseKey {
                    network: *network,
                    address,
                };
                ledger.pool_in_range(key).is_some()
            })
        })
    }
}
