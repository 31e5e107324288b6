//! `[cluster.rancher-fip.cluster-manager]`: what fipd keeps in the clusters that Rancher manages.

use fipd_core::Text;
use schemars::JsonSchema;
use serde::Deserialize;

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
    pub engine: Engine,
    /// Where the clusters find the API for addresses, with its version prefix.
    pub api_server_url: Option<Text>,
    /// The chart of the LB controller; its namespace is where everything is written to.
    pub lb_controller: Chart,
    pub purelb: Chart,
    pub metallb: Chart,
}

/// What installs the charts of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The helm CLI on fipd's host.
    #[default]
    Helm,
    /// The helm-controller of RKE2 and K3s, told by HelmChart objects.
    HelmChart,
}

impl Engine {
    /// As configuration and annotation write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Helm => "helm",
            Self::HelmChart => "helm-chart",
        }
    }
}

/// A chart, and the values it is installed with.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Chart {
    /// Also the name of the release.
    pub chart_name: Option<Text>,
    /// URL of a repository, an OCI reference or a path.
    pub chart_ref: Option<Text>,
    /// `None`: the newest.
    pub chart_version: Option<Text>,
    /// Where it is installed.
    pub namespace: Option<Text>,
    /// YAML text.
    pub values: Option<Text>,
}
