//! What becomes durable.

use std::sync::Arc;

use crate::{
    Account, Adoption, AuditEntry, ClockLine, ClusterId, ClusterRecord, Epoch, KeyId, Lease,
    LeaseKey, Network, NetworkId, PastLease, Pool, PoolId, Quota, Rollup, Separation, SigningKey,
    System, Tenant, Text, Token, TokenId,
};

/// One row written or removed. Ops name their row whole, so that applying one twice changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    PutNetwork(Network),
    PutPool(Arc<Pool>),
    /// The number that the next pool gets: numbers of deleted pools are not used again.
    PutNextPool(PoolId),
    DeletePool(PoolId),
    PutQuota(Quota),
    DeleteQuota {
        pool: PoolId,
        tenant: Tenant,
    },
    PutLease(Arc<Lease>),
    DeleteLease(LeaseKey),
    PutPast(Arc<PastLease>),
    DeletePast(LeaseKey),
    PutCluster(ClusterRecord),
    DeleteCluster(ClusterId),
    PutAdoption(Adoption),
    DeleteAdoption {
        network: NetworkId,
        cluster: Text,
        system: System,
    },
    PutAccount(Account),
    DeleteAccount(Text),
    PutToken(Token),
    DeleteToken(TokenId),
    PutKey(SigningKey),
    DeleteKey(KeyId),
    PutEpoch(Epoch),
    /// Kept beside the ledger, which knows no clock.
    PutClock(ClockLine),
    /// The store thins older rows of the pool in the same transaction.
    PutRollup(Rollup),
    PutSeparation(Separation),
    DeleteSeparation(Separation),
}

/// The rows of one request: all or none of them become durable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    pub ops: Vec<Op>,
    pub audit: Vec<AuditEntry>,
}

/// What became of a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Committed,
    /// Certainly not durable.
    Refused(Refused),
}

/// Why a decision was not made durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error(
        "the disk of the store is full: {free} bytes free, {needed} needed; free some space, nothing was changed"
    )]
    DiskFull { free: u64, needed: u64 },
    #[error(
        "the store could not write ({0}) and was reopened; the request is not in the file, ask again"
    )]
    Failed(String),
    #[error(
        "this address book belongs to another host, where fipd may still decide by it; nothing is decided here. If it has \
         moved to this host for good, stop fipd and run `fipd host claim --reason TEXT`"
    )]
    OtherHost,
    #[error("{0} was taken by another fipd; ask again")]
    Conflict(String),
}

/// Makes decisions durable: redb today, cluster-wide claims and redb later.
///
/// `commit` answers per decision, in order, only when the outcome is certain: a failed commit is looked up in
/// the reopened file. It blocks; the caller gives it a thread.
pub trait Authority: Send {
    fn commit(&mut self, decisions: &[Decision]) -> Vec<Outcome>;
}
