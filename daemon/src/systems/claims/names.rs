//! Names that fipd's own kinds and the ledger agree on.

use fipd_core::{ClusterId, Identity, System, Tenant, Text};

use crate::controller::store::Key;

pub use fipd_crds::labels::{CLAIM_CLEANUP as FINALIZER, POOL_CLEANUP as POOL_FINALIZER};

pub const KIND_CLAIM: &str = "AddressClaim";

/// The identity of a claim.
pub fn identity(cluster: &ClusterId, key: &Key) -> Identity {
    Identity {
        system: System::claims(),
        cluster: Some(cluster.clone()),
        kind: KIND_CLAIM.into(),
        namespace: Text::clone(&key.namespace),
        name: Text::clone(&key.name),
        interface: "".into(),
    }
}

/// The key of the claim behind an identity.
pub fn key(identity: &Identity) -> Key {
    Key {
        namespace: Text::clone(&identity.namespace),
        name: Text::clone(&identity.name),
    }
}

/// Who is charged for the claims of a namespace.
pub fn tenant(cluster: &str, namespace: &str) -> Tenant {
    Tenant(format!("{cluster}/{namespace}").into())
}
