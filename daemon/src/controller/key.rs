//! What objects of one kind are known by.

use std::fmt;

use fipd_core::{ClusterId, Identity, System, Text};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Namespace (empty for cluster-scoped objects) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: Text,
    pub name: Text,
}

/// `[namespace/]name`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(
            meta.namespace.as_deref().unwrap_or(""),
            meta.name.as_deref().unwrap_or(""),
        )
    }

    /// The key of the object behind an identity.
    pub fn of_identity(identity: &Identity) -> Self {
        Self {
            namespace: Text::clone(&identity.namespace),
            name: Text::clone(&identity.name),
        }
    }

    /// Who the object of this kind is in the ledger.
    pub fn identity(&self, system: System, cluster: &ClusterId, kind: &str) -> Identity {
        Identity {
            system,
            cluster: Some(cluster.clone()),
            kind: kind.into(),
            namespace: Text::clone(&self.namespace),
            name: Text::clone(&self.name),
            interface: "".into(),
        }
    }
}
