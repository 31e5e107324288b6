//! Names that fipd's own kinds and the ledger agree on.

use fipd_core::{ClusterId, Identity, System, Tenant, Text};

use crate::controller::{kind::Kind, store::Key};

use fipd_crds::fipd_io;
pub use fipd_crds::labels::{CLAIM_CLEANUP as FINALIZER, POOL_CLEANUP as POOL_FINALIZER};

const API: &str = "apis/fipd.io/v1alpha1";

pub const CLAIM: Kind = Kind::namespaced(API, "addressclaims", "AddressClaim");
pub const POOL: Kind = Kind::cluster(API, "pools", fipd_io::POOL);
pub const NAMESPACED_POOL: Kind =
    Kind::namespaced(API, "namespacedpools", fipd_io::NAMESPACED_POOL);

/// The identity of a claim.
pub fn identity(cluster: &ClusterId, key: &Key) -> Identity {
    Identity {
        system: System::claims(),
        cluster: Some(cluster.clone()),
        kind: CLAIM.kind.into(),
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
