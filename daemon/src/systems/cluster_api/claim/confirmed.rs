//! IPAddresses that are there before their claims: restores and moves bring them, with owners of earlier UIDs or without any, and
//! their claims keep the addresses. What the watch still shows of an earlier claim of the name looks just the same, and its address
//! may be another's by now: a fresh read tells which it is.

use std::collections::BTreeMap;

use fipd_core::Text;
use fipd_crds::cluster_api::IPAddress;
use parking_lot::Mutex;

use super::{
    IpClaimController,
    ip_address::target,
    observe::{AddressView, IpClaimView},
};
use crate::controller::{Reconciled, store::Key};

/// Which of them a fresh read found: the UIDs of claim and IPAddress.
#[derive(Default)]
pub struct ConfirmedAddresses(Mutex<BTreeMap<Key, [Text; 2]>>);

impl ConfirmedAddresses {
    /// Whether the IPAddress counts for a claim: that owns it, or it was found after that was made.
    pub fn has(&self, key: &Key, claim: &IpClaimView, there: &AddressView) -> bool {
        let found = || self.0.lock().get(key) == Some(&uids(claim, there));
        there.is_owned_by(&claim.meta.uid) || found()
    }

    /// The claim is gone.
    pub fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

fn uids(claim: &IpClaimView, there: &AddressView) -> [Text; 2] {
    [&claim.meta.uid, &there.meta.uid].map(Text::clone)
}

/// Reads the IPAddress afresh that seems to answer a claim, unless it is known to.
pub async fn confirm(claims: &IpClaimController, key: &Key, claim: &IpClaimView) -> Reconciled<()> {
    let user = &claims.user;
    let Some(there) = user.address_of(key, &claim.pool) else {
        return Ok(());
    };
    if user.confirmed.has(key, claim, &there) {
        return Ok(());
    }
    read(claims, key, claim).await
}

/// Keeps the IPAddress of a claim's name as it is now, which counts for that claim.
pub async fn read(claims: &IpClaimController, key: &Key, claim: &IpClaimView) -> Reconciled<()> {
    let user = &claims.user;
    let there = user.addresses.get(key);
    let fresh: Option<IPAddress> = claims.context.remote.get(&target(claims, key)).await?;
    let Some(fresh) = fresh.map(AddressView::of) else {
        if let Some(there) = there {
            user.addresses.drop_deleted(key, &there.meta.uid);
        }
        return Ok(());
    };
    let found = uids(claim, &fresh);
    user.confirmed.0.lock().insert(key.clone(), found);
    match there.is_some_and(|there| there.meta.uid == fresh.meta.uid) {
        true => user.addresses.keep(key, fresh),
        false => user.addresses.set(key, fresh),
    }
    Ok(())
}
