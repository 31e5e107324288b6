//! `[cluster.rancher-fip.cluster-manager]`: what fipd keeps in the clusters that Rancher manages.

use fipd_core::Text;
use serde::Deserialize;

/// Every key but the first two goes before the key of the same meaning in the ConfigMap `rancher-fip-config`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ClusterManager {
    /// Whether anything is written into the clusters that Rancher manages.
    pub enabled: bool,
    /// Allows kubeconfig Secrets of Rancher that ask for it.
    pub insecure_skip_tls_verify: bool,
    /// Where the clusters find the API for addresses, with its version prefix.
    pub api_server_url: Option<Text>,
    pub lb_controller: Chart,
    pub purelb: Chart,
    pub metallb: Chart,
}

/// A chart, and the values it is installed with.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Chart {
    /// Also the name of the release.
    pub chart_name: Option<Text>,
    /// URL of a repository, an OCI reference or a path.
    pub chart_ref: Option<Text>,
    pub chart_version: Option<Text>,
    pub namespace: Option<Text>,
    /// YAML text.
    pub values: Option<Text>,
}
