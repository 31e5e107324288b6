//! The pools that are left to the in-cluster provider, and the IPAddresses that it makes.

use fipd_core::{Ledger, NetworkId};

use super::IpClaimController;
use crate::{
    controller::{kind::Kind, store::Key},
    systems::cluster_api::{
        pool::{network_by_rules, object_of},
        settings::ClusterApiSettings,
    },
};

/// The network of a pool object: by the rules, where another provider serves its kind.
pub fn network_of_pool(claims: &IpClaimController, kind: Kind, pool: &Key) -> Option<NetworkId> {
    let site = &claims.context.site;
    let object = object_of(kind.plural, pool);
    let mirror = |ledger: &Ledger| Some(site.mirror_in(ledger, &object)?.spec.network);
    let mirror = claims.context.read(mirror);
    let settings = site.settings::<ClusterApiSettings>();
    if mirror.is_some() || settings.serves_in_cluster_kinds() {
        return mirror;
    }
    let (_, pools) = claims.user.pools_of(kind.kind)?;
    by_rules(claims, pool, pools.get(pool)?.network.as_deref())
}

/// The network of a pool with this annotation, by the rules.
pub fn by_rules(
    claims: &IpClaimController,
    pool: &Key,
    annotation: Option<&str>,
) -> Option<NetworkId> {
    let name = network_by_rules(&claims.context.site, pool, annotation);
    let network = |ledger: &Ledger| Some(ledger.network_by_name(&name)?.id);
    claims.context.read(network)
}
