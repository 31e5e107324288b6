//! `[cluster.cluster-api]`: what fipd serves of Cluster API in a cluster.

use std::{collections::BTreeMap, num::NonZeroU16, sync::LazyLock, time::Duration};

use fipd_core::{Origin, Pool, Text};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;

use super::names::{DEFAULT_PORT, IN_CLUSTER_NAMESPACE, VIP_ALLOCATOR_NAMESPACE};
use crate::clock;
use crate::config::{
    Draws, Pattern, SettingsTable, SystemConfig, SystemSettings, TypedSettings, Webhook, WrongTable,
};

/// What the configuration knows of the system.
pub static CONFIG: SystemConfig = SystemConfig {
    name: ClusterApiSettings::NAME,
    tick: "cluster-api: this is a management cluster of Cluster API whose claims and clusters get addresses",
    draws: Draws::Own,
    metrics: true,
    host_wishes: None,
    cni: false,
    cluster: SettingsTable::of::<ClusterApiSettings>(),
    discovery: SettingsTable {
        read: |written, place| match written {
            None => Ok(Box::new(ClusterApiSettings::default())),
            Some(_) => Err(WrongTable::Whole(format!(
                "{place}: discovered clusters are guests; the system is for a management cluster of Cluster API, which is a [[cluster]]"
            ))),
        },
        schema: SchemaGenerator::subschema_for::<DiscoveredClusterApi>,
    },
    alike: &[],
    compat: super::compat::FLAGS,
    operations: Some(&super::operations::OPERATIONS),
};

/// `[cluster.cluster-api]`
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ClusterApiSettings {
    /// Whether fipd serves the pool kinds of the in-cluster provider, or leaves them to that.
    pub in_cluster_kinds: InClusterKinds,
    /// Own pools that claims may name as a `Pool` of `fipd.io`. None, unless it says so.
    pub pools: Vec<Pattern>,
    /// Whether the pools of each namespace are in a network of their own, unless a `[[network]]` rule names theirs. It holds
    /// for pools that are made from then on.
    pub network_per_namespace: bool,
    /// The only namespace whose claims and pools are served. Empty: all of them.
    pub namespace: Text,
    /// Only claims and Clusters with the label `cluster.x-k8s.io/watch-filter` of this value are served. Empty: all of them.
    pub watch_filter: Text,
    /// Whether a new address is checked on the wire (ARP, neighbor discovery) before a claim shows it, those of Clusters too, where
    /// this host has an interface in its network; elsewhere the claim says that it was not checked. `fipd-probe.socket` must be
    /// enabled. An address in use is quarantined for an hour, and the claim gets another. While the check fails nothing is
    /// allocated: the claim waits, says why, and fipd tries again.
    pub conflict_probe: bool,
    /// Whether `Cluster`s get the addresses of their control plane and ingress.
    pub vips: bool,
    /// Port of a control plane whose `Cluster` names none.
    pub default_port: NonZeroU16,
    /// For whose Clusters nothing is made before their endpoint is written, by a runtime hook; `None`: no hook is registered.
    pub hook: Option<HookSettings>,
    /// How long a Cluster waits at most for its endpoint through that hook, from `1s` to `1d`.
    pub hook_patience: HookPatience,
    /// Whether fipd holds the Leases of the programs that it stands in for, and waits for them.
    pub leader_elect: bool,
    /// Namespace of the Lease of the in-cluster provider.
    pub in_cluster_lease_namespace: Text,
    /// Namespace of the Lease of capi-vip-allocator.
    pub vip_allocator_lease_namespace: Text,
    /// Whether the API server asks fipd before it stores or deletes a pool.
    pub webhook: Webhook,
}

/// `[cluster.cluster-api.hook]`: the ExtensionConfig by which Cluster API asks at `[api] advertise`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct HookSettings {
    /// Labels of the namespaces whose Clusters are asked about. All namespaces, where it names none.
    pub namespace_labels: BTreeMap<String, String>,
    /// Whether Cluster API makes nothing of a Cluster while fipd does not answer. It asks again by itself. Else the Cluster is
    /// made without its addresses, and gets them later.
    pub required: bool,
}

impl Default for HookSettings {
    fn default() -> Self {
        Self {
            namespace_labels: BTreeMap::new(),
            required: true,
        }
    }
}

/// How long a Cluster waits at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct HookPatience(pub Duration);

impl Default for HookPatience {
    fn default() -> Self {
        Self(Duration::from_secs(600))
    }
}

impl TryFrom<String> for HookPatience {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let given = clock::duration(&text).ok();
        let given = given.filter(|given| (1..=86_400).contains(&given.as_secs()));
        given
            .map(Self)
            .ok_or_else(|| format!("hook-patience = {text:?}: allowed is 1s to 1d, such as 10m"))
    }
}

fipd_core::words! {
    /// Who serves the pool kinds of the in-cluster provider.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
    pub enum InClusterKinds {
        /// fipd, while it holds that provider's Lease.
        #[default]
        Serve = "serve",
        /// The provider itself.
        Leave = "leave",
    }
}

/// Nothing: discovered clusters are guests.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct DiscoveredClusterApi {}

impl Default for ClusterApiSettings {
    fn default() -> Self {
        Self {
            in_cluster_kinds: InClusterKinds::default(),
            pools: Vec::new(),
            network_per_namespace: false,
            namespace: "".into(),
            watch_filter: "".into(),
            conflict_probe: false,
            vips: true,
            default_port: DEFAULT,
            hook: None,
            hook_patience: HookPatience::default(),
            leader_elect: true,
            in_cluster_lease_namespace: IN_CLUSTER_NAMESPACE.into(),
            vip_allocator_lease_namespace: VIP_ALLOCATOR_NAMESPACE.into(),
            webhook: Webhook::default(),
        }
    }
}

/// [`DEFAULT_PORT`].
const DEFAULT: NonZeroU16 = match NonZeroU16::new(DEFAULT_PORT as u16) {
    Some(port) => port,
    None => NonZeroU16::MIN,
};

impl ClusterApiSettings {
    /// Whether claims and Clusters of the namespace with this watch filter are served.
    pub fn covers(&self, namespace: &str, filter: Option<&str>) -> bool {
        let filtered = self.watch_filter.is_empty() || filter == Some(&*self.watch_filter);
        filtered && self.covers_namespace(namespace)
    }

    /// Whether pools of the namespace are served; what is of no namespace always is.
    pub fn covers_namespace(&self, namespace: &str) -> bool {
        namespace.is_empty() || self.namespace.is_empty() || *self.namespace == *namespace
    }

    /// The same of pools that are looked at: what another provider allocates is kept in the network of its pool, whichever
    /// namespace that is in.
    pub fn looks_at_pools_of(&self, namespace: &str) -> bool {
        !self.serves_in_cluster_kinds() || self.covers_namespace(namespace)
    }

    pub fn serves_in_cluster_kinds(&self) -> bool {
        self.in_cluster_kinds == InClusterKinds::Serve
    }
}

impl TypedSettings for ClusterApiSettings {
    const NAME: &'static str = "cluster-api";

    fn fallback() -> &'static Self {
        static FALLBACK: LazyLock<ClusterApiSettings> = LazyLock::new(Default::default);
        &FALLBACK
    }
}

impl SystemSettings for ClusterApiSettings {
    fn offered_pools(&self) -> &[Pattern] {
        &self.pools
    }

    fn webhook(&self) -> Option<&Webhook> {
        Some(&self.webhook)
    }

    fn webhook_mut(&mut self) -> Option<&mut Webhook> {
        Some(&mut self.webhook)
    }

    /// Claims on pools of prefixes get prefixes.
    fn offers(&self, pool: &Pool) -> bool {
        let own = matches!(pool.spec.origin, Origin::Own);
        own && self.pools.iter().any(|one| one.matches(&pool.spec.name))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn read(settings: &str) -> Result<ClusterApiSettings, String> {
        let text = format!(
            "[[cluster]]\nname = \"m\"\nin-cluster = true\nsystems = [\"cluster-api\"]\n{settings}"
        );
        let config = Config::read(*crate::systems::SYSTEMS, &text, Path::new("/etc/fipd"))?;
        Ok(config.clusters[0]
            .settings
            .of::<ClusterApiSettings>()
            .clone())
    }

    #[test]
    fn every_key_is_checked() {
        let given = read(
            "[cluster.cluster-api]\nin-cluster-kinds = \"leave\"\nnamespace = \"a\"\nwatch-filter = \"f\"\nconflict-probe = true\ndefault-port = 7443",
        )
        .expect("settings");
        assert!(!given.serves_in_cluster_kinds());
        assert_eq!(given.default_port.get(), 7443);
        assert!(given.conflict_probe);
        assert!(given.covers("a", Some("f")) && given.covers("", Some("f")));
        assert!(!given.covers("b", Some("f")) && !given.covers("a", None));
        let default = read("").expect("settings");
        assert_eq!(default, ClusterApiSettings::default());
        assert_eq!(default.default_port.get(), 6443);
        assert!(default.covers("b", None));
        for (wrong, named) in [
            ("in-cluster-kinds = \"both\"", "leave"),
            ("default-port = 0", "default-port"),
            ("pool = []", "pool"),
            ("conflict-probe = \"arp\"", "conflict-probe"),
        ] {
            let error = read(&format!("[cluster.cluster-api]\n{wrong}")).expect_err(wrong);
            assert!(error.contains(named), "{wrong}: {error}");
        }
    }
}
