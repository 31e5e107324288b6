//! What holds for guests: settings and projects, as they were seen last.

use std::{collections::BTreeMap, sync::Arc};

use fipd_crds::labels::CONFIG_NAME;
use serde_json::{Value, json};

use super::{
    Guests, Stop, apply,
    plan::{Project, Wait},
    settings::Settings,
};
use crate::{
    config::ClusterManager,
    controllers::{
        objects::Key,
        remote::{CallError, Patch},
    },
};

/// ConfigMap in the app namespace: what `rancher-fip-config` said when it was last there.
const COPY: &str = "fipd-settings";

type Texts = BTreeMap<String, String>;

impl Guests {
    pub(super) fn given(&self) -> &ClusterManager {
        &self.site.session.settings.rancher_fip.cluster_manager
    }

    pub(super) fn app_namespace(&self) -> &str {
        &self.site.session.settings.rancher_fip.app_namespace
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

    fn map(&self, name: &str) -> Option<Arc<Texts>> {
        self.seen.maps.get(&Key::new(self.app_namespace(), name))
    }

    /// Keeps what the ConfigMap says, so that it holds after a restart too. Before anything is written by it.
    pub(super) async fn keep_said(&self) -> Result<(), Stop> {
        let Some(said) = self.map(CONFIG_NAME) else {
            return Ok(());
        };
        let mut kept = self.kept.lock().await;
        let have = kept.take().or_else(|| self.map(COPY));
        if have.as_ref() != Some(&said) {
            let have = have.as_deref().cloned().unwrap_or_default();
            let data = apply::differing(&have, &said, true).unwrap_or_else(|| json!({}));
            self.write_map(COPY, json!({ "data": data })).await?;
        }
        *kept = Some(said);
        Ok(())
    }

    /// Changes a ConfigMap of the app namespace, or makes it.
    pub(super) async fn write_map(&self, name: &str, change: Value) -> Result<(), Stop> {
        let target = apply::core("configmaps", self.app_namespace(), name);
        let remote = &self.data.remote;
        let written = match remote.patch(&target, Patch::Merge, &change).await {
            Err(CallError::NotFound(_)) => {
                apply::create(remote, &target, "ConfigMap", change).await
            }
            other => other,
        };
        match written {
            Err(CallError::NotFound(_)) => {
                Err(Wait::NoAppNamespace(self.app_namespace().to_owned()).into())
            }
            other => Ok(other?),
        }
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
