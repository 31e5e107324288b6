//! How the ledger calls an object of the two kinds of pools.

use crate::{
    controller::{kind::Kind, store::Key},
    systems::claims::names::{NAMESPACED_POOL, POOL},
};

/// The object that the ledger calls so.
pub fn of_name(object: &str) -> (Kind, Key) {
    match object.split_once('/') {
        None => (POOL, Key::new("", object)),
        Some((namespace, name)) => (NAMESPACED_POOL, Key::new(namespace, name)),
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
