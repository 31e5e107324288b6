//! IPAddressClaims: each gets an address or a prefix of its pool, and an IPAddress that shows it.
//!
//! ```text
//!  claim --wish--+--> lease --> IPAddress ---+--> status.addressRef
//!                +--> finalizer of the claim -+
//!  claim deleted --> IPAddress goes, or stays for the grace of its pool --> lease released or cooling --> finalizer dropped
//! ```
//!
//! An IPAddress that is there before its claim is what the claim gets: so restores and moves keep addresses (`moved`).

mod brake;
pub mod confirmed;
#[cfg(test)]
mod conformance_tests;
pub mod inventory;
pub mod ip_address;
pub mod left;
#[cfg(test)]
mod marking_tests;
mod moved;
#[cfg(test)]
mod moved_tests;
pub mod observe;
pub mod paused;
pub mod probe;
pub mod status;
pub mod wish;

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Lease, LeaseKey, Ledger, Pool, Tenant};
use fipd_crds::cluster_api::{IPAddressClaim, IPAddressClaimStatus, PoolRef};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};

use super::{
    names::{CLAIM, CLUSTER, RELEASE_ADDRESS, WATCH_FILTER},
    pool::{InClusterView, growth::PoolUsers},
    settings::ClusterApiSettings,
    vip::{
        CapiClusterView,
        leave::{cluster_of, release_or_pass},
    },
};
use crate::{
    controller::{
        Reconciled,
        address_user::{
            AddressController, AddressHooks, AddressUser, Edits, ShownAddress,
            outcome::{AddressOutcome, ShownLease},
            recent_uids::RecentUids,
            refusal::FixedFields,
            settle::{AddressWish, Inheritance, KeptLease, Wished},
        },
        conditions::READY,
        key_locks::KeyLocks,
        kind::Kind,
        queue::Next,
        site::Site,
        store::{Key, Objects, Observed},
        unserved::Unserved,
    },
    host::probe::Prober,
};
use confirmed::ConfirmedAddresses;
use observe::{AddressView, IpClaimView};
use probe::ClaimProbes;

/// The claims of a cluster that fipd serves.
pub struct IpClaims {
    /// The IPAddresses of the cluster.
    pub addresses: Arc<Objects<AddressView>>,
    /// The Clusters that claims name.
    pub clusters: Arc<Objects<CapiClusterView>>,
    /// The pools of each kind of the in-cluster provider.
    pub pools: Vec<(Kind, Arc<Objects<InClusterView>>)>,
    /// IPAddresses that were there before their claims.
    pub confirmed: ConfirmedAddresses,
    /// Claims that another cluster has as well, and that got the finalizer here: no copy brought it.
    marked: RecentUids,
    pub probes: ClaimProbes,
    /// Whoever writes an address into a Cluster, or releases one that it may show, has the lock of the Cluster.
    pub writing: KeyLocks,
    /// Whoever keeps what an IPAddress of another provider shows has the lock of its name.
    keeping: KeyLocks,
}

/// The controller of these claims.
pub type IpClaimController = AddressController<IpClaims>;

impl IpClaims {
    /// Of a cluster with these pools and their users, of which nothing else is known yet.
    pub fn new(
        pools: Vec<(Kind, Arc<Objects<InClusterView>>)>,
        users: &PoolUsers,
        prober: &Prober,
    ) -> Self {
        Self {
            addresses: Arc::clone(&users.addresses),
            clusters: Arc::clone(&users.clusters),
            pools,
            confirmed: ConfirmedAddresses::default(),
            marked: RecentUids::default(),
            probes: ClaimProbes::new(prober),
            writing: KeyLocks::default(),
            keeping: KeyLocks::default(),
        }
    }

    /// What is kept of a claim that is fipd's to serve, or one that may be of a Cluster.
    pub fn view_at(site: &Site, claim: IPAddressClaim) -> Option<IpClaimView> {
        let served = Self::serves(site, &claim);
        // Whoever made it, its name is that of a Cluster's claim.
        let of_cluster = cluster_of(&Key::of(&claim.metadata)).is_some();
        (served || of_cluster).then(|| IpClaimView {
            served,
            ..IpClaimView::of(claim)
        })
    }

    /// The same of one that the watch shows. A claim of another provider needs the name of an IPAddress that is in its grace.
    pub fn view_of(claims: &IpClaimController, claim: IPAddressClaim) -> Option<IpClaimView> {
        let key = Key::of(&claim.metadata);
        let view = Self::view_at(&claims.context.site, claim);
        let there = claims.user.addresses.get(&key);
        if view.is_none() && there.is_some_and(|there| there.grace_ends.is_some()) {
            claims.context.queue.add(key);
        }
        view
    }

    fn serves(site: &Site, claim: &IPAddressClaim) -> bool {
        let settings = site.settings::<ClusterApiSettings>();
        let meta = &claim.metadata;
        let label = meta.labels.as_ref();
        let filter = label.and_then(|labels| labels.get(WATCH_FILTER));
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        settings.covers(namespace, filter.map(String::as_str))
            && wish::sort_of(&claim.spec.pool_ref, settings).is_some()
    }

    /// The pools of the kind of this name.
    pub fn pools_of(&self, kind: &str) -> Option<(Kind, &Objects<InClusterView>)> {
        let mut stores = self.pools.iter();
        let (kind, pools) = stores.find(|(one, _)| one.kind == kind)?;
        Some((*kind, &**pools))
    }

    /// The IPAddress that answers the claim.
    pub fn address_of(&self, key: &Key, pool: &PoolRef) -> Option<Arc<AddressView>> {
        let address = self.addresses.get(key);
        address.filter(|address| address.answers(&key.name, pool))
    }

    /// Whether the Cluster that the claim names owns it, as fipd makes it. After a restore from a backup it has the UID of an earlier
    /// owner.
    fn is_of_cluster(&self, key: &Key, claim: &IpClaimView) -> bool {
        let name = claim.cluster.as_deref().unwrap_or_default();
        let cluster = self.clusters.get(&Key::new(&key.namespace, name));
        cluster.is_some_and(|cluster| claim.is_owned_by(&cluster.meta.uid))
    }

    /// Whether an IPAddress seems to answer the claim, and perhaps the watch only still shows it.
    fn is_unconfirmed(&self, key: &Key, claim: &IpClaimView, there: &AddressView) -> bool {
        there.answers(&key.name, &claim.pool) && !self.confirmed.has(key, claim, there)
    }

    /// The pool that the claim means, once nothing else is in the way.
    fn pool_of(
        &self,
        ledger: &Ledger,
        site: &Site,
        key: &Key,
        claim: &IpClaimView,
    ) -> Result<Arc<Pool>, Unserved> {
        let there = self.addresses.get(key);
        let in_the_way = |other: &Arc<AddressView>| {
            other.grace_ends.is_none() && !other.is_left_to(&claim.meta.uid)
        };
        if let Some(other) = there.filter(in_the_way) {
            let belongs = other.answers(&key.name, &claim.pool);
            let wrong = match (belongs, other.address) {
                (true, Some(_)) => None,
                (true, None) => Some("shows no IP address"),
                (false, _) => Some("belongs to another claim or pool"),
            };
            if let Some(wrong) = wrong {
                let name = &key.name;
                let message = format!(
                    "the IPAddress {name} is there and {wrong}; delete it, and the claim is served"
                );
                return Err(Unserved::new("AddressTaken", message, None));
            }
        }
        wish::pool(ledger, site, &key.namespace, &claim.pool).map_err(|mut why| {
            if let Some(wrong) = self.pool_says(key, &claim.pool) {
                why.message = format!("{}: {wrong}", why.message);
            }
            why
        })
    }

    /// Why a pool object that is there gives nothing, as far as it says so.
    fn pool_says(&self, key: &Key, named: &PoolRef) -> Option<String> {
        let (kind, pools) = self.pools_of(&named.kind)?;
        match pools.seen(&wish::pool_key(kind, &key.namespace, &named.name))? {
            Observed::Malformed(object) => {
                Some(format!("it does not fit its schema: {}", object.error))
            }
            Observed::Parsed(pool) => {
                let mut conditions = pool.status.conditions.iter();
                let ready = conditions.find(|one| one.type_ == READY && one.status == "False")?;
                Some(ready.message.clone())
            }
        }
    }
}

impl AddressUser for IpClaims {
    type Raw = IPAddressClaim;
    type View = IpClaimView;
    type Status = IPAddressClaimStatus;

    const KIND: Kind = CLAIM;
    const METRIC: &'static str = "ipaddressclaim";
    const FINALIZER: &'static str = RELEASE_ADDRESS;
    const FINALIZER_FIRST: bool = false;
    const FINALIZER_BESIDE: bool = true;
    const INHERITS: Inheritance = Inheritance::Wished;
    const EDITS: Edits<IpClaimView> =
        Edits::Refused(|claim| -> FixedFields<'_> { wish::fixed(claim) });
    const OTHERS_ALLOCATE: bool = true;
    const SHOWS_POOL: bool = false;
    const PREFIXES: bool = true;
    const TENANT: &'static str = "tenant";
    const CHARGE_REASON: &'static str = "its cluster goes by another name";

    fn probes(site: &Site) -> bool {
        site.settings::<ClusterApiSettings>().conflict_probe
    }

    fn view(raw: IPAddressClaim) -> IpClaimView {
        IpClaimView::of(raw)
    }

    fn tenant(site: &Site, key: &Key, _: &IpClaimView) -> Option<Tenant> {
        Some(site.tenant_of(&key.namespace))
    }

    fn wish(&self, ledger: &Ledger, site: &Site, key: &Key, claim: &IpClaimView) -> Wished {
        let pool = self.pool_of(ledger, site, key, claim)?;
        let there = self.address_of(key, &claim.pool);
        let there = there.filter(|there| !self.is_unconfirmed(key, claim, there));
        let there = there.and_then(|address| address.address);
        if there.is_none()
            && !self.is_of_cluster(key, claim)
            && !self.marked.has(&claim.meta.uid)
            && let Some(why) = moved::to_come(ledger, site, key, claim, &pool)
        {
            return Err(why);
        }
        let named = match there {
            Some(_) => None,
            None => wish::address(claim)?,
        };
        let kept = there.and_then(|address| kept_by_cluster(ledger, site, key, (&pool, address)));
        Ok(AddressWish {
            recorded: there,
            kept,
            ..AddressWish::new(site.tenant_of(&key.namespace), pool, named)
        })
    }

    fn conditions(claim: &IpClaimView) -> &[Condition] {
        &claim.conditions
    }

    fn shows_address(claim: &IpClaimView) -> bool {
        claim.status.address_ref.is_some()
    }

    /// What its IPAddress says.
    fn shown(
        &self,
        ledger: &Ledger,
        site: &Site,
        key: &Key,
        claim: &IpClaimView,
    ) -> Option<ShownAddress> {
        let there = self.address_of(key, &claim.pool)?;
        inventory::shown(ledger, site, &key.namespace, &there)
    }

    fn last_status(claim: &IpClaimView) -> &IPAddressClaimStatus {
        &claim.status
    }

    fn status(
        claim: &IpClaimView,
        outcome: &AddressOutcome,
        now: jiff::Timestamp,
    ) -> IPAddressClaimStatus {
        status::desired(claim, outcome, now)
    }
}

impl AddressHooks for IpClaims {
    /// A paused claim, or one of a paused Cluster or pool, gets nothing; nor does one whose check has failed a moment ago.
    async fn before(
        claims: &IpClaimController,
        key: &Key,
        claim: &IpClaimView,
    ) -> Reconciled<Option<Next>> {
        ip_address::end_grace(claims, key).await?;
        if !claim.served {
            return left::keep(claims, key).await.map(Some);
        }
        confirmed::confirm(claims, key, claim).await?;
        let Some(why) = paused::in_the_way(claims, key, claim).await? else {
            moved::find_copied(claims, key, claim).await?;
            return probe::waits(claims, key, claim).await;
        };
        claims.keep_recorded(key, claim).await?;
        match Self::shows_address(claim) {
            true => {
                claims.context.waits_for(key, why.cause);
                Ok(Some(Next::Done))
            }
            false => claims.show(key, claim, Err(why), None).await.map(Some),
        }
    }

    async fn probe(
        claims: &IpClaimController,
        key: &Key,
        claim: &IpClaimView,
        lease: &Lease,
    ) -> Reconciled<AddressOutcome> {
        probe::probe(claims, key, claim, lease).await
    }

    fn unchecked(claims: &IpClaimController, shown: &ShownLease) -> Option<String> {
        probe::unchecked(claims, shown)
    }

    /// The IPAddress goes first. A paused claim keeps it.
    async fn before_release(
        claims: &IpClaimController,
        key: &Key,
        claim: &IpClaimView,
    ) -> Reconciled<Option<Next>> {
        if !claim.served {
            return Ok(Some(Next::Done));
        }
        if claim.moves {
            return moved::leave(claims, key, claim).await;
        }
        if let Some(why) = paused::keeps(claims, key, claim).await? {
            let next = why
                .cause
                .as_ref()
                .map_or(Next::Done, |cause| Next::After(cause.ask_again()));
            claims
                .context
                .warn(key, &claim.meta.uid, why.reason, why.message);
            claims.context.waits_for(key, why.cause);
            return Ok(Some(next));
        }
        claims.user.probes.forget(key);
        claims.user.confirmed.forget(key);
        ip_address::retire(claims, key, claim).await?;
        release_or_pass(claims, key, claim).await?;
        Ok(None)
    }

    fn marks(claims: &IpClaimController, key: &Key, claim: &IpClaimView) {
        let site = &claims.context.site;
        let is_elsewhere = |ledger: &Ledger| !moved::elsewhere(ledger, site, key).is_empty();
        if claims.context.read(is_elsewhere) {
            claims.user.marked.note(&claim.meta.uid);
        }
    }

    async fn publish(
        claims: &IpClaimController,
        key: &Key,
        claim: &IpClaimView,
        shown: &ShownLease,
    ) -> Reconciled<Option<Next>> {
        ip_address::publish(claims, key, claim, shown).await
    }

    async fn moved_away(claims: &IpClaimController, key: &Key) -> Reconciled<()> {
        ip_address::remove_of(claims, key).await
    }

    async fn absent(claims: &IpClaimController, key: &Key) -> Reconciled {
        claims.user.probes.forget(key);
        claims.user.confirmed.forget(key);
        ip_address::without_claim(claims, key).await
    }
}

/// What the Cluster of a claim holds: it came before its claim, as `clusterctl move` makes them, and shows the address as well.
fn kept_by_cluster(
    ledger: &Ledger,
    site: &Site,
    key: &Key,
    (pool, address): (&Pool, IpAddr),
) -> Option<KeptLease> {
    let cluster = cluster_of(key)?.identity(site.system.clone(), &site.id, CLUSTER.kind);
    let network = pool.spec.network;
    let lease = ledger.lease_around(LeaseKey { network, address })?;
    Some(KeptLease {
        from: lease.member(&cluster)?.holder.clone(),
        key: lease.key,
        reason: "its claim shows the address as well",
    })
}
