//! What is installed in guest clusters, and by what.

use fipd_core::Text;
use schemars::JsonSchema;
use serde::Deserialize;

fipd_core::words! {
    /// What installs the charts of a cluster.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
    pub enum ChartEngine {
        /// The helm CLI on fipd's host.
        #[default]
        Helm = "helm",
        /// The helm-controller of RKE2 and K3s, told by HelmChart objects.
        HelmChart = "helm-chart",
    }
}

/// A chart, and the values it is installed with.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ChartSettings {
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
