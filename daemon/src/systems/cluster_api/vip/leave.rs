//! An address that a Cluster shows stays its own when somebody deletes its claim: certificates carry the endpoint, and nobody
//! else may get it.

use fipd_core::Holder;

use crate::{
    controller::{Reconciled, store::Key},
    systems::cluster_api::{
        claim::{IpClaimController, observe::IpClaimView, paused::read_cluster},
        names::{
            CLUSTER, CONTROL_PLANE_CLAIM, INGRESS_CLAIM, SECOND_CONTROL_PLANE_CLAIM,
            SECOND_INGRESS_CLAIM,
        },
    },
};

/// The Cluster whose claim has this name.
pub fn cluster_of(claim: &Key) -> Option<Key> {
    let prefixes = [
        CONTROL_PLANE_CLAIM,
        INGRESS_CLAIM,
        SECOND_CONTROL_PLANE_CLAIM,
        SECOND_INGRESS_CLAIM,
    ];
    let mut prefixes = prefixes.into_iter();
    let name = prefixes.find_map(|prefix| claim.name.strip_prefix(prefix))?;
    Some(Key::new(&claim.namespace, name))
}

/// Releases the leases of a deleted claim; those that its Cluster shows pass to that. Neither is done while an address of the
/// claim is being written into the Cluster.
pub async fn release_or_pass(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
) -> Reconciled<()> {
    let Some(cluster) = cluster_of(key) else {
        return Ok(());
    };
    let _writing = claims.user.writing.lock(&cluster).await;
    let own = claims.context.holder(key, &claim.meta.uid);
    pass(claims, &own, &cluster).await?;
    claims.give_back(own, "deleted").await
}

/// Whoever owns the claim: of a Cluster that was restored, the owner is an object that is gone.
async fn pass(claims: &IpClaimController, own: &Holder, cluster: &Key) -> Reconciled<()> {
    // The watch may lag behind the garbage collector, which deletes the claims of a Cluster that is gone.
    let Some(found) = read_cluster(claims, cluster).await? else {
        return Ok(());
    };
    let site = &claims.context.site;
    let to = Holder {
        identity: cluster.identity(site.system.clone(), &site.id, CLUSTER.kind),
        instance: found.meta.uid.clone(),
    };
    for lease in claims
        .context
        .read(|ledger| ledger.leases_of(&own.identity))
    {
        if found.shows(lease.key.address) {
            let reason = "its claim is deleted, and the Cluster shows the address";
            site.transfer(own.clone(), to.clone(), lease.key, reason)
                .await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::cluster_api::vip::{choose::VipSlot, write::claim_key};

    /// Whatever Clusters are called, no claim has two of them.
    #[test]
    fn the_claims_of_a_cluster_are_of_no_other() {
        for name in ["a", "second-cp-a", "cp-a", "ingress-a", "second-ingress-a"] {
            let cluster = Key::new("ns", name);
            for slot in VipSlot::ALL {
                let claim = claim_key(&cluster, slot);
                assert_eq!(cluster_of(&claim), Some(cluster.clone()), "{}", claim.name);
            }
        }
        assert_eq!(cluster_of(&Key::new("ns", "machine-a")), None);
    }
}
