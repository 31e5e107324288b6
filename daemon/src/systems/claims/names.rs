//! Names that fipd's own kinds and the ledger agree on.

use crate::controller::kind::Kind;

use fipd_crds::fipd_io;
pub use fipd_crds::labels::{CLAIM_CLEANUP as FINALIZER, POOL_CLEANUP as POOL_FINALIZER};

const API: &str = "apis/fipd.io/v1alpha1";

pub const CLAIM: Kind = Kind::namespaced(API, "addressclaims", "AddressClaim");
pub const POOL: Kind = Kind::cluster(API, "pools", fipd_io::POOL);
pub const NAMESPACED_POOL: Kind =
    Kind::namespaced(API, "namespacedpools", fipd_io::NAMESPACED_POOL);
