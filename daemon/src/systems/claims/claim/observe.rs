//! What is kept of an AddressClaim.

use std::net::IpAddr;

use crate::controller::meta::ObjectView;
use fipd_crds::fipd_io::{AddressClaimSpec, AddressClaimStatus};

/// An AddressClaim, as far as it matters.
pub type ClaimView = ObjectView<AddressClaimSpec, AddressClaimStatus>;

impl ClaimView {
    /// The address in the status, which only a controller writes.
    pub fn recorded(&self) -> Option<IpAddr> {
        self.status.address.parse().ok()
    }
}
