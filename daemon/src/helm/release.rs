//! A release as it should be, out of configuration keys. Every error names its key.

use std::{borrow::Cow, fmt, path::PathBuf};

use fipd_crds::names::is_label;

use super::{
    state::{Observed, Phase},
    values::Values,
};

/// A release of a chart in a namespace of one cluster.
///
/// Invariants: `name` and `namespace` are valid names of Kubernetes.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    pub name: String,
    pub namespace: String,
    pub chart: Chart,
    pub values: Values,
}

/// Which chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    pub name: String,
    pub reference: Reference,
    pub version: ChartVersion,
}

/// Where a chart comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `http://` or `https://`: a repository that has an `index.yaml`.
    Repository(String),
    /// `oci://REGISTRY/PATH/CHART`.
    Oci(String),
    /// A chart's directory or archive on fipd's host.
    Local(PathBuf),
}

/// `MAJOR.MINOR.PATCH[-PRE][+META]` without a leading `v`. Less than that is a range to helm, and a release would
/// never be at it. Empty is the newest that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartVersion(String);

/// What no version means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unversioned {
    /// A mistake.
    #[default]
    Refused,
    /// The newest when the release is installed, which stays at that.
    Newest,
    /// The newest at each look.
    Followed,
}

/// A release that a cluster is to have, as settings write it: by the keys of a Rancher's ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChartRelease {
    /// How the keys begin that say it, such as `PureLBController`.
    pub prefix: &'static str,
    /// With the originals it is the chart's too.
    pub name: String,
    pub namespace: String,
    pub chart: String,
    /// URL of a repository, an OCI reference or a path.
    pub reference: String,
    pub version: String,
    pub unversioned: Unversioned,
    /// One that is deployed is left as it is, whatever version and values are.
    pub once: bool,
    /// YAML text.
    pub values: String,
}

/// A key that says nothing helm can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value:?} {why}")]
pub struct KeyError {
    pub key: String,
    pub value: String,
    pub why: String,
}

impl ChartRelease {
    /// Whether its version is that of the newest chart at each look.
    pub fn follows(&self) -> bool {
        self.version.trim().is_empty() && self.unversioned == Unversioned::Followed
    }

    /// What the keys say.
    ///
    /// # Errors
    /// The first key that cannot be used.
    pub fn parse(&self) -> Result<Release, KeyError> {
        let refuse = |key: &str, value: &str, why: String| KeyError {
            key: format!("{}{key}", self.prefix),
            value: shortened(value),
            why,
        };
        let chart = self.chart.trim();
        check_name(chart, 53).map_err(|why| refuse("ChartName", chart, why))?;
        let namespace = self.namespace.trim();
        check_name(namespace, 63).map_err(|why| refuse("Namespace", namespace, why))?;
        let reference = self.reference.trim();
        let reference = Reference::parse(reference, chart).map_err(|why| {
            // It may hold a password.
            let shown = if reference.contains('@') {
                "..."
            } else {
                reference
            };
            refuse("ChartRef", shown, why)
        })?;
        let version = match (self.version.trim(), self.unversioned) {
            ("", Unversioned::Newest | Unversioned::Followed) => ChartVersion::newest(),
            (text, _) => {
                ChartVersion::parse(text).map_err(|why| refuse("ChartVersion", text, why))?
            }
        };
        // The text may hold secrets.
        let values = Values::parse(&self.values).map_err(|why| refuse("Values", "...", why))?;
        check_name(&self.name, 53).map_err(|why| KeyError {
            key: "the release's name".to_owned(),
            value: shortened(&self.name),
            why,
        })?;
        Ok(Release {
            name: self.name.clone(),
            namespace: namespace.to_owned(),
            chart: Chart {
                name: chart.to_owned(),
                reference,
                version,
            },
            values,
        })
    }
}

impl Release {
    /// The text without values of the release that it quotes, which may be secrets.
    pub fn without_values(&self, text: &str) -> String {
        let names = [&*self.name, &*self.namespace, &*self.chart.name];
        self.values.hidden_in(text, &names)
    }

    /// What is wanted of a release that is there: without a version it stays at the one that it has, or that is `noted` for it while
    /// an operation is under way.
    pub fn kept_at(&self, seen: Option<&Observed>, noted: Option<&str>) -> Cow<'_, Self> {
        let settled = seen.filter(|seen| matches!(seen.phase, Phase::Deployed | Phase::Failed));
        let has = settled.map(|seen| &*seen.version).or(noted);
        let has = has.and_then(|version| ChartVersion::parse(version).ok());
        match has.filter(|_| self.chart.version.is_newest()) {
            Some(version) => {
                let mut kept = self.clone();
                kept.chart.version = version;
                Cow::Owned(kept)
            }
            None => Cow::Borrowed(self),
        }
    }
}

impl Chart {
    /// The name that the chart itself has to have, where the reference says it.
    pub fn own_name(&self) -> Option<&str> {
        match &self.reference {
            Reference::Repository(_) => Some(&self.name),
            Reference::Oci(path) => path.rsplit('/').next(),
            Reference::Local(_) => None,
        }
    }
}

impl Reference {
    pub fn parse(text: &str, chart: &str) -> Result<Self, String> {
        const ALLOWED: &str = "allowed are https://HOST/PATH or http://HOST/PATH of a chart repository, oci://REGISTRY/PATH/CHART, or the absolute path of a chart on fipd's host";
        let read = if text.is_empty() {
            Err("is missing".to_owned())
        } else if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            Err("has a blank in it".to_owned())
        } else if let Some(path) = text.strip_prefix("oci://") {
            check_oci(path).map(|()| Self::Oci(text.to_owned()))
        } else if text.starts_with("https://") || text.starts_with("http://") {
            let url = text.trim_end_matches('/').to_owned();
            check_repository(text, chart).map(|()| Self::Repository(url))
        } else if text.starts_with('/') {
            Ok(Self::Local(PathBuf::from(text)))
        } else {
            return Err(format!("is none of these: {ALLOWED}"));
        };
        read.map_err(|why| format!("{why}; {ALLOWED}"))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repository(url) | Self::Oci(url) => f.write_str(url),
            Self::Local(path) => path.display().fmt(f),
        }
    }
}

impl ChartVersion {
    /// Reads `0.4.1` and `v0.4.1` alike.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let bare = text.strip_prefix('v').unwrap_or(text);
        if bare.is_empty() {
            return Err("is missing; write the exact version, such as 0.4.1".to_owned());
        }
        let (core, rest) = match bare.find(['-', '+']) {
            Some(at) => bare.split_at(at),
            None => (bare, ""),
        };
        let number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
        let exact = core.split('.').count() == 3 && core.split('.').all(number);
        let extra = rest
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-+.".contains(c));
        if exact && extra {
            Ok(Self(bare.to_owned()))
        } else {
            Err("is no exact version; allowed is MAJOR.MINOR.PATCH, such as 0.4.1".to_owned())
        }
    }

    pub fn newest() -> Self {
        Self(String::new())
    }

    pub fn is_newest(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ChartVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_name(name: &str, most: usize) -> Result<(), String> {
    if name.is_empty() {
        Err("is missing".to_owned())
    } else if is_label(name) && name.len() <= most {
        Ok(())
    } else {
        Err(format!(
            "is no name; allowed are 1 to {most} of a-z, 0-9 and '-', starting and ending with a letter or digit"
        ))
    }
}

fn check_oci(path: &str) -> Result<(), String> {
    let mut parts = path.split('/');
    let registry = parts.next().unwrap_or_default();
    let chart = parts.next_back().unwrap_or_default();
    if registry.is_empty() || chart.is_empty() {
        return Err("names no chart in the registry".to_owned());
    }
    if path.contains('@') || chart.contains(':') {
        return Err("names a tag or digest; the version has a key of its own".to_owned());
    }
    Ok(())
}

fn check_repository(url: &str, chart: &str) -> Result<(), String> {
    let uri: http::Uri = url.parse().map_err(|_| "is no URL".to_owned())?;
    let authority = uri.authority().ok_or("names no host")?;
    if authority.as_str().contains('@') {
        return Err("has a user name in it, which would be shown with every error".to_owned());
    }
    let path = uri.path();
    if path.ends_with(".tgz") || path.ends_with("/index.yaml") {
        return Err(format!(
            "is a file; the URL of the repository that has the chart {chart:?} is meant"
        ));
    }
    Ok(())
}

/// What of a value an error repeats.
fn shortened(value: &str) -> String {
    value.chars().take(200).collect()
}

#[cfg(test)]
pub mod testing {
    //! A release for tests.

    use super::*;

    /// PureLB from there, in the namespace `lb`.
    pub fn release(reference: &str) -> Release {
        let release = written("purelb", reference, "0.14.1", "lb", "a: 1");
        release.parse().unwrap()
    }

    /// PureLB by the keys of the ConfigMap.
    pub fn written(
        name: &str,
        reference: &str,
        version: &str,
        namespace: &str,
        values: &str,
    ) -> ChartRelease {
        ChartRelease {
            prefix: "PureLBController",
            name: name.into(),
            chart: name.into(),
            reference: reference.into(),
            version: version.into(),
            unversioned: Unversioned::Refused,
            once: false,
            namespace: namespace.into(),
            values: values.into(),
        }
    }
}

#[cfg(test)]
mod tests;
