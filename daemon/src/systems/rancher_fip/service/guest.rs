//! What the cluster says of the use of an address whose FloatingIP is deleted, and what was kept for its Services while it was
//! not connected.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Holder, Lease, Ledger, Tenant, Timestamp};
use futures::future::BoxFuture;

use super::{Services, fresh_read::fresh, observe::Svc};
use crate::{
    controller::{ReconcileError, store::Key},
    systems::rancher_fip::{
        names::{self, ServiceRef},
        rancher::Guest,
    },
};

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
    ) -> BoxFuture<'a, Result<Option<ServiceRef>, ReconcileError>> {
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
                let handed = site.hand_over(from, self.user_of(lease), lease.key, reason);
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
