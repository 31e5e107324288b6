//! The ConfigMaps of one namespace in the cluster of Rancher: the admin's, and those in which a system keeps what has to
//! outlast a restart.

use std::sync::Arc;

use fipd_core::Text;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tokio::task::JoinSet;

use super::objects::{Texts, change_config_map};
use crate::controller::{
    client::{CallError, Remote},
    kind::CONFIG_MAP,
    site::Site,
    store::{Key, Objects},
    tasks::spawn_from,
};

/// As they were seen last.
pub struct ConfigMaps {
    pub seen: Arc<Objects<Texts>>,
    rancher: Remote,
    namespace: Text,
    /// Whoever changes one of fipd's own holds it.
    writing: tokio::sync::Mutex<()>,
}

impl ConfigMaps {
    pub fn new(rancher: Remote, namespace: &Text) -> Self {
        Self {
            seen: Objects::new(),
            rancher,
            namespace: Text::clone(namespace),
            writing: tokio::sync::Mutex::default(),
        }
    }

    /// Follows them until the session ends.
    pub fn follow(
        &self,
        site: &Site,
        tasks: &mut JoinSet<()>,
        changed: impl Fn(&Key) + Send + Sync + 'static,
    ) {
        let api = Api::namespaced(site.session.client.clone(), &self.namespace);
        let view = |map: ConfigMap| Some(map.data.unwrap_or_default());
        spawn_from(api, tasks, site, Arc::clone(&self.seen), view, changed);
    }

    pub fn get(&self, name: &str) -> Option<Arc<Texts>> {
        self.seen.get(&Key::new(&self.namespace, name))
    }

    /// Makes one of fipd's own hold exactly what `change` makes of a fresh look at it, where that is anything: nothing that
    /// another turn wrote is lost, and nothing old stays.
    pub async fn change(
        &self,
        name: &str,
        change: impl FnOnce(&Texts) -> Option<Texts>,
    ) -> Result<(), CallError> {
        let _turn = self.writing.lock().await;
        let target = CONFIG_MAP.named(&self.namespace, name);
        let now = change_config_map(&self.rancher, &target, change).await?;
        // The turns that follow need not wait for the watch.
        if let Some(now) = now {
            self.seen.set(&Key::new(&self.namespace, name), now);
        }
        Ok(())
    }
}
