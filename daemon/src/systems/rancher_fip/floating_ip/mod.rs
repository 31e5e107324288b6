//! FloatingIPs: each gets the address it asks for or the lowest free one of its pool, and shows it.
//!
//! One that we wrote for a Service of a downstream cluster only shows that Service's lease. When the Service
//! gives it up, the lease passes to the FloatingIP, which is then deleted; the lease goes with it. One that another
//! program made and fipd took over stays, with the lease.

#[cfg(test)]
mod conformance_tests;
pub mod observe;
pub mod plan;
mod release;
pub mod status;
mod unassigned;

pub use unassigned::{return_after, without_users};

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::{ClusterId, Holder, Identity, LeaseKey, Ledger, NetworkId, System, Tenant};
use fipd_crds::floating_ip::{FloatingIP, FloatingIPStatus, ServiceRef as Assignee};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};
use serde_json::json;
use tokio::sync::Notify;

use super::{
    Site,
    names::{self, KIND_SERVICE, ServiceRef},
    rancher::{Data, Rancher},
};
use crate::{
    controller::{
        Reconciled,
        address_user::{
            AddressController, AddressHooks, AddressUser, Edits, ShownAddress, ShownNetwork,
            SpecWrite,
            outcome::{AddressOutcome, ShownLease},
            refusal::FixedFields,
            settle::{Inheritance, Wished, holds},
        },
        confirm_absence::AbsenceCheck,
        context::Context,
        kind::Kind,
        queue::Next,
        store::Key,
        waiters::LedgerEvent,
    },
    systems::rancher_fip::kinds::FLOATING_IP,
    validation::floating_ip as rules,
};
use observe::Fip;
use plan::ServiceView;
use unassigned::Whereabouts;

/// The FloatingIPs of a management cluster.
pub struct ManagedFloatingIps {
    rancher: Arc<Rancher>,
    data: Arc<Data>,
    /// Objects with a cluster that Rancher never had.
    clusterless: AbsenceCheck<(Key, String)>,
    /// Told when everything may be different.
    lost_track: Notify,
}

/// The controller of all FloatingIPs of a management cluster.
pub type FloatingIpController = AddressController<ManagedFloatingIps>;

pub fn controller(
    context: Context<Fip>,
    rancher: Arc<Rancher>,
    data: Arc<Data>,
) -> Arc<FloatingIpController> {
    let user = ManagedFloatingIps {
        rancher,
        data,
        clusterless: AbsenceCheck::default(),
        lost_track: Notify::new(),
    };
    AddressController::new(context, user)
}

impl AddressUser for ManagedFloatingIps {
    type Raw = FloatingIP;
    type View = Fip;
    type Status = FloatingIPStatus;

    const KIND: Kind = FLOATING_IP;
    const METRIC: &'static str = "floatingip";
    const FINALIZER: &'static str = names::FINALIZER;
    const FINALIZER_FIRST: bool = false;
    const INHERITS: Inheritance = Inheritance::Nothing;
    const EDITS: Edits<Fip> = Edits::Refused(|fip| FixedFields {
        address: rules::ADDRESS,
        pool: Some((rules::POOL, &fip.pool, rules::POOL_KIND)),
    });
    const SHOWS_POOL: bool = false;
    const TENANT: &'static str = "project";
    const CHARGE_REASON: &'static str = "its project label names another project";

    fn view(raw: FloatingIP) -> Fip {
        observe::view(raw)
    }

    fn tenant(_: &Site, _: &Key, fip: &Fip) -> Option<Tenant> {
        fip.project.clone()
    }

    fn wish(&self, ledger: &Ledger, site: &Site, _: &Key, fip: &Fip) -> Wished {
        plan::wish(ledger, &site.id, fip)
    }

    fn conditions(fip: &Fip) -> &[Condition] {
        &fip.status.conditions
    }

    fn shows_address(fip: &Fip) -> bool {
        fip.recorded().is_some()
    }

    /// Not what its Service has by now, nor what a Service left to it.
    fn shown(&self, ledger: &Ledger, site: &Site, key: &Key, fip: &Fip) -> Option<ShownAddress> {
        let address = fip.shown()?;
        let pool = site.mirror_in(ledger, &fip.pool);
        let network = pool.map_or(NetworkId::DEFAULT, |pool| pool.spec.network);
        let owner = ledger
            .lease(LeaseKey { network, address })
            .and_then(|lease| lease.owner());
        let own = names::identity(&site.id, FLOATING_IP.kind, key);
        let left_to_it = owner.is_some_and(|owner| owner.identity == own);
        let of_its_service = owner.is_some_and(|owner| names_service(fip, &owner.identity));
        let counts = match &fip.holder {
            Some(_) => !left_to_it,
            None => !of_its_service,
        };
        counts.then(|| ShownAddress {
            length: None,
            address,
            network: ShownNetwork::Known(network),
            user: fip.holder.as_ref().map(ServiceRef::holder),
        })
    }

    fn last_status(fip: &Fip) -> &FloatingIPStatus {
        &fip.status
    }

    fn status(fip: &Fip, outcome: &AddressOutcome, now: jiff::Timestamp) -> FloatingIPStatus {
        status::desired(fip, outcome, now)
    }

    /// The address, which is the object's own with the finalizer beside it.
    fn spec(fip: &Fip, shown: &ShownLease) -> Option<SpecWrite> {
        let address = shown.address();
        let wanted = rules::address(&fip.wanted).ok().flatten();
        let in_vain = !fip.wanted.is_empty() && wanted != Some(address);
        let note = || {
            format!(
                "spec.ipAddr: {:?} is not allowed: the object has {address} and keeps it; delete it and make another",
                fip.wanted
            )
        };
        (fip.wanted.parse() != Ok(address)).then(|| SpecWrite {
            spec: json!({ "ipAddr": address.to_string() }),
            overrules: in_vain.then(note),
        })
    }

    fn news(fip: &Fip, shown: &ShownLease) -> Option<String> {
        let note = || format!("{} is allocated", shown.address());
        fip.status.ip_addr.is_empty().then(note)
    }
}

impl AddressHooks for ManagedFloatingIps {
    /// An object whose cluster is gone loses it, and one that nobody has goes after a time; one that shows a Service's lease,
    /// or is about to, asks for nothing.
    async fn before(fips: &FloatingIpController, key: &Key, fip: &Fip) -> Reconciled<Option<Next>> {
        if let Some(service) = &fip.holder {
            return fips.show_service(key, fip, service).await.map(Some);
        }
        match fips.whereabouts(key, fip).await? {
            Whereabouts::Here => {}
            Whereabouts::Gone => return fips.unassign(key, fip).await.map(Some),
            Whereabouts::Unsure(left) => fips.context.queue.add_after(key.clone(), left),
        }
        let others = fips.user.rancher.others(fip.cluster.as_deref());
        let own = fips.context.holder(key, &fip.meta.uid);
        let is_for = |user: &Identity| is_for(fip, user, &others);
        let ipam = &fips.context.site.ipam;
        let (yields, has) = ipam.read(|ledger| {
            let leases = ledger.leases_of(&own.identity);
            let has = leases.iter().any(|lease| holds(lease, &own));
            (plan::yields(ledger, &own, fip, &is_for), has)
        });
        if yields || !has {
            return Ok(yields.then_some(Next::Done));
        }
        match fips.return_to_pool(key, fip).await? {
            None => {}
            Some(left) if left.is_zero() => return Ok(Some(Next::Done)),
            Some(left) => fips.context.queue.add_after(key.clone(), left),
        }
        Ok(None)
    }

    async fn before_release(
        fips: &FloatingIpController,
        key: &Key,
        fip: &Fip,
    ) -> Reconciled<Option<Next>> {
        fips.leave_to_users(key, fip).await.map(|()| None)
    }

    async fn absent(fips: &FloatingIpController, key: &Key) -> Reconciled {
        let reason = "its FloatingIP was never written";
        fips.release_unwritten(key, reason).await
    }

    /// Those that show the lease of a Service, or were made for it.
    fn affected(fips: &FloatingIpController, _: &Ledger, event: &LedgerEvent<'_>) {
        let LedgerEvent::Changes(changes) = event else {
            return fips.user.lost_track.notify_one();
        };
        let ManagedFloatingIps { rancher, data, .. } = &fips.user;
        let identities = changes.iter().flat_map(|change| &change.identities);
        for (cluster, service) in identities.filter_map(service_key) {
            let shown = data.fips_of(cluster, &service).into_iter();
            let made = (data.stock).made_for(rancher.id_of(cluster).as_deref(), &service);
            let keys = shown.map(|(key, _)| key).chain(made);
            keys.for_each(|key| fips.context.queue.add(key));
        }
    }

    /// The Service of its project that shows the address.
    fn heir(fips: &FloatingIpController, key: LeaseKey) -> Option<Holder> {
        let ipam = &fips.context.site.ipam;
        let lease = ipam.read(|ledger| ledger.lease(key).cloned())?;
        let tenant = lease.tenant.as_ref()?;
        let mut users = fips.user.rancher.guests().into_iter().filter_map(|guest| {
            let service = guest.shows(key.address)?;
            let charged = guest.charged_to(&service);
            (charged.as_ref() == Some(tenant)).then(|| service.holder())
        });
        users.next()
    }
}

impl FloatingIpController {
    /// An object appeared, changed or went.
    pub fn changed(&self, key: &Key) {
        let ManagedFloatingIps { rancher, data, .. } = &self.user;
        let fip = data.fips.get(key);
        let service = fip.as_ref().and_then(|fip| fip.holder.as_ref());
        let service = service.map(|service| (service.cluster.clone(), service.key.clone()));
        let now: BTreeSet<_> = service.into_iter().collect();
        // An object that is taken over or handed back must not be in neither index for a moment.
        let (told, users) = if now.is_empty() {
            let users = data.stock.note(key, fip.as_deref());
            (data.shown.note(key, BTreeSet::new()), users)
        } else {
            let told = data.shown.note(key, now.clone());
            (told, data.stock.note(key, fip.as_deref()))
        };
        for service in told.union(&now) {
            rancher.fip_changed(service);
        }
        rancher.stock_changed(&users);
        self.context.queue.add(key.clone());
    }

    /// Shows the lease of a Service.
    async fn show_service(&self, key: &Key, fip: &Fip, service: &ServiceRef) -> Reconciled {
        let own = self.context.identity(key);
        let ipam = &self.context.site.ipam;
        match ipam.read(|ledger| plan::view(ledger, &own, service, fip)) {
            ServiceView::Show(outcome) => self.show(key, fip, *outcome, None).await,
            ServiceView::Delete => {
                let target = FLOATING_IP.target(key);
                self.context.remote.delete(&target, &fip.meta.uid).await?;
                Ok(Next::Done)
            }
            ServiceView::HandBack => self.hand_back(key, fip).await,
            ServiceView::Leave => Ok(Next::Done),
        }
    }

    /// Queues all objects, and all that only the ledger knows, whenever it is not known what changed.
    pub async fn keep_track(self: Arc<Self>) {
        let cancel = self.context.site.cancel();
        let ManagedFloatingIps {
            rancher,
            data,
            lost_track,
            ..
        } = &self.user;
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = lost_track.notified() => {}
                () = rancher.came.notified() => {
                    // Whether an object was made for a Service of that cluster may be known only now.
                    data.stock.all().into_iter().for_each(|key| self.context.queue.add(key));
                    continue;
                }
            }
            // A Service may have left a lease to an object that was never written.
            let unnamed = |holder: &Holder| holder.instance.is_empty();
            let mut keys = self.context.site.owners(FLOATING_IP.kind, unnamed).await;
            keys.extend(data.fips.keys());
            keys.into_iter().for_each(|key| self.context.queue.add(key));
        }
    }
}

/// Whether an object was made for the Service with this identity, as far as is known. `others` are clusters that
/// are not the object's.
pub fn is_for(fip: &Fip, user: &Identity, others: &BTreeSet<ClusterId>) -> bool {
    let cluster = user.cluster.as_ref();
    user.interface.is_empty()
        && names_service(fip, user)
        && cluster.is_none_or(|cluster| !others.contains(cluster))
}

/// Whether the labels of the object name the Service with this identity.
pub fn names_service(fip: &Fip, user: &Identity) -> bool {
    let names = |service: &Assignee| {
        *service.service_namespace == *user.namespace && *service.service_name == *user.name
    };
    &*user.kind == KIND_SERVICE && fip.services.iter().any(names)
}

/// The cluster and key of a Service's identity.
fn service_key(identity: &Identity) -> Option<(&ClusterId, Key)> {
    if identity.system != System::rancher_fip() || &*identity.kind != KIND_SERVICE {
        return None;
    }
    Some((identity.cluster.as_ref()?, names::key(identity)))
}
