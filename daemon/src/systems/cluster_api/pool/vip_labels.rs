//! Which Clusters a pool serves, as its labels and annotations say it. Pure.

use std::collections::BTreeMap;

use super::super::names::{CLUSTER_CLASS, CONTROL_PLANE, INGRESS, PRIORITY, ROLE};

/// The value of a label that means that the annotation of the same key is a list.
const LISTED: &str = "true";

/// Classes that a pool serves at most; what it names beyond them does not count.
const CLASSES: usize = 100;
/// Bytes of the longest name of an object.
const NAME: usize = 253;

/// What a pool says of Clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VipLabels {
    classes: Vec<String>,
    roles: Vec<String>,
    /// Pools with a higher one are asked first.
    pub priority: i64,
}

impl VipLabels {
    /// `None`: the pool serves none.
    pub fn of(
        labels: Option<&BTreeMap<String, String>>,
        annotations: Option<&BTreeMap<String, String>>,
    ) -> Option<Self> {
        let list = |key: &str| {
            let label = labels.and_then(|all| all.get(key)).map(|text| text.trim());
            let text = match label {
                Some(text) if text != LISTED => text,
                Some(_) | None => annotations?.get(key)?,
            };
            let parts = text
                .split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty());
            Some(parts.map(str::to_owned).collect::<Vec<_>>())
        };
        let (mut classes, mut roles) = (list(CLUSTER_CLASS)?, list(ROLE)?);
        classes.retain(|class| class.len() <= NAME);
        classes.truncate(CLASSES);
        roles.retain(|role| [CONTROL_PLANE, INGRESS].contains(&&**role));
        roles.sort();
        roles.dedup();
        let priority = annotations.and_then(|all| all.get(PRIORITY));
        Some(Self {
            classes,
            roles,
            priority: priority
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0),
        })
    }

    /// Every class with every role.
    pub fn pairs(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let classes = self.classes.iter();
        classes.flat_map(|class| {
            self.roles
                .iter()
                .map(move |role| (class.clone(), role.clone()))
        })
    }

    pub fn serves(&self, class: &str, role: &str) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|one| one == wanted);
        has(&self.classes, class) && has(&self.roles, role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pool_names_more_than_it_can_serve() {
        let map = |all: &[(&str, String)]| -> BTreeMap<String, String> {
            let owned = all
                .iter()
                .map(|(key, text)| ((*key).to_owned(), text.clone()));
            owned.collect()
        };
        let many: Vec<String> = (0..1_000).map(|index| format!("class-{index}")).collect();
        let roles = "ingress,worker,control-plane,ingress";
        let long = "x".repeat(254);
        let annotations = map(&[
            (CLUSTER_CLASS, format!("{long},{}", many.join(","))),
            (ROLE, roles.to_owned()),
        ]);
        let labels = VipLabels::of(None, Some(&annotations)).expect("it serves some");
        assert_eq!(labels.pairs().count(), 2 * CLASSES);
        assert!(labels.serves("class-0", INGRESS) && labels.serves("class-99", CONTROL_PLANE));
        assert!(!labels.serves("class-100", INGRESS) && !labels.serves("class-0", "worker"));
    }
}
