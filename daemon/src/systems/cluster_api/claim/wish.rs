//! Which pool a claim means, and which address it names. Pure.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Ledger, Pool};
use fipd_crds::{cluster_api::PoolRef, fipd_io};

use super::observe::IpClaimView;
use crate::{
    controller::{
        address_user::refusal::FixedFields, kind::Kind, own_pools::OwnPools, site::Site,
        store::Key, unserved::Unserved, waiters::Cause,
    },
    systems::cluster_api::{
        names::{IN_CLUSTER, IPAM_GROUP},
        pool::object_of,
        settings::ClusterApiSettings,
    },
};

const POOL_REF: &str = "spec.poolRef";
const FIPD_GROUP: &str = "fipd.io";

/// What a claim may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSort {
    /// A pool kind of the in-cluster provider.
    InCluster(Kind),
    /// `Pool` or `NamespacedPool` of fipd.
    Own,
}

/// What the reference means; `None`: another provider serves it.
pub fn sort_of(pool: &PoolRef, settings: &ClusterApiSettings) -> Option<PoolSort> {
    match pool.api_group.as_deref() {
        Some(IPAM_GROUP) if settings.serves_in_cluster_kinds() => {
            in_cluster_kind(pool).map(PoolSort::InCluster)
        }
        Some(FIPD_GROUP) => {
            let own = [fipd_io::POOL, fipd_io::NAMESPACED_POOL].contains(&&*pool.kind);
            own.then_some(PoolSort::Own)
        }
        Some(_) | None => None,
    }
}

/// The pool kind of the in-cluster provider that the reference is to, whoever serves it.
pub fn in_cluster_kind(pool: &PoolRef) -> Option<Kind> {
    let is_ipam = pool.api_group.as_deref() == Some(IPAM_GROUP);
    let mut kinds = IN_CLUSTER.into_iter();
    kinds.find(|kind| is_ipam && kind.kind == pool.kind)
}

/// The pool object that a claim of the namespace refers to.
pub fn pool_key(kind: Kind, namespace: &str, name: &str) -> Key {
    let namespace = if kind.namespaced { namespace } else { "" };
    Key::new(namespace, name)
}

/// The pool that a claim means.
pub fn pool(
    ledger: &Ledger,
    site: &Site,
    namespace: &str,
    named: &PoolRef,
) -> Result<Arc<Pool>, Unserved> {
    let settings = site.settings::<ClusterApiSettings>();
    let found = match sort_of(named, settings) {
        Some(PoolSort::InCluster(kind)) if !named.name.contains(['/', '_']) => {
            let object = object_of(kind.plural, &pool_key(kind, namespace, &named.name));
            site.mirror_in(ledger, &object).cloned()
        }
        Some(PoolSort::Own) => {
            let pools = OwnPools {
                cluster: &site.id,
                namespace,
                settings,
            };
            pools.find(ledger, &named.kind, &named.name)
        }
        Some(PoolSort::InCluster(_)) | None => None,
    };
    found.ok_or_else(|| {
        let (kind, name) = (&named.kind, &named.name);
        let message = format!(
            "{POOL_REF}: there is no {kind} {name:?} that gives addresses; the claim is served as soon as there is one"
        );
        Unserved::new("PoolNotFound", message, Some(Cause::Pools))
    })
}

/// The address that the claim's annotation names.
pub fn address(claim: &IpClaimView) -> Result<Option<IpAddr>, Unserved> {
    let Some((annotation, text)) = &claim.wanted else {
        return Ok(None);
    };
    let address = text.parse::<IpAddr>().map(|address| address.to_canonical());
    address.map(Some).map_err(|_| {
        let text: String = text.chars().take(100).collect();
        let message = format!(
            "annotation {annotation}: {text:?} is no IP address; write one, or remove the annotation for any address of the pool"
        );
        Unserved::new("Invalid", message, None)
    })
}

/// The fields that may not be changed of a claim that has an address.
pub fn fixed(claim: &IpClaimView) -> FixedFields<'_> {
    let pool = &claim.pool;
    FixedFields {
        address: "annotation fipd.io/address",
        pool: Some((POOL_REF, &pool.name, &pool.kind)),
    }
}
