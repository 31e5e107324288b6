//! What IPAddresses show, taken into the ledger before anything new is allocated: those of claims, and those without.

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::{Identity, LeaseKey, Ledger, NetworkId, Text};
use futures::future::BoxFuture;

use fipd_crds::cluster_api::PoolRef;

use super::{
    IpClaimController,
    ip_address::is_served,
    left,
    observe::AddressView,
    wish::{self, PoolSort},
};
use crate::{
    clusters::{
        CallError,
        absence::Presence,
        adoption::{Inventory, Sighting},
    },
    controller::{
        address_user::{ShownAddress, ShownNetwork, inventory::AddressInventory},
        site::Site,
        store::Key,
    },
    systems::cluster_api::{
        names::CLUSTER, pool::own_network_name, settings::ClusterApiSettings, vip::VipController,
    },
};

/// The address or prefix of an IPAddress, in the network of its pool.
pub fn shown(
    ledger: &Ledger,
    site: &Site,
    namespace: &str,
    there: &AddressView,
) -> Option<ShownAddress> {
    let address = there.address?;
    wish::sort_of(&there.pool, site.settings())?;
    let pool = wish::pool(ledger, site, namespace, &there.pool).ok();
    let network = match &pool {
        Some(pool) => ShownNetwork::Known(pool.spec.network),
        None => own_network(site, namespace, &there.pool),
    };
    let length = pool.and_then(|pool| {
        let network = pool.spec.network;
        let prefix = pool.spec.prefix_at(LeaseKey { network, address });
        prefix.explicit_length()
    });
    Some(ShownAddress {
        address,
        length,
        network,
        user: None,
    })
}

/// The network of a pool that nothing is known of but its name.
fn own_network(site: &Site, namespace: &str, pool: &PoolRef) -> ShownNetwork {
    let settings = site.settings::<ClusterApiSettings>();
    let own = match wish::sort_of(pool, settings) {
        Some(PoolSort::InCluster(kind)) if kind.namespaced => {
            own_network_name(settings, site, namespace)
        }
        Some(_) | None => None,
    };
    own.map_or(ShownNetwork::Known(NetworkId::DEFAULT), ShownNetwork::Named)
}

/// What a cluster has of claims and IPAddresses.
pub struct IpamInventory {
    pub claims: AddressInventory<super::IpClaims>,
    vips: Arc<VipController>,
}

impl IpamInventory {
    pub fn new(claims: &Arc<IpClaimController>, vips: &Arc<VipController>) -> Self {
        Self {
            claims: AddressInventory(Arc::clone(claims)),
            vips: Arc::clone(vips),
        }
    }

    /// IPAddresses whose claims are not there, made in advance or cooling, or that another provider made.
    fn orphans(&self, claimed: &BTreeSet<Identity>) -> Vec<Sighting> {
        let controller = &self.claims.0;
        let (context, site) = (&controller.context, &controller.context.site);
        let all = controller.user.addresses.all().into_iter();
        let orphans = all.filter_map(|(key, there)| {
            let holder = context.holder(&key, &Text::from(""));
            if left::is_left(site, &there) {
                return Some(Sighting {
                    holder,
                    tenant: Some(site.tenant_of(&key.namespace)),
                    uses: left::unknown(controller, &key, &there)
                        .into_iter()
                        .collect(),
                    since: there.meta.created,
                });
            }
            if claimed.contains(&holder.identity) || !is_served(site, &key, &there) {
                return None;
            }
            let found = context.read(|ledger| {
                let found = shown(ledger, site, &key.namespace, &there)?;
                // The network of a pool that is not known yet is not made for an IPAddress without a claim.
                let ShownNetwork::Known(network) = found.network else {
                    return Some(None);
                };
                let place = LeaseKey {
                    network,
                    address: found.address,
                };
                // What cools is not in use; what nobody has may have been allocated by another program.
                let unknown =
                    there.grace_ends.is_none() && ledger.leases_of(&holder.identity).is_empty();
                let adopted = ledger.truly_adopted(network, &site.id, &site.system) && !unknown;
                Some((!adopted).then(|| place.prefix(found.length)))
            })?;
            Some(Sighting {
                holder,
                tenant: Some(site.tenant_of(&key.namespace)),
                uses: found.into_iter().collect(),
                since: there.meta.created,
            })
        });
        orphans.collect()
    }
}

impl Inventory for IpamInventory {
    fn kinds(&self) -> BTreeSet<&'static str> {
        let mut kinds = self.claims.kinds();
        kinds.insert(CLUSTER.kind);
        kinds
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>, CallError>> {
        Box::pin(async {
            let mut sightings = self.claims.list().await?;
            let claimed = sightings.iter().map(|one| one.holder.identity.clone());
            let orphans = self.orphans(&claimed.collect());
            sightings.extend(orphans);
            sightings.extend(self.vips.sightings().await?);
            Ok(sightings)
        })
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Presence> {
        Box::pin(async move {
            if *identity.kind == *CLUSTER.kind {
                return self.vips.presence(&Key::of_identity(identity)).await;
            }
            let claim = self.claims.read(identity).await;
            let key = Key::of_identity(identity);
            let there = self.claims.0.user.addresses.seen(&key).is_some();
            match there && matches!(claim, Presence::Gone) {
                true => Presence::Present,
                false => claim,
            }
        })
    }
}
