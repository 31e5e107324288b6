//! What holds for guests: settings and projects, as they were seen last.

use std::sync::Arc;

use fipd_crds::labels::CONFIG_NAME;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::{
    Guests, Stop,
    plan::{GuestWait, Project},
    settings::Settings,
};
use crate::{
    controller::{client::CallError, kind::CONFIG_MAP, owned, store::Key},
    guests::{objects, objects::Texts},
    systems::rancher_fip::settings::{ClusterManager, RancherFipSettings},
};

/// ConfigMap in the app namespace: what `rancher-fip-config` said when it was last there.
pub const COPY: &str = "fipd-settings";

impl Guests {
    pub(super) fn given(&self) -> &ClusterManager {
        &self.site.settings::<RancherFipSettings>().cluster_manager
    }

    pub(super) fn app_namespace(&self) -> &str {
        &self.site.settings::<RancherFipSettings>().app_namespace
    }

    /// What holds for all guests. A ConfigMap that is gone says nothing: what it said before stays.
    pub(super) fn settings(&self) -> Settings {
        let map = self.map(CONFIG_NAME);
        let gone = map.is_none();
        let said = {
            let mut said = self.said.lock();
            *said = map.or_else(|| said.take()).or_else(|| self.map(COPY));
            said.clone()
        };
        let of = |map: Option<&Texts>| Settings::new(map, self.given(), self.own.url.as_deref());
        let settings = of(said.as_deref());
        match gone && said.is_some() {
            true => settings.instead_of(&of(None)),
            false => settings,
        }
    }

    pub(super) fn map(&self, name: &str) -> Option<Arc<Texts>> {
        self.seen.maps.get(&Key::new(self.app_namespace(), name))
    }

    /// Keeps what the ConfigMap says, so that it holds after a restart too. Before anything is written by it.
    pub(super) async fn keep_said(&self) -> Result<(), Stop> {
        match self.map(CONFIG_NAME) {
            Some(said) if self.map(COPY).as_ref() != Some(&said) => {
                self.change_map(COPY, |_| Some(Texts::clone(&said))).await
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a fresh read of the ConfigMap says what is known of it.
    pub(super) async fn still_said(&self) -> Result<bool, CallError> {
        let target = CONFIG_MAP.named(self.app_namespace(), CONFIG_NAME);
        let found: Option<ConfigMap> = self.data.remote.get(&target).await?;
        let said = found.map(|map| map.data.unwrap_or_default());
        Ok(said.as_ref() == self.map(CONFIG_NAME).as_deref())
    }

    /// Makes a ConfigMap of fipd's own in the app namespace hold exactly what `change` makes of a fresh look at it, where
    /// that is anything: nothing that another turn wrote is lost, and nothing old stays.
    pub(super) async fn change_map(
        &self,
        name: &str,
        change: impl FnOnce(&Texts) -> Option<Texts>,
    ) -> Result<(), Stop> {
        let _turn = self.writing.lock().await;
        let target = CONFIG_MAP.named(self.app_namespace(), name);
        let remote = &self.data.remote;
        let found: Option<ConfigMap> = remote.get(&target).await?;
        let have = found.as_ref().and_then(|map| map.data.clone());
        let have = have.unwrap_or_default();
        let Some(want) = change(&have) else {
            return Ok(());
        };
        let written = match (&found, objects::differing(&have, &want, true)) {
            (Some(_), None) => Ok(()),
            (Some(map), Some(data)) => {
                let change = json!({ "data": data });
                owned::put_unchanged(remote, &target, &map.metadata, change).await
            }
            (None, _) => {
                let map = json!({ "data": want });
                owned::create(remote, CONFIG_MAP, &target, map).await
            }
        };
        match written {
            Err(CallError::NotFound(_)) => {
                return Err(GuestWait::NoAppNamespace(self.app_namespace().to_owned()).into());
            }
            other => other?,
        }
        // The turns that follow need not wait for the watch.
        (self.seen.maps).set(&Key::new(self.app_namespace(), name), want);
        Ok(())
    }

    /// What holds for one of them.
    pub(super) fn settings_of(&self, id: &str) -> Settings {
        let noted = self.noted(id);
        let noted = noted.as_ref().map(|note| &*note.namespace);
        self.settings()
            .of(noted.filter(|namespace| !namespace.is_empty()))
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
