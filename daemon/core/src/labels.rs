//! Labels: what people note about a lease, to find it by.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{Actor, LeaseKey, PoolScope, Text};

/// Keys and values of a lease. As small as a pointer, for most leases have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<Text, Text>", into = "BTreeMap<Text, Text>")]
#[expect(clippy::box_collection, reason = "a map is three times as large")]
pub struct Labels(Option<Box<BTreeMap<Text, Text>>>);

/// What is wanted of the labels of a lease: a key, and its value where that matters.
pub type LabelWanted = (Text, Option<Text>);

/// Changes labels of a lease that somebody holds or that is reserved.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    pub key: LeaseKey,
    pub set: BTreeMap<Text, Text>,
    /// Keys. One that is set as well stays.
    pub remove: Vec<Text>,
    pub actor: Actor,
}

/// A value that is not allowed, and what is.
pub(crate) type Wrong = (String, String);

impl From<BTreeMap<Text, Text>> for Labels {
    fn from(labels: BTreeMap<Text, Text>) -> Self {
        Self((!labels.is_empty()).then(|| Box::new(labels)))
    }
}

impl From<Labels> for BTreeMap<Text, Text> {
    fn from(labels: Labels) -> Self {
        labels.0.map(|labels| *labels).unwrap_or_default()
    }
}

impl FromIterator<(Text, Text)> for Labels {
    fn from_iter<I: IntoIterator<Item = (Text, Text)>>(labels: I) -> Self {
        BTreeMap::from_iter(labels).into()
    }
}

/// `key=value;key=value`.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (key, value)) in self.iter().enumerate() {
            let before = if number > 0 { ";" } else { "" };
            write!(f, "{before}{key}={value}")?;
        }
        Ok(())
    }
}

impl Labels {
    /// The most of a lease.
    pub const MAX: usize = PoolScope::MAX_LABELS;

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// In the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Text, &Text)> {
        self.0.iter().flat_map(|labels| labels.iter())
    }

    /// Whether all that is wanted is there.
    pub fn fit(&self, wanted: &[LabelWanted]) -> bool {
        wanted.iter().all(|(key, value)| {
            let found = self.0.as_ref().and_then(|labels| labels.get(key));
            found.is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
        })
    }

    /// The labels after a change.
    pub(crate) fn changed(&self, ask: &Label) -> Self {
        let mut labels = BTreeMap::from(self.clone());
        labels.retain(|key, _| !ask.remove.contains(key));
        labels.extend(ask.set.clone());
        labels.into()
    }

    /// What became other than it was `before`: `key=value` where it is set, `key-` where it went.
    pub(crate) fn difference(&self, before: &Self) -> Text {
        let set = self
            .iter()
            .filter(|(key, value)| !before.fit(&[(Text::clone(key), Some(Text::clone(value)))]))
            .map(|(key, value)| format!("{key}={value}"));
        let gone = before
            .iter()
            .filter(|(key, _)| !self.fit(&[(Text::clone(key), None)]))
            .map(|(key, _)| format!("{key}-"));
        let all: Vec<String> = set.chain(gone).collect();
        all.join(" ").into()
    }

    /// Beside the limits of [`PoolScope`], what `key=value;key=value` and `key-` are told apart by.
    pub(crate) fn check(&self) -> Result<(), Wrong> {
        let Some(labels) = self.0.as_deref() else {
            return Ok(());
        };
        crate::select::check_labels(labels)?;
        for (key, value) in labels {
            if key.contains(['=', ';']) || key.ends_with('-') {
                return Err((
                    key.to_string(),
                    "keys without = and ;, and no - at the end".into(),
                ));
            }
            if value.contains(';') {
                return Err((value.to_string(), "values without ;".into()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()));
        pairs.collect()
    }

    #[test]
    fn a_lease_without_labels_pays_a_pointer() {
        assert_eq!(size_of::<Labels>(), size_of::<usize>());
        assert_eq!(labels(&[]), Labels::default());
    }

    #[test]
    fn all_that_is_wanted_must_be_there() {
        let labels = labels(&[("app", "web"), ("team", "red")]);
        let fit = |wanted: &[(&str, Option<&str>)]| {
            let wanted = wanted
                .iter()
                .map(|(key, value)| ((*key).into(), value.map(Into::into)));
            labels.fit(&wanted.collect::<Vec<_>>())
        };
        assert!(fit(&[]) && fit(&[("app", None)]) && fit(&[("app", Some("web"))]));
        assert!(fit(&[("app", Some("web")), ("team", None)]));
        assert!(!fit(&[("app", Some("db"))]) && !fit(&[("app", None), ("tier", None)]));
        assert_eq!(labels.to_string(), "app=web;team=red");
    }

    #[test]
    fn labels_have_limits() {
        assert_eq!(
            labels(&[("kubernetes.io/name", ""), ("a", "b=c")]).check(),
            Ok(())
        );
        for (key, value) in [
            ("", "x"),
            ("a b", "x"),
            ("a=b", "x"),
            ("a;b", "x"),
            ("a-", "x"),
            ("a", "x;y"),
            ("a", "x y"),
            ("a", &"x".repeat(PoolScope::MAX_NAME + 1)),
            (&"x".repeat(PoolScope::MAX_KEY + 1), "x"),
        ] {
            assert!(labels(&[(key, value)]).check().is_err(), "{key}={value}");
        }
        let most = |count: usize| (0..count).map(|n| (n.to_string().into(), "x".into()));
        assert_eq!(most(Labels::MAX).collect::<Labels>().check(), Ok(()));
        let (value, allowed) = most(Labels::MAX + 1)
            .collect::<Labels>()
            .check()
            .unwrap_err();
        assert_eq!((&*value, &*allowed), ("17 labels", "at most 16"));
    }
}
