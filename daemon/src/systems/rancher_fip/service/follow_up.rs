//! What follows once a Service shows its address: announcer's objects and the FloatingIP in Rancher.

use std::{net::IpAddr, sync::Arc};

use fipd_core::Lease;
use tokio::task::JoinSet;

use super::{ServiceTurn, Services, announce, observe::Svc, originals, placement, validate};
use crate::{
    controller::{
        Reconciled, kind::SERVICE, queue::Next, reconcile::work_on, store::Key, tasks::quiet,
    },
    systems::rancher_fip::{names::ServiceRef, settings::Announce},
};

/// So many at once.
const AT_ONCE: usize = 8;

/// Works on what follows, which gives way to Services that wait, until the session ends.
pub fn work(services: &Arc<Services>, tasks: &mut JoinSet<()>) {
    let (site, queue) = (&services.context.site, (&services.follow_ups, AT_ONCE));
    let step = (services, Services::reconcile_follow_up);
    tasks.spawn(work_on(site, "service-follow-up", queue, step));
}

impl Services {
    async fn reconcile_follow_up(self: Arc<Self>, key: Key) -> Next {
        quiet(Arc::clone(&self.context.queue)).await;
        // As it is by now.
        let Some(svc) = self.context.objects.get(&key) else {
            return Next::Done;
        };
        match self.follow_up(&key, &svc).await {
            Ok(()) => Next::Done,
            Err(trouble) => trouble.next(SERVICE.kind, &key),
        }
    }

    /// Brings announcer and Rancher up to date with one Service.
    async fn follow_up(&self, key: &Key, svc: &Svc) -> Reconciled<()> {
        let ServiceTurn { service, held, .. } = self.turn(key, svc);
        if held.is_empty() || !validate::is_ours(svc, self.settings().class_less, true) {
            return Ok(());
        }
        let addresses = self.to_announce(&service, svc, held);
        let announced = self.announcer.announce(&service, addresses).await;
        // Announcing takes its time.
        let held = self.held(&service);
        self.write_floating_ips(&service, &held).await?;
        announced
    }

    /// What is to be announced of a Service.
    fn to_announce(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        mut held: Vec<Arc<Lease>>,
    ) -> Vec<announce::Address> {
        let data = self.rancher.data();
        let place = |text: &IpAddr| svc.ingress.iter().position(|one| one.parse() == Ok(*text));
        held.sort_by_key(|lease| place(&lease.key.address).unwrap_or(usize::MAX));
        let first = held.first().map(|lease| lease.key.address);
        let group = first
            .filter(|_| self.settings().announce == Announce::Purelb)
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
