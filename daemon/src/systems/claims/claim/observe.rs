//! What is kept of an AddressClaim.

use std::net::IpAddr;

use fipd_core::{Text, Timestamp};
use fipd_crds::fipd_io::{AddressClaim, AddressClaimSpec, AddressClaimStatus};

use crate::{controller::store::created, systems::claims::names::FINALIZER};

/// An AddressClaim, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub uid: Text,
    pub version: String,
    pub generation: Option<i64>,
    pub created: Timestamp,
    pub terminating: bool,
    pub finalizers: Vec<String>,
    pub spec: AddressClaimSpec,
    pub status: AddressClaimStatus,
}

/// Keeps what matters of the object.
pub fn slim(object: AddressClaim) -> Claim {
    let meta = object.metadata;
    Claim {
        uid: meta.uid.unwrap_or_default().into(),
        version: meta.resource_version.unwrap_or_default(),
        generation: meta.generation,
        created: created(meta.creation_timestamp.as_ref()),
        terminating: meta.deletion_timestamp.is_some(),
        finalizers: meta.finalizers.unwrap_or_default(),
        spec: object.spec,
        status: object.status.unwrap_or_default(),
    }
}

impl Claim {
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|one| one == FINALIZER)
    }

    /// The address in the status, which only a controller writes.
    pub fn recorded(&self) -> Option<IpAddr> {
        self.status.address.parse().ok()
    }
}
