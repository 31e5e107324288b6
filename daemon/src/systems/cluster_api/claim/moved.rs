//! Claims that `clusterctl move` takes to another management cluster.
//!
//! It makes pool, claim and IPAddress there, each as it is here but without its status, while their Cluster is paused in both; then it
//! marks, deletes and strips them here; then the Cluster there goes on. The claim there contends for the address from the moment that
//! its IPAddress is there, and gets the lease when the claim here goes.

use std::{sync::Arc, time::Duration};

use fipd_core::{ClusterRecord, Identity, Lease, Ledger, Pool};

use super::{IpClaimController, confirmed, ip_address, observe::IpClaimView};
use crate::{
    clock,
    controller::{
        Reconciled, confirm_absence::RECHECK_AFTER, queue::Next, site::Site, store::Key,
        unserved::Unserved, waiters::Cause,
    },
    systems::cluster_api::names::{CLAIM, DELETE_FOR_MOVE, RELEASE_ADDRESS},
    validation::held_address::gives,
};

const KEPT: &str = "KeptForMove";
const WAITS_FOR_MOVE: &str = "WaitingForMove";

/// How long a claim waits for its IPAddress, which is copied after it.
const COPIED_WITHIN: Duration = Duration::from_secs(60);

/// What another cluster has for a claim that is here with fipd's finalizer and without an address: it may be a copy whose IPAddress is
/// still to come.
fn original(ledger: &Ledger, site: &Site, key: &Key, claim: &IpClaimView) -> Vec<Arc<Lease>> {
    let is_copy = claim.status.address_ref.is_none() && claim.meta.has_finalizer(RELEASE_ADDRESS);
    match is_copy {
        true => elsewhere(ledger, site, key),
        false => Vec::new(),
    }
}

/// What another cluster has for a claim that has nothing here.
pub fn elsewhere(ledger: &Ledger, site: &Site, key: &Key) -> Vec<Arc<Lease>> {
    let here = key.identity(site.system.clone(), &site.id, CLAIM.kind);
    if !ledger.leases_of(&here).is_empty() {
        return Vec::new();
    }
    let of_cluster = |cluster: &ClusterRecord| {
        let there = Identity {
            cluster: Some(cluster.id.clone()),
            ..here.clone()
        };
        ledger.leases_of(&there)
    };
    ledger.clusters().flat_map(of_cluster).collect()
}

/// Why a claim that no Cluster owns gets no address yet: the claim that it is elsewhere has an address that its pool gives.
pub fn to_come(
    ledger: &Ledger,
    site: &Site,
    key: &Key,
    claim: &IpClaimView,
    pool: &Pool,
) -> Option<Unserved> {
    let age = clock::now().0.saturating_sub(claim.meta.created.0);
    if u128::from(age) >= COPIED_WITHIN.as_millis() {
        return None;
    }
    let spec = &pool.spec;
    let fits = |lease: &Arc<Lease>| {
        let key = lease.key;
        key.network == spec.network
            && lease.prefix() == spec.prefix_at(key)
            && gives(spec, key.address)
    };
    let lease = original(ledger, site, key, claim).into_iter().find(fits)?;
    let message = format!(
        "another cluster has this claim, with {}; its IPAddress is waited for, and without it the claim gets another address within two minutes",
        lease.prefix()
    );
    Some(Unserved::new(
        WAITS_FOR_MOVE,
        message,
        Some(Cause::Address(lease.key)),
    ))
}

/// Reads the IPAddress that a claim may have been copied with, although the watch shows none. `clusterctl move` pauses the Cluster
/// that owns it until everything is copied, and the watch of Clusters may be faster than that of IPAddresses.
pub async fn find_copied(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
) -> Reconciled<()> {
    let site = &claims.context.site;
    let may_come = |ledger: &Ledger| !original(ledger, site, key, claim).is_empty();
    let is_marked = claims.user.marked.has(&claim.meta.uid);
    let shown = claims.user.addresses.get(key).is_some();
    let is_owned = claims.user.is_of_cluster(key, claim);
    if !is_owned || shown || is_marked || !claims.context.read(may_come) {
        return Ok(());
    }
    confirmed::read(claims, key, claim).await
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
