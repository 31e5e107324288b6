//! Guests that lose what fipd installed, and guests that are gone.

use fipd_crds::management::Cluster;
use kube::core::PartialObjectMeta;

use super::{SYSTEM, Stop, VipGuests, apply, notes::VipNote, plan::VipPlan};
use crate::{
    controller::{ReconcileError, client::Remote, queue::Next, store::Key},
    guests::{charts::release_owner, clusters::CLUSTER},
};

impl VipGuests {
    /// Rancher has no such cluster any more, and what was in it is gone with it. What it has counts as free once a fresh read, a
    /// minute later, finds none either.
    pub(super) async fn gone(&self, id: &str) -> Next {
        if self.noted(id) != VipNote::default() || !self.kept(id).is_empty() {
            let target = CLUSTER.named("", id);
            let read = async {
                let read = self.remote.get::<PartialObjectMeta<Cluster>>(&target);
                let found = read.await?;
                if found.is_none() {
                    // Only where it is this Rancher that answers.
                    let verified = self.site.session.verify_identity().await;
                    verified.map_err(|error| ReconcileError::internal(error.to_string()))?;
                }
                Ok::<_, ReconcileError>(found)
            };
            match self.absent.confirm(&id.to_owned(), read).await {
                Ok(None) => {}
                Ok(Some(pause)) => return Next::After(pause),
                Err(error) => {
                    tracing::warn!(cluster = id, %error, "it is not known yet whether the cluster is gone; it is tried again");
                    return Next::Retry;
                }
            }
        }
        self.board.remove(&self.site.name, id, SYSTEM);
        self.charts.forget(id);
        self.charts.forget_uninstall(id);
        self.access.rest(id);
        self.counts.forget(id);
        let forgotten = async {
            self.release_kept(id, "its guest is gone").await?;
            self.note(id, |_| VipNote::default()).await
        };
        match forgotten.await {
            Ok(()) => Next::Done,
            Err(stop) => {
                let error = stop.text();
                tracing::warn!(
                    cluster = id,
                    error,
                    "the note of a cluster that is gone is not removed yet; it is tried again"
                );
                Next::Retry
            }
        }
    }

    /// Uninstalls what fipd installed. Then Harvester's own kube-vip runs again.
    pub(super) async fn leave(
        &self,
        id: &str,
        remote: &Remote,
        plan: &VipPlan,
    ) -> Result<(), Stop> {
        let ask = || self.chart_queue.add(Key::new("", id));
        let kept = self.charts.uninstalled(id, ask)?;
        let kept = kept.iter().filter_map(|place| place.split_once('/'));
        let [kube_vip, _] = &self.config().releases;
        let configured = (&*kube_vip.namespace, &*kube_vip.name);
        for (namespace, name) in kept.chain([configured]) {
            let found = release_owner(remote, namespace, name, SYSTEM).await?;
            if found.is_some() {
                // One that fipd did not install stays until somebody uninstalls it: two would answer for the same addresses.
                return Ok(());
            }
        }
        apply::harvester(remote, false).await?;
        // While it keeps an address, something that fipd wrote may be in use.
        if plan.keys.is_empty() && self.kept(id).is_empty() {
            self.note(id, |note| VipNote {
                written: false,
                ..note
            })
            .await?;
        }
        Ok(())
    }
}
