//! What a network must have seen before it gives its first new lease.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ClusterId, NetworkId, System, Text, Timestamp};

/// A known cluster. Names are aliases; the id is the identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    pub id: ClusterId,
    /// Names it is or was configured or discovered under. A name belongs to one cluster.
    pub names: Vec<Text>,
    /// Found through Rancher's kubeconfig Secrets rather than in the config file.
    pub discovered: bool,
    pub first_seen: Timestamp,
    /// `None`: the cluster has not shown anything but its UID yet. In a request: nothing new.
    pub proof: Option<ClusterProof>,
}

/// What a way to a cluster must show before anything runs over it: a UID is copied by every restore and clone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterProof {
    /// The nonce of the Secret that fipd keeps in the cluster. `None`: fipd may not write there.
    pub nonce: Option<Text>,
    /// The challenge value last known to be in that Secret.
    pub value: Text,
    /// The value being written: until the write is known to have ended, the Secret may show either.
    pub next: Option<Text>,
    /// SHA-256 of the certificates that the leading way trusts, or of its server's address where it names none.
    pub ca: Text,
    /// The configured or discovered name that leads.
    pub lead: Text,
    /// Which way of that name led last: empty for the configured one, else `namespace/name` of a Secret.
    pub way: Text,
}

/// The stored marker: `network` has adopted `system` of `cluster` from a complete list, or an admin skipped it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Adoption {
    pub network: NetworkId,
    /// Cluster id as text; `name:NAME` where an admin skipped a cluster that was never reached.
    pub cluster: Text,
    pub system: System,
    pub at: Timestamp,
    pub skipped: bool,
}

/// What the configuration maps to a network: held in memory only, replaced as a whole when the config changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Expectation {
    pub network: NetworkId,
    /// The configured or discovered name.
    pub cluster: Text,
    pub system: System,
}

/// Why a network gives nothing new yet: this cluster's system was never listed completely.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Hold {
    pub cluster: Text,
    /// `None` while the cluster was never reached.
    pub id: Option<ClusterId>,
    pub system: System,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster {} ({})", self.cluster, self.system)
    }
}
