//! Limits whose object is gone: an object that never got its finalizer, or lost it by force.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{PoolId, Tenant};
use serde_json::Value;

use super::Quotas;
use crate::{
    controller::{ReconcileError, queue::Next, store::Key},
    systems::rancher_fip::{
        kinds::QUOTA,
        settings::{RancherFipQuotas, RancherFipSettings},
    },
};

/// Rows read from the ledger at once; a reader must not hold it for longer.
const PAGE: usize = 1_000;

impl Quotas {
    /// Queues all objects, and all that only the ledger knows, whenever it is not known what changed.
    pub async fn keep_track(self: Arc<Self>) {
        let cancel = self.context.site.cancel();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.lost_track.notified() => {}
            }
            self.context.queue_all();
            // Where no quota is required an admin may have set some by hand.
            let settings = self.context.site.settings::<RancherFipSettings>();
            if settings.quotas == RancherFipQuotas::Required {
                self.queue_known().await;
            }
        }
    }

    /// Queues the projects that have quotas in pools of the cluster.
    async fn queue_known(&self) {
        let mut pools: Vec<PoolId> = Vec::new();
        let site = &self.context.site;
        site.ipam
            .for_each_pool(|_, pool| pools.extend(site.is_mirror(pool).then_some(pool.id)));
        for pool in pools {
            let mut after: Option<(PoolId, Tenant)> = None;
            loop {
                let ipam = &self.context.site.ipam;
                let page = ipam.read(|ledger| ledger.quotas(None, Some(pool), after.clone(), PAGE));
                for usage in &page {
                    self.context.queue.add(Key::new("", &usage.quota.tenant.0));
                }
                after = page
                    .last()
                    .map(|last| (last.quota.pool, last.quota.tenant.clone()));
                if page.len() < PAGE {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// There is no such object.
    pub(super) async fn gone(&self, key: &Key) -> Result<Next, ReconcileError> {
        self.note_unlimited(key, &[]);
        if self.rows(key).is_empty() {
            self.missing.forget(key);
            return Ok(Next::Done);
        }
        let target = QUOTA.target(key);
        let look = self.data.remote.get::<Value>(&target);
        if let Some(wait) = self.missing.confirm(key, look).await? {
            return Ok(Next::After(wait));
        }
        self.set_limits(key, &BTreeMap::new()).await?;
        Ok(Next::Done)
    }
}
