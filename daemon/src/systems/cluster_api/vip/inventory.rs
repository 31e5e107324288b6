//! Addresses that Clusters show without a claim: somebody else chose them, or their claim is gone. They are adopted like those
//! of claims, before anything new is allocated.

use std::net::IpAddr;

use fipd_core::{LeaseKey, LeasePrefix, Ledger};
use fipd_crds::cluster_api::Cluster;
use kube::{Resource as _, api::ListParams};

use super::{
    choose::{VipPool, VipSlot},
    controller::VipController,
    observe::CapiClusterView,
    write::claim_key,
};
use crate::{
    clusters::{
        CallError,
        absence::Presence,
        adoption::{Sighting, complete_list},
        lenient::Lenient,
    },
    controller::{meta::Meta, store::Key},
    systems::cluster_api::{
        claim::wish::sort_of,
        pool::growth::{claimed, is_claimed, is_of_other},
    },
};

impl VipController {
    /// Every Cluster that is there, from a complete list.
    pub async fn sightings(&self) -> Result<Vec<Sighting>, CallError> {
        let context = &self.context;
        let session = &context.site.session;
        match context.kind.served(&context.remote).await {
            Ok(Some(_)) => {}
            // A cluster without Clusters.
            Ok(None) => return Ok(Vec::new()),
            Err(error) => {
                let what = error.to_string();
                let source = kube::Error::Service(what.clone().into());
                return Err(CallError::Api { what, source });
            }
        }
        let api = context.kind().all_as::<Cluster>(session.client.clone());
        let pools = self.pools();
        let claimed = claimed(&context.site, &self.claims.user.addresses);
        let keep = |cluster: Lenient<Cluster>| {
            let (key, meta) = (Key::of(cluster.meta()), Meta::of(cluster.meta()));
            let view = cluster.0.ok().map(CapiClusterView::of);
            let uses = view.map_or_else(Vec::new, |view| {
                let mut uses = self.uses(&key, &view, &pools);
                uses.retain(|one| {
                    let address = one.key.address;
                    view.class_name().is_some()
                        || self.is_allocated_by_other((&key, &view), address)
                        || !is_claimed(&claimed, &key, address)
                });
                uses
            });
            Some(Sighting {
                holder: context.holder(&key, &meta.uid),
                tenant: Some(context.site.tenant_of(&key.namespace)),
                uses,
                since: meta.created,
            })
        };
        complete_list(session, &api, ListParams::default(), "list Clusters", keep).await
    }

    /// What the Cluster shows or is about to show in the pools that are known, but for what its claims hold.
    pub(super) fn uses(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
        pools: &[VipPool],
    ) -> Vec<LeasePrefix> {
        let site = &self.context.site;
        // Of one that is being deleted the claims may be gone before this look at it is over. A first look takes in what it shows.
        let is_over = |network| {
            let adopted = |ledger: &Ledger| ledger.truly_adopted(network, &site.id, &site.system);
            cluster.meta.is_terminating() && self.context.read(adopted)
        };
        // What another provider allocated for a claim counts before the Cluster shows it.
        let allocated = VipSlot::ALL.into_iter().filter_map(|slot| {
            let (_, address) = self.allocated_by_other((key, cluster), slot)?;
            Some((slot, address)).filter(|_| !cluster.shows(address))
        });
        let own = cluster
            .shown()
            .chain(allocated)
            .filter_map(|(slot, address)| {
                let address = Some(address).filter(|one| self.claimed(key, slot) != Some(*one))?;
                let network = self.network_of((key, cluster), slot, address, pools)?;
                let place = LeaseKey { network, address };
                let is_of_other = |ledger: &Ledger| is_of_other(ledger, site, cluster, place);
                let is_left = is_over(network) || self.context.read(is_of_other);
                (!is_left).then(|| LeasePrefix::from(place))
            });
        own.collect()
    }

    /// The address of the claim of a role, be it that only its IPAddress is there yet. What another provider allocated is the claim's
    /// where fipd served that before.
    fn claimed(&self, key: &Key, slot: VipSlot) -> Option<IpAddr> {
        let name = claim_key(key, slot);
        let there = self.claims.user.addresses.get(&name)?;
        let address = there.address?;
        let identity = self.claims.context.identity(&name);
        let has = |ledger: &Ledger| {
            let leases = ledger.leases_of(&identity);
            leases.iter().any(|lease| lease.key.address == address)
        };
        let is_served = sort_of(&there.pool, self.context.site.settings()).is_some();
        (is_served || self.context.read(has)).then_some(address)
    }

    /// Whether the Cluster is there, by a fresh read.
    pub async fn presence(&self, key: &Key) -> Presence {
        let target = self.context.kind().target(key);
        self.context.remote.presence(&target).await
    }
}
