//! What is kept of the objects in Rancher that say what a guest is to have.

use std::sync::Arc;

use fipd_core::Text;
use fipd_crds::{
    floating_ip::FloatingIPProjectQuota,
    labels::{CA_KEY, CA_SECRET, CONFIG_NAME},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, core::PartialObjectMeta as Named};
use tokio::task::JoinSet;

use super::{Guests, notes};
use crate::{
    controller::{
        meta::Meta,
        store::{Key, Objects},
        tasks::{spawn, spawn_from},
    },
    guests::{objects, sources::GuestListener},
    systems::rancher_fip::settings::RancherFipSettings,
};

/// The objects of one connection to Rancher.
#[derive(Default)]
pub struct ManagerObjects {
    pub quotas: Arc<Objects<Meta>>,
    /// The CA in the app namespace, PEM.
    pub ca: Arc<Objects<String>>,
}

impl ManagerObjects {
    /// Whether the project has a quota that is there to stay.
    pub fn has_quota(&self, project: &str) -> bool {
        let quota = self.quotas.get(&Key::new("", project));
        quota.is_some_and(|quota| quota.deleted.is_none())
    }
}

/// A project's quota, as far as it matters to its Secrets. Its status, which changes with every address, does not, and
/// neither does what else it says: one that does not fit its schema has its Secrets removed as any other.
fn quota(object: Named<FloatingIPProjectQuota>) -> Option<Meta> {
    Some(Meta {
        version: String::new(),
        generation: None,
        ..Meta::of(&object.metadata)
    })
}

/// Follows all of them, and says which guests each change is about.
pub fn watch(guests: &Arc<Guests>, tasks: &mut JoinSet<()>) {
    let (site, seen) = (&*guests.site, &guests.seen);
    guests.sources.watch(site, guests, tasks);
    let client = &site.session.client;
    let app = &*site.settings::<RancherFipSettings>().app_namespace;
    let all = Arc::clone(guests);
    spawn(tasks, site, Arc::clone(&seen.quotas), quota, move |key| {
        all.quota_changed(key)
    });
    let all = Arc::clone(guests);
    guests
        .maps
        .follow(site, tasks, move |key| all.map_changed(key));
    let all = Arc::clone(guests);
    let api = Api::namespaced(client.clone(), app);
    spawn_from(api, tasks, site, Arc::clone(&seen.ca), ca, move |_| {
        all.everything_changed()
    });
}

fn ca(secret: Secret) -> Option<String> {
    let named = secret.metadata.name.as_deref() == Some(CA_SECRET);
    let text = objects::texts(&secret).remove(CA_KEY)?;
    named.then_some(text)
}

impl Guests {
    pub fn cluster_changed(&self, key: &Key) {
        self.queue.add(key.clone());
        // A Harvester cluster is known to its guests by its display name.
        if self
            .data
            .clusters
            .get(key)
            .is_none_or(|cluster| cluster.harvester)
        {
            self.everything_changed();
        }
    }

    /// Something that several guests may depend on.
    pub fn everything_changed(&self) {
        for (key, cluster) in self.data.clusters.all() {
            if cluster.is_guest() {
                self.queue.add(key);
            }
        }
        self.notes_changed();
    }

    /// Those that are noted and are no guests are to be left.
    pub(super) fn notes_changed(&self) {
        for id in self.noted_ids() {
            let key = Key::new("", &id);
            let cluster = self.data.clusters.get(&key);
            if cluster.is_none_or(|cluster| !cluster.is_guest()) {
                self.queue.add(key);
            }
        }
    }

    /// A project came or went.
    pub fn project_changed(&self, key: &Key) {
        self.quotas.queue.add(Key::new("", &key.name));
        self.everything_changed();
    }

    pub(super) fn quota_changed(&self, key: &Key) {
        self.quotas.queue.add(key.clone());
        // Guests on Harvester may use any project.
        self.everything_changed();
    }

    pub(super) fn map_changed(&self, key: &Key) {
        if &*key.name == CONFIG_NAME {
            self.everything_changed();
        }
        if &*key.name == notes::NOTES {
            self.data.homes.note(self.noted_projects());
            self.notes_changed();
        }
    }
}

impl GuestListener for Guests {
    fn provisioned_changed(&self, key: &Key) {
        let provisioned = self.sources.provisioned.get(key);
        let id = provisioned.and_then(|one| one.id.clone());
        let names = [Text::clone(&key.name)];
        for id in id.into_iter().chain(self.data.names.called(&names)) {
            self.queue.add(Key::new("", &id));
        }
    }

    fn machines_changed(&self) {
        self.everything_changed();
    }

    fn kubeconfig_changed(&self, name: &str) {
        if let Some(id) = self.data.names.called(&[name.into()]) {
            self.cluster_changed(&Key::new("", &id));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_with_another_status_is_the_same() {
        let kept = |version: &str, used: u8| {
            let object = json!({
                "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPProjectQuota",
                "metadata": { "name": "p-1", "uid": "u", "resourceVersion": version },
                "spec": { "floatingIPQuota": { "net": 5 } },
                "status": { "fips": { "net": { "used": used } } },
            });
            quota(serde_json::from_value(object).unwrap())
        };
        assert_eq!(kept("7", 1), kept("8", 2));
    }
}
