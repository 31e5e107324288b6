//! What holds for guests: settings and projects, as they were seen last.

use fipd_crds::labels::CONFIG_NAME;

use super::{Guests, plan::Project, settings::Settings};
use crate::{config::ClusterManager, controllers::objects::Key};

impl Guests {
    pub(super) fn given(&self) -> &ClusterManager {
        &self.site.session.settings.rancher_fip.cluster_manager
    }

    pub(super) fn app_namespace(&self) -> &str {
        &self.site.session.settings.rancher_fip.app_namespace
    }

    /// What holds for all guests. A ConfigMap that is gone says nothing: what it said before stays.
    pub(super) fn settings(&self) -> Settings {
        let key = Key::new(self.app_namespace(), CONFIG_NAME);
        let map = self.seen.maps.get(&key);
        let gone = map.is_none();
        let said = {
            let mut said = self.said.lock();
            *said = map.or_else(|| said.take());
            said.clone()
        };
        let mut settings = Settings::new(said.as_deref(), self.given(), self.own.url.as_deref());
        settings.held = gone && said.is_some();
        settings
    }

    /// What holds for one of them.
    pub(super) fn settings_of(&self, id: &str) -> Settings {
        self.settings().of(self.notes().get(id))
    }

    pub(super) fn projects(&self) -> Vec<Project> {
        let keys = self.data.projects.keys().into_iter();
        let project = |key: Key| Project {
            id: key.name.to_string(),
            namespace: key.namespace.to_string(),
        };
        keys.map(project).collect()
    }
}
