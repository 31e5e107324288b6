//! Addresses that Clusters show without a claim: somebody else chose them, or their claim is gone. They are adopted like those
//! of claims, before anything new is allocated.

use std::net::IpAddr;

use fipd_core::{LeaseKey, LeasePrefix};
use fipd_crds::cluster_api::Cluster;
use kube::{Resource as _, api::ListParams};

use super::{
    choose::{VipPool, VipSlot, VipWish},
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
        let keep = |cluster: Lenient<Cluster>| {
            let (key, meta) = (Key::of(cluster.meta()), Meta::of(cluster.meta()));
            let view = cluster.0.ok().map(CapiClusterView::of);
            let uses = view.map_or_else(Vec::new, |view| self.uses(&key, &view, &pools));
            Some(Sighting {
                holder: context.holder(&key, &meta.uid),
                tenant: Some(context.site.tenant_of(&key.namespace)),
                uses,
                since: meta.created,
            })
        };
        complete_list(session, &api, ListParams::default(), "list Clusters", keep).await
    }

    /// What the Cluster shows in the pools that are known, but for what its claims have.
    fn uses(&self, key: &Key, cluster: &CapiClusterView, pools: &[VipPool]) -> Vec<LeasePrefix> {
        // Of one that is being deleted the claims may be gone before this look at it is over.
        let living = cluster.class_name();
        let Some(class) = living.filter(|_| !cluster.meta.is_terminating()) else {
            return Vec::new();
        };
        let second = |text: &Option<String>| text.as_ref()?.parse::<IpAddr>().ok();
        let shown = [
            (VipSlot::ENDPOINT, cluster.host()),
            (VipSlot::INGRESS, cluster.ingress_host()),
            (
                VipSlot::SECOND_ENDPOINT,
                second(&cluster.second.control_plane),
            ),
            (VipSlot::SECOND_INGRESS, second(&cluster.second.ingress)),
        ];
        let namespace = &*key.namespace;
        let own = shown.into_iter().filter_map(|(slot, address)| {
            let address = address.filter(|address| self.claimed(key, slot) != Some(*address))?;
            let wish = VipWish {
                slot,
                class,
                namespace,
                family: None,
            };
            let network = self.network_of(address, namespace, &wish.candidates(pools))?;
            Some(LeasePrefix::from(LeaseKey { network, address }))
        });
        own.collect()
    }

    /// The address of the claim of a role, be it that only its IPAddress is there yet.
    fn claimed(&self, key: &Key, slot: VipSlot) -> Option<IpAddr> {
        self.claims
            .user
            .addresses
            .get(&claim_key(key, slot))?
            .address
    }

    /// Whether the Cluster is there, by a fresh read.
    pub async fn presence(&self, key: &Key) -> Presence {
        let target = self.context.kind().target(key);
        self.context.remote.presence(&target).await
    }
}
