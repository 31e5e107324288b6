//! The FloatingIP in Rancher that shows the lease of a Service to its project.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{ClusterId, Lease, Ledger, Origin, System, Tenant};
use serde_json::{Value, json};

use crate::{
    controller::{client::MANAGER, store::Key},
    systems::rancher_fip::{
        floating_ip::observe::Fip,
        names::{CLUSTER, FINALIZER, HOLDER, MANAGED_BY, PROJECT, SERVICE_PREFIX, ServiceRef},
        pool::validate::family_of,
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

/// The object for one lease of a Service; `None` if the lease is of no pool of that Rancher.
pub fn wanted(
    ledger: &Ledger,
    rancher: &ClusterId,
    data: Option<&Data>,
    service: &ServiceRef,
    cluster: &str,
    lease: &Arc<Lease>,
    lives: &dyn Fn(&Key) -> bool,
) -> Option<Wanted> {
    let pool = ledger.pool(lease.pool?)?;
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
    let name = service.floating_ip_name(family_of(lease.key.address));
    let ours = Key::new(namespace.as_deref().unwrap_or(cluster), &name);
    Some(Wanted {
        key: key(data, service, cluster, ours, lease, lives),
        service: service.clone(),
        cluster: cluster.to_owned(),
        project,
        pool: object.to_string(),
        address: lease.key.address,
    })
}

/// The object that shows (or is to show) a lease of a Service: the one that does already, one that another program
/// made for this Service, project and address, else `ours` by its name.
fn key(
    data: Option<&Data>,
    service: &ServiceRef,
    cluster: &str,
    ours: Key,
    lease: &Lease,
    lives: &dyn Fn(&Key) -> bool,
) -> Key {
    let address = lease.key.address;
    let Some(data) = data else { return ours };
    if data.fips.get(&ours).is_some() {
        return ours;
    }
    // An object passes from the one index to the other when it is taken over: looked at in this order it is
    // found in one of them.
    let made = data.made_for(cluster, &service.key);
    let shown = data
        .fips_of(&service.cluster, &service.key)
        .into_iter()
        .find(|(key, fip)| fip.wanted.parse() == Ok(address) && passes(key, fip, service));
    if let Some((key, _)) = shown {
        return key;
    }
    let free = |fip: &Fip| fip.holder.as_ref().is_none_or(|holder| holder == service);
    made.into_iter()
        .find(|(_, fip)| {
            free(fip)
                && fip.recorded() == Some(address)
                && fip.project == lease.tenant
                && !fip.is_shared(&service.key, lives)
        })
        .map_or(ours, |(key, _)| key)
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
            "apiVersion": "rancher.k8s.binbash.org/v1beta2",
            "kind": "FloatingIP",
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
