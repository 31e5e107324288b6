//! What the API server keeps beside every object, as far as controllers use it.

use std::fmt::Debug;

use fipd_core::{Text, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{
    Resource,
    core::object::{HasSpec, HasStatus},
};

/// The metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    pub name: Text,
    pub uid: Text,
    pub version: String,
    pub generation: Option<i64>,
    pub created: Timestamp,
    /// Since when it is being deleted.
    pub deleted: Option<Timestamp>,
    pub finalizers: Vec<String>,
}

impl Meta {
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            version: meta.resource_version.clone().unwrap_or_default(),
            generation: meta.generation,
            created: created(meta.creation_timestamp.as_ref()),
            deleted: (meta.deletion_timestamp.as_ref()).map(|at| created(Some(at))),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
        }
    }

    /// Whether this is later than `other`, or may be: another object of the name, a higher version, which API servers count
    /// up, or one that cannot be compared.
    pub fn is_after(&self, other: &Self) -> bool {
        let versions = version_number(&self.version).zip(version_number(&other.version));
        let is_not_later = versions.is_some_and(|(one, other)| one <= other);
        self.uid != other.uid || !is_not_later
    }

    pub fn is_terminating(&self) -> bool {
        self.deleted.is_some()
    }

    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|one| one == finalizer)
    }
}

/// A version, which API servers count up; `None`: it cannot be compared.
pub fn version_number(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// What a controller keeps of its objects.
pub trait View: PartialEq + Debug + Send + Sync + 'static {
    fn meta(&self) -> Meta;
}

/// Leaves out what no controller looks at and what may be large.
pub fn trim(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

/// An object of which all is kept but other metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectView<S, T> {
    pub meta: Meta,
    pub spec: S,
    pub status: T,
}

impl<S: Default, T: Default> ObjectView<S, T> {
    pub fn of<K: Resource + HasSpec<Spec = S> + HasStatus<Status = T>>(mut object: K) -> Self {
        Self {
            meta: Meta::of(object.meta()),
            status: object.status_mut().take().unwrap_or_default(),
            spec: std::mem::take(object.spec_mut()),
        }
    }
}

impl<S, T> View for ObjectView<S, T>
where
    S: PartialEq + Debug + Send + Sync + 'static,
    T: PartialEq + Debug + Send + Sync + 'static,
{
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

/// The time an object was made.
pub fn created(time: Option<&Time>) -> Timestamp {
    Timestamp(
        time.and_then(|time| u64::try_from(time.0.as_millisecond()).ok())
            .unwrap_or_default(),
    )
}
