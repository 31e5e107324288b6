//! Clusters, how they are reached, and the settings of each system on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use fipd_core::{System, Text};
use fipd_crds::labels::{APP_NAMESPACE, CLUSTER_MANAGER_LEASE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    claims::{self, Claims},
    cluster_manager::ClusterManager,
    error::of_toml,
    ip_rule::{self, IpRule},
    release_wait::ReleaseWait,
    sightings::SightingMode,
    systems::systems,
    uploaded,
    webhook::Webhook,
};

/// A cluster of the configuration.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(try_from = "RawCluster")]
pub struct ClusterConfig {
    /// 1 to 63 of `[a-z0-9.-]`, starts and ends with a letter or digit.
    pub name: Text,
    #[schemars(skip)]
    pub source: Source,
    /// Allows a kubeconfig that asks for it.
    pub insecure_skip_tls_verify: bool,
    /// Namespace of the Secret `fipd-identity`, which tells the cluster from its clones.
    pub identity_namespace: Text,
    /// Another name of the cluster, where no Secret can prove that it is the same one.
    pub same_as: Option<Text>,
    /// Systems that are switched on; all of them are served by this version.
    #[schemars(skip)]
    pub systems: BTreeSet<System>,
    #[schemars(skip)]
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
    /// The text of a kubeconfig that an admin uploaded; it must be self-contained, and is never printed.
    Uploaded { text: Secret },
}

/// A text that is not shown by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Arc<str>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// Settings of each system on a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterSettings {
    pub rancher_fip: RancherFip,
    pub claims: Claims,
    pub ip_rule: IpRule,
    pub sightings: SightingMode,
}

/// `[cluster.rancher-fip]`
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RancherFip {
    /// What the cluster is: it holds pools, quotas and `FloatingIP`s, or the Services.
    pub role: RancherFipRole,
    /// Which configured cluster holds pools and `FloatingIP`s of a downstream cluster. `None`: the only one.
    pub management: Option<Text>,
    /// Rancher's id of a downstream cluster. `None`: found by its name.
    pub cluster_id: Option<Text>,
    /// The Rancher project charged for all Services. `None`: by labels.
    pub project: Option<Text>,
    /// The pool of Services that name none.
    pub default_pool: Option<Text>,
    /// Take Services without `loadBalancerClass` as well. Those that have been taken stay when it is off.
    pub class_less: bool,
    /// Who answers for the addresses of Services on the wire.
    pub announce: Announce,
    /// Namespace for what fipd keeps there.
    pub app_namespace: Text,
    pub cluster_manager: ClusterManager,
    pub webhook: Webhook,
    /// Whether the originals' Leases are held while a management cluster is served.
    pub leader_elect: bool,
    /// Name of the cluster manager's Lease.
    pub lease_lock_name: Text,
    /// Where all these Leases are.
    pub lease_lock_namespace: Text,
    /// On a management cluster: whether the Service of the original API server leads here.
    pub api_service: bool,
    /// On a management cluster: what a project gets without a quota.
    pub quotas: RancherFipQuotas,
    /// On a management cluster: how long a finalizer of fipd keeps an object that is being deleted while its addresses are in
    /// use, from `1s` to `1h`.
    pub release_wait: ReleaseWait,
}

/// What a project gets of a pool that its `FloatingIPProjectQuota` does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RancherFipQuotas {
    /// Nothing.
    #[default]
    Required,
    /// Any number of addresses.
    Optional,
}

/// What a cluster is to the rancher-fip family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RancherFipRole {
    /// Holds pools, quotas and `FloatingIP`s.
    #[default]
    Management,
    /// Holds the Services.
    Downstream,
}

/// Who answers for the addresses of Services on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Announce {
    #[default]
    None,
    KubeVip,
    Metallb,
    Purelb,
}

/// `[discovery]`: clusters found through Rancher's kubeconfig Secrets, and the template for them.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(try_from = "RawDiscovery")]
pub struct Discovery {
    /// The configured cluster whose Secrets are read.
    pub cluster: Text,
    pub namespaces: Vec<Text>,
    /// Labels that the `management.cattle.io` Cluster must have; empty: every cluster is taken.
    pub match_labels: BTreeMap<String, String>,
    #[schemars(skip)]
    pub systems: BTreeSet<System>,
    /// Allows kubeconfigs that ask for it.
    pub insecure_skip_tls_verify: bool,
    /// Namespace of the Secret `fipd-identity` in each.
    pub identity_namespace: Text,
    #[schemars(skip)]
    pub settings: ClusterSettings,
}

impl Default for RancherFip {
    fn default() -> Self {
        Self {
            role: RancherFipRole::default(),
            management: None,
            cluster_id: None,
            project: None,
            default_pool: None,
            class_less: false,
            announce: Announce::default(),
            app_namespace: APP_NAMESPACE.into(),
            cluster_manager: ClusterManager::default(),
            webhook: Webhook::default(),
            api_service: false,
            quotas: RancherFipQuotas::default(),
            release_wait: ReleaseWait::default(),
            leader_elect: true,
            lease_lock_name: CLUSTER_MANAGER_LEASE.into(),
            lease_lock_namespace: APP_NAMESPACE.into(),
        }
    }
}

impl ClusterConfig {
    /// Whether pools of the rancher-fip family live here.
    pub fn is_management(&self) -> bool {
        self.systems.contains(&System::rancher_fip())
            && self.settings.rancher_fip.role == RancherFipRole::Management
    }

    /// A cluster that an admin added by its kubeconfig. `settings` is TOML: what may be said below `[[cluster]]`, such as
    /// `[claims]` with `pools`.
    ///
    /// # Errors
    /// A name, a system or a setting that is not allowed, such as one that names a file of this host.
    pub fn uploaded(
        name: &str,
        systems: &[String],
        settings: &str,
        text: &Arc<str>,
    ) -> Result<Self, String> {
        let mut raw: toml::Table = settings
            .parse()
            .map_err(|error: toml::de::Error| format!("settings: {}", of_toml(settings, &error)))?;
        for key in ["name", "kubeconfig", "in-cluster", "context", "systems"] {
            if raw.contains_key(key) {
                return Err(format!("settings: {key} is not given here"));
            }
        }
        let trusted = raw.contains_key("sightings");
        raw.insert("name".to_owned(), name.into());
        raw.insert("in-cluster".to_owned(), true.into());
        raw.insert("systems".to_owned(), systems.to_vec().into());
        let raw: RawCluster = raw
            .try_into()
            .map_err(|error| format!("settings: {}", error.to_string().trim_end()))?;
        let mut cluster = Self::try_from(raw)?;
        uploaded::check(&cluster.settings)?;
        if !trusted && !cluster.is_management() {
            cluster.settings.sightings = SightingMode::Report;
        }
        cluster.source = Source::Uploaded {
            text: Secret(Arc::clone(text)),
        };
        Ok(cluster)
    }

    pub(super) fn resolve_paths(&mut self, base: &Path) {
        if let Source::File { path, .. } = &mut self.source {
            *path = super::place(base, path);
        }
        self.settings.rancher_fip.webhook.resolve_paths(base);
        self.settings.ip_rule.webhook.resolve_paths(base);
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RawCluster {
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
    /// What fipd does there: `rancher-fip`, `claims`, `ip-rule`.
    #[serde(default)]
    systems: Vec<String>,
    /// What becomes of addresses of fipd's pools that Services of other load balancers show there: `hold` keeps them from
    /// everybody else, `report` only shows them.
    #[serde(default)]
    sightings: SightingMode,
    rancher_fip: Option<RancherFip>,
    claims: Option<Claims>,
    ip_rule: Option<IpRule>,
}

impl TryFrom<RawCluster> for ClusterConfig {
    type Error = String;

    fn try_from(raw: RawCluster) -> Result<Self, Self::Error> {
        let name = checked_name(&raw.name)?;
        let source = match (raw.kubeconfig, raw.in_cluster) {
            (Some(path), false) => Source::File {
                path,
                context: raw.context,
            },
            (None, true) if raw.context.is_some() => {
                return Err(format!(
                    "[[cluster]] {name:?}: context belongs to kubeconfig, not to in-cluster = true"
                ));
            }
            (None, true) => Source::InCluster,
            (Some(_), true) | (None, false) => {
                return Err(format!(
                    "[[cluster]] {name:?} needs one of kubeconfig = \"FILE\" and in-cluster = true"
                ));
            }
        };
        let place = format!("[[cluster]] {name:?}");
        let identity_namespace = identity_namespace(raw.identity_namespace.as_deref(), &place)?;
        let same_as = raw
            .same_as
            .map(|other| same_as(&name, &other))
            .transpose()?;
        let systems = systems(&raw.systems, &place)?;
        let place = format!("[[cluster]] {name:?}, [cluster.rancher-fip]");
        let rancher_fip = rancher_fip(raw.rancher_fip, RancherFip::default(), &systems, &place)?;
        let place = format!("[[cluster]] {name:?}, [cluster.claims]");
        let claims = claims::checked(raw.claims, &systems, &place)?;
        let place = format!("[[cluster]] {name:?}, [cluster.ip-rule]");
        let ip_rule = ip_rule::checked(raw.ip_rule, &systems, &place)?;
        Ok(Self {
            name,
            source,
            insecure_skip_tls_verify: raw.insecure_skip_tls_verify,
            identity_namespace,
            same_as,
            systems,
            settings: ClusterSettings {
                rancher_fip,
                claims,
                ip_rule,
                sightings: raw.sightings,
            },
        })
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

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RawDiscovery {
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
    rancher_fip: Option<DiscoveredRancherFip>,
    claims: Option<Claims>,
    ip_rule: Option<IpRule>,
}

/// `[discovery.rancher-fip]`: the keys of a downstream cluster that can hold for many.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct DiscoveredRancherFip {
    /// Always `downstream`.
    role: Option<RancherFipRole>,
    /// Which configured cluster holds pools, where there are several.
    management: Option<Text>,
    /// The Rancher project charged for all Services. `None`: by labels.
    project: Option<Text>,
    /// The pool of Services that name none.
    default_pool: Option<Text>,
    /// Take Services without `loadBalancerClass` as well.
    #[serde(default)]
    class_less: bool,
    /// Who answers for the addresses on the wire.
    #[serde(default)]
    announce: Announce,
    /// Namespace for the announcer's objects.
    app_namespace: Option<Text>,
}

impl TryFrom<RawDiscovery> for Discovery {
    type Error = String;

    fn try_from(raw: RawDiscovery) -> Result<Self, Self::Error> {
        let cluster = checked_name(&raw.cluster)?;
        let systems = systems(&raw.systems, "[discovery]")?;
        let identity_namespace =
            identity_namespace(raw.identity_namespace.as_deref(), "[discovery]")?;
        let namespaces = raw
            .namespaces
            .unwrap_or_else(|| vec!["fleet-default".into()]);
        if namespaces.is_empty() {
            return Err("[discovery] namespaces is empty; name at least one, or leave it out for \"fleet-default\"".into());
        }
        if let Some(role) = raw.rancher_fip.as_ref().and_then(|given| given.role)
            && role != RancherFipRole::Downstream
        {
            return Err(
                "[discovery.rancher-fip] role: discovered clusters can only be \"downstream\""
                    .into(),
            );
        }
        let template = RancherFip {
            role: RancherFipRole::Downstream,
            ..RancherFip::default()
        };
        let given = raw.rancher_fip.map(|given| RancherFip {
            role: RancherFipRole::Downstream,
            management: given.management,
            cluster_id: None,
            project: given.project,
            default_pool: given.default_pool,
            class_less: given.class_less,
            announce: given.announce,
            app_namespace: given
                .app_namespace
                .unwrap_or_else(|| template.app_namespace.clone()),
            ..template.clone()
        });
        let rancher_fip = rancher_fip(given, template, &systems, "[discovery.rancher-fip]")?;
        let claims = claims::checked(raw.claims, &systems, "[discovery.claims]")?;
        let ip_rule = ip_rule::checked(raw.ip_rule, &systems, "[discovery.ip-rule]")?;
        Ok(Self {
            cluster,
            namespaces,
            match_labels: raw.match_labels,
            systems,
            insecure_skip_tls_verify: raw.insecure_skip_tls_verify,
            identity_namespace,
            settings: ClusterSettings {
                rancher_fip,
                claims,
                ip_rule,
                sightings: raw.sightings.unwrap_or(SightingMode::Report),
            },
        })
    }
}

/// The name of a cluster.
///
/// # Errors
/// What clusters may be called.
pub fn checked_name(name: &str) -> Result<Text, String> {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ok = name.len() <= 63
        && edge(name.chars().next())
        && edge(name.chars().last())
        && name.chars().all(inner);
    if ok {
        Ok(name.into())
    } else {
        Err(format!(
            "cluster name {name:?} must be 1 to 63 of a-z, 0-9, '-' and '.', starting and ending with a letter or digit"
        ))
    }
}

fn rancher_fip(
    given: Option<RancherFip>,
    default: RancherFip,
    systems: &BTreeSet<System>,
    place: &str,
) -> Result<RancherFip, String> {
    let Some(given) = given else {
        return Ok(default);
    };
    if !systems.contains(&System::rancher_fip()) {
        return Err(format!(
            "{place}: these settings do nothing: systems does not have \"rancher-fip\""
        ));
    }
    if given.role == RancherFipRole::Management {
        let downstream_only = [
            ("management", given.management.is_some()),
            ("cluster-id", given.cluster_id.is_some()),
            ("project", given.project.is_some()),
            ("default-pool", given.default_pool.is_some()),
            ("class-less", given.class_less),
            ("announce", given.announce != Announce::None),
        ];
        if let Some((key, _)) = downstream_only.into_iter().find(|(_, set)| *set) {
            return Err(format!(
                "{place}: {key} is for role = \"downstream\", this cluster's role is \"management\""
            ));
        }
    } else if given.cluster_manager != ClusterManager::default() {
        return Err(format!(
            "{place}: cluster-manager is for role = \"management\", this cluster's role is \"downstream\""
        ));
    }
    if given.role == RancherFipRole::Downstream && given.webhook != Webhook::default() {
        return Err(format!(
            "{place}: webhook is for role = \"management\", this cluster's role is \"downstream\""
        ));
    }
    if given.role == RancherFipRole::Downstream && given.quotas != RancherFipQuotas::default() {
        return Err(format!(
            "{place}: quotas is for role = \"management\", this cluster's role is \"downstream\""
        ));
    }
    let management_only = [
        ("api-service", given.api_service),
        ("release-wait", given.release_wait != default.release_wait),
        ("leader-elect", given.leader_elect != default.leader_elect),
        (
            "lease-lock-name",
            given.lease_lock_name != default.lease_lock_name,
        ),
        (
            "lease-lock-namespace",
            given.lease_lock_namespace != default.lease_lock_namespace,
        ),
    ];
    if given.role == RancherFipRole::Downstream
        && let Some((key, _)) = management_only.into_iter().find(|(_, set)| *set)
    {
        return Err(format!(
            "{place}: {key} is for role = \"management\", this cluster's role is \"downstream\""
        ));
    }
    Ok(given)
}
