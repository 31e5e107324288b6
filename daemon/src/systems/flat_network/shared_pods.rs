//! The pods of a cluster, followed and decoded once for all who look at them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::task::JoinSet;

use super::{
    pod::observe::PodView,
    service::{
        observe::{self, FlatPodView},
        watches::ServiceWatches,
    },
};
use crate::controller::{
    site::Site,
    store::{Key, Objects},
    tasks,
};

/// What is kept of a pod.
#[derive(Debug, PartialEq)]
struct SharedPod {
    /// For addresses; `None`: it asks for none.
    flat: Option<Arc<PodView>>,
    /// For Services.
    served: Option<Arc<FlatPodView>>,
}

impl SharedPod {
    /// `None`: nobody looks at it.
    fn of(pod: Pod) -> Option<Self> {
        if !observe::concerns(&pod) {
            return None;
        }
        let flat = PodView::of(pod.clone());
        Some(Self {
            flat: flat.map(Arc::new),
            served: observe::pod(pod).map(Arc::new),
        })
    }
}

/// Follows them until the session ends. `changed` is told of those that ask for an address.
pub fn follow(
    site: &Arc<Site>,
    (flat, watches): (&Arc<Objects<PodView>>, &Arc<ServiceWatches>),
    changed: impl Fn(&Key) + Send + Sync + 'static,
    tasks: &mut JoinSet<()>,
) {
    let all = Objects::<SharedPod>::new();
    let (from, to, services) = (Arc::clone(&all), Arc::clone(flat), Arc::clone(watches));
    let show = move |key: &Key| {
        if from.show_in(&to, key, |pod| pod.flat.clone()) {
            changed(key);
        }
        if from.show_in(&services.pods, key, |pod| pod.served.clone()) {
            services.pod_changed(key);
        }
    };
    tasks::spawn(tasks, site, Arc::clone(&all), SharedPod::of, show);
    let (flat, services, cancel) = (Arc::clone(flat), Arc::clone(watches), site.cancel());
    tasks.spawn(async move {
        if cancel.run_until_cancelled(all.completed()).await.is_some() {
            flat.complete();
            services.pods.complete();
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pods_that_only_keep_companions_away_are_kept_and_those_that_ask_nothing_are_not() {
        let of = |annotations: Value| {
            let metadata = json!({ "namespace": "ns", "name": "a", "annotations": annotations });
            let pod = serde_json::from_value(json!({ "metadata": metadata })).expect("a pod");
            let shared = SharedPod::of(pod);
            shared.map(|one| (one.flat.is_some(), one.served.is_some()))
        };
        assert_eq!(of(json!({ "other": "x" })), None);
        let opted_out = json!({ "flatnetwork.pandaria.io/flatNetworkService": "disabled" });
        assert_eq!(of(opted_out), Some((false, true)));
        let flat = json!({
            "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "blue",
        });
        assert_eq!(of(flat), Some((true, true)));
    }
}
