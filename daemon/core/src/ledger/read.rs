//! Reading the committed view.

use std::{net::IpAddr, sync::Arc};

use smallvec::SmallVec;

use super::{
    Change, Ledger, TooOld,
    intern::fingerprint,
    keyset::KeySet,
    maps::above,
    rows_read::{CountedRows as _, count},
    space::{free::touching, segments::PoolPart},
    usage::PoolUsage,
};
use crate::{
    Account, Adoption, ClusterId, ClusterRecord, Hold, Identity, Lease, LeaseKey, LeasePrefix,
    LeaseState, Mark, Network, NetworkId, Pool, PoolId, SigningKey, Span, System, Text, Timestamp,
    Token, TokenId, layout,
};

impl Ledger {
    /// Rows that one call of [`Ledger::leases`] looks at, at the most.
    pub const SCAN: usize = 1_000;

    /// Grows with each change.
    pub fn revision(&self) -> u64 {
        self.changes.revision()
    }

    /// The first `most` changes after `revision`.
    pub fn changes_page(&self, revision: u64, most: usize) -> Result<Vec<Arc<Change>>, TooOld> {
        let changes = self.changes.since(revision, most)?;
        count(changes.len());
        Ok(changes)
    }

    /// When [`crate::Request::Expire`] has something to do; `None` while nothing has an end.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.index.due.first()
    }

    pub fn networks(&self) -> impl ExactSizeIterator<Item = &Network> {
        self.rows.networks.values().counted()
    }

    /// Networks by id, after `after`.
    pub fn networks_after(&self, after: Option<NetworkId>) -> impl Iterator<Item = &Network> {
        let rows = above(&self.rows.networks, after.as_ref());
        rows.map(|(_, network)| network).counted()
    }

    pub fn network(&self, id: NetworkId) -> Option<&Network> {
        self.rows.networks.get(&id)
    }

    pub fn network_by_name(&self, name: &str) -> Option<&Network> {
        self.rows.network_by_name(name)
    }

    /// All pools, by id.
    pub fn pools(&self) -> impl ExactSizeIterator<Item = &Arc<Pool>> {
        self.rows.pools.values().counted()
    }

    /// Pools by id, after `after`.
    pub fn pools_after(&self, after: Option<PoolId>) -> impl Iterator<Item = &Arc<Pool>> {
        let rows = above(&self.rows.pools, after.as_ref());
        rows.map(|(_, pool)| pool).counted()
    }

    /// Above all numbers that pools have or had.
    pub fn next_pool(&self) -> PoolId {
        self.rows.next_pool
    }

    pub fn pool(&self, id: PoolId) -> Option<&Arc<Pool>> {
        self.rows.pools.get(&id)
    }

    /// The pool that follows this object of a cluster.
    pub fn mirror(&self, system: &System, cluster: &ClusterId, object: &str) -> Option<&Arc<Pool>> {
        self.rows.mirror(system, cluster, object)
    }

    /// The pools whose link's subnet has the address, by subnet and id; at most [`Ledger::SCAN`].
    pub fn pools_on_link(&self, address: IpAddr) -> impl Iterator<Item = &Arc<Pool>> {
        let found = self.rows.subnets.around(address).take(Self::SCAN);
        found.filter_map(|id| self.rows.pools.get(&id)).counted()
    }

    /// The pool that the address is attributed to, where it is one to be allocated.
    pub fn pool_in_range(&self, key: LeaseKey) -> Option<&Arc<Pool>> {
        let in_range = self.free.stabs(key).any(|part| part.in_range());
        let parts = self.free.stabs(key).filter(|_| in_range);
        let around = parts.filter_map(|part| self.attribution_rank(&part)).min();
        around.and_then(|(.., pool)| self.rows.pools.get(&pool))
    }

    pub fn usage(&self, id: PoolId) -> Option<PoolUsage> {
        let room = self.free.room(id)?;
        let attributed = self.index.of_pool(id).map_or(0, KeySet::len);
        Some(PoolUsage::of(
            room,
            attributed,
            self.index.cooling.count(id),
        ))
    }

    pub fn lease(&self, key: LeaseKey) -> Option<&Arc<Lease>> {
        self.rows.leases.get(&key)
    }

    /// The lowest lease that has any of it.
    pub fn lease_over(&self, prefix: LeasePrefix) -> Option<&Arc<Lease>> {
        self.lease_in(prefix.key.network, prefix.span())
    }

    /// The lowest lease that has an address of the span.
    pub(super) fn lease_in(&self, network: NetworkId, span: Span) -> Option<&Arc<Lease>> {
        let mut rows = touching(&self.rows.leases, network, span, |lease| lease.length);
        rows.next().map(|(_, lease)| lease)
    }

    /// The lease of the address, or of the prefix around it.
    pub fn lease_around(&self, key: LeaseKey) -> Option<&Arc<Lease>> {
        self.lease_over(key.whole())
    }

    /// How many leases of the pool cool, and when the first of them ends; `None` also where very many others end before.
    pub(super) fn cooling_of(&self, pool: PoolId) -> Option<(u128, Timestamp)> {
        let count = Some(self.index.cooling.count(pool)).filter(|count| *count > 0)?;
        let mut ends = self.index.due.soonest().take(Self::SCAN);
        let (first, _) = ends.find(|(_, key)| {
            let lease = self.rows.leases.get(key);
            lease.is_some_and(|lease| {
                lease.pool == Some(pool) && lease.state == LeaseState::Quarantined
            })
        })?;
        Some((count.into(), first))
    }

    /// Quarantined leases of the address, by network.
    pub fn quarantined_at(&self, address: IpAddr) -> impl Iterator<Item = &Arc<Lease>> {
        let keys = self.index.cooling.at(address.to_canonical());
        keys.filter_map(|key| self.rows.leases.get(&key)).counted()
    }

    /// What a reader should know about the lease.
    pub fn marks(&self, lease: &Lease) -> SmallVec<[Mark; 2]> {
        let mut marks = SmallVec::new();
        let mut parts = self.free.stab(lease.prefix()).iter();
        if !parts.any(PoolPart::in_range) {
            marks.push(Mark::OutOfRange);
        }
        if !lease.contenders.is_empty() {
            marks.push(Mark::Contended);
        }
        marks
    }

    /// The prefix length to be handed out with the lease: its pool's, else that of its subnet, else that of the
    /// outermost CIDR around the address, else 32 or 128.
    pub fn prefix_len(&self, lease: &Lease) -> u8 {
        let pool = lease
            .pool
            .and_then(|id| Some((self.rows.pools.get(&id)?, self.free.room(id)?)));
        match pool {
            Some((pool, room)) => layout::prefix_len(&pool.spec, &room.layout, lease.key.address),
            None => lease.length,
        }
    }

    /// Leases attributed to the pool, in address order, after `after`.
    pub fn pool_leases(
        &self,
        pool: PoolId,
        after: Option<IpAddr>,
        limit: usize,
    ) -> Vec<Arc<Lease>> {
        let network = self
            .rows
            .pools
            .get(&pool)
            .map_or(NetworkId::DEFAULT, |pool| pool.spec.network);
        let after = after.map(|address| LeaseKey { network, address });
        let keys = self.index.of_pool(pool).into_iter();
        keys.flat_map(|keys| keys.after(after))
            .filter_map(|key| self.rows.leases.get(&key).cloned())
            .take(limit)
            .counted()
            .collect()
    }

    /// Leases that have addresses of `span` in the pool's network, whatever pool they are of.
    pub fn pool_range(&self, pool: PoolId, span: Span, limit: usize) -> Vec<Arc<Lease>> {
        let Some(pool) = self.rows.pools.get(&pool) else {
            return Vec::new();
        };
        let (rows, network) = (&self.rows.leases, pool.spec.network);
        let rows = touching(rows, network, span, |lease| lease.length).take(limit);
        rows.counted().map(|(_, lease)| Arc::clone(lease)).collect()
    }

    /// Leases of which the identity is a member, in key order: all at once, so for one that has few.
    pub fn leases_of(&self, identity: &Identity) -> Vec<Arc<Lease>> {
        let mut leases = self.leases_with(identity, None, usize::MAX);
        leases.retain(|lease| lease.held_by(identity));
        leases
    }

    /// The same without prefixes, which nothing that uses an address can show.
    pub fn addresses_of(&self, identity: &Identity) -> Vec<Arc<Lease>> {
        let mut leases = self.leases_of(identity);
        leases.retain(|lease| lease.prefix().is_address());
        leases
    }

    /// Leases of which the identity is a contender, in key order: all at once, so for one that has few.
    pub fn contentions_of(&self, identity: &Identity) -> Vec<Arc<Lease>> {
        let mut leases = self.leases_with(identity, None, usize::MAX);
        leases.retain(|lease| lease.contender(identity).is_some());
        leases
    }

    /// Leases in which the identity is a member or contender, in key order, after `after`.
    pub fn leases_with(
        &self,
        identity: &Identity,
        after: Option<LeaseKey>,
        limit: usize,
    ) -> Vec<Arc<Lease>> {
        let keys = self.index.identities.of(fingerprint(identity), after);
        keys.filter_map(|key| self.rows.leases.get(&key))
            .filter(|lease| super::identities(lease).any(|known| known == identity))
            .take(limit)
            .counted()
            .cloned()
            .collect()
    }

    /// Leases with a member of the cluster (and system), in key order, after `after`.
    pub fn cluster_leases(
        &self,
        cluster: &ClusterId,
        system: Option<&System>,
        after: Option<LeaseKey>,
        limit: usize,
    ) -> Vec<Arc<Lease>> {
        let keys = self.index.of_cluster(cluster, system, after, limit);
        keys.iter()
            .counted()
            .filter_map(|key| self.rows.leases.get(key).cloned())
            .collect()
    }

    /// How many leases have a member of the cluster (and system).
    pub fn cluster_lease_count(&self, cluster: &ClusterId, system: Option<&System>) -> usize {
        self.index.count_of_cluster(cluster, system)
    }

    /// How many quotas there are.
    pub fn quota_count(&self) -> usize {
        self.rows.quotas.len()
    }

    /// Leases with contenders, in key order.
    pub fn contentions(&self) -> impl Iterator<Item = &Arc<Lease>> {
        self.index
            .contended
            .iter()
            .counted()
            .filter_map(|key| self.rows.leases.get(&key))
    }

    /// Leases with a contender of the cluster, in key order, after `after`.
    pub fn contended_by(
        &self,
        cluster: &ClusterId,
        after: Option<LeaseKey>,
        limit: usize,
    ) -> Vec<Arc<Lease>> {
        let keys = self.index.contending(cluster).into_iter();
        keys.flat_map(|keys| keys.after(after))
            .take(limit)
            .counted()
            .filter_map(|key| self.rows.leases.get(&key).cloned())
            .collect()
    }

    /// How many pools the network has.
    pub fn pool_count(&self, network: NetworkId) -> usize {
        self.rows.pool_count(network)
    }

    /// All known clusters, by id.
    pub fn clusters(&self) -> impl ExactSizeIterator<Item = &ClusterRecord> {
        self.rows.clusters.values().counted()
    }

    /// Clusters by id, after `after`.
    pub fn clusters_after(
        &self,
        after: Option<&ClusterId>,
    ) -> impl Iterator<Item = &ClusterRecord> {
        let rows = above(&self.rows.clusters, after);
        rows.map(|(_, record)| record).counted()
    }

    pub fn cluster(&self, id: &ClusterId) -> Option<&ClusterRecord> {
        self.rows.clusters.get(id)
    }

    pub fn cluster_by_name(&self, name: &str) -> Option<&ClusterRecord> {
        self.rows.cluster_by_name(name)
    }

    /// Why the network gives nothing new yet; empty when it does.
    pub fn holds(&self, network: NetworkId) -> &[Hold] {
        self.gate.holds(network)
    }

    /// How many networks give nothing new yet.
    pub fn held_networks(&self) -> usize {
        self.gate.held_networks()
    }

    /// Whether the network has adopted the system of the cluster, or an admin skipped that.
    pub fn adopted(&self, network: NetworkId, cluster: &ClusterId, system: &System) -> bool {
        self.adoption(network, &cluster.0, system).is_some()
    }

    /// Whether the network has adopted the system of the cluster from a complete list. An admin's skip only opens
    /// the gate: what the cluster uses is still to be taken in when it comes back.
    pub fn truly_adopted(&self, network: NetworkId, cluster: &ClusterId, system: &System) -> bool {
        let marker = self.adoption(network, &cluster.0, system);
        marker.is_some_and(|marker| !marker.skipped)
    }

    /// The marker of one system of a cluster, by the cluster's id as text or by `name:NAME`.
    pub fn adoption(
        &self,
        network: NetworkId,
        cluster: &str,
        system: &System,
    ) -> Option<&Adoption> {
        self.rows.adoption(network, cluster, system)
    }

    /// The head of the pool's queue, oldest first.
    pub fn waiters(&self, pool: PoolId, limit: usize) -> Vec<(Timestamp, Identity)> {
        self.waiters
            .of_pool(pool)
            .take(limit)
            .counted()
            .map(|(place, _)| place.clone())
            .collect()
    }

    /// How many wait for an address of the pool.
    pub fn waiter_count(&self, pool: PoolId) -> usize {
        self.waiters.count(pool)
    }

    /// Whether the identity has a place in the queue of another pool than these.
    pub fn waits_elsewhere(&self, identity: &Identity, pools: &[PoolId]) -> bool {
        let mut places = self.waiters.pools_of(identity);
        places.any(|pool| !pools.contains(&pool))
    }

    /// Whom to ask again: the head of the queue, as many as there are free addresses for, oldest first, at most `most`.
    pub fn ready_waiters(&self, pool: PoolId, most: usize) -> Vec<Identity> {
        let mut free = self.usage(pool).map_or(0, |usage| usage.free);
        let mut fits = |need: u128| {
            let fits = need <= free;
            free = free.saturating_sub(need);
            fits
        };
        self.waiters
            .of_pool(pool)
            .take_while(|(_, waiter)| fits(waiter.need))
            .take(most)
            .counted()
            .map(|((_, identity), _)| identity.clone())
            .collect()
    }

    pub fn accounts(&self) -> impl ExactSizeIterator<Item = &Account> {
        self.rows.accounts.values().counted()
    }

    /// Accounts by name, after `after`.
    pub fn accounts_after(&self, after: Option<&str>) -> impl Iterator<Item = &Account> {
        let rows = above(&self.rows.accounts, after);
        rows.map(|(_, account)| account).counted()
    }

    pub fn account(&self, name: &str) -> Option<&Account> {
        self.rows.accounts.get(name)
    }

    pub fn tokens(&self) -> impl ExactSizeIterator<Item = &Token> {
        self.rows.tokens.values().counted()
    }

    /// Tokens by id, after `after`.
    pub fn tokens_after(&self, after: Option<TokenId>) -> impl Iterator<Item = &Token> {
        let rows = above(&self.rows.tokens, after.as_ref());
        rows.map(|(_, token)| token).counted()
    }

    /// The key that signs.
    pub fn signing_key(&self) -> Option<&SigningKey> {
        let mut keys = self.rows.keys.values().rev();
        keys.find(|key| key.until.is_none())
    }

    /// Keys by number.
    pub fn keys(&self) -> impl Iterator<Item = &SigningKey> {
        self.rows.keys.values().counted()
    }

    pub fn token(&self, id: TokenId) -> Option<&Token> {
        self.rows.tokens.get(&id)
    }

    /// Leases in which the identity, whose fingerprint is known, is a member or contender, in key order.
    pub(super) fn printed_leases(
        &self,
        fingerprint: u64,
        identity: &Identity,
    ) -> impl Iterator<Item = &Arc<Lease>> {
        self.index
            .identities
            .of(fingerprint, None)
            .counted()
            .filter_map(|key| self.rows.leases.get(&key))
            .filter(move |lease| super::identities(lease).any(|known| known == identity))
    }

    pub(super) fn network_name(&self, network: NetworkId) -> Text {
        let network = self.rows.networks.get(&network);
        network.map_or_else(|| Text::from("?"), |network| Arc::clone(&network.name))
    }
}
