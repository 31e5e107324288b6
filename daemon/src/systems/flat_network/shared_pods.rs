//! The pods of a cluster, followed and decoded once for all who look at them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fipd_core::Text;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{
    pod::observe::PodView,
    service::{
        observe::{self, FlatPodView},
        watches::ServiceWatches,
    },
};
use crate::{
    controller::{
        site::Site,
        store::{Key, Objects, Observed},
        tasks,
    },
    validation::flat_network::interfaces::is_pod_name,
};

/// What is kept of a pod.
#[derive(Debug, PartialEq)]
struct SharedPod {
    /// Its interfaces, by the names of their addresses.
    flat: BTreeMap<Text, Arc<PodView>>,
    /// For Services.
    served: Option<Arc<FlatPodView>>,
}

impl SharedPod {
    /// `None`: nobody looks at it.
    fn of(pod: Pod) -> Option<Self> {
        if !observe::concerns(&pod) {
            return None;
        }
        let flat = PodView::all_of(&pod).into_iter();
        Some(Self {
            flat: flat.map(|(name, one)| (name, Arc::new(one))).collect(),
            served: observe::pod(pod).map(Arc::new),
        })
    }
}

/// Which addresses pods ask for beside the one that is called like them.
#[derive(Default)]
struct FurtherNames(Mutex<BTreeMap<Key, BTreeSet<Text>>>);

impl FurtherNames {
    /// Those that the pod asks for now and those that it asked for before.
    fn replace(&self, pod: &Key, now: BTreeSet<Text>) -> BTreeSet<Text> {
        let mut all = self.0.lock();
        let before = match now.is_empty() {
            true => all.remove(pod),
            false => all.insert(pod.clone(), now.clone()),
        };
        now.into_iter()
            .chain(before.into_iter().flatten())
            .collect()
    }
}

fn further_names(key: &Key, pod: &SharedPod) -> BTreeSet<Text> {
    let names = pod.flat.keys();
    names.filter(|name| **name != key.name).cloned().collect()
}

/// Follows them until the session ends. `changed` gets the key of each address that they ask for.
pub fn follow(
    site: &Arc<Site>,
    (flat, watches): (&Arc<Objects<PodView>>, &Arc<ServiceWatches>),
    changed: impl Fn(&Key) + Send + Sync + 'static,
    tasks: &mut JoinSet<()>,
) {
    let all = Objects::<SharedPod>::new();
    let (from, to, services) = (Arc::clone(&all), Arc::clone(flat), Arc::clone(watches));
    let further = FurtherNames::default();
    let show = move |key: &Key| {
        let names = match from.seen(key) {
            // What it asks for beside is as it was, as far as anybody knows.
            Some(Observed::Malformed(_)) => BTreeSet::new(),
            Some(Observed::Parsed(pod)) => further.replace(key, further_names(key, &pod)),
            None => further.replace(key, BTreeSet::new()),
        };
        let own = Some(&key.name).filter(|name| is_pod_name(name));
        for name in names.iter().chain(own) {
            let at = Key::new(&key.namespace, name);
            if from.show_in(key, (&to, &at), |pod| pod.flat.get(name).cloned()) {
                changed(&at);
            }
        }
        if from.show_in(key, (&services.pods, key), |pod| pod.served.clone()) {
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
            shared.map(|one| (one.flat.len(), one.served.is_some()))
        };
        assert_eq!(of(json!({ "other": "x" })), None);
        let opted_out = json!({ "flatnetwork.pandaria.io/flatNetworkService": "disabled" });
        assert_eq!(of(opted_out), Some((0, true)));
        let flat = json!({
            "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "blue",
        });
        assert_eq!(of(flat.clone()), Some((1, true)));
        let mut dual = flat;
        dual["fipd.io/dual-stack"] = json!("true");
        dual["fipd.io/additional-interfaces"] = json!(r#"[{"interface":"eth2","subnet":"red"}]"#);
        assert_eq!(of(dual.clone()), Some((4, true)));
        // One that makes no sense is kept once, with what is wrong.
        dual["fipd.io/dual-stack"] = json!("perhaps");
        assert_eq!(of(dual), Some((1, true)));
    }

    #[test]
    fn what_a_pod_asks_for_no_more_is_looked_at_once_more() {
        let (names, pod) = (FurtherNames::default(), Key::new("ns", "a"));
        let of =
            |texts: &[&str]| -> BTreeSet<Text> { texts.iter().map(|&one| one.into()).collect() };
        assert_eq!(names.replace(&pod, of(&["x", "y"])), of(&["x", "y"]));
        assert_eq!(names.replace(&pod, of(&["y", "z"])), of(&["x", "y", "z"]));
        assert_eq!(names.replace(&pod, of(&[])), of(&["y", "z"]));
        assert!(names.replace(&pod, of(&[])).is_empty() && names.0.lock().is_empty());
    }
}
