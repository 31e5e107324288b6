//! What follows once a Service shows its address: announcer's objects and the FloatingIP in Rancher.

use std::{net::IpAddr, sync::Arc};

use super::{Services, announce, observe::Svc, originals, placement, validate};
use crate::{
    controller::{
        Reconciled,
        context::Context,
        queue::Next,
        reconcile::Controller,
        store::{Key, Malformed},
        tasks::quiet,
    },
    systems::rancher_fip::{names::ServiceRef, settings::Announce},
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
            self.follow_up(key, &svc).await?;
        }
        Ok(Next::Done)
    }

    async fn malformed(&self, _: &Key, _: &Malformed) -> Reconciled {
        Ok(Next::Done)
    }
}

impl FollowUps {
    /// Brings announcer and Rancher up to date with one Service.
    async fn follow_up(&self, key: &Key, svc: &Svc) -> Reconciled<()> {
        let services = &self.services;
        let service = services.service(key, &svc.uid);
        let held = services.held(&service);
        if held.is_empty() || !validate::is_ours(svc, services.settings.class_less, true) {
            return Ok(());
        }
        let addresses = self.addresses(&service, svc);
        let announced = services.announcer.announce(&service, addresses).await;
        // Announcing takes its time.
        let held = services.held(&service);
        services.write_floating_ips(&service, &held).await?;
        announced
    }

    /// What is to be announced of a Service.
    fn addresses(&self, service: &ServiceRef, svc: &Svc) -> Vec<announce::Address> {
        let services = &self.services;
        let data = services.rancher.data();
        let mut held = services.held(service);
        let place = |text: &IpAddr| svc.ingress.iter().position(|one| one.parse() == Ok(*text));
        held.sort_by_key(|lease| place(&lease.key.address).unwrap_or(usize::MAX));
        let first = held.first().map(|lease| lease.key.address);
        let group = first
            .filter(|_| services.settings.announce == Announce::Purelb)
            .map(|first| originals::group_name(svc, &service.key, first));
        held.iter()
            .map(|lease| {
                let pool = self
                    .context
                    .read(|ledger| ledger.pool(lease.pool?).cloned());
                let object = pool.as_ref().and_then(|pool| placement::object(pool));
                let interface = data.as_ref().zip(object).and_then(|(data, object)| {
                    let pool = data.pools.get(&Key::new("", object))?;
                    Some(pool.spec.target_network_interface.clone()).filter(|name| !name.is_empty())
                });
                let address = lease.key.address;
                let own = || fipd_crds::labels::pool_object(address);
                announce::Address {
                    address,
                    name: group.clone().unwrap_or_else(own),
                    subnet: pool.as_ref().and_then(|pool| pool.spec.subnet),
                    interface,
                }
            })
            .collect()
    }
}
