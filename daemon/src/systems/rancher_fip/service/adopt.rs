//! The addresses that Services show, taken into the address book before anything new is given.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use fipd_core::{Holder, Identity, LeaseKey, Ledger, NetworkId, Origin, Pool};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::{Api, Resource as _, api::ListParams};

use super::{
    Services, fresh_read,
    observe::{self, Projects, Svc},
    validate,
};
use crate::{
    clusters::{
        CallError,
        absence::Presence,
        adoption::{Inventory, Sighting, complete_list},
        lenient::Lenient,
    },
    controller::{kind::SERVICE, store::Key},
    systems::rancher_fip::{
        Site,
        names::{self, KIND_SERVICE, STATIC_NETWORK, ServiceRef},
        rancher::Guest as _,
    },
};

/// What a downstream cluster has of Services.
pub struct ServiceInventory {
    site: Arc<Site>,
    services: Arc<Services>,
}

impl ServiceInventory {
    pub fn new(services: Arc<Services>) -> Self {
        let site = Arc::clone(&services.context.site);
        Self { site, services }
    }

    async fn sightings(&self) -> Result<Vec<Sighting>, CallError> {
        let session = &self.site.session;
        let api: Api<Lenient<Namespace>> = Api::all(session.client.clone());
        let what = "list namespaces";
        let keep = |namespace: Lenient<Namespace>| {
            let meta = namespace.0.ok()?.metadata;
            let projects = observe::projects(&meta);
            Some((meta.name.unwrap_or_default(), projects))
        };
        let projects = complete_list(session, &api, ListParams::default(), what, keep).await?;
        let projects: BTreeMap<String, Projects> = projects.into_iter().collect();
        let api: Api<Lenient<Service>> = Api::all(session.client.clone());
        let what = "list Services";
        let keep = |service: Lenient<Service>| {
            let key = Key::of(service.meta());
            let svc = match service.0 {
                Ok(service) => {
                    let identity = names::identity(&self.site.id, KIND_SERVICE, &key);
                    Some(observe::all(service)).filter(|svc| self.keeps(&identity, svc))?
                }
                Err(invalid) => Svc {
                    uid: invalid.metadata.uid.unwrap_or_default().into(),
                    ..Svc::default()
                },
            };
            Some(self.sighting(&key, &svc, &projects))
        };
        complete_list(session, &api, ListParams::default(), what, keep).await
    }

    /// An owner of leases counts as gone where another that is not served has its name.
    fn keeps(&self, identity: &Identity, svc: &Svc) -> bool {
        let held = self.site.ipam.read(|ledger| ledger.leases_of(identity));
        fresh_read::keeps(svc, self.services.settings.class_less, identity, &held)
    }

    async fn presence(&self, identity: &Identity) -> Presence {
        let target = SERVICE.target(&names::key(identity));
        match fresh_read::read(&self.services.context.remote, &target).await {
            Ok(Some(svc)) if self.keeps(identity, &svc) => Presence::Present,
            Ok(_) => Presence::Gone,
            Err(_) => Presence::Unknown,
        }
    }

    fn sighting(&self, key: &Key, svc: &Svc, projects: &BTreeMap<String, Projects>) -> Sighting {
        let settings = &self.services.settings;
        let (app, own) = (
            projects.get(&*settings.app_namespace),
            projects.get(&*key.namespace),
        );
        let project = validate::project(settings.project.as_deref(), app, own, &key.namespace).ok();
        let cluster = self.services.rancher_cluster();
        Sighting {
            holder: self.services.service(key, &svc.uid).holder(),
            tenant: project.map(|project| project.tenant),
            uses: self.uses(cluster.as_deref(), key, svc),
            since: svc.created,
        }
    }

    /// The addresses of ours that a Service shows, in networks that still wait for this cluster.
    fn uses(&self, cluster: Option<&str>, key: &Key, svc: &Svc) -> Vec<LeaseKey> {
        let class_less = self.services.settings.class_less;
        let living = Svc {
            terminating: false,
            ..svc.clone()
        };
        if !validate::is_ours(&living, class_less, false) && !svc.is_marked() {
            return Vec::new();
        }
        let ipam = &self.site.ipam;
        let place = |address| ipam.read(|ledger| self.place(ledger, cluster, key, svc, address));
        let shown: BTreeSet<IpAddr> = svc.addresses().into_iter().collect();
        shown.into_iter().filter_map(place).collect()
    }

    fn place(
        &self,
        ledger: &Ledger,
        cluster: Option<&str>,
        key: &Key,
        svc: &Svc,
        address: IpAddr,
    ) -> Option<LeaseKey> {
        let place = LeaseKey {
            network: self.network(ledger, svc, address),
            address,
        };
        let adopted = ledger.truly_adopted(place.network, &self.site.id, &self.site.system);
        let of_its_fip = self.keeps_for(cluster, key, address);
        (!adopted && !of_its_fip).then_some(place)
    }

    /// Whether a FloatingIP that another program made for this Service has the address; it is adopted for that, and
    /// the Service takes it over. Where it is not known what Rancher calls the cluster, the Service's name decides.
    fn keeps_for(&self, cluster: Option<&str>, service: &Key, address: IpAddr) -> bool {
        let Some(data) = self.services.rancher.data() else {
            return false;
        };
        let made = data.stock.made_for(cluster, service);
        let mut fips = made.iter().filter_map(|key| data.fips.get(key));
        fips.any(|fip| {
            fip.recorded() == Some(address) && (fip.meta.deleted.is_none() || fip.has_finalizer())
        })
    }

    /// The network of an address: of the pool the Service names, else of the mirror that has the address, else
    /// the default one.
    fn network(&self, ledger: &Ledger, svc: &Svc, address: IpAddr) -> NetworkId {
        let named = svc.mark(STATIC_NETWORK);
        let of_rancher = |pool: &&Arc<Pool>| match &pool.spec.origin {
            Origin::Mirror { cluster, .. } => {
                let data = self.services.rancher.data();
                data.is_none_or(|data| data.cluster == *cluster)
            }
            Origin::Own => false,
        };
        let is_named = |pool: &Arc<Pool>| super::placement::object(pool) == named;
        let mut having = ledger.pools_on_link(address);
        having.retain(of_rancher);
        having.sort_by_key(|pool| !is_named(pool));
        having
            .first()
            .map_or(NetworkId::DEFAULT, |pool| pool.spec.network)
    }
}

impl Inventory for ServiceInventory {
    fn kinds(&self) -> BTreeSet<&'static str> {
        BTreeSet::from([KIND_SERVICE])
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>, CallError>> {
        Box::pin(self.sightings())
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Presence> {
        Box::pin(self.presence(identity))
    }

    /// Another Service that shows the address comes first: they shared it under a FloatingIP that is gone.
    fn heir(&self, holder: &Holder, key: LeaseKey) -> Option<Holder> {
        let gone = ServiceRef::of(holder)?;
        let user = self.services.shows(key.address);
        let user = user.filter(|user| user.key != gone.key);
        user.map(|user| user.holder())
            .or_else(|| self.services.heir_of(&gone, key))
    }
}
