//! The IPAddress of a claim: made with its lease, kept as it is, and taken away or left for a while when the claim goes.

use std::{sync::Arc, time::Duration};

use fipd_core::{LeasePrefix, Ledger, Origin, Pool, ReleaseScope, Text, Timestamp};
use fipd_crds::{
    cluster_api::{ClaimRef, IPAddress, IPAddressSpec, PoolRef},
    labels::MANAGED_BY,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use super::{
    IpClaimController, left,
    observe::{AddressView, IpClaimView},
    wish::{self, PoolSort},
};
use crate::{
    clock,
    controller::{
        Reconciled,
        address_user::outcome::ShownLease,
        client::{CallError, Patch, Target},
        conditions::CONFLICT,
        confirm_absence::RECHECK_AFTER,
        kind::{Kind, NAMESPACE},
        queue::Next,
        site::Site,
        store::{Key, Observed},
    },
    systems::cluster_api::{
        names::{
            ADDRESS_OBJECT, CLAIM, CLUSTER_NAME, GRACE_ENDS, IPAM_GROUP, PROTECT_ADDRESS,
            WATCH_FILTER,
        },
        pool::growth::adopt,
        settings::ClusterApiSettings,
    },
};

/// Makes the IPAddress, where the claim has none.
pub async fn publish(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
    shown: &ShownLease,
) -> Reconciled<Option<Next>> {
    match claims.user.addresses.get(key) {
        // Deleted already, and of an earlier claim of the name.
        Some(there) if there.grace_ends.is_some() => {}
        // The garbage collector came before its finalizer was on the earlier claim. The lease is this claim's by now.
        Some(there) if there.is_left_to(&claim.meta.uid) => {
            remove(claims, key, &there).await?;
            return Ok(Some(Next::Retry));
        }
        // It was of an earlier claim, and the watch is behind.
        Some(there) if claims.user.is_unconfirmed(key, claim, &there) => {}
        Some(there) if there.address == Some(shown.address()) => {
            return complete(claims, key, claim, shown, &there).await;
        }
        Some(_) => return differs(claims, key, claim, shown).await,
        None => {}
    }
    let kind = followed(claims);
    let body = object(claims, kind, (key, claim), shown);
    let target = kind.target(key);
    let made = claims.context.remote.create_seen(&target, &body);
    match made.await {
        Ok(made) => {
            claims.user.addresses.set(key, AddressView::of(made));
            Ok(None)
        }
        Err(CallError::Conflict(..)) => {
            let there: Option<IPAddress> = claims.context.remote.get(&target).await?;
            if let Some(there) = there {
                claims.user.addresses.set(key, AddressView::of(there));
            }
            Ok(Some(Next::Retry))
        }
        Err(error) => Err(error.into()),
    }
}

/// Deletes the IPAddress of an earlier claim of the name: what it shows cools in the address book.
pub async fn end_grace(claims: &IpClaimController, key: &Key) -> Reconciled<()> {
    match claims.user.addresses.get(key) {
        Some(there) if there.grace_ends.is_some() => remove(claims, key, &there).await,
        Some(_) | None => Ok(()),
    }
}

/// The IPAddress of the claim's name shows another address than its lease. A claim that shows none yet gets what the IPAddress
/// shows; otherwise two writers are at odds.
async fn differs(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
    shown: &ShownLease,
) -> Reconciled<Option<Next>> {
    if claim.status.address_ref.is_none() {
        let reason = "its IPAddress shows another address";
        claims.give_up(key, claim, &[shown.key], reason).await?;
        return Ok(Some(Next::Retry));
    }
    let message = format!(
        "IPAddress {} does not show {}, which the claim has; delete it, and it is made again",
        key.name,
        shown.address()
    );
    claims.context.warn(key, &claim.meta.uid, CONFLICT, message);
    Ok(Some(Next::After(RECHECK_AFTER)))
}

/// Owners and finalizer of an IPAddress that was there before. Owners of others stay.
async fn complete(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
    shown: &ShownLease,
    there: &AddressView,
) -> Reconciled<Option<Next>> {
    let kind = followed(claims);
    let wanted = object(claims, kind, (key, claim), shown).metadata;
    let wanted = wanted.owner_references.unwrap_or_default();
    let owned = wanted.iter().all(|owner| there.owners.contains(&owner.uid));
    if there.meta.is_terminating() || owned && there.meta.has_finalizer(PROTECT_ADDRESS) {
        return Ok(None);
    }
    let (remote, target) = (&claims.context.remote, kind.target(key));
    let found: Option<IPAddress> = remote.get(&target).await?;
    let Some(found) = found.filter(|one| one.metadata.uid.as_deref() == Some(&*there.meta.uid))
    else {
        return Ok(Some(Next::Retry));
    };
    let finalizers = found.metadata.finalizers.unwrap_or_default();
    let missing = !finalizers.iter().any(|one| one == PROTECT_ADDRESS);
    let missing = missing.then(|| PROTECT_ADDRESS.to_owned());
    let owners = found.metadata.owner_references.unwrap_or_default();
    let patch = json!({ "metadata": {
        "uid": &*there.meta.uid, "resourceVersion": found.metadata.resource_version,
        "ownerReferences": owners_with(owners, wanted),
        "finalizers": finalizers.into_iter().chain(missing).collect::<Vec<_>>(),
    } });
    let now = remote.patch_seen(&target, Patch::Merge, &patch);
    claims.user.addresses.keep(key, AddressView::of(now.await?));
    Ok(None)
}

/// The owners with these among them. An object has one controller; an owner that was made again has another UID.
fn owners_with(found: Vec<OwnerReference>, wanted: Vec<OwnerReference>) -> Vec<OwnerReference> {
    let same = |one: &OwnerReference, other: &OwnerReference| {
        (&one.kind, &one.name) == (&other.kind, &other.name)
    };
    let others = found.into_iter();
    let mut owners: Vec<_> = others
        .filter(|one| !wanted.iter().any(|other| same(one, other)))
        .collect();
    let controlled = owners.iter().any(|one| one.controller == Some(true));
    owners.extend(wanted.into_iter().map(|one| OwnerReference {
        controller: one.controller.map(|is| is && !controlled),
        ..one
    }));
    owners
}

/// Takes the IPAddress of a deleted claim away; during the grace of its pool it stays, without owners.
pub async fn retire(claims: &IpClaimController, key: &Key, claim: &IpClaimView) -> Reconciled<()> {
    // Of a claim that does not fit its schema only the UID is known.
    let its_own = |there: &AddressView| {
        there.is_owned_by(&claim.meta.uid) || there.answers(&key.name, &claim.pool)
    };
    let there = read(claims, key).await?;
    let Some(there) = there.filter(|there| its_own(there)) else {
        return Ok(());
    };
    match grace(claims, key).await? {
        Some(grace) => leave(claims, key, &there, grace).await,
        None => remove(claims, key, &there).await,
    }
}

/// Takes the IPAddress away that the claim of this name had, without a grace.
pub async fn remove_of(claims: &IpClaimController, key: &Key) -> Reconciled<()> {
    let there = read(claims, key).await?;
    match there.filter(|there| *there.claim == *key.name) {
        Some(there) => remove(claims, key, &there).await,
        None => Ok(()),
    }
}

/// The IPAddress of this name that is in use. Where the watch shows none it may be behind: nobody may have heard the answer when
/// fipd made it.
pub async fn read(claims: &IpClaimController, key: &Key) -> Reconciled<Option<Arc<AddressView>>> {
    let known = claims.user.addresses.get(key);
    let known = known.filter(|there| there.grace_ends.is_none());
    if known.is_some() {
        return Ok(known);
    }
    let there: Option<IPAddress> = claims.context.remote.get(&target(claims, key)).await?;
    let there = there.map(AddressView::of);
    Ok(there
        .filter(|there| there.grace_ends.is_none())
        .map(Arc::new))
}

/// How long the pool keeps what the claim had; `None`: not at all, as with a pool or namespace that goes.
async fn grace(claims: &IpClaimController, key: &Key) -> Reconciled<Option<Duration>> {
    let identity = claims.context.identity(key);
    let cools = |ledger: &Ledger| {
        let leases = ledger.leases_of(&identity);
        let pool = ledger.pool(leases.first()?.pool?)?;
        (pool.spec.quarantine > 0 && !pool.spec.closed).then_some(pool.spec.quarantine)
    };
    let Some(seconds) = claims.context.read(cools) else {
        return Ok(None);
    };
    let namespace = NAMESPACE.named("", &key.namespace);
    let found: Option<Value> = claims.context.remote.get(&namespace).await?;
    let stays = found.is_some_and(|one| one["metadata"]["deletionTimestamp"].is_null());
    Ok(stays.then(|| Duration::from_secs(seconds.into())))
}

async fn leave(
    claims: &IpClaimController,
    key: &Key,
    there: &AddressView,
    grace: Duration,
) -> Reconciled<()> {
    let millis = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    let ends = clock::rfc3339(Timestamp(clock::now().0.saturating_add(millis)));
    let finalizers = there.meta.finalizers.iter();
    let others: Vec<_> = finalizers.filter(|one| *one != PROTECT_ADDRESS).collect();
    let patch = json!({ "metadata": {
        "uid": &*there.meta.uid, "resourceVersion": there.meta.version,
        "ownerReferences": null, "finalizers": others, "annotations": { GRACE_ENDS: ends },
    } });
    let (remote, target) = (&claims.context.remote, target(claims, key));
    match remote.patch_seen(&target, Patch::Merge, &patch).await {
        Ok(now) => claims.user.addresses.keep(key, AddressView::of(now)),
        Err(CallError::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }
    claims.context.queue.add_after(key.clone(), grace);
    Ok(())
}

/// Deletes it, then drops its finalizer: whoever dies in between leaves one that says that it goes.
async fn remove(claims: &IpClaimController, key: &Key, there: &AddressView) -> Reconciled<()> {
    let (remote, target, meta) = (&claims.context.remote, target(claims, key), &there.meta);
    if !meta.is_terminating() {
        remote.delete(&target, &meta.uid).await?;
    }
    let drop = remote.drop_finalizer(&target, &meta.uid, &meta.finalizers, PROTECT_ADDRESS);
    drop.await?;
    // A claim that is made again must not take it for its own.
    claims.user.addresses.drop_deleted(key, &meta.uid);
    Ok(())
}

/// Whether an IPAddress without a claim is fipd's.
pub fn is_served(site: &Site, key: &Key, there: &AddressView) -> bool {
    let settings = site.settings::<ClusterApiSettings>();
    *there.claim == *key.name
        && settings.covers(&key.namespace, there.filter.as_deref())
        && wish::sort_of(&there.pool, settings).is_some()
}

/// What becomes of an IPAddress without a claim, and of a lease without either.
pub async fn without_claim(claims: &IpClaimController, key: &Key) -> Reconciled {
    let there = match claims.user.addresses.seen(key) {
        Some(Observed::Parsed(there)) => there,
        // Nobody knows what it shows: its lease stays.
        Some(Observed::Malformed(_)) => return Ok(Next::Done),
        None => {
            let reason = "neither its claim nor its IPAddress is there";
            return claims.release_unwritten(key, reason).await;
        }
    };
    if left::is_left(&claims.context.site, &there) {
        return left::keep(claims, key).await;
    }
    // fipd alone marks the end of a grace, whoever serves the pool by now.
    if there.grace_ends.is_none() && !is_served(&claims.context.site, key, &there) {
        return Ok(Next::Done);
    }
    let claim = claim_target(claims, key);
    let claim: Option<Value> = claims.context.remote.get(&claim).await?;
    if let Some(ends) = there.grace_ends {
        let rest = ends.0.saturating_sub(clock::now().0);
        // A claim of its name, whoever serves that, needs the name now.
        if rest > 0 && claim.is_none() {
            return Ok(Next::After(Duration::from_millis(rest)));
        }
        remove(claims, key, &there).await?;
        // One that was only adopted has held the address until now.
        return release_unclaimed(claims, key).await;
    }
    if claim.is_some() {
        claims.missing.forget(key);
        return Ok(Next::Done);
    }
    if there.meta.is_terminating() {
        release_unclaimed(claims, key).await?;
        remove(claims, key, &there).await?;
        return Ok(Next::Done);
    }
    if is_left_over(claims, key, &there) {
        return remove_left_over(claims, key, &there).await;
    }
    reserve(claims, key, &there).await
}

/// Whether it shows what a claim of this name had, which went before fipd's finalizer was on that.
fn is_left_over(claims: &IpClaimController, key: &Key, there: &AddressView) -> bool {
    let identity = claims.context.identity(key);
    let was_allocated = |ledger: &Ledger| {
        ledger.leases_of(&identity).iter().any(|lease| {
            let of_claim = lease
                .owner()
                .is_some_and(|owner| !owner.instance.is_empty());
            of_claim && there.address == Some(lease.key.address)
        })
    };
    there.meta.has_finalizer(PROTECT_ADDRESS) && claims.context.read(was_allocated)
}

/// Takes it away once a second look has not found a claim either: a restore may write that after its IPAddress. The garbage
/// collector leaves what a pool owns. The lease is released where the claim is absent from two lists.
async fn remove_left_over(
    claims: &IpClaimController,
    key: &Key,
    there: &AddressView,
) -> Reconciled {
    if let Some(wait) = claims.missing.missing(key) {
        return Ok(Next::After(wait));
    }
    claims.missing.forget(key);
    remove(claims, key, there).await?;
    Ok(Next::Done)
}

async fn release_unclaimed(claims: &IpClaimController, key: &Key) -> Reconciled {
    let holder = claims.context.holder(key, &Text::from(""));
    let scope = ReleaseScope::Holder(holder);
    claims
        .context
        .site
        .release(scope, "its IPAddress is gone")
        .await?;
    Ok(Next::Done)
}

/// An IPAddress that was made before its claim holds what it shows.
async fn reserve(claims: &IpClaimController, key: &Key, there: &AddressView) -> Reconciled {
    let site = &claims.context.site;
    let identity = claims.context.identity(key);
    let missing = claims.context.read(|ledger| {
        let known =
            ledger.leases_of(&identity).is_empty() && ledger.contentions_of(&identity).is_empty();
        let pool = wish::pool(ledger, site, &key.namespace, &there.pool).ok();
        known.then_some(pool).flatten().zip(there.address)
    });
    let Some((pool, address)) = missing else {
        return Ok(Next::Done);
    };
    // The watch may still show one that was deleted with its claim.
    let fresh: Option<IPAddress> = claims.context.remote.get(&target(claims, key)).await?;
    if fresh.is_none_or(|fresh| fresh.metadata.uid.as_deref() != Some(&*there.meta.uid)) {
        return Ok(Next::Done);
    }
    let network = pool.spec.network;
    let prefix = pool
        .spec
        .prefix_at(fipd_core::LeaseKey { network, address });
    hold(claims, key, there, prefix).await
}

/// Takes into the address book what an IPAddress shows, for its claim, whichever that is.
pub(super) async fn hold(
    claims: &IpClaimController,
    key: &Key,
    there: &AddressView,
    prefix: LeasePrefix,
) -> Reconciled {
    let holder = claims.context.holder(key, &Text::from(""));
    let of = (holder, there.meta.created, &*key.namespace);
    let request = adopt(&claims.context.site, of, prefix);
    claims.context.take_in(request).await.map(|()| Next::Done)
}

fn followed(claims: &IpClaimController) -> Kind {
    claims
        .user
        .addresses
        .followed_as()
        .unwrap_or(ADDRESS_OBJECT)
}

pub(super) fn target(claims: &IpClaimController, key: &Key) -> Target {
    followed(claims).target(key)
}

fn claim_target(claims: &IpClaimController, key: &Key) -> Target {
    claims.context.kind().target(key)
}

/// The IPAddress of a claim.
fn object(
    claims: &IpClaimController,
    kind: Kind,
    (key, claim): (&Key, &IpClaimView),
    shown: &ShownLease,
) -> IPAddress {
    let site = &claims.context.site;
    let (pool, prefix) = claims.context.read(|ledger| {
        let pool = shown.pool_id.and_then(|id| ledger.pool(id)).cloned();
        let prefix = pool
            .as_ref()
            .map_or(shown.prefix_len, |pool| prefix_of(pool, shown));
        (pool, prefix)
    });
    let claim_api = claims.context.kind().api_version();
    let claim_owner = OwnerReference {
        api_version: claim_api.to_owned(),
        kind: CLAIM.kind.to_owned(),
        name: key.name.to_string(),
        uid: claim.meta.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let sort = wish::sort_of(&claim.pool, site.settings());
    let pool_owner = pool
        .as_deref()
        .and_then(|pool| owner_of(pool, &claim.pool, sort?));
    let label = claim.cluster_label.clone();
    let labels = label.map(|name| (CLUSTER_NAME.to_owned(), name));
    // Whoever shards providers has it on the claim.
    let filter = &site.settings::<ClusterApiSettings>().watch_filter;
    let filter = (!filter.is_empty()).then(|| (WATCH_FILTER.to_owned(), filter.to_string()));
    let managed = (
        MANAGED_BY.to_owned(),
        fipd_crds::labels::FIELD_MANAGER.to_owned(),
    );
    IPAddress {
        api_version: kind.api_version().to_owned(),
        metadata: ObjectMeta {
            namespace: Some(key.namespace.to_string()),
            name: Some(key.name.to_string()),
            labels: Some(labels.into_iter().chain(filter).chain([managed]).collect()),
            finalizers: Some(vec![PROTECT_ADDRESS.to_owned()]),
            owner_references: Some([claim_owner].into_iter().chain(pool_owner).collect()),
            ..ObjectMeta::default()
        },
        spec: IPAddressSpec {
            claim_ref: ClaimRef {
                name: key.name.to_string(),
            },
            pool_ref: claim.pool.clone(),
            address: shown.address().to_string(),
            prefix: Some(prefix.into()),
            gateway: shown
                .gateway
                .map_or_else(String::new, |one| one.to_string()),
        },
    }
}

/// That of the pool; a prefix has its own, and a pool of the in-cluster provider without one has 0.
fn prefix_of(pool: &Pool, shown: &ShownLease) -> u8 {
    let in_cluster = matches!(&pool.spec.origin, Origin::Mirror { system, .. }
        if *system == fipd_core::System::cluster_api());
    match (pool.spec.allocation_length, pool.spec.prefix_len) {
        (Some(length), _) | (None, Some(length)) => length,
        (None, None) if in_cluster => 0,
        (None, None) => shown.prefix_len,
    }
}

/// The object of the pool, where it is one of this cluster.
fn owner_of(pool: &Pool, named: &PoolRef, sort: PoolSort) -> Option<OwnerReference> {
    let Origin::Mirror { uid, .. } = &pool.spec.origin else {
        return None;
    };
    let version = match sort {
        PoolSort::InCluster(kind) => kind.api_version().to_owned(),
        PoolSort::Own => format!(
            "{}/v1alpha1",
            named.api_group.as_deref().unwrap_or(IPAM_GROUP)
        ),
    };
    Some(OwnerReference {
        api_version: version,
        kind: named.kind.clone(),
        name: named.name.clone(),
        uid: uid.to_string(),
        controller: Some(false),
        block_owner_deletion: Some(true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(kind: &str, uid: &str, controller: Option<bool>) -> OwnerReference {
        OwnerReference {
            kind: kind.to_owned(),
            name: "n".to_owned(),
            uid: uid.to_owned(),
            controller,
            ..OwnerReference::default()
        }
    }

    #[test]
    fn owners_of_others_stay_and_one_is_the_controller() {
        let claim = || owner("IPAddressClaim", "new", Some(true));
        let pool = || owner("InClusterIPPool", "p", Some(false));
        let wanted = || vec![claim(), pool()];
        let stale = owner("IPAddressClaim", "old", Some(true));
        assert_eq!(owners_with(vec![stale], wanted()), wanted());
        let other = owner("Other", "o", None);
        let with = owners_with(vec![other.clone(), claim()], wanted());
        assert_eq!(with, [other, claim(), pool()]);
        let controller = owner("Other", "o", Some(true));
        let with = owners_with(vec![controller.clone()], wanted());
        let shared = owner("IPAddressClaim", "new", Some(false));
        assert_eq!(with, [controller, shared, pool()]);
    }
}
