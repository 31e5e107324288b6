//! What is kept of a Pool object, and what the ledger knows of a pool.

use fipd_core::{Pool, PoolUsage, Text, Timestamp};
use fipd_crds::{
    fipd_io::{self, PoolSpec, PoolStatus},
    labels::{FIELD_MANAGER, MANAGED_BY},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    clusters::ClusterSession, controller::store::created, systems::claims::names::POOL_FINALIZER,
};

/// A Pool object, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub uid: Text,
    pub version: String,
    pub finalizers: Vec<String>,
    pub generation: Option<i64>,
    pub created: Timestamp,
    pub terminating: bool,
    /// When its deletion was asked for, where it is terminating.
    pub deleted: Timestamp,
    /// Written by fipd, which alone says what is in it.
    pub ours: bool,
    pub spec: PoolSpec,
    pub status: PoolStatus,
}

/// Keeps what matters of the object.
pub fn slim(object: fipd_io::Pool) -> Object {
    slim_parts(object.metadata, object.spec, object.status)
}

/// The same of a NamespacedPool.
pub fn slim_namespaced(object: fipd_io::NamespacedPool) -> Object {
    slim_parts(object.metadata, object.spec.pool, object.status)
}

fn slim_parts(meta: ObjectMeta, spec: PoolSpec, status: Option<PoolStatus>) -> Object {
    let labels = meta.labels.unwrap_or_default();
    let finalizers = meta.finalizers.unwrap_or_default();
    // Labels are copied from object to object; what is mirrored is somebody else's, whatever its labels say.
    let mirrored = finalizers.iter().any(|one| one == POOL_FINALIZER);
    Object {
        uid: meta.uid.unwrap_or_default().into(),
        version: meta.resource_version.unwrap_or_default(),
        generation: meta.generation,
        created: created(meta.creation_timestamp.as_ref()),
        terminating: meta.deletion_timestamp.is_some(),
        deleted: created(meta.deletion_timestamp.as_ref()),
        ours: !mirrored && labels.get(MANAGED_BY).is_some_and(|by| by == FIELD_MANAGER),
        finalizers,
        spec,
        status: status.unwrap_or_default(),
    }
}

/// What the status shows of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    pub usage: PoolUsage,
    /// Why its network gives nothing yet.
    pub waiting: Vec<String>,
    pub closed: bool,
    /// What others may allocate of it.
    pub shared: Option<String>,
}

impl Facts {
    /// Whether the pool gives addresses.
    pub fn gives(&self) -> bool {
        self.waiting.is_empty() && !self.closed
    }
}

/// Reads them.
pub fn facts(session: &ClusterSession, pool: &Pool) -> Option<Facts> {
    let (usage, holds) = session.ipam.read(|ledger| {
        let usage = ledger.usage(pool.id)?;
        Some((usage, ledger.holds(pool.spec.network)))
    })?;
    Some(Facts {
        usage,
        waiting: holds.iter().map(ToString::to_string).collect(),
        closed: pool.spec.closed,
        shared: session.clusters.shared_range_note(pool),
    })
}
