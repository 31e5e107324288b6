//! FloatingIPs that only the ledger knows: a Service left a lease to an object that was never written.

use std::sync::Arc;

use fipd_core::Holder;
use serde_json::Value;

use super::FloatingIps;
use crate::{
    controller::{ReconcileError, confirm_absence::RECHECK_AFTER, queue::Next, store::Key},
    systems::rancher_fip::{kinds::FLOATING_IP, names::KIND_FLOATING_IP},
};

impl FloatingIps {
    /// Queues all objects, and all that only the ledger knows, whenever it is not known what changed.
    pub async fn keep_track(self: Arc<Self>) {
        let cancel = self.context.site.cancel();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.lost_track.notified() => {}
                () = self.rancher.came.notified() => {
                    // Whether an object was made for a Service of that cluster may be known only now.
                    self.data.stock.all().into_iter().for_each(|key| self.context.queue.add(key));
                    continue;
                }
            }
            // A Service may have left a lease to an object that was never written.
            let unnamed = |holder: &Holder| holder.instance.is_empty();
            let mut keys = self.context.site.owners(KIND_FLOATING_IP, unnamed).await;
            keys.extend(self.data.fips.keys());
            keys.into_iter().for_each(|key| self.context.queue.add(key));
        }
    }

    /// There is no such object. A lease that a Service left to one that was never written is given back once a
    /// second look finds none either; all other leases wait for the sweep of the cluster.
    pub(super) async fn gone(&self, key: &Key) -> Result<Next, ReconcileError> {
        self.context.waiters.wait(key, None);
        let identity = self.context.identity(key);
        self.context.site.ipam.forget_waiter(&identity);
        let unseen = self.context.site.ipam.read(|ledger| {
            let leases = ledger.leases_of(&identity);
            leases.iter().any(|lease| {
                lease
                    .owner()
                    .is_some_and(|holder| holder.instance.is_empty())
            })
        });
        if !unseen {
            self.missing.forget(key);
            return Ok(Next::Done);
        }
        if self
            .data
            .remote
            .get::<Value>(&FLOATING_IP.target(key))
            .await?
            .is_some()
        {
            // The watch is behind.
            self.missing.forget(key);
            return Ok(Next::After(RECHECK_AFTER));
        }
        if let Some(rest) = self.missing.missing(key) {
            return Ok(Next::After(rest));
        }
        self.missing.forget(key);
        self.give_back(
            Holder {
                identity,
                instance: "".into(),
            },
            "its FloatingIP was never written",
        )
        .await?;
        Ok(Next::Done)
    }
}
