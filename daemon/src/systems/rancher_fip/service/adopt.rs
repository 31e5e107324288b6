//! What the cluster says of addresses: those that Services show are taken into the address book before anything new is given, and
//! so is what was kept for them while it was not connected; and who uses an address whose FloatingIP is deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use fipd_core::{
    Holder, Identity, Lease, LeaseKey, LeasePrefix, Ledger, NetworkId, Origin, Pool, Tenant,
    Timestamp,
};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::{Api, Resource as _, api::ListParams};

use super::{
    Services,
    leases::{self, fresh},
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
    controller::{Reconciled, kind::SERVICE, store::Key},
    systems::rancher_fip::{
        Site,
        names::{self, KIND_SERVICE, STATIC_NETWORK, ServiceRef},
        rancher::Guest,
    },
};

/// What a downstream cluster has of Services.
pub struct ServiceInventory(pub Arc<Services>);

impl ServiceInventory {
    fn site(&self) -> &Site {
        &self.0.context.site
    }

    async fn sightings(&self) -> Result<Vec<Sighting>, CallError> {
        let session = &self.site().session;
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
                    let identity = names::identity(&self.site().id, KIND_SERVICE, &key);
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
        let held = self.site().ipam.read(|ledger| ledger.leases_of(identity));
        leases::keeps(svc, self.0.settings().class_less, identity, &held)
    }

    async fn presence(&self, identity: &Identity) -> Presence {
        let target = SERVICE.target(&names::key(identity));
        match leases::read(&self.0.context.remote, &target).await {
            Ok(Some(svc)) if self.keeps(identity, &svc) => Presence::Present,
            Ok(_) => Presence::Gone,
            Err(_) => Presence::Unknown,
        }
    }

    fn sighting(&self, key: &Key, svc: &Svc, projects: &BTreeMap<String, Projects>) -> Sighting {
        let settings = self.0.settings();
        let (app, own) = (
            projects.get(&*settings.app_namespace),
            projects.get(&*key.namespace),
        );
        let project = validate::project(settings.project.as_deref(), app, own, &key.namespace).ok();
        let cluster = self.0.rancher_cluster();
        Sighting {
            holder: self.0.service(key, &svc.uid).holder(),
            tenant: project.map(|project| project.tenant),
            uses: (self.uses(cluster.as_deref(), key, svc).into_iter())
                .map(LeasePrefix::from)
                .collect(),
            since: svc.created,
        }
    }

    /// The addresses of ours that a Service shows, in networks that still wait for this cluster.
    fn uses(&self, cluster: Option<&str>, key: &Key, svc: &Svc) -> Vec<LeaseKey> {
        let class_less = self.0.settings().class_less;
        let living = Svc {
            terminating: false,
            ..svc.clone()
        };
        if !validate::is_ours(&living, class_less, false) && !svc.is_marked() {
            return Vec::new();
        }
        let ipam = &self.site().ipam;
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
        let adopted = ledger.truly_adopted(place.network, &self.site().id, &self.site().system);
        let of_its_fip = self.keeps_for(cluster, key, address);
        (!adopted && !of_its_fip).then_some(place)
    }

    /// Whether a FloatingIP that another program made for this Service has the address; it is adopted for that, and
    /// the Service takes it over. Where it is not known what Rancher calls the cluster, the Service's name decides.
    fn keeps_for(&self, cluster: Option<&str>, service: &Key, address: IpAddr) -> bool {
        let Some(data) = self.0.rancher.data() else {
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
                let data = self.0.rancher.data();
                data.is_none_or(|data| data.cluster == *cluster)
            }
            Origin::Own => false,
        };
        let is_other = |pool: &Arc<Pool>| super::placement::object(pool) != named;
        let having = ledger.pools_on_link(address).filter(of_rancher);
        having
            .min_by_key(|pool| (is_other(pool), pool.id))
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
        let user = self.0.shows(key.address);
        let user = user.filter(|user| user.key != gone.key);
        user.map(|user| user.holder())
            .or_else(|| self.0.heir_of(&gone, key))
    }
}

/// The most Services that are read freshly for one address.
const READ: usize = 8;

impl Guest for Services {
    fn rancher_id(&self) -> Option<String> {
        self.rancher_cluster()
    }

    fn pools_changed(&self) {
        let keys = self.context.objects.keys();
        keys.into_iter().for_each(|key| self.follow_ups.add(key));
        self.context.queue_all();
    }

    fn fip_changed(&self, service: &Key) {
        self.follow_ups.add(service.clone());
    }

    fn stock_changed(&self, service: &Key) {
        self.context.queue.add(service.clone());
    }

    /// The oldest one that is not being deleted; else the oldest.
    fn shows(&self, address: IpAddr) -> Option<ServiceRef> {
        let mut using = self.context.objects.all();
        using.retain(|(_, svc)| svc.is_given(address));
        let (key, svc) = using
            .into_iter()
            .min_by(|(_, one), (_, other)| age(one).cmp(&age(other)))?;
        Some(self.service(&key, &svc.uid))
    }

    fn charged_to(&self, service: &ServiceRef) -> Option<Tenant> {
        let project = self.project(&service.key.namespace).ok()?;
        Some(project.tenant)
    }

    fn ask<'a>(
        &'a self,
        services: &'a [Key],
        address: IpAddr,
    ) -> BoxFuture<'a, Reconciled<Option<ServiceRef>>> {
        Box::pin(async move {
            for key in services.iter().take(READ) {
                let svc = fresh(&self.context, key).await?;
                if let Some(svc) = svc.filter(|svc| svc.shows(address)) {
                    return Ok(Some(self.service(key, &svc.uid)));
                }
            }
            Ok(None)
        })
    }
}

fn age(svc: &Svc) -> (bool, Timestamp) {
    (svc.terminating, svc.created)
}

impl Services {
    /// Takes over what is kept for Services of this cluster under Rancher's name of it. From then on this cluster's lists
    /// decide when each use ends.
    pub async fn claim_reported(&self) {
        let (Some(management), Some(called)) = (self.management(), self.rancher_cluster()) else {
            return;
        };
        let mut after = None;
        loop {
            let system = &self.context.site.system;
            let leases = self.context.read(|ledger| {
                ledger.cluster_leases(&management, Some(system), after, Ledger::SCAN)
            });
            let Some(last) = leases.last() else {
                return;
            };
            after = Some(last.key);
            for (from, lease) in leases.iter().filter_map(|lease| reported(lease, &called)) {
                let (site, reason) = (&self.context.site, "its cluster is connected");
                let handed = site.transfer(from, self.user_of(lease), lease.key, reason);
                if let Err(error) = handed.await {
                    let address = lease.key.address;
                    tracing::warn!(cluster = %self.context.site.name, %address, %error, "a kept address is not taken over yet");
                }
            }
        }
    }

    /// Who has a lease that is kept under Rancher's name of the cluster: the Service that shows the address, else the one
    /// that Rancher names, until complete lists do not have it.
    fn user_of(&self, lease: &Lease) -> Holder {
        let named = |holder: &Holder| {
            let key = names::key(&holder.identity);
            self.service(&key, &"".into()).holder()
        };
        let shown = self.shows(lease.key.address);
        let user = shown.map(|service| service.holder());
        user.or_else(|| lease.owner().map(named))
            .unwrap_or_else(|| self.service(&Key::new("", ""), &"".into()).holder())
    }
}

fn reported<'a>(lease: &'a Arc<Lease>, called: &str) -> Option<(Holder, &'a Arc<Lease>)> {
    let owner = lease.owner()?;
    names::is_reported(owner, called).then(|| (owner.clone(), lease))
}
