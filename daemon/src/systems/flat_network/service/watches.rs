//! The Services of a cluster and the pods behind them, followed once for all who write because of them.

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::Text;
use fipd_crds::flat_network::names::COMPANION_SUFFIX;
use k8s_openapi::api::core::v1::Service;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{
    name::{companion_key, is_long, may_be_shortened},
    observe::{FlatPodView, FlatServiceView, PodLabels},
    pod_index::{PodIndex, selects},
};
use crate::{
    controller::{
        context::Context,
        events::Events,
        kind::SERVICE,
        queue::Queue,
        site::Site,
        store::{Key, Objects},
        tasks::spawn,
    },
    systems::flat_network::names::pod_key,
};

/// See the module.
#[derive(Default)]
pub struct ServiceWatches {
    pub services: Arc<Objects<FlatServiceView>>,
    /// Somebody else follows them.
    pub pods: Objects<FlatPodView>,
    index: Mutex<PodIndex>,
    /// Who looks at a Service once it or what it selects changes.
    queues: Mutex<Vec<Arc<Queue<Key>>>>,
}

impl ServiceWatches {
    /// Follows Services until the session ends.
    pub fn follow(self: &Arc<Self>, site: &Arc<Site>, tasks: &mut JoinSet<()>) {
        let all = Arc::clone(self);
        let view = |service: Service| Some(FlatServiceView::of(service));
        let services = Arc::clone(&self.services);
        spawn(tasks, site, services, view, move |key| all.touch(key));
    }

    /// Services to work on, whose queue hears of all changes from now on.
    pub fn context(&self, site: &Arc<Site>, events: &Arc<Events>) -> Context<FlatServiceView> {
        let context = Context::of_site(SERVICE, site, events, &self.services);
        self.queues.lock().push(Arc::clone(&context.queue));
        context.queue_all();
        context
    }

    /// Waits until all Services and pods are known.
    pub async fn completed(&self) {
        self.services.completed().await;
        self.pods.completed().await;
    }

    /// The pods of a namespace that a selector selects, as far as they matter.
    pub fn selected(&self, namespace: &Text, selector: &PodLabels) -> Vec<(Key, Arc<FlatPodView>)> {
        let keys = self.index.lock().selected(namespace, selector).into_iter();
        keys.filter_map(|key| self.pods.get(&key).map(|pod| (key, pod)))
            .collect()
    }

    /// The Service of which this is the companion by its name.
    pub fn original(&self, companion: &Key) -> Option<(Key, Arc<FlatServiceView>)> {
        let mut originals = self.originals(companion).into_iter();
        originals.find_map(|key| self.services.get(&key).map(|service| (key, service)))
    }

    /// Has a Service looked at, its companion, and that whose companion it is.
    fn touch(&self, service: &Key) {
        let keys = self.related(service);
        for queue in self.queues.lock().iter() {
            keys.iter().for_each(|key| queue.add(key.clone()));
        }
    }

    fn related(&self, service: &Key) -> BTreeSet<Key> {
        let originals = self.originals(service).into_iter();
        let others = originals.chain([companion_key(service)]);
        others.chain([service.clone()]).collect()
    }

    /// Which Services have this companion by its name.
    fn originals(&self, companion: &Key) -> Vec<Key> {
        let Some(name) = companion.name.strip_suffix(COMPANION_SUFFIX) else {
            return Vec::new();
        };
        let mut originals = vec![Key::new(&companion.namespace, name)];
        if may_be_shortened(name) {
            let all = self.services.keys_in(&companion.namespace).into_iter();
            originals.extend(all.filter(|one| is_long(one) && companion_key(one) == *companion));
        }
        originals
    }

    /// Has the Services looked at that select a pod, or did.
    pub fn pod_changed(&self, pod: &Key) {
        let services = self.concerned(pod).into_iter();
        services.for_each(|service| self.touch(&service));
    }

    /// Has the Services looked at that lead to the pod of an address that changed.
    pub fn address_changed(&self, ip: &Key) {
        // A pod of the originals may be called like a further address of another.
        for key in BTreeSet::from([pod_key(ip), ip.clone()]) {
            let found = self.pods.get(&key);
            // Before the pod reports an address it leads nowhere.
            if let Some(pod) = found.filter(|pod| !pod.interfaces.is_empty()) {
                let services = self.selecting(&ip.namespace, &[&pod.labels]);
                services.iter().for_each(|service| self.touch(service));
            }
        }
    }

    /// Notes the labels of a pod; the Services that select it by these or by those that it had.
    fn concerned(&self, pod: &Key) -> Vec<Key> {
        let now = self.pods.get(pod);
        let labels = now.as_ref().map(|pod| &pod.labels);
        let before = self.index.lock().note(pod, labels);
        let labels: Vec<_> = before.as_ref().into_iter().chain(labels).collect();
        self.selecting(&pod.namespace, &labels)
    }

    /// The Services of a namespace that select pods with any of these labels.
    fn selecting(&self, namespace: &str, labels: &[&Arc<PodLabels>]) -> Vec<Key> {
        let mut services = self.services.keys_in(namespace);
        services.retain(|key| {
            let service = self.services.get(key);
            service.is_some_and(|service| {
                let mut labels = labels.iter();
                labels.any(|labels| selects(&service.selector, labels))
            })
        });
        services
    }

    #[cfg(test)]
    pub fn set_pod(&self, key: &Key, pod: Option<FlatPodView>) {
        match pod {
            Some(pod) => self.pods.set(key, pod),
            None => self.pods.remove(key),
        }
        self.pod_changed(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(app: &str) -> PodLabels {
        PodLabels::from([("app".to_owned(), app.to_owned())])
    }

    fn service(watches: &ServiceWatches, name: &str, app: &str) -> Key {
        let key = Key::new("shop", name);
        let view = FlatServiceView {
            selector: labels(app),
            ..FlatServiceView::default()
        };
        watches.services.set(&key, view);
        key
    }

    #[test]
    fn a_pod_concerns_those_that_select_it_and_those_that_did() {
        let watches = ServiceWatches::default();
        let web = service(&watches, "web", "web");
        let db = service(&watches, "db", "db");
        let pod = Key::new("shop", "pod");
        let of = |app: &str| FlatPodView {
            labels: Arc::new(labels(app)),
            ..FlatPodView::default()
        };
        watches.pods.set(&pod, of("web"));
        assert_eq!(watches.concerned(&pod), std::slice::from_ref(&web));
        assert_eq!(watches.selected(&web.namespace, &labels("web")).len(), 1);
        watches.pods.set(&pod, of("db"));
        assert_eq!(watches.concerned(&pod), [db.clone(), web]);
        watches.pods.remove(&pod);
        assert_eq!(watches.concerned(&pod), [db]);
    }

    #[test]
    fn a_companion_concerns_its_original_also_where_its_name_was_shortened() {
        let watches = ServiceWatches::default();
        let long = service(&watches, &"a".repeat(60), "web");
        let web = service(&watches, "web", "web");
        for key in [long, web] {
            let found = watches.original(&companion_key(&key)).map(|(key, _)| key);
            assert_eq!(found, Some(key));
        }
        assert!(watches.original(&Key::new("shop", "web")).is_none());
        let related = watches.related(&Key::new("shop", "web-flat-network"));
        assert!(related.contains(&Key::new("shop", "web")));
    }
}
