//! The claims of a Cluster: what is known of them, and what is done about them.

use std::net::IpAddr;

use super::{
    VipController,
    choose::{VipPool, VipSlot, VipWish, best},
    observe::ClusterView,
    plan::{ClaimState, VipStep},
    write::{self, claim_key},
};
use crate::{
    controller::{Reconciled, client::CallError, store::Key},
    systems::cluster_api::{
        claim::observe::IpClaimView,
        metrics::VipFailure,
        names::{POOL_EXHAUSTED, READY},
    },
};

impl VipController {
    /// What is known of the claim of an address.
    pub(super) fn state(
        &self,
        (key, cluster): (&Key, &ClusterView),
        wish: VipWish<'_>,
        pools: &[VipPool],
    ) -> ClaimState {
        let name = claim_key(key, wish.slot);
        let best = best(&wish.candidates(pools));
        let Some(claim) = self.claims.context.objects.get(&name) else {
            return ClaimState::Absent(match best {
                Some(pool) => Ok(pool.key.to_string()),
                None => Err(wish.missing(pools)),
            });
        };
        if !claim.owners.iter().any(|uid| **uid == *cluster.meta.uid) {
            let message = format!(
                "IPAddressClaim {} is there and is not of this Cluster; delete it, and one is made",
                name.name
            );
            return ClaimState::Foreign(message);
        }
        if let Some(address) = self.address_of(&name, &claim) {
            return ClaimState::Fulfilled(address);
        }
        let ready = claim.conditions.iter().find(|one| one.type_ == READY);
        let why = ready.map(|ready| ready.message.clone());
        let why = why.unwrap_or_else(|| format!("IPAddressClaim {} has no address yet", name.name));
        let exhausted = ready.is_some_and(|ready| ready.reason == POOL_EXHAUSTED);
        let is_named = |pool: &VipPool| {
            pool.kind.kind == claim.pool.kind && *pool.key.name == *claim.pool.name
        };
        let of_other_family = wish.family.is_some()
            && pools.iter().any(|pool| {
                let near = pool.key.namespace.is_empty() || pool.key.namespace == key.namespace;
                near && is_named(pool) && pool.family.is_some() && pool.family != wish.family
            });
        let other = best.filter(|pool| !is_named(pool) && !claim.meta.is_terminating());
        match other {
            Some(pool) if of_other_family => {
                ClaimState::Misplaced(format!("{why}; pool {} is of the family", pool.key))
            }
            Some(pool) if exhausted && pool.has_room == Some(true) => {
                ClaimState::Misplaced(format!("{why}; pool {} has room", pool.key))
            }
            Some(_) | None => ClaimState::Pending(why),
        }
    }

    /// The address of a claim: by its IPAddress, which is there before the claim refers to it.
    fn address_of(&self, key: &Key, claim: &IpClaimView) -> Option<IpAddr> {
        let there = self.claims.user.address_of(key, &claim.pool)?;
        let owned = there.owners.iter().any(|uid| **uid == *claim.meta.uid);
        there
            .address
            .filter(|_| owned && !claim.meta.is_terminating())
    }

    pub(super) async fn step(
        &self,
        (key, cluster): (&Key, &ClusterView),
        step: &VipStep,
        wish: VipWish<'_>,
        pools: &[VipPool],
    ) -> Reconciled<()> {
        match step {
            VipStep::Nothing => Ok(()),
            VipStep::Claim => match best(&wish.candidates(pools)) {
                Some(pool) => {
                    let made = self.claim(key, cluster, wish.slot, pool).await;
                    if made.is_err() {
                        let role = wish.slot.role;
                        self.counts.failed(role, wish.class, VipFailure::Claim);
                    }
                    made
                }
                None => Ok(()),
            },
            VipStep::ClaimAnew => self.delete_claim(&claim_key(key, wish.slot)).await,
            VipStep::Reserve(address) => {
                let all = wish.of_either().candidates(pools);
                self.reserve(key, cluster, *address, &all).await
            }
        }
    }

    async fn claim(
        &self,
        key: &Key,
        cluster: &ClusterView,
        slot: VipSlot,
        pool: &VipPool,
    ) -> Reconciled<()> {
        let kind = self.claims.context.kind();
        let api = self.context.kind().api_version();
        let body = write::claim((kind, api), (key, cluster), slot, pool);
        let target = kind.target(&claim_key(key, slot));
        match self.context.remote.create(&target, &body).await {
            Ok(()) => Ok(()),
            // The watch tells of it, and of whose it is.
            Err(CallError::Conflict(..)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete_claim(&self, claim: &Key) -> Reconciled<()> {
        let Some(there) = self.claims.context.objects.get(claim) else {
            return Ok(());
        };
        let target = self.claims.context.kind().target(claim);
        Ok(self.context.remote.delete(&target, &there.meta.uid).await?)
    }
}
