//! What is kept of the objects in Rancher that say what a guest is to have.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use fipd_core::Timestamp;
use fipd_crds::{
    floating_ip::FloatingIPProjectQuota,
    labels::{CA_KEY, CA_SECRET, FLEET_NAMESPACE, KUBECONFIG_SUFFIX},
    machine_config::HarvesterConfig,
    provisioning::Cluster,
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    core::PartialObjectMeta as Named,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::Guests;
use crate::guests::{
    hosting::{Machine, Provisioned},
    objects,
};
use crate::{
    clusters::{self, lenient::Lenient, watch::Watch},
    controller::{
        meta::created,
        store::{Key, Objects, follow},
        tasks::spawn,
    },
    systems::rancher_fip::Site,
};

/// The objects of one connection to Rancher.
pub struct Seen {
    pub provisioned: Arc<Objects<Provisioned>>,
    pub machines: Arc<Objects<Machine>>,
    pub quotas: Arc<Objects<Quota>>,
    /// The ConfigMaps of the app namespace.
    pub maps: Arc<Objects<BTreeMap<String, String>>>,
    /// The CA in the app namespace, PEM.
    pub ca: Arc<Objects<String>>,
}

/// A project's quota, as far as it matters to its Secrets. Its status, which changes with every address, does not, and
/// neither does what else it says: one that does not fit its schema has its Secrets removed as any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    pub uid: String,
    pub finalizers: Vec<String>,
    /// Since when it is being deleted.
    pub deleted: Option<Timestamp>,
}

impl Seen {
    pub fn new() -> Self {
        Self {
            provisioned: Objects::new(),
            machines: Objects::new(),
            quotas: Objects::new(),
            maps: Objects::new(),
            ca: Objects::new(),
        }
    }

    /// How Rancher made a cluster. A name counts only where no id says otherwise.
    pub fn provisioned_of(&self, id: &str, display: &str) -> Option<(Key, Arc<Provisioned>)> {
        let all = self.provisioned.all();
        let by_id = all.iter().find(|(_, one)| one.id.as_deref() == Some(id));
        let by_name = || {
            all.iter()
                .find(|(key, one)| one.id.is_none() && [id, display].contains(&&*key.name))
        };
        by_id.or_else(by_name).cloned()
    }

    /// Whether the project has a quota that is there to stay.
    pub fn has_quota(&self, project: &str) -> bool {
        let quota = self.quotas.get(&Key::new("", project));
        quota.is_some_and(|quota| quota.deleted.is_none())
    }
}

impl Quota {
    fn slim(object: Named<FloatingIPProjectQuota>) -> Self {
        let meta = object.metadata;
        let deleted = meta.deletion_timestamp.as_ref();
        Self {
            uid: meta.uid.unwrap_or_default(),
            finalizers: meta.finalizers.unwrap_or_default(),
            deleted: deleted.map(|time| created(Some(time))),
        }
    }
}

/// Follows all of them, and says which guests each change is about.
pub fn watch(guests: &Arc<Guests>, tasks: &mut JoinSet<()>) {
    let (site, seen) = (&*guests.site, &guests.seen);
    let client = &site.session.client;
    let app = &*site.session.settings.rancher_fip.app_namespace;
    let all = Arc::clone(guests);
    let keep = |object: Cluster| Some(Provisioned::slim(object));
    spawn(
        tasks,
        site,
        Arc::clone(&seen.provisioned),
        keep,
        move |key| all.provisioned_changed(key),
    );
    let all = Arc::clone(guests);
    let keep = |object: HarvesterConfig| Some(Machine::slim(object));
    spawn(tasks, site, Arc::clone(&seen.machines), keep, move |_| {
        all.everything_changed()
    });
    let all = Arc::clone(guests);
    let keep = |object: Named<FloatingIPProjectQuota>| Some(Quota::slim(object));
    spawn(tasks, site, Arc::clone(&seen.quotas), keep, move |key| {
        all.quota_changed(key)
    });
    let all = Arc::clone(guests);
    let keep = |map: ConfigMap| Some(map.data.unwrap_or_default());
    let api = Api::namespaced(client.clone(), app);
    within(tasks, site, api, Arc::clone(&seen.maps), keep, move |key| {
        all.map_changed(key)
    });
    let all = Arc::clone(guests);
    let api = Api::namespaced(client.clone(), app);
    within(tasks, site, api, Arc::clone(&seen.ca), ca, move |_| {
        all.everything_changed()
    });
    let all = Arc::clone(guests);
    tasks.spawn(kubeconfigs(client.clone(), site.cancel(), move |name| {
        all.kubeconfig_changed(name)
    }));
}

fn ca(secret: Secret) -> Option<String> {
    let named = secret.metadata.name.as_deref() == Some(CA_SECRET);
    let text = objects::texts(&secret).remove(CA_KEY)?;
    named.then_some(text)
}

/// Follows a kind in one namespace.
fn within<K, T>(
    tasks: &mut JoinSet<()>,
    site: &Site,
    api: Api<Lenient<K>>,
    objects: Arc<Objects<T>>,
    keep: impl Fn(K) -> Option<T> + Send + Sync + 'static,
    changed: impl Fn(&Key) + Send + Sync + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    T: PartialEq + Debug + Send + Sync + 'static,
{
    tasks.spawn(follow(
        api,
        objects,
        keep,
        changed,
        site.memory(),
        site.cancel(),
    ));
}

/// Tells what the Secret is named after whenever one with a kubeconfig changes. Only their metadata is read.
async fn kubeconfigs(
    client: Client,
    cancel: tokio_util::sync::CancellationToken,
    changed: impl Fn(&str) + Send,
) {
    let api: Api<Named<Secret>> = Api::namespaced(client, FLEET_NAMESPACE);
    let stream = Watch::new(api, watcher::Config::default()).into_stream();
    let mut stream = std::pin::pin!(stream.touched_objects());
    loop {
        let event = tokio::select! {
            () = cancel.cancelled() => return,
            event = stream.next() => event,
        };
        match event {
            Some(Ok(object)) => {
                if let Some(name) = object.name_any().strip_suffix(KUBECONFIG_SUFFIX) {
                    changed(name);
                }
            }
            Some(Err(error)) => {
                let error = clusters::explain(&error);
                tracing::warn!(%error, "the watch of kubeconfig Secrets was interrupted; it is taken up again");
            }
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_with_another_status_is_the_same() {
        let quota = |version: &str, used: u8| {
            let object = json!({
                "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPProjectQuota",
                "metadata": { "name": "p-1", "uid": "u", "resourceVersion": version },
                "spec": { "floatingIPQuota": { "net": 5 } },
                "status": { "fips": { "net": { "used": used } } },
            });
            Quota::slim(serde_json::from_value(object).unwrap())
        };
        assert_eq!(quota("7", 1), quota("8", 2));
    }

    #[test]
    fn a_provisioning_cluster_belongs_to_the_cluster_it_names_and_else_to_its_namesake() {
        let seen = Seen::new();
        let of = |id: &str, display: &str| {
            let found = seen.provisioned_of(id, display);
            found.map(|(key, _)| key.name.to_string())
        };
        let put = |name: &str, id: Option<&str>| {
            let one = Provisioned {
                id: id.map(str::to_owned),
                ..Provisioned::default()
            };
            seen.provisioned.set(&Key::new("fleet-default", name), one);
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
