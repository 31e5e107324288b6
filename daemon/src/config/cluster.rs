//! Clusters, how they are reached, and the settings of each system on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use fipd_core::{System, Text};
use schemars::JsonSchema;
use serde::Deserialize;
use toml::{
    Spanned,
    de::{DeTable, Deserializer},
};

use super::{
    SystemTables,
    error::{self, of_toml},
    sightings::SightingMode,
    system::{ClusterSettings, WrongTable},
    systems::{Systems, TableOwner, Tables},
    uploaded,
};

/// A cluster of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    /// 1 to 63 of `[a-z0-9.-]`, starts and ends with a letter or digit.
    pub name: Text,
    pub source: Source,
    /// Allows a kubeconfig that asks for it.
    pub insecure_skip_tls_verify: bool,
    /// Namespace of the Secret `fipd-identity`, which tells the cluster from its clones.
    pub identity_namespace: Text,
    /// Another name of the cluster, where no Secret can prove that it is the same one.
    pub same_as: Option<Text>,
    /// Systems that are switched on; all of them are served by this version.
    pub systems: BTreeSet<System>,
    pub settings: ClusterSettings,
}

/// How a cluster is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    File {
        path: PathBuf,
        context: Option<String>,
    },
    /// The service account of the pod fipd runs in.
    InCluster,
    /// The text of a kubeconfig that an admin uploaded or a Secret has; it must be self-contained, and is never printed.
    Text {
        /// What errors call it.
        origin: Text,
        text: Secret,
    },
}

/// A text that is not shown by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Arc<str>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// The clusters found through Rancher's kubeconfig Secrets, and the template for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Discovery {
    /// The configured cluster whose Secrets are read.
    pub cluster: Text,
    pub namespaces: Vec<Text>,
    /// Labels that the `management.cattle.io` Cluster must have; empty: every cluster is taken.
    pub match_labels: BTreeMap<String, String>,
    pub systems: BTreeSet<System>,
    /// Allows kubeconfigs that ask for it.
    pub insecure_skip_tls_verify: bool,
    /// Namespace of the Secret `fipd-identity` in each.
    pub identity_namespace: Text,
    pub settings: ClusterSettings,
}

/// Whether settings say that this host is a node.
pub(super) fn says_node(systems: &BTreeSet<System>, settings: &ClusterSettings) -> bool {
    let mut said = systems.iter().filter_map(|one| settings.any(one)?.node());
    said.any(|is_node| is_node)
}

impl ClusterConfig {
    /// Whether other clusters draw from pools of the system here.
    pub fn is_management(&self, system: &System) -> bool {
        let settings = self.settings.any(system);
        self.systems.contains(system) && settings.is_some_and(|one| one.is_management())
    }

    /// Whether somebody says that this host is a node of it.
    pub(super) fn is_node(&self) -> bool {
        says_node(&self.systems, &self.settings)
    }

    /// A cluster that an admin added by its kubeconfig. `settings` is TOML: what may be said below `[[cluster]]`, such as
    /// `[claims]` with `pools`.
    ///
    /// # Errors
    /// A name, a system or a setting that is not allowed, such as one that names a file of this host.
    pub fn uploaded(
        known: Systems,
        name: &str,
        systems: &[String],
        settings: &str,
        text: &Arc<str>,
    ) -> Result<Self, String> {
        let wrong = |error: &toml::de::Error| format!("settings: {}", of_toml(settings, error));
        let mut written = DeTable::parse(settings).map_err(|error| wrong(&error))?;
        for key in ["name", "kubeconfig", "in-cluster", "context", "systems"] {
            if written.get_ref().contains_key(key) {
                return Err(format!("settings: {key} is not given here"));
            }
        }
        let trusted = written.get_ref().contains_key("sightings");
        let tables = known.take_tables(written.get_mut());
        let raw = toml::Table::deserialize(Deserializer::from(written));
        let mut raw = raw.map_err(|error| wrong(&error))?;
        raw.insert("name".to_owned(), name.into());
        raw.insert("in-cluster".to_owned(), true.into());
        raw.insert("systems".to_owned(), systems.to_vec().into());
        let raw: RawCluster = raw
            .try_into()
            .map_err(|error| format!("settings: {}", error.to_string().trim_end()))?;
        let cluster = raw.with_settings(known, tables);
        let mut cluster = cluster.map_err(|error| match error {
            WrongTable::Key(error) => wrong(&error),
            WrongTable::Whole(what) => what,
        })?;
        uploaded::check(&cluster.settings)?;
        let managing = cluster.systems.iter().any(|one| cluster.is_management(one));
        if !trusted && !managing {
            cluster.settings.sightings = SightingMode::Report;
        }
        cluster.source = Source::Text {
            origin: format!("of {name}").into(),
            text: Secret(Arc::clone(text)),
        };
        Ok(cluster)
    }

    pub(super) fn resolve_paths(&mut self, base: &Path) {
        if let Source::File { path, .. } = &mut self.source {
            *path = super::place(base, path);
        }
        for (_, settings) in self.settings.all_mut() {
            if let Some(webhook) = settings.webhook_mut() {
                webhook.resolve_paths(base);
            }
        }
    }
}

/// A cluster of the configuration.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct RawCluster {
    /// What commands, conditions and metrics call it.
    name: String,
    /// The file it is reached by; `credential:NAME` is one that systemd hands over.
    kubeconfig: Option<PathBuf>,
    /// The service account of the pod that fipd runs in, instead of a kubeconfig.
    #[serde(default)]
    in_cluster: bool,
    /// The context of the kubeconfig. `None`: its current one.
    context: Option<String>,
    /// Allows a kubeconfig that asks for it.
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    /// Namespace of the Secret `fipd-identity`, which tells the cluster from its clones. `None`: `kube-system`.
    identity_namespace: Option<String>,
    /// Another name of the cluster, where fipd may not keep that Secret.
    same_as: Option<String>,
    /// What fipd does there.
    #[serde(default)]
    systems: Vec<String>,
    /// What becomes of addresses of fipd's pools that Services of other load balancers show there: `hold` keeps them from
    /// everybody else, `report` only shows them.
    #[serde(default)]
    sightings: SightingMode,
}

impl RawCluster {
    pub(super) fn with_settings(
        self,
        known: Systems,
        tables: Tables<'_>,
    ) -> Result<ClusterConfig, WrongTable> {
        let raw = self;
        let name = checked_name(&raw.name)?;
        let source = raw.source(&name)?;
        let place = format!("[[cluster]] {name:?}");
        let identity_namespace = identity_namespace(raw.identity_namespace.as_deref(), &place)?;
        let same_as = raw.same_as.as_deref().map(|other| same_as(&name, other));
        let place = TableOwner::Cluster(&name);
        let (systems, settings) = known.settings(&raw.systems, tables, place, raw.sightings)?;
        Ok(ClusterConfig {
            same_as: same_as.transpose()?,
            name,
            source,
            insecure_skip_tls_verify: raw.insecure_skip_tls_verify,
            identity_namespace,
            systems,
            settings,
        })
    }

    fn source(&self, name: &Text) -> Result<Source, String> {
        match (&self.kubeconfig, self.in_cluster) {
            (Some(path), false) => Ok(Source::File {
                path: path.clone(),
                context: self.context.clone(),
            }),
            (None, true) if self.context.is_some() => Err(format!(
                "[[cluster]] {name:?}: context belongs to kubeconfig, not to in-cluster = true"
            )),
            (None, true) => Ok(Source::InCluster),
            (Some(_), true) | (None, false) => Err(format!(
                "[[cluster]] {name:?} needs one of kubeconfig = \"FILE\" and in-cluster = true"
            )),
        }
    }
}

fn identity_namespace(given: Option<&str>, place: &str) -> Result<Text, String> {
    match given {
        None => Ok("kube-system".into()),
        Some(name) if is_namespace_name(name) => Ok(name.into()),
        Some(name) => Err(format!(
            "{place}: identity-namespace = {name:?} is no name of a namespace: 1 to 63 of a-z, 0-9 and '-'"
        )),
    }
}

fn same_as(name: &Text, other: &str) -> Result<Text, String> {
    if **name == *other {
        return Err(format!(
            "[[cluster]] {name:?}: same-as names the cluster itself; name the other one, or leave it out"
        ));
    }
    checked_name(other).map_err(|wrong| format!("[[cluster]] {name:?}: same-as: {wrong}"))
}

fn is_namespace_name(name: &str) -> bool {
    checked_name(name).is_ok() && !name.contains('.')
}

/// `[discovery]`: clusters found through Rancher's kubeconfig Secrets, and the template for them.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct RawDiscovery {
    /// The configured cluster whose Secrets are read.
    cluster: String,
    /// Where they are. `None`: `fleet-default`.
    namespaces: Option<Vec<Text>>,
    /// Labels that the Cluster of Rancher must have; empty: every cluster is taken.
    #[serde(default)]
    match_labels: BTreeMap<String, String>,
    /// What fipd does in each.
    #[serde(default)]
    systems: Vec<String>,
    /// Allows kubeconfigs that ask for it.
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    /// Namespace of the Secret `fipd-identity` in each. `None`: `kube-system`.
    identity_namespace: Option<String>,
    /// What becomes of addresses of fipd's pools that Services of other load balancers show in them. `None`: `report`.
    sightings: Option<SightingMode>,
}

impl RawDiscovery {
    pub(super) fn with_settings(
        self,
        known: Systems,
        tables: Tables<'_>,
    ) -> Result<Discovery, WrongTable> {
        let raw = self;
        let cluster = checked_name(&raw.cluster)?;
        let identity_namespace =
            identity_namespace(raw.identity_namespace.as_deref(), "[discovery]")?;
        let namespaces = raw
            .namespaces
            .unwrap_or_else(|| vec!["fleet-default".into()]);
        if namespaces.is_empty() {
            let what = "[discovery] namespaces is empty; name at least one, or leave it out for \"fleet-default\"";
            return Err(WrongTable::Whole(what.into()));
        }
        let sightings = raw.sightings.unwrap_or(SightingMode::Report);
        let (systems, settings) =
            known.settings(&raw.systems, tables, TableOwner::Discovery, sightings)?;
        Ok(Discovery {
            cluster,
            namespaces,
            match_labels: raw.match_labels,
            systems,
            insecure_skip_tls_verify: raw.insecure_skip_tls_verify,
            identity_namespace,
            settings,
        })
    }
}

/// The name of a cluster.
///
/// # Errors
/// What clusters may be called.
pub fn checked_name(name: &str) -> Result<Text, String> {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| edge(c) || c == '-' || c == '.';
    let ok = name.len() <= 63
        && name.starts_with(edge)
        && name.ends_with(edge)
        && name.chars().all(inner);
    if ok {
        Ok(name.into())
    } else {
        Err(format!(
            "cluster name {name:?} must be 1 to 63 of a-z, 0-9, '-' and '.', starting and ending with a letter or digit"
        ))
    }
}

/// Clusters and discovery, and where they are in the file.
type PlacedClusters = (Vec<Spanned<ClusterConfig>>, Option<Spanned<Discovery>>);

/// Clusters and discovery with the settings of their systems, and where they are.
pub(super) fn read_clusters(
    known: Systems,
    text: &str,
    (clusters, discovery): (Vec<Spanned<RawCluster>>, Option<Spanned<RawDiscovery>>),
    tables: SystemTables<'_>,
) -> Result<PlacedClusters, String> {
    let wrong = |error: WrongTable, span: Range<usize>| match error {
        WrongTable::Key(error) => of_toml(text, &error),
        WrongTable::Whole(what) => error::at(text, span.start, &what),
    };
    let clusters = clusters.into_iter().zip(tables.clusters);
    let clusters = clusters.map(|(raw, tables)| {
        let span = raw.span();
        match raw.into_inner().with_settings(known, tables) {
            Ok(cluster) => Ok(Spanned::new(span, cluster)),
            Err(error) => Err(wrong(error, span)),
        }
    });
    let clusters = clusters.collect::<Result<Vec<_>, _>>()?;
    let discovery = discovery.map(|raw| {
        let span = raw.span();
        match raw.into_inner().with_settings(known, tables.discovery) {
            Ok(discovery) => Ok(Spanned::new(span, discovery)),
            Err(error) => Err(wrong(error, span)),
        }
    });
    Ok((clusters, discovery.transpose()?))
}
