//! `[cluster.kube-fip]`: how addresses are counted, and what the ConfigMap of the original may say as well.

use std::{num::NonZeroU16, sync::LazyLock, time::Duration};

use fipd_core::Text;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;

use crate::{
    clock,
    config::{
        ChartEngine, Draws, ReleaseWait, SettingsTable, SystemConfig, SystemSettings,
        TypedSettings, WrongTable,
    },
    helm::Values,
};

/// What the configuration knows of the system.
pub static CONFIG: SystemConfig = SystemConfig {
    name: KubeFipSettings::NAME,
    tick: "kube-fip: this is a Rancher whose guest clusters on Harvester get addresses",
    draws: Draws::Own,
    metrics: true,
    host_wishes: None,
    cni: false,
    cluster: SettingsTable {
        read: |written, place| {
            let Some(written) = written else {
                return Ok(Box::new(KubeFipSettings::default()));
            };
            let given: KubeFipSettings = written.read()?;
            given.check(place)?;
            Ok(Box::new(given))
        },
        schema: SchemaGenerator::subschema_for::<KubeFipSettings>,
    },
    discovery: SettingsTable {
        read: |written, place| match written {
            None => Ok(Box::new(KubeFipSettings::default())),
            Some(_) => Err(WrongTable::Whole(format!(
                "{place}: discovered clusters are guests; the system is for the cluster of Rancher itself, which is a [[cluster]]"
            ))),
        },
        schema: SchemaGenerator::subschema_for::<DiscoveredKubeFip>,
    },
    alike: &[],
    compat: super::compat::FLAGS,
    operations: Some(&super::operations::OPERATIONS),
};

/// `arithmetic`, `engine`, `insecure-skip-tls-verify`, `namespace`, `release-wait` and `write-config-map-when-disabled` are fipd's own; every
/// other key goes before the one of the same meaning in the ConfigMap `kube-fip-config`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct KubeFipSettings {
    /// Which addresses of a `FloatingIPRange` are given, and in which order.
    pub arithmetic: RangeArithmetic,
    /// Namespace of that ConfigMap.
    pub namespace: Text,
    /// How long a finalizer of fipd keeps a range that is being deleted while its addresses are in use, from `1s` to `1h`.
    pub release_wait: ReleaseWait,
    /// Allows kubeconfig Secrets of Rancher that ask for it.
    pub insecure_skip_tls_verify: bool,
    /// What installs the charts of guests; an annotation of a cluster goes before it.
    pub engine: ChartEngine,
    /// Whether the ConfigMap `kubevip` of a guest is written in the mode `disabled` as well, as the original does.
    pub write_config_map_when_disabled: bool,
    /// Level of the records of this system. `None`: as the ConfigMap says, else that of all.
    pub log_level: Option<GuestLogLevel>,
    /// Whether each look at a guest logs its FloatingIPs with their addresses. `None`: as the ConfigMap says, else not.
    pub trace_ipam_data: Option<bool>,
    /// How often each guest is looked at, from `10s` to `1d`. `None`: as the ConfigMap says, else `8m`.
    pub operate_guest_cluster_interval: Option<GuestInterval>,
    /// Taken and not used: a `[[listener]]` with `serve = ["metrics:kube-fip"]` says the port.
    pub metrics_port: Option<NonZeroU16>,
    /// Which guests get the two charts. `None`: as the ConfigMap says, else `clusterlabel`.
    pub kubevip_guest_install: Option<GuestInstall>,
    /// Whether a release is brought to another version. `None`: as the ConfigMap says, else not.
    pub kubevip_update: Option<bool>,
    /// Namespace of both releases.
    pub kubevip_namespace: Option<Text>,
    /// Name of the release of kube-vip.
    pub kubevip_release_name: Option<Text>,
    /// URL of the repository of both charts.
    pub kubevip_chart_repo_url: Option<Text>,
    /// URL of a repository, an OCI reference or a path, in the place of the chart in that repository.
    pub kubevip_chart_ref: Option<Text>,
    /// `None`: as the ConfigMap says, else the newest.
    pub kubevip_chart_version: Option<Text>,
    /// Values of the chart of kube-vip, as YAML text.
    pub kubevip_chart_values: Option<Text>,
    /// Name of the release of its cloud provider.
    pub kubevip_cloud_provider_release_name: Option<Text>,
    /// URL of a repository, an OCI reference or a path, in the place of the chart in that repository.
    pub kubevip_cloud_provider_chart_ref: Option<Text>,
    /// `None`: as the ConfigMap says, else the newest.
    pub kubevip_cloud_provider_chart_version: Option<Text>,
    /// Values of the chart of its cloud provider, as YAML text.
    pub kubevip_cloud_provider_chart_values: Option<Text>,
}

fipd_core::words! {
    /// Which addresses of a range are given.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
    pub enum RangeArithmetic {
        /// From the address as it is written to the last one, but never network address, broadcast address and gateway; the
        /// lowest free one comes next.
        #[default]
        Default = "default",
        /// From the address as it is written, be it the network address, to the one below the broadcast address, in any order.
        /// IPv6 ranges, which the original does not have, stay by `default`.
        Original = "original",
    }
}

fipd_core::words! {
    /// Which guests get the charts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
    pub enum GuestInstall {
        Enabled = "enabled",
        Disabled = "disabled",
        /// Those whose Cluster has the label `kube-vip=true`.
        #[default]
        ClusterLabel = "clusterlabel",
    }
}

fipd_core::words! {
    /// How much of the system's own work is logged.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
    pub enum GuestLogLevel {
        Error = "error",
        Warn = "warn",
        #[default]
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }
}

/// How often guests are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct GuestInterval(pub Duration);

/// Nothing: discovered clusters are guests.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct DiscoveredKubeFip {}

impl GuestInterval {
    const LEAST: u64 = 10;
    const MOST: u64 = 24 * 3_600;

    /// So many seconds, where they are allowed.
    pub fn of_seconds(seconds: u64) -> Option<Self> {
        let allowed = (Self::LEAST..=Self::MOST).contains(&seconds);
        allowed.then(|| Self(Duration::from_secs(seconds)))
    }
}

impl Default for GuestInterval {
    fn default() -> Self {
        Self(Duration::from_secs(480))
    }
}

impl TryFrom<String> for GuestInterval {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let given = clock::duration(&text).ok();
        let given = given.and_then(|given| Self::of_seconds(given.as_secs()));
        given.ok_or_else(|| {
            format!("operate-guest-cluster-interval = {text:?}: allowed is 10s to 1d, such as 8m")
        })
    }
}

impl Default for KubeFipSettings {
    fn default() -> Self {
        Self {
            arithmetic: RangeArithmetic::default(),
            namespace: "kube-fip".into(),
            release_wait: ReleaseWait::default(),
            insecure_skip_tls_verify: false,
            engine: ChartEngine::default(),
            write_config_map_when_disabled: true,
            log_level: None,
            trace_ipam_data: None,
            operate_guest_cluster_interval: None,
            metrics_port: None,
            kubevip_guest_install: None,
            kubevip_update: None,
            kubevip_namespace: None,
            kubevip_release_name: None,
            kubevip_chart_repo_url: None,
            kubevip_chart_ref: None,
            kubevip_chart_version: None,
            kubevip_chart_values: None,
            kubevip_cloud_provider_release_name: None,
            kubevip_cloud_provider_chart_ref: None,
            kubevip_cloud_provider_chart_version: None,
            kubevip_cloud_provider_chart_values: None,
        }
    }
}

impl KubeFipSettings {
    /// What no type says of a key. Values may hold secrets, and are not shown.
    fn check(&self, place: &str) -> Result<(), String> {
        for (key, values) in [
            ("kubevip-chart-values", &self.kubevip_chart_values),
            (
                "kubevip-cloud-provider-chart-values",
                &self.kubevip_cloud_provider_chart_values,
            ),
        ] {
            Values::parse(values.as_deref().unwrap_or_default())
                .map_err(|wrong| format!("{place} {key}: the text {wrong}"))?;
        }
        let other = &self.kubevip_cloud_provider_release_name;
        match &self.kubevip_release_name {
            Some(name) if Some(name) == other.as_ref() => Err(format!(
                "{place} kubevip-release-name = {name:?}: kubevip-cloud-provider-release-name is the same, and two releases of one name cannot stand beside each other; give one of them another name"
            )),
            Some(_) | None => Ok(()),
        }
    }
}

impl TypedSettings for KubeFipSettings {
    const NAME: &'static str = "kube-fip";

    fn fallback() -> &'static Self {
        static FALLBACK: LazyLock<KubeFipSettings> = LazyLock::new(Default::default);
        &FALLBACK
    }
}

impl SystemSettings for KubeFipSettings {
    fn manages_guests(&self) -> bool {
        true
    }

    fn references(&self) -> Vec<(&'static str, &'static str, &str)> {
        let references = [
            ("kubevip-chart-repo-url", &self.kubevip_chart_repo_url),
            ("kubevip-chart-ref", &self.kubevip_chart_ref),
            (
                "kubevip-cloud-provider-chart-ref",
                &self.kubevip_cloud_provider_chart_ref,
            ),
        ];
        let given = references.into_iter();
        given
            .filter_map(|(key, text)| Some(("", key, text.as_deref()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn read(settings: &str) -> Result<KubeFipSettings, String> {
        let text = format!(
            "[[cluster]]\nname = \"rancher\"\nin-cluster = true\nsystems = [\"kube-fip\"]\n{settings}"
        );
        let config = Config::read(*crate::systems::SYSTEMS, &text, Path::new("/etc/fipd"))?;
        Ok(config.clusters[0].settings.of::<KubeFipSettings>().clone())
    }

    #[test]
    fn every_key_is_checked_and_nothing_is_shown_of_values() {
        let given = read(
            "[cluster.kube-fip]\narithmetic = \"original\"\nkubevip-guest-install = \"disabled\"\n\
             operate-guest-cluster-interval = \"1m\"\nmetrics-port = 8080\nkubevip-chart-values = \"a: {b: 1}\"",
        )
        .unwrap();
        assert_eq!(given.arithmetic, RangeArithmetic::Original);
        assert_eq!(given.kubevip_guest_install, Some(GuestInstall::Disabled));
        let minute = GuestInterval(Duration::from_secs(60));
        assert_eq!(given.operate_guest_cluster_interval, Some(minute));
        assert_eq!(read("").unwrap(), KubeFipSettings::default());
        for (wrong, named) in [
            ("arithmetic = \"random\"", "original"),
            ("kubevip-guest-install = \"label\"", "clusterlabel"),
            ("operate-guest-cluster-interval = \"0s\"", "10s to 1d"),
            ("operate-guest-cluster-interval = \"25h\"", "10s to 1d"),
            ("metrics-port = 0", "metrics-port"),
            ("log-level = \"loud\"", "trace"),
            ("kubevip-chart-values = \"hunter2: [\"", "is no YAML"),
            (
                "kubevip-release-name = \"x\"\nkubevip-cloud-provider-release-name = \"x\"",
                "give one of them another name",
            ),
            (
                "kubevip-cloud-provider-chart-values = \"hunter2\"",
                "no YAML object",
            ),
        ] {
            let error = read(&format!("[cluster.kube-fip]\n{wrong}")).unwrap_err();
            assert!(error.contains(named), "{wrong}: {error}");
        }
        let error = read("[cluster.kube-fip]\nkubevip-chart-values = \"hunter2: [\"").unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn guests_that_are_discovered_do_not_have_it() {
        let discovery = "[discovery]\ncluster = \"rancher\"\nsystems = [\"kube-fip\"]\n";
        let error = read(&format!("{discovery}[discovery.kube-fip]")).unwrap_err();
        assert!(
            error.contains("for the cluster of Rancher itself"),
            "{error}"
        );
    }
}
