//! The claims of a Cluster: what is known of them, and what is done about them.

use std::net::IpAddr;

use fipd_core::Ledger;
use fipd_crds::cluster_api::IPAddressClaim;
use serde_json::json;

use super::{
    VipController,
    choose::{VipPool, VipSlot, VipWish, best},
    controller::serves_clusters,
    observe::CapiClusterView,
    plan::{ClaimState, POOL_NOT_FOUND, VipStep},
    write::{self, claim_key},
};
use crate::{
    controller::{
        Reconciled,
        client::{CallError, Patch},
        store::Key,
        unserved::Unserved,
    },
    systems::cluster_api::{
        claim::{
            IpClaims,
            observe::IpClaimView,
            wish::{in_cluster_kind, pool_key},
        },
        metrics::VipFailure,
        names::POOL_EXHAUSTED,
        settings::ClusterApiSettings,
    },
};

/// Reasons for which a claim may wait for long while another pool could serve it.
const STUCK: [&str; 4] = [POOL_EXHAUSTED, "PoolPaused", POOL_NOT_FOUND, "PoolNotReady"];

impl VipController {
    /// Makes claims its own that the original left without an owner: it made them before there was a Cluster.
    pub(super) async fn own_claims(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
        pools: &[VipPool],
    ) -> Reconciled<()> {
        let mut owned = Ok(());
        for slot in VipSlot::ALL {
            // One that is refused holds up no other.
            let done = self.own_claim((key, cluster), slot, pools).await;
            owned = owned.and(done);
        }
        owned
    }

    /// Only of a pool that serves the Cluster: whoever may make claims chooses no other.
    async fn own_claim(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
        slot: VipSlot,
        pools: &[VipPool],
    ) -> Reconciled<()> {
        let claims = &self.claims.context;
        let name = claim_key(key, slot);
        let found = claims.objects.get(&name).filter(|claim| {
            let named = claim.cluster.as_deref() == Some(&*key.name);
            let role = claim.role.as_deref() == Some(slot.role.name());
            named && role && claim.owners.is_empty() && !claim.meta.is_terminating()
        });
        let wish = VipWish {
            slot,
            class: cluster.class_name().unwrap_or_default(),
            namespace: &key.namespace,
            family: None,
        };
        let found = found.filter(|claim| {
            let serves = |pool: &&VipPool| is_named(pool, key, claim);
            wish.candidates(pools).iter().any(serves)
        });
        let Some(found) = found else {
            return Ok(());
        };
        let owner = write::owner(self.context.kind().api_version(), key, cluster);
        let patch = json!({ "metadata": {
            "uid": &*found.meta.uid, "resourceVersion": found.meta.version,
            "ownerReferences": [owner],
        } });
        let (remote, target) = (&self.context.remote, claims.kind().target(&name));
        let now: IPAddressClaim = remote.patch_seen(&target, Patch::Merge, &patch).await?;
        if let Some(view) = IpClaims::view_at(&self.context.site, now) {
            claims.objects.keep(&name, view);
        }
        Ok(())
    }

    /// What is known of the claim of an address.
    pub(super) fn state(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
        wish: VipWish<'_>,
        pools: &[VipPool],
    ) -> ClaimState {
        let name = claim_key(key, wish.slot);
        let best = best(&wish.candidates(pools));
        let Some(claim) = self.claims.context.objects.get(&name) else {
            return ClaimState::Absent(match best {
                Some(_) => Ok(()),
                None => Err(wish.missing(pools)),
            });
        };
        if !claim.is_owned_by(&cluster.meta.uid) {
            let message = format!(
                "IPAddressClaim {} is there and is not of this Cluster; delete it, and one is made",
                name.name
            );
            return ClaimState::Foreign(message);
        }
        if let Some(address) = self.address_of(&name, &claim) {
            // Whoever may make claims may name any owner.
            if !cluster.shows(address) && !self.is_served(key, wish, &claim) {
                let message = format!(
                    "IPAddressClaim {} is on a pool that does not serve this Cluster; delete it, and one is made",
                    name.name
                );
                return ClaimState::Foreign(message);
            }
            return match self.withheld((key, cluster), wish.slot, pools) {
                Some(why) => ClaimState::Pending(why.message),
                None => ClaimState::Fulfilled(address),
            };
        }
        let ready = claim.ready();
        let settings = self.context.site.settings::<ClusterApiSettings>();
        if ready.is_none() && settings.serves_in_cluster_kinds() {
            return ClaimState::Underway;
        }
        let why = ready.map(|ready| ready.message.clone());
        let why = why.unwrap_or_else(|| format!("IPAddressClaim {} has no address yet", name.name));
        let is_named = |pool: &VipPool| is_named(pool, key, &claim);
        let named = pools.iter().find(|pool| is_named(pool));
        let of_other_family = wish.family.is_some()
            && named.is_some_and(|pool| pool.family.is_some() && pool.family != wish.family);
        // Its IPAddress is on its way, whatever the claim still says.
        let identity = self.claims.context.identity(&name);
        let leased = |ledger: &Ledger| !ledger.leases_of(&identity).is_empty();
        let stuck = match ready {
            _ if self.context.read(leased) => false,
            Some(ready) => STUCK.contains(&&*ready.reason),
            // The in-cluster provider itself says nothing of a claim.
            None => named.is_some_and(|pool| pool.has_room == Some(false)),
        };
        let other = best.filter(|pool| !is_named(pool) && !claim.meta.is_terminating());
        match other {
            Some(pool) if of_other_family => {
                ClaimState::Misplaced(format!("{why}; pool {} is of the family", pool.key))
            }
            Some(pool) if stuck && pool.has_room == Some(true) => {
                ClaimState::Misplaced(format!("{why}; pool {} has room", pool.key))
            }
            Some(_) | None => ClaimState::Pending(why),
        }
    }

    /// Whether the pool of a claim serves the Cluster, or did before it began to go.
    fn is_served(&self, key: &Key, wish: VipWish<'_>, claim: &IpClaimView) -> bool {
        let kind = in_cluster_kind(&claim.pool).filter(|kind| serves_clusters(*kind));
        let pool = kind.and_then(|kind| {
            let (_, pools) = self.claims.user.pools_of(kind.kind)?;
            pools.get(&pool_key(kind, &key.namespace, &claim.pool.name))
        });
        let labels = pool.as_ref().and_then(|pool| pool.vip.as_ref());
        labels.is_some_and(|labels| labels.serves(wish.class, wish.slot.role.name()))
    }

    /// Why the Cluster is not to show what another provider allocated for its claim: somebody has that in the address book.
    pub(super) fn withheld(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
        slot: VipSlot,
        pools: &[VipPool],
    ) -> Option<Unserved> {
        let (claim, address) = self.allocated_by_other((key, cluster), slot)?;
        if cluster.shows(address) {
            return None;
        }
        let mut why = self.rival((key, cluster), slot, address, pools)?;
        let (name, rival) = (&claim.meta.name, why.message);
        why.message = format!("IPAddressClaim {name} has {address}: {rival}");
        Some(why)
    }

    /// The address of a claim: by its IPAddress, which is there before the claim refers to it.
    pub(super) fn address_of(&self, key: &Key, claim: &IpClaimView) -> Option<IpAddr> {
        let there = self.claims.user.address_of(key, &claim.pool)?;
        let owned = there.is_owned_by(&claim.meta.uid);
        there
            .address
            .filter(|_| owned && !claim.meta.is_terminating())
    }

    pub(super) async fn step(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
        step: &VipStep,
        wish: VipWish<'_>,
        pools: &[VipPool],
    ) -> Reconciled<()> {
        let (done, failure) = match step {
            VipStep::Nothing => return Ok(()),
            VipStep::Claim => match best(&wish.candidates(pools)) {
                Some(pool) => {
                    let made = self.claim(key, cluster, wish.slot, pool).await;
                    (made, VipFailure::Claim)
                }
                None => return Ok(()),
            },
            VipStep::ClaimAnew => {
                let deleted = self.delete_claim(&claim_key(key, wish.slot)).await;
                (deleted, VipFailure::Claim)
            }
            VipStep::Reserve(address) => {
                let reserved = self.reserve((key, cluster), wish.slot, *address, pools);
                (reserved.await, VipFailure::Resolution)
            }
        };
        if done.is_err() {
            self.counts.failed(wish.slot.role, wish.class, failure);
        }
        done
    }

    async fn claim(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
        slot: VipSlot,
        pool: &VipPool,
    ) -> Reconciled<()> {
        let kind = self.claims.context.kind();
        let api = self.context.kind().api_version();
        let settings = self.context.site.settings::<ClusterApiSettings>();
        let served = settings.serves_in_cluster_kinds();
        let body = write::claim((kind, api), (key, cluster), (slot, pool), served);
        let target = kind.target(&claim_key(key, slot));
        match self.context.remote.create(&target, &body).await {
            Ok(()) => Ok(()),
            // The watch shows it soon, with its owner.
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

/// Whether the claim of a Cluster is of this pool.
fn is_named(pool: &VipPool, cluster: &Key, claim: &IpClaimView) -> bool {
    let near = pool.key.namespace.is_empty() || pool.key.namespace == cluster.namespace;
    let is_of_kind = in_cluster_kind(&claim.pool) == Some(pool.kind);
    near && is_of_kind && *pool.key.name == *claim.pool.name
}
