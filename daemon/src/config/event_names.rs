//! The names of events, which `[[webhook]] events` subscribes to.

use fipd_core::Action;

/// One name for each action, in the order in which messages list them.
macro_rules! events {
    ($($action:ident = $name:literal,)+) => {
        /// Every name that can be subscribed to.
        pub const NAMES: [&str; Action::ALL.len()] = [$($name),+];

        /// The name of what an entry says.
        pub fn name(action: Action) -> &'static str {
            match action {
                $(Action::$action => $name),+
            }
        }
    };
}

events! {
    Allocated = "lease.allocated",
    Reserved = "lease.reserved",
    Probing = "lease.probing",
    FoundInUse = "lease.found-in-use",
    Adopted = "lease.adopted",
    Contended = "lease.contended",
    ContenderLeft = "lease.contender-left",
    InstanceChanged = "lease.instance-changed",
    PortsChanged = "lease.ports-changed",
    HandedOver = "lease.handed-over",
    Labelled = "lease.labelled",
    Released = "lease.released",
    Expired = "lease.expired",
    PassedOn = "lease.passed-on",
    Orphaned = "lease.orphaned",
    Forgotten = "lease.forgotten",
    NetworkCreated = "network.created",
    NetworkHeld = "network.held",
    NetworksSeparated = "network.separated",
    SeparationWithdrawn = "network.separation-withdrawn",
    PoolCreated = "pool.created",
    PoolUpdated = "pool.updated",
    PoolDeleted = "pool.deleted",
    PoolMoved = "pool.moved",
    QuotaSet = "quota.set",
    QuotaDeleted = "quota.deleted",
    ClusterRecorded = "cluster.recorded",
    ClusterAdopted = "cluster.adopted",
    AdoptionSkipped = "cluster.adoption-skipped",
    ClusterChanged = "cluster.changed",
    AccountChanged = "account.changed",
    AccountDeleted = "account.deleted",
    TokenCreated = "token.created",
    TokenDeleted = "token.deleted",
    Imported = "book.imported",
    Restored = "book.restored",
    RestoreHoldEnded = "book.restore-hold-ended",
    ClockAccepted = "book.clock-accepted",
    ClockReset = "book.clock-reset",
    KeyRotated = "site.key-rotated",
    TakenOver = "site.taken-over",
    RulesChanged = "site.rules-changed",
    ServicesChanged = "site.services-changed",
    SecretRotated = "site.secret-rotated",
}
