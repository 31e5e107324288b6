//! The addresses that objects show, taken into the ledger before anything new is allocated.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fipd_core::{Holder, Identity, LeaseKey, NetworkId};
use futures::future::BoxFuture;
use kube::{Resource, api::ListParams};

use super::{
    AddressController, AddressHooks, AddressUser, ShownAddress, ShownNetwork, settle::holds_any,
};
use crate::{
    clusters::{
        CallError,
        absence::Presence,
        adoption::{Inventory, Sighting, complete_list},
        lenient::Lenient,
    },
    controller::{meta::View, store::Key},
};

/// What a cluster has of the objects of a kind.
pub struct AddressInventory<U: AddressUser>(pub Arc<AddressController<U>>);

impl<U: AddressHooks> AddressInventory<U> {
    async fn sightings(&self) -> Result<Vec<Sighting>, CallError> {
        let context = &self.0.context;
        let session = &context.site.session;
        let api = context.kind().all_as::<U::Raw>(session.client.clone());
        let what = format!("list {}s", U::KIND.kind);
        let keep = |object| Some(self.seen(object));
        let seen = complete_list(session, &api, ListParams::default(), &what, keep).await?;
        let mut networks = BTreeMap::new();
        let mut sightings = Vec::with_capacity(seen.len());
        for (key, own, shown) in seen {
            let Some(ShownAddress {
                address,
                length,
                network,
                user,
            }) = shown
            else {
                sightings.push(own);
                continue;
            };
            let network = match network {
                ShownNetwork::Known(network) => network,
                ShownNetwork::Named(name) => match networks.get(&name).copied() {
                    Some(network) => network,
                    None => {
                        let network = self.network(&key, &name).await?;
                        *networks.entry(name).or_insert(network)
                    }
                },
            };
            let key = LeaseKey { network, address };
            let shown = key.prefix(length);
            let counts = !self.is_adopted(network) || self.may_be_of_others(&own.holder);
            let uses: Vec<_> = counts.then_some(shown).into_iter().collect();
            let Some(holder) = user else {
                sightings.push(Sighting { uses, ..own });
                continue;
            };
            let user = Sighting {
                holder,
                uses,
                ..own.clone()
            };
            sightings.extend([own, user]);
        }
        let uses = sightings.iter().flat_map(|one: &Sighting| &one.uses);
        let shown = uses.map(|prefix| prefix.key).collect();
        sightings.extend(U::unshown(&self.0, &shown));
        Ok(sightings)
    }

    /// The object without its address, and what it shows. One that does not fit its schema is there all the same.
    fn seen(&self, object: Lenient<U::Raw>) -> (Key, Sighting, Option<ShownAddress>) {
        let context = &self.0.context;
        let key = Key::of(object.meta());
        let view = match object.0 {
            Ok(object) => U::view(object),
            Err(invalid) => U::bare_view(invalid.metadata),
        };
        let meta = view.meta();
        let over = meta.is_terminating() && !meta.has_finalizer(U::FINALIZER);
        let shown = context.read(|ledger| {
            let user = &self.0.user;
            user.shown(ledger, &context.site, &key, &view)
        });
        let own = Sighting {
            holder: context.holder(&key, &meta.uid),
            tenant: U::tenant(&context.site, &key, &view),
            uses: Vec::new(),
            since: meta.created,
        };
        (key, own, shown.filter(|_| !over))
    }

    /// Whether another program may have allocated what the object shows.
    fn may_be_of_others(&self, holder: &Holder) -> bool {
        let has_none = || !self.0.context.read(|ledger| holds_any(ledger, holder));
        U::OTHERS_ALLOCATE && has_none() && !self.0.released.has(&holder.instance)
    }

    /// Whether the network has adopted this cluster: from then on the ledger alone decides.
    fn is_adopted(&self, network: NetworkId) -> bool {
        let site = &self.0.context.site;
        site.ipam
            .read(|ledger| ledger.truly_adopted(network, &site.id, &site.system))
    }

    /// The network of that name, made if an earlier store knew it and this one does not. From then on it waits for
    /// this cluster.
    async fn network(&self, key: &Key, name: &str) -> Result<NetworkId, CallError> {
        let site = &self.0.context.site;
        let known = site
            .ipam
            .read(|ledger| ledger.network_by_name(name).map(|network| network.id));
        if let Some(known) = known.filter(|network| self.is_adopted(*network)) {
            return Ok(known);
        }
        let name = Some(name).filter(|name| !name.is_empty());
        let expected = site.expect_network(&key.name, name).await;
        expected.map_err(|error| CallError::Api {
            what: format!("find network {name:?}"),
            source: kube::Error::Service(error.to_string().into()),
        })
    }
}

impl<U: AddressHooks> Inventory for AddressInventory<U> {
    fn kinds(&self) -> BTreeSet<&'static str> {
        BTreeSet::from([U::KIND.kind])
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>, CallError>> {
        Box::pin(self.sightings())
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Presence> {
        let target = self.0.context.kind().target(&Key::of_identity(identity));
        Box::pin(async move { self.0.context.remote.presence(&target).await })
    }

    fn heir(&self, _gone: &Holder, key: LeaseKey) -> Option<Holder> {
        U::heir(&self.0, key)
    }
}
