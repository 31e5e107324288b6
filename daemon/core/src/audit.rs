//! What the audit log says of one decision.

use std::{net::IpAddr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Family, Identity, NetworkId, PoolId, Span, Text, Timestamp, prefix_text, words};

/// Who asked: `user:NAME`, `token:NAME`, `socket:UID`, `offline:UID`, `controller:SYSTEM/CLUSTER`,
/// `fip-v1:PROJECT/CLUSTER`, `fipd`.
pub type Actor = Text;

words! {
    /// What was decided.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Action {
        Allocated = "allocated",
        /// Kept for a holder that comes later, or kept until another time.
        Reserved = "reserved",
        /// Given, to be checked on the wire before it is used.
        Probing = "probing",
        /// The check on the wire found somebody else using it.
        FoundInUse = "found-in-use",
        Adopted = "adopted",
        Contended = "contended",
        /// A contender stopped contending.
        ContenderLeft = "contender-left",
        /// The holder's identity kept the lease under a new instance.
        InstanceChanged = "instance-changed",
        /// A member of a sharing group uses other ports, or one began to share.
        PortsChanged = "ports-changed",
        HandedOver = "handed-over",
        /// Its labels changed.
        Labelled = "labelled",
        Released = "released",
        /// Its time was over: a quarantine or a reservation.
        Expired = "expired",
        /// Released by its holder and given to a contender.
        PassedOn = "passed-on",
        Orphaned = "orphaned",
        Forgotten = "forgotten",
        NetworkCreated = "network-created",
        PoolCreated = "pool-created",
        PoolUpdated = "pool-updated",
        PoolDeleted = "pool-deleted",
        /// It went to another network with all of its leases.
        PoolMoved = "pool-moved",
        NetworksSeparated = "networks-separated",
        SeparationWithdrawn = "separation-withdrawn",
        QuotaSet = "quota-set",
        QuotaDeleted = "quota-deleted",
        ClusterRecorded = "cluster-recorded",
        ClusterAdopted = "cluster-adopted",
        AdoptionSkipped = "adoption-skipped",
        AccountChanged = "account-changed",
        AccountDeleted = "account-deleted",
        TokenCreated = "token-created",
        TokenDeleted = "token-deleted",
        /// Written as an admin's file says.
        Imported = "imported",
        /// A backup took the place of the store.
        Restored = "restored",
        RestoreHoldEnded = "restore-hold-ended",
        /// A cluster knows decisions that the store does not.
        NetworkHeld = "network-held",
        /// Another key signs the tokens of LB controllers.
        KeyRotated = "key-rotated",
        /// Something that another program left was taken over, changed or removed.
        TakenOver = "taken-over",
        /// Policy-routing rules of the host: an admin had fipd do something, or somebody else changed fipd's own.
        RulesChanged = "rules-changed",
        /// A cluster's LB controller had a FloatingIP given to a Service, or taken off it.
        ServicesChanged = "services-changed",
        /// The LB controllers of a project got another secret.
        SecretRotated = "secret-rotated",
        /// An admin added, removed or left a cluster, or fipd took something of its own away there.
        ClusterChanged = "cluster-changed",
        /// An admin confirmed the wall clock.
        ClockAccepted = "clock-accepted",
        /// An admin took the time of the book back to the wall clock.
        ClockReset = "clock-reset",
    }
}

/// One row of the audit log; its sequence number is given by the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub at: Timestamp,
    pub actor: Actor,
    pub action: Action,
    pub network: Option<NetworkId>,
    pub address: Option<IpAddr>,
    /// Bits of the prefix that begins with the address, where it is about one and no single address.
    pub length: Option<u8>,
    pub pool: Option<PoolId>,
    /// The lease's owner, before the decision for a release, after it otherwise.
    pub identity: Option<Identity>,
    /// Free text: reason of a release, name of the pool or account, who contends, a tenant and
    /// its limit.
    pub detail: Text,
}

impl AuditEntry {
    /// The address or prefix that it is about, as text.
    pub fn what(&self) -> Option<String> {
        Some(prefix_text(self.address?, self.length))
    }

    /// The addresses that it is about.
    pub fn span(&self) -> Option<Span> {
        let address = self.address?;
        let whole = || Family::of(address).bits();
        Some(Span::of_prefix(address, self.length.unwrap_or_else(whole)))
    }

    /// One that is about no address.
    pub fn new(at: Timestamp, actor: &Actor, action: Action, detail: impl Into<Text>) -> Self {
        Self {
            at,
            actor: Arc::clone(actor),
            action,
            network: None,
            address: None,
            length: None,
            pool: None,
            identity: None,
            detail: detail.into(),
        }
    }
}
