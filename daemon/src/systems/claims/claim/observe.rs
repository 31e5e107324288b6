//! What is kept of an AddressClaim.

use std::net::IpAddr;

use crate::controller::meta::{Meta, View};
use fipd_crds::fipd_io::{AddressClaim, AddressClaimSpec, AddressClaimStatus};

/// An AddressClaim, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimView {
    pub meta: Meta,
    pub spec: AddressClaimSpec,
    pub status: AddressClaimStatus,
}

/// Keeps what matters of the object.
pub fn slim(object: AddressClaim) -> ClaimView {
    ClaimView {
        meta: Meta::of(&object.metadata),
        spec: object.spec,
        status: object.status.unwrap_or_default(),
    }
}

impl View for ClaimView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

impl ClaimView {
    /// The address in the status, which only a controller writes.
    pub fn recorded(&self) -> Option<IpAddr> {
        self.status.address.parse().ok()
    }
}
