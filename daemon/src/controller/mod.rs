//! The machine that every controller runs on: stores of objects, a queue, workers, and what all of them write.
//!
//! It is not the `Controller` of kube-runtime, of which it uses the watcher, because of what that cannot do:
//! - An object that does not fit its schema stays in the store as [`store::Malformed`], and what was in force for it stays. A
//!   kube-runtime store takes it for an error of the whole watch, or for gone, which would free its addresses.
//! - A store keeps the few fields that are used ([`meta::View`]) and charges them to the memory of its cluster. A reflector
//!   keeps whole objects, which for 50,000 Services is most of a gigabyte.
//! - A change of the address book queues what waits for it, of any kind in any cluster ([`waiters`]); a trigger there is a watch
//!   of the same cluster. What users wait for comes first, and each object says when it is looked at next ([`queue`]).
//! - No object is worked on before all are known and the addresses that they show are adopted: an address that is in use must
//!   never be allocated. A kube-runtime controller reconciles the first object that it lists.

pub mod address_user;
pub mod attachments;
pub mod client;
pub mod conditions;
pub mod confirm_absence;
pub mod context;
pub mod endpoint;
pub mod events;
#[cfg(test)]
pub(crate) mod fake_api_tests;
mod key;
pub mod key_locks;
pub mod kind;
pub mod leader_election;
mod lease_owners;
pub mod merge_patch;
pub mod meta;
mod moved;
pub mod own_pools;
pub mod owned;
pub mod pool_source;
pub mod queue;
pub mod reconcile;
pub mod reconcile_counts;
pub mod site;
pub mod store;
pub mod tasks;
pub mod unserved;
pub mod waiters;
pub mod webhook;

use fipd_core::Answer;

use crate::{clusters::ClustersError, ipam::IpamError};
use client::CallError;
use queue::Next;
use store::Key;

/// Why a reconcile did not end.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Ledger(#[from] IpamError),
    #[error("the lease changed hands meanwhile")]
    ChangedHands,
    /// A defect of fipd.
    #[error("internal: {0}")]
    Internal(String),
    #[error("internal: {0}")]
    Clusters(#[from] ClustersError),
    #[error("internal: {0}")]
    Json(#[from] serde_json::Error),
}

/// What a step of a reconcile comes to.
pub type Reconciled<T = Next> = Result<T, ReconcileError>;

impl ReconcileError {
    pub fn internal(what: impl Into<String>) -> Self {
        Self::Internal(what.into())
    }

    /// The ledger answered another question than the one asked.
    pub fn unexpected(answer: &Answer) -> Self {
        Self::Internal(format!("unexpected answer {answer:?}"))
    }

    /// What to do about it; says it in the log.
    pub fn next(&self, kind: &str, key: &Key) -> Next {
        let (namespace, name) = (&*key.namespace, &*key.name);
        match self {
            Self::Call(CallError::Conflict(..) | CallError::NotFound(_)) | Self::ChangedHands => {
                tracing::debug!(kind, namespace, name, error = %self, "looking again");
                Next::Retry
            }
            // A refusal may be over in a moment: an API server that starts refuses what its roles allow.
            Self::Call(CallError::Rejected(..) | CallError::Unavailable(..))
            | Self::Ledger(_)
            | Self::Internal(_)
            | Self::Clusters(_)
            | Self::Json(_) => {
                tracing::warn!(kind, namespace, name, error = %self, "not done; it is tried again");
                Next::Retry
            }
        }
    }
}
