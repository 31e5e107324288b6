//! `[cluster.rancher-fip]` and `[discovery.rancher-fip]`.

use std::sync::LazyLock;

use fipd_core::Text;
use fipd_crds::labels::{API_SERVICE, APP_NAMESPACE, CLUSTER_MANAGER_LEASE};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::config::{
    ChartEngine, ChartSettings, Draws, PoolsIn, ReleaseWait, SettingsTable, SystemConfig,
    SystemSettings, TypedSettings, Webhook, Written, WrongTable,
};

/// What the configuration knows of the system.
pub static CONFIG: SystemConfig = SystemConfig {
    name: RancherFipSettings::NAME,
    tick: "rancher-fip: this is a Rancher with floating IPs",
    draws: Draws::Management,
    metrics: true,
    host_wishes: None,
    cni: false,
    cluster: SettingsTable {
        read: |written, place| {
            let Some(written) = written else {
                return Ok(Box::new(RancherFipSettings::default()));
            };
            Ok(Box::new(checked(written.read()?, place)?))
        },
        schema: SchemaGenerator::subschema_for::<RancherFipSettings>,
    },
    discovery: SettingsTable {
        read: |written, place| Ok(Box::new(discovered(written, place)?)),
        schema: SchemaGenerator::subschema_for::<DiscoveredRancherFip>,
    },
    alike: &[
        ("cluster-manager.purelb", "cluster-manager.lb-controller"),
        ("cluster-manager.metallb", "cluster-manager.lb-controller"),
    ],
    compat: super::compat::FLAGS,
    operations: Some(&super::operations::OPERATIONS),
};

/// `[cluster.rancher-fip]`
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RancherFipSettings {
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

/// Every key but `enabled`, `engine` and `insecure-skip-tls-verify` goes before the key of the same meaning in the ConfigMap
/// `rancher-fip-config`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ClusterManager {
    /// Whether anything is written into the clusters that Rancher manages.
    pub enabled: bool,
    /// Allows kubeconfig Secrets of Rancher that ask for it.
    pub insecure_skip_tls_verify: bool,
    /// What installs charts in clusters that do not say another by annotation.
    pub engine: ChartEngine,
    /// Where the clusters find the API for addresses, with its version prefix.
    pub api_server_url: Option<Text>,
    /// The chart of the LB controller; its namespace is where everything is written to.
    pub lb_controller: ChartSettings,
    pub purelb: ChartSettings,
    pub metallb: ChartSettings,
}

impl Default for RancherFipSettings {
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

impl TypedSettings for RancherFipSettings {
    const NAME: &'static str = "rancher-fip";

    fn fallback() -> &'static Self {
        static FALLBACK: LazyLock<RancherFipSettings> = LazyLock::new(Default::default);
        &FALLBACK
    }
}

impl SystemSettings for RancherFipSettings {
    fn alias(&self) -> Option<&Text> {
        self.cluster_id.as_ref()
    }

    fn set_rancher_id(&mut self, id: Option<&Text>) {
        self.cluster_id = id.cloned();
    }

    fn pools_in(&self) -> PoolsIn<'_> {
        match (self.role, &self.management) {
            (RancherFipRole::Management, _) => PoolsIn::Here,
            (RancherFipRole::Downstream, Some(named)) => PoolsIn::Cluster(named),
            (RancherFipRole::Downstream, None) => PoolsIn::OnlyManagement,
        }
    }

    fn is_management(&self) -> bool {
        self.role == RancherFipRole::Management
    }

    fn manages_guests(&self) -> bool {
        self.is_management() && self.cluster_manager.enabled
    }

    fn webhook(&self) -> Option<&Webhook> {
        Some(&self.webhook)
    }

    fn webhook_mut(&mut self) -> Option<&mut Webhook> {
        Some(&mut self.webhook)
    }

    fn references(&self) -> Vec<(&'static str, &'static str, &str)> {
        let manager = &self.cluster_manager;
        let charts = [
            ("cluster-manager.lb-controller", &manager.lb_controller),
            ("cluster-manager.purelb", &manager.purelb),
            ("cluster-manager.metallb", &manager.metallb),
        ];
        let charts = charts.into_iter();
        charts
            .filter_map(|(table, chart)| Some((table, "chart-ref", chart.chart_ref.as_deref()?)))
            .collect()
    }

    fn host_names(&self) -> Vec<String> {
        if !self.api_service {
            return Vec::new();
        }
        let full = format!("{API_SERVICE}.{}", self.app_namespace);
        let ends = ["", ".svc", ".svc.cluster.local"];
        let full = ends.map(|end| format!("{full}{end}"));
        full.into_iter().chain([API_SERVICE.to_owned()]).collect()
    }
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

/// The settings of clusters that are discovered, which can only be downstream ones.
fn discovered(written: Option<Written<'_>>, place: &str) -> Result<RancherFipSettings, WrongTable> {
    let template = RancherFipSettings {
        role: RancherFipRole::Downstream,
        ..RancherFipSettings::default()
    };
    let Some(written) = written else {
        return Ok(template);
    };
    let given: DiscoveredRancherFip = written.read()?;
    if given
        .role
        .is_some_and(|role| role != RancherFipRole::Downstream)
    {
        let what = format!("{place} role: discovered clusters can only be \"downstream\"");
        return Err(WrongTable::Whole(what));
    }
    let settings = RancherFipSettings {
        management: given.management,
        project: given.project,
        default_pool: given.default_pool,
        class_less: given.class_less,
        announce: given.announce,
        app_namespace: given
            .app_namespace
            .unwrap_or_else(|| Text::clone(&template.app_namespace)),
        ..template
    };
    Ok(checked(settings, place)?)
}

/// Keys that the role of the cluster allows.
fn checked(given: RancherFipSettings, place: &str) -> Result<RancherFipSettings, String> {
    let default = RancherFipSettings::default();
    let (own, other) = match given.role {
        RancherFipRole::Management => ("management", "downstream"),
        RancherFipRole::Downstream => ("downstream", "management"),
    };
    let of_other: &[(&str, bool)] = match given.role {
        RancherFipRole::Management => &[
            ("management", given.management.is_some()),
            ("cluster-id", given.cluster_id.is_some()),
            ("project", given.project.is_some()),
            ("default-pool", given.default_pool.is_some()),
            ("class-less", given.class_less),
            ("announce", given.announce != Announce::None),
        ],
        RancherFipRole::Downstream => &[
            (
                "cluster-manager",
                given.cluster_manager != default.cluster_manager,
            ),
            ("webhook", given.webhook != default.webhook),
            ("quotas", given.quotas != default.quotas),
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
        ],
    };
    match of_other.iter().find(|(_, set)| *set) {
        None => Ok(given),
        Some((key, _)) => Err(format!(
            "{place}: {key} is for role = \"{other}\", this cluster's role is \"{own}\""
        )),
    }
}
