//! What the clusters of a Rancher are called: by id, and by display name, which need not be unique.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::Text;
use parking_lot::Mutex;

#[derive(Default)]
pub struct ClusterNames {
    state: Mutex<KnownNames>,
}

#[derive(Default)]
struct KnownNames {
    display: BTreeMap<Text, String>,
    /// Ids that were ever there.
    known: BTreeSet<Text>,
}

impl KnownNames {
    /// The clusters with one of these display names.
    fn displayed(&self, names: &[&str]) -> impl Iterator<Item = &Text> {
        let named = self
            .display
            .iter()
            .filter(|(_, display)| !display.is_empty() && names.contains(&display.as_str()));
        named.map(|(id, _)| id)
    }
}

impl ClusterNames {
    /// Notes the display name of a cluster; `None`: it is gone.
    pub fn note(&self, id: &Text, display: Option<&str>) {
        let mut state = self.state.lock();
        match display {
            Some(display) => {
                state.known.insert(Text::clone(id));
                state.display.insert(Text::clone(id), display.to_owned())
            }
            None => state.display.remove(id),
        };
    }

    /// Whether there ever was a cluster of this id.
    pub fn was_known(&self, id: &str) -> bool {
        self.state.lock().known.contains(id)
    }

    /// The clusters with this display name.
    pub fn displayed(&self, name: &str) -> BTreeSet<Text> {
        self.state.lock().displayed(&[name]).cloned().collect()
    }

    /// The one cluster that has one of these names. An id says more than a display name, which several may have.
    pub fn called(&self, names: &[Text]) -> Option<String> {
        let state = self.state.lock();
        let by_id: BTreeSet<&Text> = names
            .iter()
            .filter(|name| state.display.contains_key(*name))
            .collect();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        let found = match by_id.is_empty() {
            true => state.displayed(&names).collect(),
            false => by_id,
        };
        match (found.first(), found.len()) {
            (Some(id), 1) => Some(id.to_string()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_a_cluster_only_if_no_other_has_it() {
        let names = ClusterNames::default();
        let called = |name: &str| names.called(&[name.into()]);
        names.note(&"c-1".into(), Some("prod"));
        names.note(&"c-2".into(), Some("c-1"));
        assert_eq!(called("prod").as_deref(), Some("c-1"));
        assert_eq!(called("c-1").as_deref(), Some("c-1"), "the id goes first");
        names.note(&"c-3".into(), Some("prod"));
        assert_eq!(called("prod"), None, "two have it");
        assert_eq!(names.displayed("prod").len(), 2);
        assert_eq!(names.called(&["c-1".into(), "c-2".into()]), None);
        let both = names.called(&["prod".into(), "c-3".into()]);
        assert_eq!(both.as_deref(), Some("c-3"));
        names.note(&"c-3".into(), Some("test"));
        assert_eq!(called("prod").as_deref(), Some("c-1"));
        names.note(&"c-1".into(), None);
        assert_eq!((called("prod"), called("")), (None, None));
        assert!(names.was_known("c-1") && !names.was_known("prod"));
    }
}
