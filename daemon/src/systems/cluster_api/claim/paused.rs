//! Whether somebody paused a claim, its Cluster or its pool: then nothing is allocated and nothing released.

use fipd_core::Ledger;

use super::{
    IpClaimController, ip_address,
    observe::IpClaimView,
    wish::{PoolSort, pool_key, sort_of},
};
use crate::{
    controller::{
        Reconciled,
        store::{Key, Observed},
        unserved::Unserved,
        waiters::Cause,
    },
    systems::cluster_api::{
        names::{CLUSTER, PAUSED},
        settings::ClusterApiSettings,
        vip::CapiClusterView,
    },
};

const PAUSED_REASON: &str = "Paused";

/// What keeps a claim from getting its address.
pub async fn in_the_way(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
) -> Reconciled<Option<Unserved>> {
    if let Some(why) = here(claims, key, claim) {
        return Ok(Some(why));
    }
    let Some((cluster, found)) = cluster_of(claims, key, claim).await? else {
        return Ok(None);
    };
    let cause = Some(Cause::Object(CLUSTER.kind, cluster.clone()));
    Ok(match found {
        PauseState::Running => None,
        PauseState::Paused => Some(of_cluster(&cluster, cause)),
        PauseState::Absent => {
            let message = format!(
                "there is no Cluster {}, which the claim names; the claim is served as soon as there is",
                cluster.name
            );
            Some(Unserved::new("ClusterNotFound", message, cause))
        }
    })
}

/// What keeps a deleted claim from giving its address back. A Cluster that is gone keeps nothing, and a claim without an address has
/// nothing to give back.
pub async fn keeps(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
) -> Reconciled<Option<Unserved>> {
    let why = match here(claims, key, claim) {
        Some(why) => Some(why),
        None => {
            let cluster = cluster_of(claims, key, claim).await?;
            let paused = cluster.filter(|(_, found)| *found == PauseState::Paused);
            paused.map(|(cluster, _)| {
                let cause = Some(Cause::Object(CLUSTER.kind, cluster.clone()));
                of_cluster(&cluster, cause)
            })
        }
    };
    // A fresh read: the IPAddress of a restored claim may be later than the watch.
    let is_without = why.is_some()
        && !has_address(claims, key, claim)
        && ip_address::read(claims, key).await?.is_none();
    Ok(why.filter(|_| !is_without))
}

/// As far as it is known.
fn has_address(claims: &IpClaimController, key: &Key, claim: &IpClaimView) -> bool {
    let identity = claims.context.identity(key);
    let known = |ledger: &Ledger| {
        !ledger.leases_of(&identity).is_empty() || !ledger.contentions_of(&identity).is_empty()
    };
    let shown = claim.status.address_ref.is_some() || claims.user.addresses.get(key).is_some();
    shown || claims.context.read(known)
}

fn of_cluster(cluster: &Key, cause: Option<Cause>) -> Unserved {
    let message = format!(
        "Cluster {} is paused; nothing is allocated or released until that ends",
        cluster.name
    );
    Unserved::new(PAUSED_REASON, message, cause)
}

/// Claim and pool.
fn here(claims: &IpClaimController, key: &Key, claim: &IpClaimView) -> Option<Unserved> {
    if claim.paused {
        let message = format!(
            "the claim is paused by its annotation {PAUSED}; nothing is allocated or released until that is removed"
        );
        return Some(Unserved::new(PAUSED_REASON, message, None));
    }
    let settings = claims.context.site.settings::<ClusterApiSettings>();
    let PoolSort::InCluster(kind) = sort_of(&claim.pool, settings)? else {
        return None;
    };
    let (_, pools) = claims.user.pools_of(kind.kind)?;
    let pool = pool_key(kind, &key.namespace, &claim.pool.name);
    let is_paused = match pools.seen(&pool)? {
        Observed::Parsed(pool) => pool.paused,
        Observed::Malformed(pool) => pool.annotations.contains_key(PAUSED),
    };
    is_paused.then_some(())?;
    let message = format!(
        "{} {} is paused by its annotation {PAUSED}; nothing is allocated or released until that is removed",
        kind.kind, claim.pool.name
    );
    let cause = Some(Cause::Object(kind.kind, pool));
    Some(Unserved::new("PoolPaused", message, cause))
}

/// A fresh read of a Cluster, in the version that the API server has; `None`: there is no such Cluster.
pub async fn read_cluster(
    claims: &IpClaimController,
    cluster: &Key,
) -> Reconciled<Option<CapiClusterView>> {
    let remote = &claims.context.remote;
    let kind = match claims.user.clusters.followed_as() {
        Some(kind) => Some(kind),
        None => CLUSTER.served(remote).await?,
    };
    let Some(kind) = kind else {
        return Ok(None);
    };
    let found = remote.get(&kind.target(cluster)).await?;
    Ok(found.map(CapiClusterView::of))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PauseState {
    Running,
    Paused,
    Absent,
}

/// The Cluster that the claim names, by a fresh read where not all are known yet.
async fn cluster_of(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
) -> Reconciled<Option<(Key, PauseState)>> {
    let Some(name) = &claim.cluster else {
        return Ok(None);
    };
    let cluster = Key::new(&key.namespace, name);
    let clusters = &claims.user.clusters;
    let paused = match clusters.get(&cluster) {
        Some(found) => Some(found.paused),
        None if clusters.is_complete() && clusters.seen(&cluster).is_none() => None,
        None => {
            let read = read_cluster(claims, &cluster).await?;
            read.map(|found| found.paused)
        }
    };
    let found = match paused {
        Some(true) => PauseState::Paused,
        Some(false) => PauseState::Running,
        None => PauseState::Absent,
    };
    Ok(Some((cluster, found)))
}
