//! What is kept of the objects in Rancher that say what a guest is to have.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::Timestamp;
use fipd_crds::{
    floating_ip::FloatingIPProjectQuota,
    labels::{CA_KEY, CA_SECRET},
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, core::PartialObjectMeta as Named};
use tokio::task::JoinSet;

use super::Guests;
use crate::{
    controller::{
        meta::created,
        store::{Key, Objects},
        tasks::{spawn, spawn_from},
    },
    guests::objects,
    systems::rancher_fip::settings::RancherFipSettings,
};

/// The objects of one connection to Rancher.
#[derive(Default)]
pub struct ManagerObjects {
    pub quotas: Arc<Objects<QuotaMeta>>,
    /// The ConfigMaps of the app namespace.
    pub maps: Arc<Objects<BTreeMap<String, String>>>,
    /// The CA in the app namespace, PEM.
    pub ca: Arc<Objects<String>>,
}

/// A project's quota, as far as it matters to its Secrets. Its status, which changes with every address, does not, and
/// neither does what else it says: one that does not fit its schema has its Secrets removed as any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaMeta {
    pub uid: String,
    pub finalizers: Vec<String>,
    /// Since when it is being deleted.
    pub deleted: Option<Timestamp>,
}

impl ManagerObjects {
    /// Whether the project has a quota that is there to stay.
    pub fn has_quota(&self, project: &str) -> bool {
        let quota = self.quotas.get(&Key::new("", project));
        quota.is_some_and(|quota| quota.deleted.is_none())
    }
}

impl QuotaMeta {
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
    guests.sources.watch(site, guests, tasks);
    let client = &site.session.client;
    let app = &*site.settings::<RancherFipSettings>().app_namespace;
    let all = Arc::clone(guests);
    let keep = |object: Named<FloatingIPProjectQuota>| Some(QuotaMeta::slim(object));
    spawn(tasks, site, Arc::clone(&seen.quotas), keep, move |key| {
        all.quota_changed(key)
    });
    let all = Arc::clone(guests);
    let keep = |map: ConfigMap| Some(map.data.unwrap_or_default());
    let api = Api::namespaced(client.clone(), app);
    spawn_from(api, tasks, site, Arc::clone(&seen.maps), keep, move |key| {
        all.map_changed(key)
    });
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
            QuotaMeta::slim(serde_json::from_value(object).unwrap())
        };
        assert_eq!(quota("7", 1), quota("8", 2));
    }
}
