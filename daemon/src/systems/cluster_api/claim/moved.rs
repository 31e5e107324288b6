//! Claims that `clusterctl move` takes to another management cluster.
//!
//! It makes pool, claim and IPAddress there, each as it is here but without its status, while their Cluster is paused in both; then it
//! marks, deletes and strips them here; then the Cluster there goes on. The claim there contends for the address from the moment that
//! its IPAddress is there, and gets the lease when the claim here goes.

use std::net::IpAddr;

use fipd_core::{Identity, Ledger, Pool};

use super::{IpClaimController, ip_address, observe::IpClaimView};
use crate::{
    controller::{Reconciled, confirm_absence::RECHECK_AFTER, queue::Next, site::Site, store::Key},
    systems::cluster_api::names::{CLAIM, DELETE_FOR_MOVE, RELEASE_ADDRESS},
};

const KEPT: &str = "KeptForMove";

/// The address of the claim that this one is elsewhere. It came with fipd's finalizer and no address, so it is a copy whose
/// IPAddress is still to come, and asks for no other.
pub fn from_elsewhere(
    ledger: &Ledger,
    site: &Site,
    key: &Key,
    claim: &IpClaimView,
    pool: &Pool,
) -> Option<IpAddr> {
    let is_copy = claim.status.address_ref.is_none() && claim.meta.has_finalizer(RELEASE_ADDRESS);
    let here = key.identity(site.system.clone(), &site.id, CLAIM.kind);
    if !is_copy || !ledger.leases_of(&here).is_empty() {
        return None;
    }
    ledger.clusters().find_map(|cluster| {
        let there = Identity {
            cluster: Some(cluster.id.clone()),
            ..here.clone()
        };
        let leases = ledger.leases_of(&there).into_iter();
        let mut leases = leases.filter(|lease| lease.prefix() == pool.spec.prefix_at(lease.key));
        let lease = leases.find(|lease| lease.key.network == pool.spec.network)?;
        Some(lease.key.address)
    })
}

/// A claim that is deleted here because it is elsewhere, whatever is paused. Its lease passes to that, and waits for it.
pub async fn leave(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
) -> Reconciled<Option<Next>> {
    let context = &claims.context;
    let identity = context.identity(key);
    let holds = context.read(|ledger| !ledger.leases_of(&identity).is_empty());
    if holds && !context.is_used_elsewhere(key) {
        let message = format!(
            "the claim is deleted by a move ({DELETE_FOR_MOVE}), and no other cluster shows its address yet; it is kept until one does, or until that annotation is removed"
        );
        context.warn(key, &claim.meta.uid, KEPT, message);
        return Ok(Some(Next::After(RECHECK_AFTER)));
    }
    ip_address::remove_of(claims, key).await?;
    context.pass_to_moved(key).await?;
    Ok(None)
}
