//! What comes of a request for an address.

use std::sync::Arc;

use fipd_core::{Answer, Holder, Lease, LeaseState, NetworkId, Refusal, Request};

use crate::{
    controller::{ReconcileError, Reconciled},
    ipam::{Ipam, IpamError},
};

/// Why a request got no address.
#[derive(Debug)]
pub enum NotGranted {
    /// Another holds it; the asker waits for it.
    Contended(Arc<Lease>),
    /// The asker holds the whole prefix around it, because somebody gave it that.
    Whole(Arc<Lease>),
    Refused(Refusal),
}

/// Asks for an address of the network for the holder, who keeps the one that it has where another is refused. `prefixes`: it
/// may also be a prefix.
pub async fn ask(
    ipam: &Ipam,
    request: Request,
    holder: &Holder,
    network: NetworkId,
    prefixes: bool,
) -> Reconciled<Result<Arc<Lease>, NotGranted>> {
    let asked = ask_new(ipam, request, prefixes).await?;
    let Err(NotGranted::Refused(refusal)) = asked else {
        return Ok(asked);
    };
    let held = ipam.read(|ledger| match prefixes {
        true => ledger.leases_of(&holder.identity),
        false => ledger.addresses_of(&holder.identity),
    });
    // What is reserved for it is not its own yet: nobody has checked it, and the reservation may end.
    let is_own = |lease: &Arc<Lease>| lease.state != LeaseState::Reserved;
    let mut here = held
        .into_iter()
        .filter(|lease| lease.key.network == network && is_own(lease));
    Ok(here.next().ok_or(NotGranted::Refused(refusal)))
}

/// Asks for an address, whatever the holder has.
pub async fn ask_new(
    ipam: &Ipam,
    request: Request,
    prefixes: bool,
) -> Reconciled<Result<Arc<Lease>, NotGranted>> {
    let lease = match ipam.submit(request).await {
        Ok(Answer::Granted { leases, .. }) => leases.into_iter().next(),
        Ok(Answer::Adopted { lease }) => Some(lease),
        Ok(Answer::HandedOver { leases }) => {
            ipam.read(|ledger| ledger.lease(*leases.first()?).cloned())
        }
        Ok(Answer::Contended { lease }) => return Ok(Err(NotGranted::Contended(lease))),
        Ok(other) => return Err(ReconcileError::unexpected(&other)),
        Err(IpamError::Refused(refusal)) => return Ok(Err(NotGranted::Refused(refusal))),
        Err(error) => return Err(error.into()),
    };
    let whole = |lease: &&Arc<Lease>| !prefixes && !lease.prefix().is_address();
    if let Some(lease) = lease.as_ref().filter(whole) {
        return Ok(Err(NotGranted::Whole(Arc::clone(lease))));
    }
    lease.map(Ok).ok_or(ReconcileError::ChangedHands)
}
