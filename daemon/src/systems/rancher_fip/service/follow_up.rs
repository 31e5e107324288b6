//! What follows once a Service shows its address: announcer's objects and the FloatingIP in Rancher.

use std::sync::Arc;

use super::{Services, object, observe::Svc, validate};
use crate::{
    controller::{
        ReconcileError, Reconciled,
        client::Patch,
        context::Context,
        queue::Next,
        reconcile::Controller,
        store::{Key, Malformed},
        tasks::quiet,
    },
    systems::rancher_fip::{kinds::FLOATING_IP, names::ServiceRef},
};

/// The controller of what follows, which gives way to Services that wait.
pub struct FollowUps {
    context: Context<Svc>,
    services: Arc<Services>,
}

impl FollowUps {
    pub fn new(services: Arc<Services>) -> Arc<Self> {
        let of = &services.context;
        let (site, events) = (Arc::clone(&of.site), Arc::clone(&of.events));
        let (remote, objects) = (of.remote.clone(), Arc::clone(&of.objects));
        let context = Context::new(of.kind(), site, remote, events, objects);
        Arc::new(Self {
            context: context.with_queue(Arc::clone(&services.follow_ups)),
            services,
        })
    }
}

impl Controller for FollowUps {
    type View = Svc;

    const METRIC: &'static str = "service-follow-up";
    const WORKERS: usize = 8;

    fn context(&self) -> &Context<Svc> {
        &self.context
    }

    async fn reconcile(&self, key: &Key, _: Option<Arc<Svc>>) -> Reconciled {
        quiet(Arc::clone(&self.services.context.queue)).await;
        // As it is by now.
        if let Some(svc) = self.context.objects.get(key) {
            self.services.follow_up(key, &svc).await?;
        }
        Ok(Next::Done)
    }

    async fn malformed(&self, _: &Key, _: &Malformed) -> Reconciled {
        Ok(Next::Done)
    }
}

impl Services {
    /// Brings announcer and Rancher up to date with one Service.
    async fn follow_up(&self, key: &Key, svc: &Svc) -> Result<(), ReconcileError> {
        let service = self.service(key, &svc.uid);
        if self.held(&service).is_empty() || !validate::is_ours(svc, self.settings.class_less, true)
        {
            return Ok(());
        }
        let announced = self.announce(&service, svc).await;
        self.write_objects(&service).await?;
        announced
    }

    /// Writes the FloatingIPs that show the Service's leases.
    async fn write_objects(&self, service: &ServiceRef) -> Result<(), ReconcileError> {
        let (Some(data), Some(cluster)) = (self.rancher.data(), self.rancher_cluster()) else {
            return Ok(());
        };
        for lease in self.held(service) {
            let wanted = self.context.read(|ledger| {
                object::wanted(
                    ledger,
                    &data.cluster,
                    Some(&data),
                    service,
                    &cluster,
                    &lease,
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
            self.unwritten.lock().remove(&service.uid);
            let target = FLOATING_IP.target(&wanted.key);
            data.remote
                .patch(&target, Patch::Apply, &wanted.body())
                .await?;
        }
        Ok(())
    }
}
