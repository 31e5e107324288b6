//! Which Clusters a pool serves, as its labels and annotations say it. Pure.

use std::collections::BTreeMap;

use super::super::names::{CLUSTER_CLASS, PRIORITY, ROLE};

/// The value of a label that means that the annotation of the same key is a list.
const LISTED: &str = "true";

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
        let priority = annotations.and_then(|all| all.get(PRIORITY));
        Some(Self {
            classes: list(CLUSTER_CLASS)?,
            roles: list(ROLE)?,
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
