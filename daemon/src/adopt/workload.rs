//! Workloads of the originals, and whether they are to run.

use std::fmt;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::{Resource, ResourceExt as _};

/// A Deployment or DaemonSet of an original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginalWorkload {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    /// Pods that it is to have.
    pub replicas: i32,
}

impl OriginalWorkload {
    pub fn deployment(object: &Deployment) -> Self {
        let spec = object.spec.replicas;
        Self::new("Deployment", object, spec.unwrap_or(1))
    }

    pub fn daemon_set(object: &DaemonSet) -> Self {
        let status = object.status.as_ref();
        let replicas = status.map_or(0, |status| status.desired_number_scheduled);
        Self::new("DaemonSet", object, replicas)
    }

    /// Why one that gives addresses is in the way; `None`: it is to have no pods.
    pub fn gives_addresses(&self) -> Option<String> {
        let Self {
            namespace, name, ..
        } = self;
        (self.replicas > 0).then(|| {
            format!(
                "{self} is to have pods, and both would give addresses: run `kubectl -n {namespace} scale deployment {name} --replicas=0`"
            )
        })
    }

    fn new(kind: &'static str, object: &impl Resource, replicas: i32) -> Self {
        Self {
            kind,
            namespace: object.meta().namespace.clone().unwrap_or_default(),
            name: object.name_any(),
            replicas,
        }
    }
}

impl fmt::Display for OriginalWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
