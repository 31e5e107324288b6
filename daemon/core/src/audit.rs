//! What the audit log says of one decision.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Identity, NetworkId, PoolId, Text, Timestamp};

/// Who asked: `user:NAME`, `token:NAME`, `socket:UID`, `offline:UID`, `controller:SYSTEM/CLUSTER`,
/// `fip-v1:PROJECT/CLUSTER`, `fipd`.
pub type Actor = Text;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    Allocated,
    /// Kept for a holder that comes later, or kept until another time.
    Reserved,
    /// Given, to be checked on the wire before it is used.
    Probing,
    /// The check on the wire found somebody else using it.
    FoundInUse,
    Adopted,
    Contended,
    /// A contender stopped contending.
    ContenderLeft,
    /// The holder's identity kept the lease under a new instance.
    InstanceChanged,
    /// A member of a sharing group uses other ports, or one began to share.
    PortsChanged,
    HandedOver,
    /// Its labels changed.
    Labelled,
    Released,
    /// Its time was over: a quarantine or a reservation.
    Expired,
    /// Released by its holder and given to the oldest contender.
    PassedOn,
    Orphaned,
    Forgotten,
    NetworkCreated,
    PoolCreated,
    PoolUpdated,
    PoolDeleted,
    /// It went to another network with all of its leases.
    PoolMoved,
    NetworksSeparated,
    SeparationWithdrawn,
    QuotaSet,
    QuotaDeleted,
    ClusterRecorded,
    ClusterAdopted,
    AdoptionSkipped,
    AccountChanged,
    AccountDeleted,
    TokenCreated,
    TokenDeleted,
    /// Written as an admin's file says.
    Imported,
    /// A backup took the place of the store.
    Restored,
    RestoreHoldEnded,
    /// A cluster knows decisions that the store does not.
    NetworkHeld,
    /// Another key signs the tokens of LB controllers.
    KeyRotated,
    /// Something that another program left was taken over, changed or removed.
    TakenOver,
    /// Policy-routing rules of the host: an admin had fipd do something, or somebody else changed fipd's own.
    RulesChanged,
    /// A cluster's LB controller had a FloatingIP given to a Service, or taken off it.
    ServicesChanged,
    /// The LB controllers of a project got another secret.
    SecretRotated,
    /// An admin added, removed or left a cluster, or fipd took something of its own away there.
    ClusterChanged,
    /// An admin confirmed the wall clock.
    ClockAccepted,
    /// An admin took the time of the book back to the wall clock.
    ClockReset,
}

/// One row of the audit log; its sequence number is given by the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub at: Timestamp,
    pub actor: Actor,
    pub action: Action,
    pub network: Option<NetworkId>,
    pub address: Option<IpAddr>,
    pub pool: Option<PoolId>,
    /// The lease's owner, before the decision for a release, after it otherwise.
    pub identity: Option<Identity>,
    /// Free text: reason of a release, name of the pool or account, who contends, a tenant and
    /// its limit.
    pub detail: Text,
}
