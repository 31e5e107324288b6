//! What is kept of a Pool object.

use fipd_crds::fipd_io::{self, PoolSpec, PoolStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    controller::{
        meta::{Meta, View},
        owned::is_ours,
    },
    systems::claims::names::POOL_FINALIZER,
};

/// A Pool or NamespacedPool, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolObject {
    pub meta: Meta,
    /// Written by fipd, which alone says what is in it.
    pub ours: bool,
    pub spec: PoolSpec,
    pub status: PoolStatus,
}

impl View for PoolObject {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

/// Keeps what matters of the object.
pub fn view(object: fipd_io::Pool) -> PoolObject {
    view_of_parts(object.metadata, object.spec, object.status)
}

/// The same of a NamespacedPool.
pub fn namespaced_view(object: fipd_io::NamespacedPool) -> PoolObject {
    view_of_parts(object.metadata, object.spec.pool, object.status)
}

fn view_of_parts(meta: ObjectMeta, spec: PoolSpec, status: Option<PoolStatus>) -> PoolObject {
    let made_by_fipd = is_ours(&meta);
    let meta = Meta::of(&meta);
    PoolObject {
        // Labels are copied from object to object; what is mirrored is somebody else's, whatever its labels say.
        ours: !meta.has_finalizer(POOL_FINALIZER) && made_by_fipd,
        meta,
        spec,
        status: status.unwrap_or_default(),
    }
}
