//! What the cluster says of the use of an address whose FloatingIP is deleted, and what was kept for its Services while it was
//! not connected.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Handover, Holder, Lease, Ledger, Request, Tenant, Timestamp};
use futures::future::BoxFuture;

use super::{fresh_read::fresh, observe::Svc, placement::Placement, service};
use crate::{
    controller::{ReconcileError, context::Context, store::Key},
    systems::rancher_fip::{
        names::{self, KIND_SERVICE, ServiceRef},
        rancher::Guest,
    },
};

/// The most Services that are read freshly for one address.
const READ: usize = 8;

/// What Services of the cluster use.
pub struct ServiceUses {
    context: Arc<Context<Svc>>,
    placement: Arc<Placement>,
}

impl Guest for ServiceUses {
    /// The oldest one that is not being deleted; else the oldest.
    fn shows(&self, address: IpAddr) -> Option<ServiceRef> {
        let mut using = self.context.objects.all();
        using.retain(|(_, svc)| svc.is_given(address));
        let (key, svc) = using
            .into_iter()
            .min_by(|(_, one), (_, other)| age(one).cmp(&age(other)))?;
        Some(service(&self.context, &key, &svc.uid))
    }

    fn charged_to(&self, service: &ServiceRef) -> Option<Tenant> {
        let project = self.placement.project(&service.key.namespace).ok()?;
        Some(project.tenant)
    }

    fn ask<'a>(
        &'a self,
        services: &'a [Key],
        address: IpAddr,
    ) -> BoxFuture<'a, Result<Option<ServiceRef>, ReconcileError>> {
        Box::pin(async move {
            for key in services.iter().take(READ) {
                let svc = fresh(&self.context, key).await?;
                if let Some(svc) = svc.filter(|svc| svc.shows(address)) {
                    return Ok(Some(service(&self.context, key, &svc.uid)));
                }
            }
            Ok(None)
        })
    }
}

fn age(svc: &Svc) -> (bool, Timestamp) {
    (svc.terminating, svc.created)
}

impl ServiceUses {
    pub fn new(context: Arc<Context<Svc>>, placement: Arc<Placement>) -> Arc<Self> {
        Arc::new(Self { context, placement })
    }

    /// Takes over what is kept for Services of this cluster under Rancher's name of it. From then on this cluster's lists
    /// decide when each use ends.
    pub async fn claim_reported(&self) {
        let (Some(management), Some(called)) = (
            self.placement.management(),
            self.placement.rancher_cluster(),
        ) else {
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
                let handover = Request::Handover(Handover {
                    from,
                    to: self.user_of(lease),
                    keys: vec![lease.key],
                    actor: self.context.actor(),
                    reason: "its cluster is connected".into(),
                });
                if let Err(error) = self.context.submit(handover).await {
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
            Holder {
                identity: names::identity(&self.context.site.id, KIND_SERVICE, &key),
                instance: "".into(),
            }
        };
        let shown = self
            .shows(lease.key.address)
            .map(|service| service.holder());
        shown
            .or_else(|| lease.owner().map(named))
            .unwrap_or_else(|| service(&self.context, &Key::new("", ""), &"".into()).holder())
    }
}

fn reported<'a>(lease: &'a Arc<Lease>, called: &str) -> Option<(Holder, &'a Arc<Lease>)> {
    let owner = lease.owner()?;
    names::is_reported(owner, called).then(|| (owner.clone(), lease))
}
