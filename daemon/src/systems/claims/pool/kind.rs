//! The two kinds of pools as objects, and how the ledger calls an object of them.

use fipd_crds::fipd_io::{NAMESPACED_POOL, POOL};

use crate::controller::store::Key;

/// Of a cluster, or of one of its namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pool,
    Namespaced,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pool => POOL,
            Self::Namespaced => NAMESPACED_POOL,
        }
    }

    pub fn plural(self) -> &'static str {
        match self {
            Self::Pool => "pools",
            Self::Namespaced => "namespacedpools",
        }
    }

    /// The object that the ledger calls so.
    pub fn of(object: &str) -> (Self, Key) {
        match object.split_once('/') {
            None => (Self::Pool, Key::new("", object)),
            Some((namespace, name)) => (Self::Namespaced, Key::new(namespace, name)),
        }
    }
}

/// What the ledger calls the object: `[namespace/]name`.
pub fn object_name(key: &Key) -> String {
    if key.namespace.is_empty() {
        key.name.to_string()
    } else {
        format!("{}/{}", key.namespace, key.name)
    }
}
