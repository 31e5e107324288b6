//! Which guests a change is about.

use fipd_core::Text;
use fipd_crds::labels::CONFIG_NAME;

use super::{Guests, notes};
use crate::{controller::store::Key, guests::sources::GuestListener};

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
