//! The FloatingIPs in Rancher of a cluster's Services: those that show their leases, and those of another program that
//! have addresses for them.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use fipd_core::{ClusterId, Holder, Lease, LeaseKey, Request, Text};
use parking_lot::Mutex;

use super::{
    object,
    observe::Svc,
    placement::Placement,
    plan::PoolsByFamily,
    transfer::{self, Look, is_stock, not_reached},
    validate::Wish,
};
use crate::{
    controller::{ReconcileError, client::Patch, context::Context, store::Key, unserved::Unserved},
    systems::rancher_fip::{
        kinds::FLOATING_IP,
        names::{self, HOLDER, KIND_FLOATING_IP, ServiceRef},
        rancher::Data,
    },
};

/// See the module.
pub struct ServiceFloatingIps {
    context: Arc<Context<Svc>>,
    placement: Arc<Placement>,
    /// Services (by UID) that got their leases in this life of fipd and whose FloatingIP was not tried yet.
    unwritten: Mutex<BTreeSet<Text>>,
}

impl ServiceFloatingIps {
    pub fn new(context: Arc<Context<Svc>>, placement: Arc<Placement>) -> Self {
        Self {
            context,
            placement,
            unwritten: Mutex::default(),
        }
    }

    /// The Service got its first leases just now: no FloatingIP shows them.
    pub fn note_unwritten(&self, uid: &Text) {
        self.unwritten.lock().insert(Text::clone(uid));
    }

    /// One may show them from now on, or the Service has none any more.
    pub fn forget(&self, uid: &Text) {
        self.unwritten.lock().remove(uid);
    }

    /// What to ask the address book for, so that the Service takes over what FloatingIPs made for it hold.
    pub fn transfers(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        wish: &Wish,
        named: Option<&PoolsByFamily>,
        held: &[Arc<Lease>],
    ) -> Result<Vec<Request>, Unserved> {
        // Served by another program until now: it must not lose the address that it has.
        let stock = held.is_empty() && is_stock(svc);
        let or_wait = |problem: Unserved| if stock { Err(problem) } else { Ok(Vec::new()) };
        let Some(data) = self.placement.rancher.data() else {
            return or_wait(not_reached());
        };
        let project = match self.placement.project(&service.key.namespace) {
            Ok(project) => project,
            Err(problem) => return or_wait(problem),
        };
        let cluster = match self.placement.agreed_cluster(&project) {
            Ok(cluster) => cluster,
            Err(doubt) => return or_wait(doubt.problem()),
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
    pub async fn write(
        &self,
        service: &ServiceRef,
        leases: &[Arc<Lease>],
    ) -> Result<(), ReconcileError> {
        let (Some(data), Some(cluster)) = (
            self.placement.rancher.data(),
            self.placement.rancher_cluster(),
        ) else {
            return Ok(());
        };
        for lease in leases {
            let wanted = self.context.read(|ledger| {
                object::wanted(
                    ledger,
                    &data.cluster,
                    Some(&data),
                    service,
                    &cluster,
                    lease,
                    &|key| self.lives(key),
                )
            });
            let Some(wanted) = wanted else { continue };
            let known = data.fips.get(&wanted.key);
            // One that is being deleted must be gone before it can come again; its end brings us back.
            if known
                .as_ref()
                .is_some_and(|fip| fip.meta.deleted.is_some() || wanted.is_met(fip))
            {
                continue;
            }
            self.forget(&service.uid);
            let target = FLOATING_IP.target(&wanted.key);
            data.remote
                .patch(&target, Patch::Apply, &wanted.body())
                .await?;
        }
        Ok(())
    }

    /// Whether the finalizer, which has the same name for all of the family, is that of another program: we left no
    /// mark, and a FloatingIP of another is for this Service, or it is not known whether one is.
    pub fn is_anothers(&self, key: &Key, svc: &Svc) -> bool {
        if svc.mark(HOLDER).is_some() {
            return false;
        }
        let Some(data) = self.placement.rancher.data() else {
            return true;
        };
        let made = match self.placement.rancher_cluster() {
            Some(cluster) => data.stock.made_for(&cluster, key),
            None => data.stock.made_for_any(key),
        };
        !made.is_empty()
    }
    /// Who gets a lease when its Service goes: the FloatingIP that shows it. One that fipd made is then deleted and frees
    /// it. `None` where no FloatingIP was ever written.
    pub fn heir(&self, service: &ServiceRef, key: LeaseKey) -> Option<Holder> {
        if self.unwritten.lock().contains(&service.uid) {
            return None;
        }
        self.shown_by(service, key)
    }
    /// Whether the FloatingIP of a lease is one that another program made.
    pub fn was_there(&self, service: &ServiceRef, key: LeaseKey) -> bool {
        let shown = self.shown_by(service, key);
        shown.is_some_and(|fip| !service.made(&fip.identity.name))
    }
    /// The FloatingIP of a lease as its holder; `None` where the lease has none.
    fn shown_by(&self, service: &ServiceRef, key: LeaseKey) -> Option<Holder> {
        let management = self.placement.management()?;
        let data = self.placement.rancher.data();
        let cluster = match (self.placement.rancher_cluster(), &data) {
            (Some(cluster), _) => cluster,
            // Rancher does not say what it calls this cluster; the object itself says whose address it shows.
            (None, Some(data)) => return recorded(data, &management, service, key.address),
            // Rancher was not seen yet, and there the object may be. Until then nobody else gets the address: the lease
            // goes to an object that is nowhere, and from that to the one that shows it or to nobody.
            (None, None) => self.context.site.id.to_string(),
        };
        let lease = self.context.read(|ledger| ledger.lease(key).cloned())?;
        let wanted = self.context.read(|ledger| {
            object::wanted(
                ledger,
                &management,
                data.as_deref(),
                service,
                &cluster,
                &lease,
                &|key| self.lives(key),
            )
        })?;
        let fip = data.as_ref().and_then(|data| data.fips.get(&wanted.key));
        Some(Holder {
            identity: names::identity(&management, KIND_FLOATING_IP, &wanted.key),
            instance: fip.map_or_else(|| "".into(), |fip| Text::clone(&fip.meta.uid)),
        })
    }

    /// Whether there is a Service of this name that could use an address.
    fn lives(&self, key: &Key) -> bool {
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
    Some(Holder {
        identity: names::identity(management, KIND_FLOATING_IP, &key),
        instance: Text::clone(&fip.meta.uid),
    })
}
