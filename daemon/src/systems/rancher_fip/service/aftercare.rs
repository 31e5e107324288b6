//! What follows once a Service shows its address: announcer's objects and the FloatingIP in Rancher.

use std::{sync::Arc, time::Duration};

use super::{Services, object, validate};
use crate::{
    controller::{ReconcileError, client::Patch, queue::Next, store::Key},
    systems::rancher_fip::{kinds::FLOATING_IP, names::ServiceRef},
};

/// How long what follows gives way to Services that wait.
const GIVE_WAY: Duration = Duration::from_secs(3);
/// Between two looks whether nobody waits.
const LOOK: Duration = Duration::from_millis(20);

impl Services {
    /// Waits until no Service is waiting, for a while at most.
    pub async fn idle(&self) {
        let idle = async {
            while !self.queue.is_idle() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(GIVE_WAY, idle).await;
    }

    /// Brings announcer and Rancher up to date with one Service.
    pub async fn follow_up(self: Arc<Self>, key: Key) -> Next {
        self.idle().await;
        match self.try_follow_up(&key).await {
            Ok(()) => Next::Done,
            Err(trouble) => trouble.next("FloatingIP of Service", &key),
        }
    }

    async fn try_follow_up(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(svc) = self.services.get(key) else {
            return Ok(());
        };
        let service = self.service(key, &svc.uid);
        if self.held(&service).is_empty()
            || !validate::is_ours(&svc, self.settings.class_less, true)
        {
            return Ok(());
        }
        let announced = self.announce(&service, &svc).await;
        self.write_objects(&service).await?;
        announced
    }

    /// Writes the FloatingIPs that show the Service's leases.
    async fn write_objects(&self, service: &ServiceRef) -> Result<(), ReconcileError> {
        let (Some(data), Some(cluster)) = (self.rancher.data(), self.rancher_cluster()) else {
            return Ok(());
        };
        for lease in self.held(service) {
            let wanted = self.site.ipam.read(|ledger| {
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
