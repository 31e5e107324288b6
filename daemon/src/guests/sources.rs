//! The objects in Rancher that say where guests run and how they are reached.

use std::sync::Arc;

use fipd_crds::{
    labels::{FLEET_NAMESPACE, KUBECONFIG_SUFFIX},
    machine_config::HarvesterConfig,
    provisioning::Cluster,
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    core::PartialObjectMeta as Named,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::task::JoinSet;

use super::hosting::{Machine, MarkKey, Provisioned};
use crate::{
    clusters::{self, watch::Watch},
    controller::{
        site::Site,
        store::{Key, Objects},
        tasks::spawn,
    },
};

/// The objects of one connection to Rancher.
#[derive(Default)]
pub struct GuestSources {
    pub provisioned: Arc<Objects<Provisioned>>,
    pub machines: Arc<Objects<Machine>>,
    /// Labels and annotations of provisioning Clusters that the system reads.
    pub reads: &'static [MarkKey],
}

/// Who hears of a change.
pub trait GuestListener: Send + Sync + 'static {
    fn provisioned_changed(&self, key: &Key);
    /// A HarvesterConfig changed.
    fn machines_changed(&self);
    /// The Secret `NAME-kubeconfig` changed.
    fn kubeconfig_changed(&self, name: &str);
}

impl GuestSources {
    /// Follows them until the session ends.
    pub fn watch<L: GuestListener>(&self, site: &Site, listener: &Arc<L>, tasks: &mut JoinSet<()>) {
        let all = Arc::clone(listener);
        let reads = self.reads;
        let view = move |object: Cluster| Some(Provisioned::view(object, reads));
        let provisioned = Arc::clone(&self.provisioned);
        spawn(tasks, site, provisioned, view, move |key| {
            all.provisioned_changed(key);
        });
        let all = Arc::clone(listener);
        let view = |object: HarvesterConfig| Some(Machine::view(object));
        spawn(tasks, site, Arc::clone(&self.machines), view, move |_| {
            all.machines_changed();
        });
        let all = Arc::clone(listener);
        let (client, cancel) = (site.session.client.clone(), site.cancel());
        let follow = kubeconfigs(client, move |name| all.kubeconfig_changed(name));
        tasks.spawn(async move { cancel.run_until_cancelled(follow).await.unwrap_or(()) });
    }

    /// How Rancher made a cluster, and the machines of its control plane.
    pub fn of(&self, id: &str, display: &str) -> (Option<Arc<Provisioned>>, Option<Arc<Machine>>) {
        let Some((key, provisioned)) = self.provisioned_of(id, display) else {
            return (None, None);
        };
        let machine = provisioned.machine();
        let machine = machine.and_then(|config| self.machine(&key, config));
        (Some(provisioned), machine)
    }

    /// The machines of a provisioned cluster that are made from this HarvesterConfig.
    pub fn machine(&self, cluster: &Key, config: &str) -> Option<Arc<Machine>> {
        self.machines.get(&Key::new(&cluster.namespace, config))
    }

    /// A name counts only where no id says otherwise.
    pub fn provisioned_of(&self, id: &str, display: &str) -> Option<(Key, Arc<Provisioned>)> {
        let all = self.provisioned.all();
        let by_id = all.iter().find(|(_, one)| one.id.as_deref() == Some(id));
        let by_name = || {
            all.iter()
                .find(|(key, one)| one.id.is_none() && [id, display].contains(&&*key.name))
        };
        by_id.or_else(by_name).cloned()
    }
}

/// Tells what the Secret is named after whenever one with a kubeconfig changes. Only their metadata is read.
async fn kubeconfigs(client: Client, changed: impl Fn(&str) + Send) {
    let api: Api<Named<Secret>> = Api::namespaced(client, FLEET_NAMESPACE);
    let stream = Watch::new(api, watcher::Config::default()).into_stream();
    let mut stream = std::pin::pin!(stream.touched_objects());
    while let Some(event) = stream.next().await {
        match event {
            Ok(object) => {
                if let Some(name) = object.name_any().strip_suffix(KUBECONFIG_SUFFIX) {
                    changed(name);
                }
            }
            Err(error) => {
                let error = clusters::explain(&error);
                tracing::warn!(%error, "the watch of kubeconfig Secrets was interrupted; it is taken up again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provisioning_cluster_belongs_to_the_cluster_it_names_and_else_to_its_namesake() {
        let sources = GuestSources::default();
        let of = |id: &str, display: &str| {
            let found = sources.provisioned_of(id, display);
            found.map(|(key, _)| key.name.to_string())
        };
        let put = |name: &str, id: Option<&str>| {
            let one = Provisioned {
                id: id.map(str::to_owned),
                ..Provisioned::default()
            };
            sources
                .provisioned
                .set(&Key::new("fleet-default", name), one);
        };
        assert_eq!(of("c-1", "prod"), None);
        put("prod", None);
        assert_eq!(of("c-1", "prod").as_deref(), Some("prod"));
        put("prod", Some("c-2"));
        assert_eq!(of("c-1", "prod"), None, "it is another's");
        put("other", Some("c-1"));
        assert_eq!(of("c-1", "prod").as_deref(), Some("other"));
    }
}
