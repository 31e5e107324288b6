//! Pods by their labels, for who selects them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fipd_core::Text;

use super::observe::PodLabels;
use crate::controller::store::Key;

/// Namespace, key and value.
type LabelKey = (Text, String, String);

/// See the module.
#[derive(Debug, Default)]
pub struct PodIndex {
    labels: BTreeMap<Key, Arc<PodLabels>>,
    /// Names of pods.
    by_label: BTreeMap<LabelKey, BTreeSet<Text>>,
}

impl PodIndex {
    /// Notes the labels of a pod, or that it is gone; those that it had before.
    pub fn note(&mut self, pod: &Key, labels: Option<&Arc<PodLabels>>) -> Option<Arc<PodLabels>> {
        let before = match labels {
            Some(labels) => self.labels.insert(pod.clone(), Arc::clone(labels)),
            None => self.labels.remove(pod),
        };
        if before.as_ref() == labels {
            return before;
        }
        for one in before.iter().flat_map(|before| keys(pod, before)) {
            if let Some(names) = self.by_label.get_mut(&one) {
                names.remove(&pod.name);
                if names.is_empty() {
                    self.by_label.remove(&one);
                }
            }
        }
        for one in labels.into_iter().flat_map(|labels| keys(pod, labels)) {
            let names = self.by_label.entry(one).or_default();
            names.insert(Text::clone(&pod.name));
        }
        before
    }

    /// The pods of a namespace that a selector selects; one that is empty selects none.
    pub fn selected(&self, namespace: &Text, selector: &PodLabels) -> Vec<Key> {
        let with = selector.iter().map(|(key, value)| {
            let key = (Text::clone(namespace), key.clone(), value.clone());
            self.by_label.get(&key)
        });
        let Some(with) = with.collect::<Option<Vec<_>>>() else {
            return Vec::new();
        };
        let Some(fewest) = with.iter().min_by_key(|names| names.len()) else {
            return Vec::new();
        };
        let names = fewest
            .iter()
            .filter(|name| with.iter().all(|all| all.contains(*name)));
        names.map(|name| Key::new(namespace, name)).collect()
    }
}

/// Whether a selector selects a pod with these labels; one that is empty selects none.
pub fn selects(selector: &PodLabels, labels: &PodLabels) -> bool {
    let mut pairs = selector.iter();
    !selector.is_empty() && pairs.all(|(key, value)| labels.get(key) == Some(value))
}

fn keys(pod: &Key, labels: &Arc<PodLabels>) -> Vec<LabelKey> {
    let one = |(key, value): (&String, &String)| {
        (Text::clone(&pod.namespace), key.clone(), value.clone())
    };
    labels.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Arc<PodLabels> {
        let pairs = pairs.iter();
        Arc::new(
            pairs
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect(),
        )
    }

    #[test]
    fn pods_are_found_by_all_labels_of_a_selector_and_in_its_namespace_only() {
        let mut index = PodIndex::default();
        let web = labels(&[("app", "web"), ("tier", "front")]);
        let other = labels(&[("app", "web")]);
        for (namespace, name, labels) in [
            ("shop", "a", &web),
            ("shop", "b", &other),
            ("lab", "c", &web),
        ] {
            assert_eq!(index.note(&Key::new(namespace, name), Some(labels)), None);
        }
        let found = |index: &PodIndex, selector: &PodLabels| -> Vec<String> {
            let found = index.selected(&"shop".into(), selector).into_iter();
            found.map(|key| key.name.to_string()).collect()
        };
        assert_eq!(found(&index, &other), ["a", "b"]);
        assert_eq!(found(&index, &web), ["a"]);
        assert!(found(&index, &PodLabels::default()).is_empty());
        assert!(selects(&other, &web) && !selects(&web, &other));
        assert!(!selects(&PodLabels::default(), &web));

        let moved = labels(&[("app", "db")]);
        let a = Key::new("shop", "a");
        assert_eq!(index.note(&a, Some(&moved)), Some(web));
        assert_eq!(found(&index, &other), ["b"]);
        assert_eq!(index.note(&a, None), Some(moved));
        index.note(&Key::new("shop", "b"), None);
        index.note(&Key::new("lab", "c"), None);
        assert!(index.by_label.is_empty() && index.labels.is_empty());
    }
}
