//! The FloatingIP in Rancher that shows the lease of a Service to its project.

use std::net::IpAddr;

use fipd_core::{ClusterId, Family, Lease, Origin, System, Tenant};
use serde_json::{Value, json};

use super::Services;
use crate::{
    controller::{client::MANAGER, store::Key},
    systems::rancher_fip::{
        floating_ip::observe::Fip,
        kinds::FLOATING_IP,
        names::{CLUSTER, FINALIZER, HOLDER, MANAGED_BY, PROJECT, SERVICE_PREFIX, ServiceRef},
        rancher::Data,
    },
};

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
