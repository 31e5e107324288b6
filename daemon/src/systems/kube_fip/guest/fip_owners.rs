//! Which FloatingIPs own leases, by namespace. They are listed once and then follow the changes of the ledger: a look at a guest
//! reads what changed since the last look, and not every lease of its Rancher.

use std::collections::BTreeSet;

use fipd_core::{Identity, Ledger};
use tokio::sync::Mutex;

use crate::{
    controller::{site::Site, store::Key},
    systems::kube_fip::names::FLOATING_IP,
};

/// Changes, and identities with their few leases, that one look at the ledger takes.
const STEP: usize = Ledger::SCAN / 4;

/// The FloatingIPs of one Rancher that own a lease.
#[derive(Default)]
pub(super) struct FipOwners(Mutex<KnownOwners>);

#[derive(Default)]
struct KnownOwners {
    /// The last revision of the ledger that counts here; `None`: nothing is known yet.
    revision: Option<u64>,
    owners: BTreeSet<Key>,
}

impl FipOwners {
    /// Those of a namespace, by name.
    pub async fn in_namespace(&self, site: &Site, namespace: &str) -> Vec<Key> {
        let mut known = self.0.lock().await;
        known.catch_up(site).await;
        let from = known.owners.range(Key::new(namespace, "")..);
        let own = from.take_while(|key| *key.namespace == *namespace);
        own.cloned().collect()
    }
}

impl KnownOwners {
    async fn catch_up(&mut self, site: &Site) {
        loop {
            let Some(since) = self.revision else {
                self.list(site).await;
                continue;
            };
            let changes = site.ipam.read(|ledger| ledger.changes_page(since, STEP));
            // They may be too many to be remembered.
            let Ok(changes) = changes else {
                self.revision = None;
                continue;
            };
            let Some(last) = changes.last() else {
                return;
            };
            let changed = changes.iter().flat_map(|change| &change.identities);
            let ours: Vec<&Identity> = changed.filter(|one| is_fip(site, one)).collect();
            self.look_at(site, &ours);
            self.revision = Some(last.revision);
            tokio::task::yield_now().await;
        }
    }

    /// What changes meanwhile is looked at once more.
    async fn list(&mut self, site: &Site) {
        let revision = site.ipam.read(Ledger::revision);
        self.owners = site.owners(FLOATING_IP.kind, |_| true).await;
        self.revision = Some(revision);
    }

    fn look_at(&mut self, site: &Site, identities: &[&Identity]) {
        for some in identities.chunks(STEP) {
            let own: Vec<bool> = site.ipam.read(|ledger| {
                let owns = |one: &&Identity| !ledger.leases_of(one).is_empty();
                some.iter().map(owns).collect()
            });
            for (identity, owns) in some.iter().zip(own) {
                let key = Key::of_identity(identity);
                match owns {
                    true => self.owners.insert(key),
                    false => self.owners.remove(&key),
                };
            }
        }
    }
}

fn is_fip(site: &Site, identity: &Identity) -> bool {
    *identity.kind == *FLOATING_IP.kind
        && identity.system == site.system
        && identity.cluster.as_ref() == Some(&site.id)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::{Answer, Holder, ReleaseScope, Request, System, testing};

    use super::*;
    use crate::{
        clock, clusters::testing::session, controller::fake_api_tests::client, ipam::Ipam,
    };

    #[tokio::test]
    async fn the_owners_of_a_namespace_follow_every_lease_that_comes_and_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let session = session(client(&Arc::default()), &ipam).await;
        let site = Site::new(session, System::kube_fip());
        let submit = async |request| ipam.submit(request).await.expect("it is granted");
        let spec = testing::pool_spec("net", &["10.0.0.0/24"]);
        let Answer::Pool(pool) = submit(testing::create_pool(spec)).await else {
            panic!("no pool");
        };
        let holder = |(namespace, name): (&str, &str), kind: &str| Holder {
            identity: Key::new(namespace, name).identity(site.system.clone(), &site.id, kind),
            instance: "u".into(),
        };
        let take = async |holder: Holder| {
            let ask = testing::allocate(holder, [testing::want(pool.id, None)]);
            submit(Request::Allocate(ask)).await;
        };
        let owners = FipOwners::default();
        let named = async |namespace: &str| -> Vec<String> {
            let keys = owners.in_namespace(&site, namespace).await;
            keys.iter().map(|key| key.name.to_string()).collect()
        };
        let fip = |name: &'static str| holder(("c-m-1", name), FLOATING_IP.kind);
        take(fip("first")).await;
        assert_eq!(named("c-m-1").await, ["first"]);
        take(fip("second")).await;
        take(holder(("c-m-1", "keeper"), "Guest")).await;
        take(holder(("c-m-10", "other"), FLOATING_IP.kind)).await;
        assert_eq!(named("c-m-1").await, ["first", "second"]);
        assert_eq!(named("c-m-10").await, ["other"]);
        let released = site
            .release(ReleaseScope::Holder(fip("first")), "test")
            .await;
        released.expect("it is released");
        assert_eq!(named("c-m-1").await, ["second"]);
        assert_eq!(named("c-m-2").await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_look_lists_no_lease_again_unless_the_changes_are_not_known() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let session = session(client(&Arc::default()), &ipam).await;
        let site = Site::new(session, System::kube_fip());
        let owners = FipOwners::default();
        owners.in_namespace(&site, "c-m-1").await;
        // A list would take it out.
        let mark = Key::new("c-m-1", "mark");
        owners.0.lock().await.owners.insert(mark.clone());
        assert_eq!(owners.in_namespace(&site, "c-m-1").await, [mark]);
        owners.0.lock().await.revision = None;
        assert!(owners.in_namespace(&site, "c-m-1").await.is_empty());
    }
}
