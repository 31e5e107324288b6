//! The addresses that claims show, taken into the address book before anything new is given.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fipd_core::{Holder, Identity, LeaseKey, NetworkId, Text};
use fipd_crds::fipd_io::AddressClaim;
use futures::future::BoxFuture;
use kube::{Api, api::ListParams};

use super::observe::{self, Claim};
use crate::{
    clusters::{
        CallError,
        absence::Presence,
        adoption::{Inventory, Sighting, complete_list},
        lenient::Lenient,
    },
    config::PoolFacts,
    controller::{client::Remote, site::Site, store::Key},
    systems::claims::names::{self, CLAIM, FINALIZER},
};

/// What a cluster has of claims.
pub struct ClaimInventory {
    site: Arc<Site>,
    remote: Remote,
}

impl ClaimInventory {
    pub fn new(site: Arc<Site>) -> Self {
        let remote = Remote::new(site.session.client.clone());
        Self { site, remote }
    }

    async fn sightings(&self) -> Result<Vec<Sighting>, CallError> {
        let session = &self.site.session;
        let api: Api<Lenient<AddressClaim>> = Api::all(session.client.clone());
        let what = "list AddressClaims";
        let keep = |object| Some(understood(object));
        let claims = complete_list(session, &api, ListParams::default(), what, keep).await?;
        let mut networks = BTreeMap::new();
        for (key, claim) in &claims {
            let name = claim.status.network.as_str();
            if claim.recorded().is_some() && !networks.contains_key(name) {
                networks.insert(name.to_owned(), self.network(key, name).await?);
            }
        }
        let sighting = |(key, claim): &(Key, Claim)| {
            let network = networks.get(&claim.status.network);
            self.sighting(key, claim, network.copied().unwrap_or(NetworkId::DEFAULT))
        };
        Ok(claims.iter().map(sighting).collect())
    }

    /// The network that claims show, made if an earlier store knew it and this one does not. From then on it waits for
    /// this cluster.
    async fn network(&self, key: &Key, name: &str) -> Result<NetworkId, CallError> {
        let facts = PoolFacts {
            cluster: &self.site.session.names,
            system: &self.site.system,
            namespace: None,
            interface: None,
            vlan: None,
            pool: &key.name,
            annotation: Some(name).filter(|name| !name.is_empty()),
        };
        let known = self.site.ipam.read(|ledger| {
            let network = ledger.network_by_name(name)?;
            let adopted = ledger.truly_adopted(network.id, &self.site.id, &self.site.system);
            adopted.then_some(network.id)
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let found = self.site.session.network_of(&facts).await;
        found.map(|(network, _)| network).map_err(|error| {
            let source = kube::Error::Service(error.to_string().into());
            CallError::Api {
                what: format!("find network {name:?}"),
                source,
            }
        })
    }

    fn sighting(&self, key: &Key, claim: &Claim, network: NetworkId) -> Sighting {
        let used = claim.recorded().filter(|_| {
            let over = claim.meta.deleted.is_some() && !claim.meta.has_finalizer(FINALIZER);
            let (id, system) = (&self.site.id, &self.site.system);
            let adopted = |ledger: &fipd_core::Ledger| ledger.truly_adopted(network, id, system);
            !over && !self.site.ipam.read(adopted)
        });
        Sighting {
            holder: Holder {
                identity: names::identity(&self.site.id, key),
                instance: Text::clone(&claim.meta.uid),
            },
            tenant: Some(names::tenant(&self.site.name, &key.namespace)),
            uses: used
                .map(|address| LeaseKey { network, address })
                .into_iter()
                .collect(),
            since: claim.meta.created,
        }
    }
}

/// One that does not fit its schema is there all the same.
fn understood(object: Lenient<AddressClaim>) -> (Key, Claim) {
    let object = object.0.unwrap_or_else(|invalid| AddressClaim {
        metadata: invalid.metadata,
        ..AddressClaim::default()
    });
    (Key::of(&object.metadata), observe::slim(object))
}

impl Inventory for ClaimInventory {
    fn kinds(&self) -> BTreeSet<&'static str> {
        BTreeSet::from([CLAIM.kind])
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>, CallError>> {
        Box::pin(self.sightings())
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Presence> {
        Box::pin(async move {
            self.remote
                .presence(&CLAIM.target(&names::key(identity)))
                .await
        })
    }
}
