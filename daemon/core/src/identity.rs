//! Who asks: systems, clusters, identities and holders.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

/// Shared immutable text. The ledger interns what repeats (clusters, kinds, namespaces).
pub type Text = Arc<str>;

/// The system on whose behalf an address is held: one of the five drop-ins, or `fipd` itself, or its
/// own kinds in clusters, or a name of the admin's own. 1 to 40 of `[a-z0-9-]`, starts with a letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct System(Text);

/// A Kubernetes cluster: the UID of its `kube-system` namespace, as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub Text);

/// Who is charged: a Rancher project, a namespace or a token scope, as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tenant(pub Text);

/// Who asks, stably: what idempotence and stickiness use. Together with the network of the lease it is unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub system: System,
    /// `None` for owners that live in no cluster.
    pub cluster: Option<ClusterId>,
    pub kind: Text,
    /// Empty for cluster-scoped owners.
    pub namespace: Text,
    pub name: Text,
    /// Empty where the owner has a single interface.
    pub interface: Text,
}

/// An identity and the instance of it (object UID, container id; empty where the owner has none).
/// A release must match it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holder {
    pub identity: Identity,
    pub instance: Text,
}

/// Why a text is no system or owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("system {0:?} must be 1 to 40 of a-z, 0-9 and '-', starting with a letter")]
    System(String),
    #[error(
        "owner {0:?} must be SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME (NAMESPACE may be empty, the others not)"
    )]
    Owner(String),
    #[error("owner {text:?}: {part} is {length} characters long, at most {most} are allowed")]
    TooLong {
        text: String,
        part: &'static str,
        length: usize,
        most: usize,
    },
}

impl System {
    /// The longest name of a system, in bytes.
    pub const MAX_LEN: usize = 40;

    /// fipd itself: leases made by an admin.
    pub fn own() -> Self {
        Self("fipd".into())
    }

    /// The rancher-fip family.
    pub fn rancher_fip() -> Self {
        Self("rancher-fip".into())
    }

    /// fipd's own kinds in clusters: claims, and pools as objects.
    pub fn claims() -> Self {
        Self("claims".into())
    }

    /// Addresses that Cluster API asks for.
    pub fn cluster_api() -> Self {
        Self("cluster-api".into())
    }

    /// Addresses of guest clusters that Rancher makes on Harvester.
    pub fn kube_fip() -> Self {
        Self("kube-fip".into())
    }

    /// Addresses of pods on macvlan and ipvlan networks.
    pub fn flat_network() -> Self {
        Self("flat-network".into())
    }

    /// Policy routing of hosts.
    pub fn ip_rule() -> Self {
        Self("ip-rule".into())
    }

    /// Services that other load balancers serve: what they use is kept from everybody else.
    pub fn foreign() -> Self {
        Self("foreign".into())
    }

    /// Stands for the list of clusters that a discovery source gives.
    pub fn discovery() -> Self {
        Self("discovery".into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for System {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ok = text.len() <= Self::MAX_LEN
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if ok {
            Ok(Self(text.into()))
        } else {
            Err(IdentityError::System(text.to_owned()))
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Identity {
    /// The longest cluster, kind, namespace or name, in bytes.
    pub const MAX_PART: usize = 253;

    /// Whether it is an object that others serve, seen in a cluster.
    pub fn is_foreign(&self) -> bool {
        self.system.as_str() == "foreign"
    }

    /// Whether both are the same object of the same cluster, whatever serves it.
    pub(crate) fn names_same_object(&self, other: &Self) -> bool {
        self.shares_cluster(other)
            && self.kind == other.kind
            && self.namespace == other.namespace
            && self.name == other.name
    }

    /// Whether both are an object of one system, kind and name, in two clusters: what the object is to the first that moves to the
    /// second.
    pub fn is_same_elsewhere(&self, other: &Self) -> bool {
        self.cluster.is_some()
            && other.cluster.is_some()
            && self.cluster != other.cluster
            && self.system == other.system
            && self.kind == other.kind
            && self.namespace == other.namespace
            && self.name == other.name
            && self.interface == other.interface
    }

    /// Whether both live in one cluster.
    pub(crate) fn shares_cluster(&self, other: &Self) -> bool {
        self.cluster.is_some() && self.cluster == other.cluster
    }
}

/// Parses `SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME`; the cluster part is a cluster id.
impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('/').collect();
        let (system, cluster, kind, namespace, name) = match parts.as_slice() {
            [system, kind, namespace, name] => (*system, None, *kind, *namespace, *name),
            [system, cluster, kind, namespace, name] => {
                (*system, Some(*cluster), *kind, *namespace, *name)
            }
            _ => return Err(IdentityError::Owner(text.to_owned())),
        };
        if kind.is_empty() || name.is_empty() || cluster == Some("") {
            return Err(IdentityError::Owner(text.to_owned()));
        }
        for (part, value) in [
            ("CLUSTER", cluster.unwrap_or("")),
            ("KIND", kind),
            ("NAMESPACE", namespace),
            ("NAME", name),
        ] {
            if value.len() > Self::MAX_PART {
                let (length, most) = (value.len(), Self::MAX_PART);
                return Err(IdentityError::TooLong {
                    text: text.to_owned(),
                    part,
                    length,
                    most,
                });
            }
        }
        Ok(Self {
            system: system.parse()?,
            cluster: cluster.map(|id| ClusterId(id.into())),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            interface: "".into(),
        })
    }
}

/// `SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME`, and `@INTERFACE` where there is one.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Piece by piece: lists are searched by it.
        f.write_str(self.system.as_str())?;
        f.write_str("/")?;
        if let Some(cluster) = &self.cluster {
            f.write_str(&cluster.0)?;
            f.write_str("/")?;
        }
        for part in [&*self.kind, "/", &*self.namespace, "/", &*self.name] {
            f.write_str(part)?;
        }
        if !self.interface.is_empty() {
            f.write_str("@")?;
            f.write_str(&self.interface)?;
        }
        Ok(())
    }
}
