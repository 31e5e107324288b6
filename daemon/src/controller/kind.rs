//! A kind of objects as the API server names it, and the objects of it.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Client, Resource};
use serde_json::Value;

use super::{
    client::{CallError, Remote, Target},
    queue::retries,
    store::Key,
};
use crate::clusters::lenient::{Lenient, ServedVersion};

/// A kind in the version of its API that fipd prefers, or that the cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// `api/v1` or `apis/GROUP/VERSION`.
    pub api: &'static str,
    /// Versions to use where the cluster does not serve that one, in order of preference.
    pub fallbacks: &'static [&'static str],
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// A cluster that does not serve it has none of them, which is no reason to wait.
    pub optional: bool,
}

pub const ENDPOINTS: Kind = Kind::namespaced("api/v1", "endpoints", "Endpoints");
pub const CONFIG_MAP: Kind = Kind::namespaced("api/v1", "configmaps", "ConfigMap");
pub const NAMESPACE: Kind = Kind::cluster("api/v1", "namespaces", "Namespace");
pub const NODE: Kind = Kind::cluster("api/v1", "nodes", "Node");
pub const POD: Kind = Kind::namespaced("api/v1", "pods", "Pod");
pub const SECRET: Kind = Kind::namespaced("api/v1", "secrets", "Secret");
pub const SERVICE: Kind = Kind::namespaced("api/v1", "services", "Service");
pub const SERVICE_ACCOUNT: Kind = Kind::namespaced("api/v1", "serviceaccounts", "ServiceAccount");
pub const DAEMON_SET: Kind = Kind::namespaced("apis/apps/v1", "daemonsets", "DaemonSet");
pub const DEPLOYMENT: Kind = Kind::namespaced("apis/apps/v1", "deployments", "Deployment");
pub const STATEFUL_SET: Kind = Kind::namespaced("apis/apps/v1", "statefulsets", "StatefulSet");
pub const CRON_JOB: Kind = Kind::namespaced("apis/batch/v1", "cronjobs", "CronJob");
pub const JOB: Kind = Kind::namespaced("apis/batch/v1", "jobs", "Job");
pub const LEASE: Kind = Kind::namespaced("apis/coordination.k8s.io/v1", "leases", "Lease");
pub const ENDPOINT_SLICE: Kind = Kind::namespaced(
    "apis/discovery.k8s.io/v1",
    "endpointslices",
    "EndpointSlice",
);
pub const INGRESS: Kind = Kind::namespaced("apis/networking.k8s.io/v1", "ingresses", "Ingress");
pub const CLUSTER_ROLE_BINDING: Kind = Kind::cluster(
    "apis/rbac.authorization.k8s.io/v1",
    "clusterrolebindings",
    "ClusterRoleBinding",
);
pub const CUSTOM_RESOURCE_DEFINITION: Kind = Kind::cluster(
    "apis/apiextensions.k8s.io/v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
);
pub const VALIDATING_WEBHOOK_CONFIGURATION: Kind = Kind::cluster(
    "apis/admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
);

impl Kind {
    pub const fn cluster(api: &'static str, plural: &'static str, kind: &'static str) -> Self {
        Self {
            api,
            fallbacks: &[],
            plural,
            kind,
            namespaced: false,
            optional: false,
        }
    }

    pub const fn namespaced(api: &'static str, plural: &'static str, kind: &'static str) -> Self {
        Self {
            namespaced: true,
            ..Self::cluster(api, plural, kind)
        }
    }

    /// The same, with further versions of its API in order of preference.
    #[must_use]
    pub const fn or(self, fallbacks: &'static [&'static str]) -> Self {
        Self { fallbacks, ..self }
    }

    /// The same, where a cluster may do without it.
    #[must_use]
    pub const fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    /// The kind in the first version that the cluster serves now; `None`: it serves none of them.
    pub async fn served(self, remote: &Remote) -> Result<Option<Self>, CallError> {
        if self.fallbacks.is_empty() && !self.optional {
            return Ok(Some(self));
        }
        for api in [self.api].iter().chain(self.fallbacks) {
            let kind = Self { api, ..self }.or(&[]);
            match kind.is_served(remote).await {
                Ok(true) => return Ok(Some(kind)),
                Ok(false) => {}
                // A cluster that does not say what it serves is asked in the preferred version.
                Err(CallError::Rejected(..)) => return Ok(Some(self.or(&[]))),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The same, once the cluster serves it in any of them; `lacking` is called whenever it serves none.
    pub async fn wait_served(self, remote: &Remote, lacking: impl Fn()) -> Self {
        let mut pauses = retries();
        loop {
            match self.served(remote).await {
                Ok(Some(kind)) => return kind,
                Ok(None) => lacking(),
                Err(error) => {
                    tracing::warn!(%error, "which API version is served is not known; it is tried again")
                }
            }
            tokio::time::sleep(pauses.pause()).await;
        }
    }

    /// Whether the cluster serves it in this version. Everybody may ask that.
    pub async fn is_served(self, remote: &Remote) -> Result<bool, CallError> {
        let version = Target {
            plural: "",
            ..self.all()
        };
        let found: Value = remote.get(&version).await?.unwrap_or_default();
        let mut kinds = found["resources"].as_array().into_iter().flatten();
        Ok(kinds.any(|one| one["name"] == self.plural))
    }

    /// All objects of the cluster, in this version.
    pub fn all_as<K: Resource<DynamicType = ()>>(self, client: Client) -> Api<Lenient<K>> {
        Api::all_with(client, &ServedVersion(Some(self.api_version())))
    }

    /// `v1` or `GROUP/VERSION`.
    pub fn api_version(self) -> &'static str {
        let (_, version) = self.api.split_once('/').unwrap_or_default();
        version
    }

    /// The API group; empty for the core one.
    pub fn group(self) -> &'static str {
        let (group, _) = self.api_version().split_once('/').unwrap_or_default();
        group
    }

    /// The object with this key.
    pub fn target(self, key: &Key) -> Target {
        self.named(&key.namespace, &key.name)
    }

    /// The object of this name; `namespace` is empty for cluster-scoped kinds.
    pub fn named(self, namespace: &str, name: &str) -> Target {
        Target {
            api: self.api,
            plural: self.plural,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// All objects of a namespace.
    pub fn all_in(self, namespace: &str) -> Target {
        self.named(namespace, "")
    }

    /// All objects of the cluster.
    pub fn all(self) -> Target {
        self.named("", "")
    }

    /// What Events of the object are about.
    pub fn reference(self, key: &Key, uid: &str) -> ObjectReference {
        let namespace = Some(key.namespace.to_string());
        ObjectReference {
            api_version: Some(self.api_version().to_owned()),
            kind: Some(self.kind.to_owned()),
            namespace: namespace.filter(|namespace| !namespace.is_empty()),
            name: Some(key.name.to_string()),
            uid: Some(uid.to_owned()).filter(|uid| !uid.is_empty()),
            ..ObjectReference::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_name_the_version_of_the_api() {
        let object = SECRET.reference(&Key::new("ns", "a"), "u");
        assert_eq!(object.api_version.as_deref(), Some("v1"));
        assert_eq!(object.namespace.as_deref(), Some("ns"));
        let object = CLUSTER_ROLE_BINDING.reference(&Key::new("", "a"), "");
        let version = object.api_version.as_deref();
        assert_eq!(version, Some("rbac.authorization.k8s.io/v1"));
        assert_eq!((object.namespace, object.uid), (None, None));
        assert_eq!(SECRET.group(), "");
        assert_eq!(LEASE.group(), "coordination.k8s.io");
    }

    #[test]
    fn a_target_is_one_object_or_all_of_a_namespace_or_of_the_cluster() {
        let paths = [
            LEASE.target(&Key::new("ns", "a")).path(),
            LEASE.all_in("ns").path(),
            LEASE.all().path(),
        ];
        let leases = "/apis/coordination.k8s.io/v1";
        assert_eq!(
            paths,
            [
                format!("{leases}/namespaces/ns/leases/a"),
                format!("{leases}/namespaces/ns/leases"),
                format!("{leases}/leases"),
            ]
        );
    }
}
