//! For whom a pool is there.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// For whom a pool is there without being named. All parts that are given must fit; `{}` is everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolScope {
    /// Id, or any name, of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// One of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// The asker has all of these.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// As `fipd pool create --scope` reads it.
impl FromStr for PoolScope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut scope = Self::default();
        if text == "any" {
            return Ok(scope);
        }
        let allowed = || {
            "any, or cluster=C, project=P, namespace=N and label=KEY=VALUE with commas in between is allowed"
                .to_owned()
        };
        for part in text.split(',') {
            let (what, value) = part.split_once('=').ok_or_else(allowed)?;
            let value = value.to_owned();
            let twice = match what {
                "cluster" => scope.cluster.replace(value).is_some(),
                "project" => scope.project.replace(value).is_some(),
                "namespace" => {
                    scope.namespaces.push(value);
                    false
                }
                "label" => {
                    let (key, value) = value.split_once('=').ok_or_else(allowed)?;
                    let (key, value) = (key.to_owned(), value.to_owned());
                    scope.labels.insert(key, value).is_some()
                }
                _ => return Err(allowed()),
            };
            if twice {
                return Err(format!("{what} is named twice in {text:?}"));
            }
        }
        Ok(scope)
    }
}

/// As it is read.
impl fmt::Display for PoolScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = self.cluster.iter().map(|name| format!("cluster={name}"));
        let project = self.project.iter().map(|name| format!("project={name}"));
        let namespaces = self.namespaces.iter();
        let namespaces = namespaces.map(|name| format!("namespace={name}"));
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| format!("label={key}={value}"));
        let parts: Vec<_> = cluster
            .chain(project)
            .chain(namespaces)
            .chain(labels)
            .collect();
        match parts.as_slice() {
            [] => f.write_str("any"),
            parts => f.write_str(&parts.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_shown() {
        for line in [
            "any",
            "cluster=east,namespace=shop,namespace=bank",
            "project=p-12,label=tier=web,label=x=",
        ] {
            assert_eq!(line.parse::<PoolScope>().unwrap().to_string(), line);
        }
        for bad in ["", "cluster", "cluster=a,cluster=b", "label=x", "zone=1"] {
            assert!(bad.parse::<PoolScope>().is_err(), "{bad}");
        }
    }
}
