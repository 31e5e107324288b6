//! An address that a Cluster shows stays its own when somebody deletes its claim: certificates carry the endpoint, and nobody
//! else may get it.

use fipd_core::Holder;

use super::observe::ClusterView;
use crate::{
    controller::{Reconciled, store::Key},
    systems::cluster_api::{
        claim::{IpClaimController, observe::IpClaimView, paused::read_cluster},
        names::{CLUSTER, CONTROL_PLANE_CLAIM, INGRESS_CLAIM},
    },
};

/// The Cluster whose claim has this name.
pub fn cluster_of(claim: &Key) -> Option<Key> {
    let name = claim.name.strip_prefix(CONTROL_PLANE_CLAIM);
    let name = name.or_else(|| claim.name.strip_prefix(INGRESS_CLAIM))?;
    Some(Key::new(&claim.namespace, name))
}

/// Passes the leases of a deleted claim to its Cluster, where that is there and shows them.
pub async fn leave_to_cluster(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
) -> Reconciled<()> {
    let Some(cluster) = cluster_of(key) else {
        return Ok(());
    };
    // The watch may lag behind the garbage collector, which deletes the claims of a Cluster that is gone.
    let found = read_cluster(claims, &cluster).await?;
    let owner = |one: &ClusterView| claim.owners.iter().any(|uid| **uid == *one.meta.uid);
    let Some(found) = found.filter(owner) else {
        return Ok(());
    };
    let site = &claims.context.site;
    let own = claims.context.holder(key, &claim.meta.uid);
    let to = Holder {
        identity: cluster.identity(site.system.clone(), &site.id, CLUSTER.kind),
        instance: found.meta.uid.clone(),
    };
    let ingress = found.ingress_address();
    for lease in claims
        .context
        .read(|ledger| ledger.leases_of(&own.identity))
    {
        let address = Some(lease.key.address);
        if found.host() == address || ingress == address {
            let reason = "its claim is deleted, and the Cluster shows the address";
            site.transfer(own.clone(), to.clone(), lease.key, reason)
                .await?;
        }
    }
    Ok(())
}
