//! Which pool is to give: one by name, or the best of those that are there for the asker.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ClusterId, Family, NetworkId, PoolError, PoolId, PoolSpec, Text, labels::Wrong};

/// For whom a pool is there without being named. All parts that are given must fit; without any part it is everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolScope {
    /// Id, or any name, of a cluster.
    pub cluster: Option<Text>,
    /// Rancher project.
    pub project: Option<Text>,
    /// One of these; empty for all.
    pub namespaces: Vec<Text>,
    /// The asker has all of these.
    pub labels: BTreeMap<Text, Text>,
}

/// What is known of who asks, to be held against the scopes of pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    pub cluster: Option<ClusterId>,
    pub project: Option<Text>,
    pub namespace: Option<Text>,
    pub labels: BTreeMap<Text, Text>,
}

/// Any pool that is there for the asker: the one with the highest priority that can give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Only pools of this network.
    pub network: Option<NetworkId>,
    pub family: Family,
    /// Only pools of prefixes of so many bits; `None`: only pools of addresses.
    pub length: Option<u8>,
    pub asker: Asker,
}

/// Which pool is to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    Pool(PoolId),
    Any(Box<Selection>),
}

impl Selection {
    /// Bits of what is asked for.
    pub fn lease_length(&self) -> u8 {
        self.length.unwrap_or_else(|| self.family.bits())
    }
}

impl From<PoolId> for Choice {
    fn from(pool: PoolId) -> Self {
        Self::Pool(pool)
    }
}

impl From<Selection> for Choice {
    fn from(selection: Selection) -> Self {
        Self::Any(Box::new(selection))
    }
}

impl PoolScope {
    /// The most scopes of a pool.
    pub const MAX: usize = 32;
    /// The most namespaces of a scope.
    pub const MAX_NAMESPACES: usize = 64;
    /// The most labels of a scope.
    pub const MAX_LABELS: usize = 16;
    /// The longest name of a cluster, project or namespace, and value of a label, in bytes.
    pub const MAX_NAME: usize = 253;
    /// The longest key of a label, in bytes: a DNS name, a slash and 63 more.
    pub const MAX_KEY: usize = 317;

    /// Whether the pool is there for the asker, whose cluster has these names beside its id.
    pub fn fits(&self, asker: &Asker, names: &[Text]) -> bool {
        let cluster = |wanted: &Text| {
            let id = asker.cluster.as_ref();
            id.is_some_and(|id| id.0 == *wanted || names.contains(wanted))
        };
        let namespace = |name: &Text| self.namespaces.contains(name);
        let has = |(key, value): (&Text, &Text)| asker.labels.get(key) == Some(value);
        self.cluster.as_ref().is_none_or(cluster)
            && (self.project.is_none() || self.project == asker.project)
            && (self.namespaces.is_empty() || asker.namespace.as_ref().is_some_and(namespace))
            && self.labels.iter().all(has)
    }

    fn check(&self) -> Result<(), PoolError> {
        if self.namespaces.len() > Self::MAX_NAMESPACES {
            let many = format!("{} namespaces in one", self.namespaces.len());
            return Err(error((many, format!("at most {}", Self::MAX_NAMESPACES))));
        }
        let names = [&self.cluster, &self.project].into_iter().flatten();
        for name in names.chain(&self.namespaces) {
            check_text(name, 1, Self::MAX_NAME).map_err(error)?;
        }
        check_labels(&self.labels).map_err(error)
    }
}

/// How many labels there may be, and how long.
pub(crate) fn check_labels(labels: &BTreeMap<Text, Text>) -> Result<(), Wrong> {
    if labels.len() > PoolScope::MAX_LABELS {
        let many = format!("{} labels", labels.len());
        return Err((many, format!("at most {}", PoolScope::MAX_LABELS)));
    }
    labels.iter().try_for_each(|(key, value)| {
        check_text(key, 1, PoolScope::MAX_KEY)?;
        check_text(value, 0, PoolScope::MAX_NAME)
    })
}

fn check_text(text: &str, least: usize, most: usize) -> Result<(), Wrong> {
    let plain = |c: char| !c.is_control() && !c.is_whitespace();
    if (least..=most).contains(&text.len()) && text.chars().all(plain) {
        return Ok(());
    }
    let allowed = format!("names of {least} to {most} bytes without spaces and control characters");
    Err((text.chars().take(100).collect(), allowed))
}

fn error((value, allowed): Wrong) -> PoolError {
    PoolError {
        field: "scopes",
        value,
        allowed,
    }
}

/// The scopes of a pool, judged by themselves.
pub(crate) fn check_scopes(spec: &PoolSpec) -> Result<(), PoolError> {
    if spec.scopes.len() > PoolScope::MAX {
        let many = format!("{} scopes", spec.scopes.len());
        return Err(error((many, format!("at most {}", PoolScope::MAX))));
    }
    spec.scopes.iter().try_for_each(PoolScope::check)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker() -> Asker {
        Asker {
            cluster: Some(ClusterId("uid-1".into())),
            project: Some("p-1".into()),
            namespace: Some("shop".into()),
            labels: [("tier".into(), "web".into())].into(),
        }
    }

    fn fits(scope: PoolScope) -> bool {
        scope.fits(&asker(), &["east".into()])
    }

    #[test]
    fn all_parts_that_are_given_must_fit() {
        assert!(fits(PoolScope::default()));
        let east = PoolScope {
            cluster: Some("east".into()),
            ..PoolScope::default()
        };
        assert!(fits(east.clone()));
        assert!(fits(PoolScope {
            cluster: Some("uid-1".into()),
            namespaces: vec!["bank".into(), "shop".into()],
            ..PoolScope::default()
        }));
        assert!(!fits(PoolScope {
            project: Some("p-2".into()),
            ..east.clone()
        }));
        assert!(!fits(PoolScope {
            namespaces: vec!["bank".into()],
            ..east.clone()
        }));
        assert!(!fits(PoolScope {
            labels: [("tier".into(), "db".into())].into(),
            ..east.clone()
        }));
        assert!(!east.fits(&Asker::default(), &[]));
    }

    #[test]
    fn scopes_have_limits() {
        let check = |scopes: Vec<PoolScope>| {
            let addresses = vec!["10.0.0.0/24".parse().unwrap()];
            let spec = PoolSpec {
                scopes,
                ..PoolSpec::own("p", addresses)
            };
            spec.validate().map_err(|error| error.to_string())
        };
        let many = vec![PoolScope::default(); PoolScope::MAX + 1];
        let error = check(many).unwrap_err();
        assert!(
            error.contains("scopes") && error.contains("at most 32"),
            "{error}"
        );
        let namespace = |name: &str| PoolScope {
            namespaces: vec![name.into()],
            ..PoolScope::default()
        };
        assert!(check(vec![namespace("shop")]).is_ok());
        assert!(check(vec![namespace("")]).is_err());
        assert!(check(vec![namespace(&"x".repeat(254))]).is_err());
        let labels = (0..=PoolScope::MAX_LABELS).map(|n| (n.to_string().into(), "v".into()));
        assert!(
            check(vec![PoolScope {
                labels: labels.collect(),
                ..PoolScope::default()
            }])
            .is_err()
        );
    }
}
