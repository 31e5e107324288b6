//! `helm.cattle.io/v1`: a release that the helm-controller of RKE2 and K3s keeps.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::lenient::{self, is_default};

/// A chart that is to be installed in the cluster; the object's name is the release's.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "helm.cattle.io",
    version = "v1",
    kind = "HelmChart",
    plural = "helmcharts",
    namespaced,
    status = "HelmChartStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    doc = "A chart that is to be installed in the cluster; its name is the release's."
)]
pub struct HelmChartSpec {
    /// Name in the repository, or an OCI reference.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub chart: String,
    /// URL of the repository.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub repo: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub version: String,
    /// The release's namespace; empty: the object's.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub target_namespace: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub create_namespace: bool,
    /// YAML text.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub values_content: String,
    /// `abort`, `reinstall` (which is meant where it is empty) or `retry`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub failure_policy: String,
}
lenient::absent_is_default!(HelmChartSpec);

/// What the helm-controller says of it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HelmChartStatus {
    /// The Job that installs, upgrades or removes the release.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub job_name: String,
    /// `JobCreated` and `Failed`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub conditions: Vec<HelmChartCondition>,
}

/// One condition; it has no time.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HelmChartCondition {
    #[serde(rename = "type", deserialize_with = "lenient::any")]
    pub type_: String,
    #[serde(deserialize_with = "lenient::any")]
    pub status: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub reason: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub message: String,
}

impl HelmChart {
    /// The namespace of its release.
    pub fn release_namespace(&self) -> &str {
        let own = self.metadata.namespace.as_deref().unwrap_or_default();
        Some(&*self.spec.target_namespace)
            .filter(|target| !target.is_empty())
            .unwrap_or(own)
    }
}
