//! What is kept of a Pool object, and what the ledger knows of a pool.

use fipd_core::{Pool, PoolUsage};
use fipd_crds::{
    fipd_io::{self, PoolSpec, PoolStatus},
    labels::{FIELD_MANAGER, MANAGED_BY},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    clusters::ClusterSession,
    controller::meta::{Meta, View},
    systems::claims::names::POOL_FINALIZER,
};

/// A Pool object, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub meta: Meta,
    /// Written by fipd, which alone says what is in it.
    pub ours: bool,
    pub spec: PoolSpec,
    pub status: PoolStatus,
}

impl View for Object {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
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
    let labels = meta.labels.as_ref();
    let managed = labels.and_then(|labels| labels.get(MANAGED_BY));
    let meta = Meta::of(&meta);
    Object {
        // Labels are copied from object to object; what is mirrored is somebody else's, whatever its labels say.
        ours: !meta.has_finalizer(POOL_FINALIZER) && managed.is_some_and(|by| by == FIELD_MANAGER),
        meta,
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
