//! Objects of kinds that Cluster API owns and serves in two versions.

use serde::Serializer;

use super::names::{CLUSTER_GROUP, IPAM_GROUP, RUNTIME_GROUP, V1BETA2};

/// Defines an object that keeps the version it was read in; a new one is written in v1beta2. `$write` is one of the functions below,
/// as a string.
macro_rules! object {
    (
        $(#[$attribute:meta])*
        $kind:ident: $group:expr, $plural:literal, $scope:ident, $write:tt, $spec:ty $(, $status:ty)?
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, serde::Deserialize, PartialEq, serde::Serialize)]
        #[serde(rename_all = "camelCase", default, tag = "kind")]
        pub struct $kind {
            /// Group and version that the object was read in; empty for a new one.
            #[serde(
                deserialize_with = "crate::lenient::or_default",
                serialize_with = $write
            )]
            pub api_version: String,
            /// Standard metadata.
            #[serde(deserialize_with = "crate::lenient::or_default")]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// The desired state.
            #[serde(deserialize_with = "crate::lenient::any")]
            pub spec: $spec,
            $(
                /// The observed state. The API server refuses an empty one, so it is left out.
                #[serde(
                    deserialize_with = "crate::lenient::any",
                    skip_serializing_if = "crate::cluster_api::object::is_none_or_empty"
                )]
                pub status: Option<$status>,
            )?
        }

        impl $kind {
            /// Whether the object was read in the deprecated version v1beta1.
            #[must_use]
            pub fn is_v1beta1(&self) -> bool {
                let version = self.api_version.rsplit_once('/');
                version.is_some_and(|(_, version)| version == crate::cluster_api::names::V1BETA1)
            }
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = kube::core::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                crate::cluster_api::names::V1BETA2.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(super) use object;

pub(super) fn is_none_or_empty<T: Default + PartialEq>(status: &Option<T>) -> bool {
    status.as_ref().is_none_or(crate::lenient::is_default)
}

pub(super) fn ipam_version<S: Serializer>(version: &str, serializer: S) -> Result<S::Ok, S::Error> {
    write(IPAM_GROUP, version, serializer)
}

pub(super) fn cluster_version<S: Serializer>(
    version: &str,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    write(CLUSTER_GROUP, version, serializer)
}

pub(super) fn runtime_version<S: Serializer>(
    version: &str,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    write(RUNTIME_GROUP, version, serializer)
}

fn write<S: Serializer>(group: &str, version: &str, serializer: S) -> Result<S::Ok, S::Error> {
    if version.is_empty() {
        serializer.collect_str(&format_args!("{group}/{V1BETA2}"))
    } else {
        serializer.serialize_str(version)
    }
}
