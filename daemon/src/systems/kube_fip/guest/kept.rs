//! Addresses that a guest may use although no FloatingIP has them any more: one was deleted, or took another. The lease stays
//! with the guest until no Service of it shows the address and its ConfigMap offers it to none, which is looked at after that
//! was written.

use std::time::Duration;

use fipd_core::{ClusterId, Holder, LeaseKey, Ledger, ReleaseScope, Text};
use fipd_crds::labels::FLEET_NAMESPACE;
use tokio::time::Instant;

use super::{Stop, VipGuests, charts, observe::is_guest};
use crate::{
    controller::{
        ReconcileError,
        client::Remote,
        queue::Next,
        store::{Key, Observed},
    },
    systems::kube_fip::floating_ip::FipView,
};

/// Name of the holder; its namespace is Rancher's id of the guest.
const NAME: &str = "in-use";

/// After this time a guest is looked at again where an address that it keeps was seen unused.
pub const AGAIN: Duration = Duration::from_secs(30);

impl VipGuests {
    /// Kind of the holder.
    pub const KEEPER: &str = "Guest";

    /// Who holds what a guest may use still.
    pub fn keeper(&self, id: &str) -> Holder {
        let key = Key::new(id, NAME);
        Holder {
            identity: key.identity(self.site.system.clone(), &self.site.id, Self::KEEPER),
            instance: "".into(),
        }
    }

    /// Queues the guests that keep addresses or contend for them, also those that Rancher has no more.
    pub(super) async fn queue_keepers(&self) {
        let keepers = self.site.owners(Self::KEEPER, |_| true).await;
        let guests = keepers.iter().map(|key| Key::new("", &key.namespace));
        guests.for_each(|key| self.queue.add(key));
        let contended = |ledger: &Ledger| ledger.contended_by(&self.site.id, None, Ledger::SCAN);
        for lease in self.site.ipam.read(contended) {
            let contenders = lease.contenders.iter().map(|one| &one.holder.identity);
            let ours = contenders
                .filter(|one| one.system == self.site.system && *one.kind == *Self::KEEPER);
            ours.for_each(|one| self.queue.add(Key::new("", &one.namespace)));
        }
    }

    /// The id of the Rancher that has them.
    pub fn rancher(&self) -> &ClusterId {
        &self.site.id
    }

    /// Rancher's ids of the guests that one of these names means; `None`: they are not listed yet.
    pub fn called(&self, names: &[Text]) -> Option<Vec<String>> {
        let clusters = &self.seen.clusters;
        let means = |text: &str| names.iter().any(|name| **name == *text);
        let called = clusters.all().into_iter().filter(|(key, cluster)| {
            is_guest(&key.name) && (means(&key.name) || means(&cluster.display_name))
        });
        let called = called.map(|(key, _)| key.name.to_string());
        clusters.is_complete().then(|| called.collect())
    }

    /// Whether the guest of a FloatingIP may use its address. One that is not listed yet, or cannot be read, may.
    pub fn may_use(&self, id: &str, fip: &FipView) -> bool {
        let provisioned = &self.sources.provisioned;
        if !self.is_there(id) {
            return false;
        }
        let made = fip
            .cluster
            .as_deref()
            .map(|name| Key::new(FLEET_NAMESPACE, name));
        match made.and_then(|made| provisioned.seen(&made)) {
            // One that has lost its status may be this guest's. Whatever the FloatingIP says by now: what was written into the
            // guest may have its address.
            Some(Observed::Parsed(made)) => {
                made.id.as_deref().is_none_or(|made| made == id) || self.may_be_touched(id)
            }
            Some(Observed::Malformed(_)) => true,
            None => !provisioned.is_complete() || self.may_be_touched(id),
        }
    }

    /// Whether Rancher has a guest of this id that is looked after, or may have it.
    pub fn is_there(&self, id: &str) -> bool {
        if !is_guest(id) {
            return false;
        }
        match self.seen.clusters.seen(&Key::new("", id)) {
            // Its machines outlive it in Rancher.
            Some(Observed::Parsed(cluster)) => {
                let is_left = cluster.ending && !self.may_be_touched(id);
                !is_left && !cluster.harvester && !cluster.local
            }
            Some(Observed::Malformed(_)) => true,
            // Its note goes once it is known to be gone.
            None => !self.seen.clusters.is_complete() || self.may_be_written(id),
        }
    }

    /// Whether fipd or an original may have written to the guest.
    fn may_be_touched(&self, id: &str) -> bool {
        !self.maps.seen.is_complete() || !self.is_untouched(id)
    }

    /// The same of fipd alone. FloatingIPs are worked on before the notes are listed: until then it may have.
    fn may_be_written(&self, id: &str) -> bool {
        !self.maps.seen.is_complete() || self.noted(id).written
    }

    /// What the guest keeps, or contends for.
    pub(super) fn kept(&self, id: &str) -> Vec<LeaseKey> {
        let keeper = self.keeper(id).identity;
        let with = |ledger: &Ledger| ledger.leases_with(&keeper, None, usize::MAX);
        let held = self.site.ipam.read(with);
        held.iter().map(|lease| lease.key).collect()
    }

    /// Releases what no Service of the guest has, and none can get any more. Twice in a row: the cloud provider may be about to
    /// write into a Service what it read in the ConfigMap before that changed.
    pub(super) async fn release_unused(&self, id: &str, remote: &Remote) -> Result<(), Stop> {
        let kept = self.kept(id);
        if kept.is_empty() {
            self.unused.lock().remove(id);
            return Ok(());
        }
        let (offers, services) = charts::offered_and_shown(remote).await?;
        let shown = |kept: &LeaseKey| {
            let mut services = services.iter();
            services.any(|service| service.addresses.contains(&kept.address))
        };
        let used = |kept: &LeaseKey| shown(kept) || offers(kept.address);
        let unused: Vec<LeaseKey> = kept.into_iter().filter(|kept| !used(kept)).collect();
        let unused = self.unused_for_long(id, unused);
        if unused.is_empty() {
            return Ok(());
        }
        let scope = ReleaseScope::HolderAddresses(self.keeper(id), unused);
        let reason = "no Service of the guest shows it or can get it";
        let released = self.site.release(scope, reason).await;
        Ok(released.map_err(ReconcileError::from)?)
    }

    /// What of this was unused at a look some time ago too.
    fn unused_for_long(&self, id: &str, unused: Vec<LeaseKey>) -> Vec<LeaseKey> {
        let (now, mut all) = (Instant::now(), self.unused.lock());
        let before = all.remove(id).unwrap_or_default();
        let since = |key: &LeaseKey| before.get(key).copied().unwrap_or(now);
        let (done, rest): (Vec<_>, Vec<_>) = (unused.into_iter().map(|key| (key, since(&key))))
            .partition(|(_, since)| now - *since >= AGAIN);
        if !rest.is_empty() {
            all.insert(id.to_owned(), rest.into_iter().collect());
        }
        done.into_iter().map(|(key, _)| key).collect()
    }

    /// When to look at a guest again that needs no look before `pause` is over.
    pub(super) fn next_look(&self, id: &str, pause: Duration) -> Next {
        let pause = pause.min(self.config().interval);
        Next::After(match self.unused.lock().contains_key(id) {
            true => pause.min(AGAIN),
            false => pause,
        })
    }

    /// Releases all that a guest keeps.
    pub(super) async fn release_kept(&self, id: &str, reason: &str) -> Result<(), Stop> {
        self.unused.lock().remove(id);
        if self.kept(id).is_empty() {
            return Ok(());
        }
        let scope = ReleaseScope::Holder(self.keeper(id));
        let released = self.site.release(scope, reason).await;
        Ok(released.map_err(ReconcileError::from)?)
    }
}
