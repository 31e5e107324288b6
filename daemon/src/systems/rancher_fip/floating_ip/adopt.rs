//! The addresses that FloatingIPs show, taken into the address book before anything new is given.

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::{Holder, Identity, LeaseKey, Ledger, NetworkId, Text};
use fipd_crds::floating_ip::FloatingIP;
use futures::future::BoxFuture;
use kube::{Api, api::ListParams};

use super::observe::{self, Fip};
use crate::{
    clusters::{
        CallError,
        absence::Presence,
        adoption::{Inventory, Sighting, complete_list},
        lenient::Lenient,
    },
    controller::{client::Remote, store::Key},
    systems::rancher_fip::{
        Site,
        kinds::FLOATING_IP,
        names::{self, KIND_FLOATING_IP, KIND_SERVICE},
        rancher::Rancher,
    },
};

/// What a management cluster has of FloatingIPs.
pub struct FloatingIpInventory {
    site: Arc<Site>,
    rancher: Arc<Rancher>,
    remote: Remote,
}

impl FloatingIpInventory {
    pub fn new(site: Arc<Site>, rancher: Arc<Rancher>) -> Self {
        let remote = Remote::new(site.session.client.clone());
        Self {
            site,
            rancher,
            remote,
        }
    }

    async fn sightings(&self) -> Result<Vec<Sighting>, CallError> {
        let session = &self.site.session;
        let api: Api<Lenient<FloatingIP>> = Api::all(session.client.clone());
        let what = "list FloatingIPs";
        let keep = |object| Some(self.sighting(object));
        let seen = complete_list(session, &api, ListParams::default(), what, keep).await?;
        Ok(seen.into_iter().flatten().collect())
    }

    /// The object itself, and where it shows a Service's lease, that Service as the user of the address.
    fn sighting(&self, object: Lenient<FloatingIP>) -> Vec<Sighting> {
        let (key, fip) = match object.0 {
            Ok(fip) => (Key::of(&fip.metadata), observe::slim(fip)),
            Err(invalid) => {
                let key = Key::of(&invalid.metadata);
                (
                    key,
                    observe::slim(FloatingIP {
                        metadata: invalid.metadata,
                        ..FloatingIP::default()
                    }),
                )
            }
        };
        let identity = names::identity(&self.site.id, KIND_FLOATING_IP, &key);
        let used = self
            .site
            .ipam
            .read(|ledger| self.used(ledger, &identity, &fip));
        let own = |uses| Sighting {
            holder: Holder {
                identity: identity.clone(),
                instance: Text::clone(&fip.meta.uid),
            },
            tenant: fip.project.clone(),
            uses,
            since: fip.meta.created,
        };
        match &fip.holder {
            None => vec![own(used.into_iter().collect())],
            Some(service) => {
                let shown = Sighting {
                    holder: service.holder(),
                    uses: used.into_iter().collect(),
                    ..own(Vec::new())
                };
                vec![own(Vec::new()), shown]
            }
        }
    }

    /// The address in use, if its network still waits for this cluster and its Service does not have it.
    fn used(&self, ledger: &Ledger, own: &Identity, fip: &Fip) -> Option<LeaseKey> {
        let address = fip.shown()?;
        if fip.meta.deleted.is_some() && !fip.has_finalizer() {
            return None;
        }
        let pool = self.site.mirror_in(ledger, &fip.pool);
        let network = pool.map_or(NetworkId::DEFAULT, |pool| pool.spec.network);
        let place = LeaseKey { network, address };
        if ledger.truly_adopted(network, &self.site.id, &self.site.system) {
            return None;
        }
        let owner = ledger.lease(place).and_then(|lease| lease.owner());
        let left_to_it = fip.holder.is_some() && owner.is_some_and(|owner| owner.identity == *own);
        let of_its_service = owner.is_some_and(|owner| {
            &*owner.identity.kind == KIND_SERVICE
                && fip.services.iter().any(|service| {
                    *service.service_namespace == *owner.identity.namespace
                        && *service.service_name == *owner.identity.name
                })
        });
        (!left_to_it && (!of_its_service || fip.holder.is_some())).then_some(place)
    }
}

impl Inventory for FloatingIpInventory {
    fn kinds(&self) -> BTreeSet<&'static str> {
        BTreeSet::from([KIND_FLOATING_IP])
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>, CallError>> {
        Box::pin(self.sightings())
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Presence> {
        Box::pin(async move {
            self.remote
                .presence(&FLOATING_IP.target(&names::key(identity)))
                .await
        })
    }

    /// An object that went without its finalizer leaves its lease to the Service of its project that shows the address.
    fn heir(&self, _gone: &Holder, key: LeaseKey) -> Option<Holder> {
        let lease = self.site.ipam.read(|ledger| ledger.lease(key).cloned())?;
        let tenant = lease.tenant.as_ref()?;
        let mut users = self.rancher.guests().into_iter().filter_map(|guest| {
            let service = guest.shows(key.address)?;
            let charged = guest.charged_to(&service);
            (charged.as_ref() == Some(tenant)).then(|| service.holder())
        });
        users.next()
    }
}
