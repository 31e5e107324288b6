//! The pools that are left to the in-cluster provider. What it allocates of them is kept from everybody else, whatever the claim is
//! for: the claim holds it in the address book, and loses it by its absence. What is for a Cluster the Cluster itself holds
//! (`vip::reserve`).

use std::net::IpAddr;

use fipd_core::{Family, LeaseKey, LeasePrefix, Ledger, NetworkId, ReleaseScope, Span};
use fipd_crds::labels::NETWORK;

use super::{
    IpClaimController,
    ip_address::hold,
    observe::AddressView,
    wish::{in_cluster_kind, pool_key},
};
use crate::{
    controller::{
        Reconciled,
        confirm_absence::RECHECK_AFTER,
        kind::Kind,
        queue::Next,
        site::Site,
        store::{Key, Observed},
        waiters::Cause,
    },
    systems::cluster_api::{
        pool::{InClusterView, growth::has, holds_prefixes, network_by_rules, object_of},
        settings::ClusterApiSettings,
        vip::leave::cluster_of,
    },
};

/// Whether the in-cluster provider made the IPAddress, and not fipd before its pools were left to that.
pub fn is_left(site: &Site, there: &AddressView) -> bool {
    let settings = site.settings::<ClusterApiSettings>();
    !settings.serves_in_cluster_kinds()
        && there.grace_ends.is_none()
        && in_cluster_kind(&there.pool).is_some()
}

/// What the IPAddress takes that the address book does not know of.
pub fn unknown(claims: &IpClaimController, key: &Key, there: &AddressView) -> Option<LeasePrefix> {
    let prefix = LeftAddress::of(claims, key, there)?.in_own_pool(claims)?;
    let identity = claims.context.identity(key);
    let is_known = |ledger: &Ledger| has(ledger, prefix, &identity);
    (!claims.context.read(is_known) && !is_of_cluster(claims, key)).then_some(prefix)
}

/// Keeps from everybody else what the IPAddress of this name shows. A claim that fipd serves holds its lease itself.
pub async fn keep(claims: &IpClaimController, key: &Key) -> Reconciled {
    let site = &claims.context.site;
    // The look at new pools runs beside the queue.
    let _keeping = claims.user.keeping.lock(key).await;
    let claim = claims.context.objects.get(key);
    if claim.is_some_and(|claim| claim.served) {
        return Ok(Next::Done);
    }
    let there = claims.user.addresses.get(key);
    let Some(there) = there.filter(|there| is_left(site, there)) else {
        return Ok(Next::Done);
    };
    // From the look at the pool on: a change of it counts.
    if let Some(kind) = in_cluster_kind(&there.pool) {
        let pool = pool_key(kind, &key.namespace, &there.pool.name);
        let cause = Cause::Object(kind.kind, pool);
        claims.context.waits_for(key, Some(cause));
    }
    if is_of_cluster(claims, key) {
        return Ok(match claims.user.clusters.is_complete() {
            true => Next::Done,
            false => Next::After(RECHECK_AFTER),
        });
    }
    let Some(shown) = LeftAddress::of(claims, key, &there) else {
        return Ok(Next::Done);
    };
    release_others(claims, key, &shown).await?;
    match unknown(claims, key, &there) {
        Some(prefix) => hold(claims, key, &there, prefix).await,
        None => Ok(Next::Done),
    }
}

/// Releases what earlier IPAddresses of the name had.
async fn release_others(
    claims: &IpClaimController,
    key: &Key,
    shown: &LeftAddress,
) -> Reconciled<()> {
    let identity = claims.context.identity(key);
    let others = claims.context.read(|ledger| {
        let held = ledger.leases_of(&identity).into_iter();
        let held =
            held.filter_map(|lease| Some((lease.member(&identity)?.holder.clone(), lease.key)));
        let contended = ledger.contentions_of(&identity).into_iter();
        let contended = contended.filter_map(|lease| {
            let contender = lease.contender(&identity)?;
            let used = contender.used_of(lease.prefix()).next()?;
            Some((contender.holder.clone(), used.key))
        });
        let mut others: Vec<_> = held.chain(contended).collect();
        others.retain(|(_, key)| !shown.is_at(key));
        others
    });
    for (holder, key) in others {
        let scope = ReleaseScope::HolderAddresses(holder, vec![key]);
        let reason = "its IPAddress shows another address";
        claims.context.site.release(scope, reason).await?;
    }
    Ok(())
}

/// Whether the claim of this name is, or may be, the claim of a Cluster.
fn is_of_cluster(claims: &IpClaimController, key: &Key) -> bool {
    let Some(cluster) = cluster_of(key) else {
        return false;
    };
    let clusters = &claims.user.clusters;
    match clusters.get(&cluster) {
        Some(cluster) => {
            let claim = claims.context.objects.get(key);
            claim.is_none_or(|claim| claim.is_owned_by(&cluster.meta.uid))
        }
        None => !clusters.is_complete(),
    }
}

/// What an IPAddress takes.
struct LeftAddress {
    address: IpAddr,
    /// Bits of its prefix: 32 or 128 for an address.
    length: u8,
    /// The network that its pool names.
    named: Option<NetworkId>,
    /// That network; while the pool is not known, the most likely one.
    network: Option<NetworkId>,
}

impl LeftAddress {
    fn of(claims: &IpClaimController, key: &Key, there: &AddressView) -> Option<Self> {
        let (kind, address) = (in_cluster_kind(&there.pool)?, there.address?);
        let name = pool_key(kind, &key.namespace, &there.pool.name);
        let pools = claims.user.pools_of(kind.kind);
        let pool = pools.and_then(|(_, pools)| pools.seen(&name));
        let named = network_of_pool(claims, kind, &name);
        let identity = claims.context.identity(key);
        let held = |ledger: &Ledger| {
            let mut leases = ledger.leases_of(&identity);
            leases.extend(ledger.contentions_of(&identity));
            let lease = leases.iter().find(|one| one.span().contains(address))?;
            Some(lease.key.network)
        };
        let likely = || (claims.context.read(held)).or_else(|| by_rules(claims, &name, None));
        Some(Self {
            address,
            length: length_of(kind, address, there.prefix, pool.as_ref()),
            named,
            network: match pool {
                Some(_) => named,
                None => named.or_else(likely),
            },
        })
    }

    fn span(&self) -> Span {
        Span::of_prefix(self.address, self.length)
    }

    /// Whether a lease at this key is, or is a part of, what the IPAddress takes. Only its pool rules a network out.
    fn is_at(&self, key: &LeaseKey) -> bool {
        let is_there = self.named.is_none_or(|network| network == key.network);
        is_there && self.span().contains(key.address)
    }

    /// What it takes, where an open pool of its network has any of that.
    fn in_own_pool(&self, claims: &IpClaimController) -> Option<LeasePrefix> {
        let (network, address, length) = (self.network?, self.address, self.length);
        let key = LeaseKey { network, address };
        let prefix = LeasePrefix { key, length };
        let has = |ledger: &Ledger| {
            if prefix.is_address() {
                return ledger.pool_in_range(key).is_some();
            }
            let span = prefix.span();
            let mut pools = ledger.pools().map(|pool| &pool.spec);
            pools.any(|spec| {
                let mut parts = spec.addresses.iter();
                let is_open = spec.network == network && !spec.closed;
                is_open && parts.any(|part| part.span().overlaps(&span))
            })
        };
        claims.context.read(has).then_some(prefix)
    }
}

/// Bits of what an IPAddress takes. Only of a prefix pool its `spec.prefix` is that; otherwise it is the length of the subnet.
fn length_of(
    kind: Kind,
    address: IpAddr,
    named: Option<u8>,
    pool: Option<&Observed<InClusterView>>,
) -> u8 {
    let bits = Family::of(address).bits();
    if !holds_prefixes(kind.plural) {
        return bits;
    }
    let begins = |length: &u8| {
        (1..=bits).contains(length) && Span::of_prefix(address, *length).first_address() == address
    };
    let of_pool = || match pool? {
        Observed::Parsed(pool) => pool.spec.rules().ok()?.allocation_length,
        Observed::Malformed(_) => None,
    };
    let length = named.filter(begins);
    length.or_else(|| of_pool().filter(begins)).unwrap_or(bits)
}

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
    let annotation = match pools.seen(pool)? {
        Observed::Parsed(pool) => pool.network.clone(),
        Observed::Malformed(object) => object.annotations.get(NETWORK).cloned(),
    };
    by_rules(claims, pool, annotation.as_deref())
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

#[cfg(test)]
#[path = "left_tests.rs"]
mod tests;
