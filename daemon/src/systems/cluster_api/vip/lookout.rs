//! A pool that is new or wider, whoever made it, gives nothing before what Clusters show of it is kept for them, and what another
//! provider allocated of it for its claims.

use std::{sync::Arc, time::Duration};

use fipd_core::{Ledger, Lookout, Text};
use tokio::task::JoinSet;

use super::VipController;
use crate::{
    controller::{Reconciled, site::Site},
    systems::cluster_api::{claim::left, pool::growth::is_of_copy},
};

/// After a failure, for which no pool waits.
const RETRY: Duration = Duration::from_secs(5);

/// Pools wait no longer once nobody looks.
struct Ending<'a>(&'a Site);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let site = self.0;
        site.ipam.end_look_out(&site.id, &site.system);
    }
}

impl VipController {
    /// Has new pools wait, and takes in what Clusters show of them, until the session ends. The first adoption took in what they
    /// show of the pools up to the growth `adopted`.
    pub fn keep_looking_out(self: &Arc<Self>, adopted: u64, tasks: &mut JoinSet<()>) {
        let vips = Arc::clone(self);
        tasks.spawn(async move {
            let cancel = vips.context.site.cancel();
            let _: Option<()> = cancel.run_until_cancelled(vips.look_out(adopted)).await;
        });
    }

    async fn look_out(&self, mut seen: u64) {
        let site = &*self.context.site;
        self.context.objects.completed().await;
        let _ending = Ending(site);
        let mut growth = site.ipam.growth();
        loop {
            let latest = *growth.borrow_and_update();
            if latest != seen
                && let Err(error) = self.take_in_shown().await
            {
                tracing::warn!(cluster = %site.name, "what Clusters show of new pools is not kept yet: {error}");
                site.ipam.end_look_out(&site.id, &site.system);
                tokio::time::sleep(RETRY).await;
                continue;
            }
            seen = latest;
            let lookout = Lookout {
                name: Text::clone(&site.name),
                networks: site.session.networks(&site.system),
                seen,
            };
            site.ipam.look_out(&site.id, &site.system, lookout);
            if growth.changed().await.is_err() {
                return;
            }
        }
    }

    async fn take_in_shown(&self) -> Reconciled<()> {
        let (site, pools) = (&self.context.site, self.pools());
        for (key, cluster) in self.context.objects.all() {
            for used in self.uses(&key, &cluster, &pools) {
                let is_moved = |ledger: &Ledger| is_of_copy(ledger, site, &key, used.key);
                if !self.context.read(is_moved) {
                    self.take_in((&key, &cluster), used.key).await?;
                }
            }
        }
        for key in self.claims.user.addresses.keys() {
            left::keep(&self.claims, &key).await?;
        }
        Ok(())
    }
}
