//! The claims of a Cluster: what is known of them, and what is done about them.

use std::net::IpAddr;

use super::{
    VipController,
    choose::{VipPool, VipRole, best},
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
    /// What is known of the claim of a role.
    pub(super) fn state(
        &self,
        (key, cluster): (&Key, &ClusterView),
        role: VipRole,
        (class, fits): (&str, &[&VipPool]),
    ) -> ClaimState {
        let name = claim_key(key, role);
        let Some(claim) = self.claims.context.objects.get(&name) else {
            return ClaimState::Absent(match best(fits) {
                Some(pool) => Ok(pool.key.to_string()),
                None => Err(format!(
                    "no matching ip pool for class {class:?} and role {:?}: label an InClusterIPPool of this namespace or a GlobalInClusterIPPool vip.capi.gorizond.io/cluster-class={class} and vip.capi.gorizond.io/role={}",
                    role.name(),
                    role.name()
                )),
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
        let other = best(fits).filter(|pool| {
            pool.has_room == Some(true)
                && (pool.kind.kind != claim.pool.kind || *pool.key.name != *claim.pool.name)
        });
        match other.filter(|_| exhausted && !claim.meta.is_terminating()) {
            Some(pool) => ClaimState::Misplaced(format!("{why}; pool {} has room", pool.key)),
            None => ClaimState::Pending(why),
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
        key: &Key,
        cluster: &ClusterView,
        (role, step, fits): (VipRole, &VipStep, &[&VipPool]),
    ) -> Reconciled<()> {
        match step {
            VipStep::Nothing => Ok(()),
            VipStep::Claim => match best(fits) {
                Some(pool) => {
                    let made = self.claim(key, cluster, role, pool).await;
                    if made.is_err() {
                        let class = cluster.class_name().unwrap_or_default();
                        self.counts.failed(role, class, VipFailure::Claim);
                    }
                    made
                }
                None => Ok(()),
            },
            VipStep::ClaimAnew => self.delete_claim(&claim_key(key, role)).await,
            VipStep::Reserve(address) => self.reserve(key, cluster, *address, fits).await,
        }
    }

    async fn claim(
        &self,
        key: &Key,
        cluster: &ClusterView,
        role: VipRole,
        pool: &VipPool,
    ) -> Reconciled<()> {
        let kind = self.claims.context.kind();
        let api = self.context.kind().api_version();
        let body = write::claim((kind, api), (key, cluster), role, pool);
        let target = kind.target(&claim_key(key, role));
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
