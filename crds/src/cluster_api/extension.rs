//! Runtime extensions: where Cluster API calls hooks.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};

use super::conditions::AnyCondition;
use super::names::RUNTIME_GROUP;
use super::object::object;
use crate::lenient::{self, is_default};

object! {
    /// A server of runtime hooks. The kind is served only with the feature gate `RuntimeSDK`.
    ExtensionConfig: RUNTIME_GROUP, "extensionconfigs", ClusterResourceScope,
    "super::object::runtime_version", ExtensionConfigSpec, ExtensionConfigStatus
}

/// Where the hooks are and for whom they are called.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionConfigSpec {
    /// How to reach the server.
    #[serde(deserialize_with = "lenient::any")]
    pub client_config: ClientConfig,
    /// Namespaces whose objects the hooks are called for. Left out: all.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub namespace_selector: Option<LabelSelector>,
    /// Settings that each call passes on.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub settings: BTreeMap<String, String>,
}

/// How to reach a server of hooks: by `url` or by `service`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientConfig {
    /// `https://host:port/path`; the path of the hook is appended.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub url: String,
    /// A Service of the cluster.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub service: Option<ServiceReference>,
    /// Certificates (PEM) that the server's certificate is checked against.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub ca_bundle: Option<ByteString>,
}

/// A Service.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceReference {
    /// Namespace.
    #[serde(deserialize_with = "lenient::any")]
    pub namespace: String,
    /// Name.
    #[serde(deserialize_with = "lenient::any")]
    pub name: String,
    /// Path before that of the hook.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub path: String,
    /// Port. Left out: 443.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub port: Option<i32>,
}

/// What fipd reads of the observed state.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionConfigStatus {
    /// Conditions; `Discovered` says whether Cluster API reached the server.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub conditions: Vec<AnyCondition>,
}
