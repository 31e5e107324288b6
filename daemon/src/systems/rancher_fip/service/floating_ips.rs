//! The FloatingIPs in Rancher of a cluster's Services: those that show their leases, and those of another program that
//! have addresses for them.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{ClusterId, Holder, Lease, LeaseKey, Request, Text};

use super::{
    Services,
    observe::Svc,
    plan::PoolsByFamily,
    transfer::{self, Look, is_stock, not_reached},
    validate::Wish,
};
use crate::{
    controller::{Reconciled, client::Patch, store::Key, unserved::Unserved},
    systems::rancher_fip::{
        kinds::FLOATING_IP,
        names::{self, HOLDER, KIND_FLOATING_IP, ServiceRef},
        rancher::Data,
    },
};

impl Services {
    /// What to ask the address book for, so that the Service takes over what FloatingIPs made for it hold.
    pub(super) fn transfers(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        wish: &Wish,
        named: Option<&PoolsByFamily>,
        held: &[Arc<Lease>],
    ) -> Result<Vec<Request>, Unserved> {
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
