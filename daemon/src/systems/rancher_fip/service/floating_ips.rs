//! The FloatingIPs in Rancher of a cluster's Services: those that show their leases, and those of another program that
//! have addresses for them.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{
    ClusterId, Family, Holder, Lease, LeaseKey, Origin, Request, System, Tenant, Text,
};
use serde_json::{Value, json};

use super::{
    ServiceTurn, Services,
    observe::Svc,
    plan::PoolsByFamily,
    transfer::{self, Look, is_stock, not_reached},
    validate::Wish,
};
use crate::{
    controller::{
        Reconciled,
        client::{MANAGER, Patch},
        store::Key,
        unserved::Unserved,
    },
    systems::rancher_fip::{
        floating_ip::observe::Fip,
        kinds::FLOATING_IP,
        names::{
            self, CLUSTER, FINALIZER, HOLDER, KIND_FLOATING_IP, MANAGED_BY, PROJECT,
            SERVICE_PREFIX, ServiceRef,
        },
        rancher::Data,
    },
};

impl Services {
    /// What to ask the address book for, so that the Service takes over what FloatingIPs made for it hold.
    pub(super) fn transfers(
        &self,
        turn: &ServiceTurn<'_>,
        wish: &Wish,
        named: Option<&PoolsByFamily>,
    ) -> Result<Vec<Request>, Unserved> {
        let ServiceTurn { service, svc, held } = turn;
        // Served by another program until now: it must not lose the address that it has.
        let stock = held.is_empty() && is_stock(svc);
        let known = || {
            let data = self.rancher.data().ok_or_else(not_reached)?;
            let project = self.project(&service.key.namespace)?;
            let cluster = self.agreed_cluster(&project)?;
            Ok((data, project, cluster))
        };
        let (data, project, cluster) = match known() {
            Ok(known) => known,
            Err(problem) if stock => return Err(problem),
            Err(_) => return Ok(Vec::new()),
        };
        let fips = data.made_for(&cluster, &service.key);
        if fips.is_empty() {
            return Ok(Vec::new());
        }
        let look = Look {
            management: &data.cluster,
            service,
            wish,
            named,
            held,
            shown: &svc.addresses(),
            project: &project.tenant,
            lives: &|key| self.lives(key),
            actor: self.context.actor(),
        };
        self.context
            .read(|ledger| transfer::requests(ledger, &look, fips))
    }

    /// Writes the FloatingIPs that show the Service's leases.
    pub(super) async fn write_floating_ips(
        &self,
        service: &ServiceRef,
        leases: &[Arc<Lease>],
    ) -> Reconciled<()> {
        let (Some(data), Some(cluster)) = (self.rancher.data(), self.rancher_cluster()) else {
            return Ok(());
        };
        for lease in leases {
            let wanted = self.wanted(&data.cluster, Some(&data), service, &cluster, lease);
            let Some(wanted) = wanted else { continue };
            let known = data.fips.get(&wanted.key);
            // One that is being deleted must be gone before it can come again; its end brings us back.
            if known
                .as_ref()
                .is_some_and(|fip| fip.meta.deleted.is_some() || wanted.is_met(fip))
            {
                continue;
            }
            self.unwritten.lock().remove(&service.uid);
            let target = FLOATING_IP.target(&wanted.key);
            data.remote
                .patch(&target, Patch::Apply, &wanted.body())
                .await?;
        }
        Ok(())
    }

    /// Whether the finalizer, which has the same name for all of the family, is that of another program: we left no
    /// mark, and a FloatingIP of another is for this Service, or it is not known whether one is.
    pub(super) fn is_anothers(&self, key: &Key, svc: &Svc) -> bool {
        if svc.mark(HOLDER).is_some() {
            return false;
        }
        let Some(data) = self.rancher.data() else {
            return true;
        };
        let made = (data.stock).made_for(self.rancher_cluster().as_deref(), key);
        !made.is_empty()
    }

    /// Who gets a lease when its Service goes: the FloatingIP that shows it. One that fipd made is then deleted and frees
    /// it. `None` where no FloatingIP was ever written.
    pub(super) fn heir_of(&self, service: &ServiceRef, key: LeaseKey) -> Option<Holder> {
        if self.unwritten.lock().contains(&service.uid) {
            return None;
        }
        self.shown_by(service, key)
    }

    /// Whether the FloatingIP of a lease is one that another program made.
    pub(super) fn was_there(&self, service: &ServiceRef, key: LeaseKey) -> bool {
        let shown = self.shown_by(service, key);
        shown.is_some_and(|fip| !service.made(&fip.identity.name))
    }

    /// The FloatingIP of a lease as its holder; `None` where the lease has none.
    fn shown_by(&self, service: &ServiceRef, key: LeaseKey) -> Option<Holder> {
        let management = self.management()?;
        let data = self.rancher.data();
        let cluster = match (self.rancher_cluster(), &data) {
            (Some(cluster), _) => cluster,
            // Rancher does not say what it calls this cluster; the object itself says whose address it shows.
            (None, Some(data)) => return recorded(data, &management, service, key.address),
            // Rancher was not seen yet, and there the object may be. Until then nobody else gets the address: the lease
            // goes to an object that is nowhere, and from that to the one that shows it or to nobody.
            (None, None) => self.context.site.id.to_string(),
        };
        let lease = self.context.read(|ledger| ledger.lease(key).cloned())?;
        let wanted = self.wanted(&management, data.as_deref(), service, &cluster, &lease)?;
        let fip = data.as_ref().and_then(|data| data.fips.get(&wanted.key));
        let uid = fip.map_or_else(|| "".into(), |fip| Text::clone(&fip.meta.uid));
        let holder = names::holder(&management, KIND_FLOATING_IP, &wanted.key, uid);
        Some(holder)
    }

    /// Whether there is a Service of this name that could use an address.
    pub(super) fn lives(&self, key: &Key) -> bool {
        self.context.objects.seen(key).is_some()
    }
}

/// The FloatingIP that says that it shows this address of the Service.
fn recorded(
    data: &Data,
    management: &ClusterId,
    service: &ServiceRef,
    address: IpAddr,
) -> Option<Holder> {
    let fips = data.fips_of(&service.cluster, &service.key);
    let (key, fip) = fips
        .into_iter()
        .find(|(_, fip)| fip.recorded() == Some(address))?;
    let uid = Text::clone(&fip.meta.uid);
    Some(names::holder(management, KIND_FLOATING_IP, &key, uid))
}

/// What the object is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub key: Key,
    pub service: ServiceRef,
    /// Rancher's id of the Service's cluster.
    pub cluster: String,
    pub project: Tenant,
    /// Name of the FloatingIPPool.
    pub pool: String,
    pub address: IpAddr,
}

impl Services {
    /// The object for one lease of a Service; `None` if the lease is of no pool of that Rancher.
    pub(super) fn wanted(
        &self,
        rancher: &ClusterId,
        data: Option<&Data>,
        service: &ServiceRef,
        cluster: &str,
        lease: &Lease,
    ) -> Option<Wanted> {
        let pool = self
            .context
            .read(|ledger| ledger.pool(lease.pool?).cloned())?;
        let object = match &pool.spec.origin {
            Origin::Mirror {
                system,
                cluster,
                object,
                ..
            } if *system == System::rancher_fip() && cluster == rancher => object,
            Origin::Mirror { .. } | Origin::Own => return None,
        };
        let project = lease.tenant.clone()?;
        let namespace = data.and_then(|data| data.namespace_of(&project.0, cluster));
        let name = service.floating_ip_name(Family::of(lease.key.address));
        let ours = Key::new(namespace.as_deref().unwrap_or(cluster), &name);
        Some(Wanted {
            key: match data {
                Some(data) => self.object_key(data, service, cluster, ours, lease),
                None => ours,
            },
            service: service.clone(),
            cluster: cluster.to_owned(),
            project,
            pool: object.to_string(),
            address: lease.key.address,
        })
    }

    /// The object that shows (or is to show) a lease of a Service: the one that does already, one that another program
    /// made for this Service, project and address, else `ours` by its name.
    fn object_key(
        &self,
        data: &Data,
        service: &ServiceRef,
        cluster: &str,
        ours: Key,
        lease: &Lease,
    ) -> Key {
        let address = lease.key.address;
        if data.fips.get(&ours).is_some() {
            return ours;
        }
        // An object passes from the one index to the other when it is taken over: looked at in this order it is
        // found in one of them.
        let made = data.made_for(cluster, &service.key).into_iter();
        let shown = data.fips_of(&service.cluster, &service.key).into_iter();
        let mut shown = shown
            .filter(|(key, fip)| fip.wanted.parse() == Ok(address) && passes(key, fip, service));
        let free = |fip: &Fip| fip.holder.as_ref().is_none_or(|holder| holder == service);
        let mut made = made.filter(|(_, fip)| {
            free(fip)
                && fip.recorded() == Some(address)
                && fip.project == lease.tenant
                && !fip.is_shared(&service.key, &|key| self.lives(key))
        });
        let found = shown.next().or_else(|| made.next());
        found.map_or(ours, |(key, _)| key)
    }
}

/// Whether an object that shows a lease of the Service or of one before it may show one of this instance. What fipd
/// made for the one before goes with that.
fn passes(key: &Key, fip: &Fip, service: &ServiceRef) -> bool {
    fip.holder
        .as_ref()
        .is_some_and(|holder| holder == service || !holder.made(&key.name))
}

impl Wanted {
    /// Whether the object says it already.
    pub fn is_met(&self, fip: &Fip) -> bool {
        fip.holder.as_ref() == Some(&self.service)
            && fip.project.as_ref() == Some(&self.project)
            && fip.cluster.as_deref() == Some(&*self.cluster)
            && fip.pool == self.pool
            && fip.wanted.parse() == Ok(self.address)
            && !fip.services.is_empty()
    }

    /// The object for server-side apply.
    pub fn body(&self) -> Value {
        json!({
            "apiVersion": FLOATING_IP.api_version(),
            "kind": FLOATING_IP.kind,
            "metadata": {
                "namespace": &*self.key.namespace,
                "name": &*self.key.name,
                "labels": {
                    PROJECT: &*self.project.0,
                    CLUSTER: self.cluster,
                    format!("{SERVICE_PREFIX}0-namespace"): &*self.service.key.namespace,
                    format!("{SERVICE_PREFIX}0-name"): &*self.service.key.name,
                    MANAGED_BY: MANAGER,
                },
                "finalizers": [FINALIZER],
                "annotations": { HOLDER: self.service.to_string() },
            },
            "spec": { "floatingIPPool": self.pool, "ipAddr": self.address.to_string() },
        })
    }
}
