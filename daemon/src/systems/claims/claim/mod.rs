//! AddressClaims: each gets the address it names or one of its pool, and shows it.

#[cfg(test)]
mod conformance_tests;
pub mod observe;
pub mod pools;

use fipd_core::{Ledger, Tenant};
use fipd_crds::fipd_io::{AddressClaim, AddressClaimStatus};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};

use super::{
    names::{self, CLAIM},
    settings::ClaimsSettings,
};
use crate::controller::{
    address_user::{
        AddressController, AddressHooks, AddressUser, Edits, ShownAddress, ShownNetwork,
        claim_status,
        outcome::{AddressOutcome, ShownLease},
        settle::{AddressWish, Inheritance, Wished},
    },
    kind::Kind,
    site::Site,
    store::Key,
};
use observe::ClaimView;
use pools::ClaimPlace;

/// The claims of a cluster.
pub struct ManagedClaims;

/// The controller of all claims of a cluster.
pub type ClaimController = AddressController<ManagedClaims>;

impl AddressHooks for ManagedClaims {}

impl AddressUser for ManagedClaims {
    type Raw = AddressClaim;
    type View = ClaimView;
    type Status = AddressClaimStatus;

    const KIND: Kind = CLAIM;
    const METRIC: &'static str = "addressclaim";
    const FINALIZER: &'static str = names::FINALIZER;
    const FINALIZER_FIRST: bool = true;
    const INHERITS: Inheritance = Inheritance::Anything;
    const EDITS: Edits<ClaimView> = Edits::Refused(|claim| pools::fixed(&claim.spec));
    const SHOWS_POOL: bool = true;
    const TENANT: &'static str = "tenant";
    const CHARGE_REASON: &'static str = "its cluster goes by another name";

    fn view(raw: AddressClaim) -> ClaimView {
        ClaimView::of(raw)
    }

    fn tenant(site: &Site, key: &Key, _: &ClaimView) -> Option<Tenant> {
        Some(site.tenant_of(&key.namespace))
    }

    fn wish(&self, ledger: &Ledger, site: &Site, key: &Key, claim: &ClaimView) -> Wished {
        let place = ClaimPlace {
            cluster: &site.id,
            namespace: &key.namespace,
            settings: site.session.settings.of::<ClaimsSettings>(),
        };
        let (pool, address) = pools::wish(ledger, &place, &claim.spec)?;
        Ok(AddressWish::new(
            site.tenant_of(&key.namespace),
            pool,
            address,
        ))
    }

    fn conditions(claim: &ClaimView) -> &[Condition] {
        &claim.status.conditions
    }

    fn shows_address(claim: &ClaimView) -> bool {
        claim.recorded().is_some()
    }

    fn shown(&self, _: &Ledger, _: &Site, _: &Key, claim: &ClaimView) -> Option<ShownAddress> {
        Some(ShownAddress {
            length: None,
            address: claim.recorded()?,
            network: ShownNetwork::Named(claim.status.network.clone()),
            user: None,
        })
    }

    fn last_status(claim: &ClaimView) -> &AddressClaimStatus {
        &claim.status
    }

    fn status(
        claim: &ClaimView,
        outcome: &AddressOutcome,
        now: jiff::Timestamp,
    ) -> AddressClaimStatus {
        claim_status::desired(&claim.status, claim.meta.generation, outcome, now)
    }

    fn news(claim: &ClaimView, shown: &ShownLease) -> Option<String> {
        let note = || format!("{} of pool {} is allocated", shown.address(), shown.pool);
        (claim.recorded() != Some(shown.address())).then(note)
    }
}
