//! Every invariant of the ledger, looked at row by row.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Ledger,
    draft::LockedTable,
    identities,
    index::{contending_clusters, due, groups},
    intern::fingerprint,
    keyset::KeySet,
    maps::above,
    rows_read::CountedRows as _,
    violation::Violation,
};
use crate::{
    ClusterRecord, Family, Lease, LeaseKey, LeaseState, Network, Pool, PoolId, layout::Layout,
};

/// Some rows of a ledger in use, and what is wrong with them.
#[derive(Clone, Debug, Default)]
pub struct CheckedPage {
    /// In key order.
    pub leases: Vec<Arc<Lease>>,
    pub violations: Vec<Violation>,
    /// Ask again from here; `None` at the end.
    pub next: Option<LeaseKey>,
}

impl Ledger {
    /// Checks every invariant; empty when all hold. Looks at every row once.
    pub fn check(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        self.check_rows(&mut found);
        self.check_indexes(&mut found);
        found
    }

    /// Checks the rows alone: what can be wrong in a file.
    pub(super) fn check_rows(&self, found: &mut Vec<Violation>) {
        let mut before = None;
        for (key, lease) in &self.rows.leases {
            self.check_lease(*key, lease, found);
            check_apart(before, lease, found);
            before = Some(lease);
        }
        for pool in self.rows.pools.values() {
            self.check_pool_row(pool, found);
        }
        self.check_quotas(found);
        self.check_memory(found);
        for network in self.rows.networks.values() {
            self.check_network_row(network, found);
        }
        for record in self.rows.clusters.values() {
            self.check_cluster_row(record, found);
        }
    }

    fn check_lease(&self, key: LeaseKey, lease: &Arc<Lease>, found: &mut Vec<Violation>) {
        if lease.key != key {
            found.push(Violation::LeaseUnderOtherKey {
                row: key,
                says: lease.key,
            });
        }
        if !self.rows.networks.contains_key(&key.network) {
            found.push(Violation::UnknownNetwork { lease: key });
        }
        if key.canonical() != key || lease.prefix().is_mapped() {
            found.push(Violation::MappedAddress { lease: key });
        }
        if !lease.prefix().is_aligned() {
            let (lease, length) = (key, lease.length);
            found.push(Violation::HostBits { lease, length });
        }
        match lease.pool {
            Some(pool) => match self.rows.pools.get(&pool) {
                None => found.push(Violation::UnknownPool { lease: key, pool }),
                Some(known) if known.spec.network != key.network => {
                    found.push(Violation::PoolOfOtherNetwork { lease: key, pool });
                }
                Some(known) if known.spec.family() != Some(Family::of(key.address)) => {
                    found.push(Violation::PoolOfOtherFamily { lease: key, pool });
                }
                Some(known) if known.spec.lease_length() != lease.length => {
                    let (lease, length) = (key, lease.length);
                    found.push(Violation::PoolOfOtherLength {
                        lease,
                        pool,
                        length,
                    });
                }
                Some(_) => {}
            },
            None => {
                let around = self.pool_around(lease.prefix());
                found.extend(around.map(|pool| Violation::Unattributed { lease: key, pool }));
            }
        }
        check_holders(lease, found);
    }

    /// Checks a pool.
    pub fn check_pool_row(&self, pool: &Pool, found: &mut Vec<Violation>) {
        let id = pool.id;
        if let Err(error) = Layout::new(&pool.spec) {
            found.push(Violation::InvalidPool {
                pool: id,
                why: error.to_string(),
            });
        }
        let network = pool.spec.network;
        if !self.rows.networks.contains_key(&network) {
            found.push(Violation::PoolInUnknownNetwork { pool: id, network });
        }
        if id >= self.rows.next_pool {
            found.push(Violation::PoolNumber {
                pool: id,
                next: self.rows.next_pool,
            });
        }
        let name = &pool.spec.name;
        let known = self.rows.pool_by_name(name);
        let same = known.is_none_or(|known| known.id != pool.id);
        let mirror = self.rows.mirror_of(&pool.spec.origin);
        if same || mirror.is_some_and(|known| known.id != pool.id) {
            found.push(Violation::SamePoolName {
                name: Arc::clone(name),
            });
        }
        if !self.rows.candidates.has(pool) {
            found.push(Violation::index("pools by scope", format!("pool {}", id.0)));
        }
    }

    /// Checks a network.
    pub fn check_network_row(&self, network: &Network, found: &mut Vec<Violation>) {
        if self.rows.network_by_name(&network.name) != Some(network) {
            found.push(Violation::SameNetworkName {
                name: Arc::clone(&network.name),
            });
        }
        if network.hold.is_some() != self.rows.held_networks.contains(&network.id) {
            found.push(Violation::index("held networks", &network.name));
        }
    }

    /// Checks the names of a cluster.
    pub fn check_cluster_row(&self, record: &ClusterRecord, found: &mut Vec<Violation>) {
        for name in &record.names {
            let known = self.rows.cluster_by_name(name).map(|known| &known.id);
            if known != Some(&record.id) {
                let clusters = known.into_iter().chain([&record.id]).cloned().collect();
                found.push(Violation::SameClusterName {
                    name: Arc::clone(name),
                    clusters,
                });
            }
        }
    }

    /// Checks the leases above `after` and what is kept beside them: at most [`Ledger::SCAN`] rows, so that a ledger
    /// in use is not held up. Without what can only be counted over all of them.
    pub fn check_page(&self, after: Option<LeaseKey>) -> CheckedPage {
        let rows = above(&self.rows.leases, after.as_ref());
        let mut page = CheckedPage::default();
        let mut before = after.and_then(|after| self.rows.leases.get(&after));
        for (key, lease) in rows.take(Self::SCAN).counted() {
            self.check_lease(*key, lease, &mut page.violations);
            self.check_index(*key, lease, &mut page.violations);
            check_apart(before, lease, &mut page.violations);
            before = Some(lease);
            page.leases.push(Arc::clone(lease));
            page.next = Some(*key);
        }
        if page.leases.len() < Self::SCAN {
            page.next = None;
        }
        page
    }

    /// Checks the queues of pools above `after`, as many as at most [`Ledger::SCAN`] wait in; the pool to go on from, `None` at
    /// the end. Of a longer queue only so many are looked at.
    pub fn check_queues_page(&self, after: Option<PoolId>) -> (Vec<Violation>, Option<PoolId>) {
        let (mut found, mut last, mut looked) = (Vec::new(), None, 0);
        for (pool, waiting) in self.waiters.lengths_after(after) {
            looked += waiting.min(Self::SCAN);
            if looked > Self::SCAN {
                return (found, last);
            }
            if !self.waiters.consistent_in(pool, Self::SCAN) {
                found.push(Violation::index("waiters", format!("pool {}", pool.0)));
            }
            last = Some(pool);
        }
        (found, None)
    }

    fn check_candidates(&self, found: &mut Vec<Violation>) {
        if !self.rows.candidates.are_of(&self.rows.pools) {
            found.push(Violation::index("pools by scope", "the pools"));
        }
    }

    fn check_waiters(&self, found: &mut Vec<Violation>) {
        if !self.waiters.consistent() {
            found.push(Violation::index("waiters", "the queues"));
        }
    }

    /// What is kept beside a lease says what the lease says; how many entries of the indexes are its.
    fn check_index(
        &self,
        key: LeaseKey,
        lease: &Arc<Lease>,
        found: &mut Vec<Violation>,
    ) -> (usize, usize) {
        let mut broken = |what| found.push(Violation::index(what, key.address));
        if self.free.is_free(lease.prefix()) {
            broken("free addresses");
        }
        let prints: BTreeSet<u64> = identities(lease).map(fingerprint).collect();
        let entries = prints.len();
        for print in prints {
            if !self.index.identities.has(print, key) {
                broken("identities");
            }
        }
        let filed = match lease.pool {
            Some(pool) => (self.index.of_pool(pool)).is_some_and(|keys| keys.contains(key)),
            None => self.index.poolless.contains(key),
        };
        if !filed || self.index.contended.contains(key) == lease.contenders.is_empty() {
            broken("leases by pool");
        }
        if !self.index.files_contenders(lease) {
            broken("contenders by cluster");
        }
        if !self.index.due.has(lease) {
            broken("ends of leases");
        }
        let cools = self.index.cooling.has(key);
        if cools != (lease.state == LeaseState::Quarantined) {
            broken("quarantined leases");
        }
        if !self.index.groups.has(lease) {
            broken("sharing groups");
        }
        let contending = contending_clusters(lease).collect::<BTreeSet<_>>().len();
        (entries, contending)
    }

    /// What is kept beside the rows says what the rows say.
    fn check_indexes(&self, found: &mut Vec<Violation>) {
        let (mut entries, mut contending) = (0, 0);
        for (key, lease) in &self.rows.leases {
            let (of_identities, of_clusters) = self.check_index(*key, lease, found);
            entries += of_identities;
            contending += of_clusters;
        }
        let mut broken = |what, row: String| found.push(Violation::Index { what, row });
        if contending != self.index.contending_entries() {
            broken("contenders by cluster", format!("{contending} entries"));
        }
        let leases = self.rows.leases.values();
        let due = leases.filter_map(|lease| due::end(lease));
        if due.count() != self.index.due.len() {
            broken("ends of leases", "their number".to_owned());
        }
        let leases = self.rows.leases.values();
        let shared = leases.filter(|lease| groups::joinable(lease).is_some());
        if shared.count() != self.index.groups.len() {
            broken("sharing groups", "their number".to_owned());
        }
        for id in self.rows.pools.keys() {
            let keys = self.index.of_pool(*id).into_iter().flat_map(KeySet::iter);
            let leases = keys.filter_map(|key| self.rows.leases.get(&key));
            let cooling = leases.filter(|lease| lease.state == LeaseState::Quarantined);
            if cooling.count() as u64 != self.index.cooling.count(*id) {
                broken("quarantined leases", format!("pool {}", id.0));
            }
        }
        let leases = self.rows.leases.values();
        let cooling = leases.filter(|lease| lease.state == LeaseState::Quarantined);
        if cooling.count() != self.index.cooling.len() {
            broken("quarantined leases", "their number".to_owned());
        }
        if entries != self.index.identities.len() {
            broken("identities", format!("{entries} entries"));
        }
        let in_flight = !self.drafts.is_empty() || self.drafts.locks_table(LockedTable::Pools);
        if !self.free.consistent(&self.rows.leases, in_flight) {
            broken("free addresses", "the pools' counters".to_owned());
        }
        if !self.charges_follow() {
            broken("charges of tenants", "the counts".to_owned());
        }
        self.check_waiters(found);
        self.check_candidates(found);
    }
}

/// No address has two leases.
fn check_apart(before: Option<&Arc<Lease>>, lease: &Lease, found: &mut Vec<Violation>) {
    let over = before.filter(|before| {
        before.key.network == lease.key.network && before.span().overlaps(&lease.span())
    });
    found.extend(over.map(|before| Violation::Overlap {
        lease: lease.key,
        other: before.prefix(),
    }));
}

fn check_holders(lease: &Lease, found: &mut Vec<Violation>) {
    let (key, state, members) = (lease.key, lease.state, lease.members.len());
    if (members == 0) != (state == LeaseState::Quarantined) {
        found.push(Violation::Members {
            lease: key,
            state,
            members,
        });
    }
    if lease.group.is_none() && members > 1 {
        found.push(Violation::NotShared {
            lease: key,
            members,
        });
    }
    if let Err((value, allowed)) = lease.check_labels() {
        let why = format!("{value:?} is not allowed: {allowed}");
        found.push(Violation::Labels { lease: key, why });
    }
    let mut ports = BTreeSet::new();
    for claim in lease.members.iter().flat_map(|member| &member.ports) {
        if !ports.insert(claim) {
            found.push(Violation::SamePortTwice {
                lease: key,
                port: *claim,
            });
        }
    }
    let mut seen = BTreeSet::new();
    let several = members + lease.contenders.len() > 1;
    for identity in identities(lease).filter(|_| several) {
        if !seen.insert(identity) {
            found.push(Violation::SameIdentityTwice {
                lease: key,
                identity: identity.to_string(),
            });
        }
    }
    if !lease.contenders.is_sorted_by_key(|one| one.since) {
        found.push(Violation::ContendersOutOfOrder { lease: key });
    }
    let wrong = (lease.contenders.iter()).find(|one| !one.is_sound(lease.prefix()));
    found.extend(wrong.map(|one| Violation::ContenderUses {
        lease: key,
        identity: one.holder.identity.to_string(),
    }));
    let fits = match state {
        LeaseState::Allocated | LeaseState::Orphaned => lease.until.is_none(),
        LeaseState::Probing | LeaseState::Quarantined => lease.until.is_some(),
        LeaseState::Reserved => true,
    };
    if !fits {
        found.push(Violation::Until { lease: key, state });
    }
}
