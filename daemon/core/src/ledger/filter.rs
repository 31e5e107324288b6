//! Pages of leases.

use std::{
    fmt::{Display, Write as _},
    net::{IpAddr, Ipv4Addr},
    ops::Bound,
    sync::Arc,
};

use super::{Ledger, intern::fingerprint, rows_read::count};
use crate::{
    ClusterId, Identity, LabelWanted, Lease, LeaseKey, LeaseState, Mark, NetworkId, PoolId, Scope,
    Span, System, Tenant, Text, layout::rounded,
};

/// Which leases to show; empty fields match all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseFilter {
    pub network: Option<NetworkId>,
    pub pool: Option<PoolId>,
    pub state: Option<LeaseState>,
    pub system: Option<System>,
    pub cluster: Option<ClusterId>,
    pub namespace: Option<Text>,
    /// Leases of which this is a member.
    pub owner: Option<Identity>,
    /// The lease of this address, not an IPv4-mapped one, or of the prefix around it.
    pub address: Option<IpAddr>,
    /// Leases that have all of these addresses.
    pub containing: Option<Span>,
    /// Leases on these addresses; of prefixes those that are whole in them.
    pub within: Option<Span>,
    pub tenant: Option<Tenant>,
    /// All of these.
    pub labels: Vec<LabelWanted>,
    /// Only leases that others use, too.
    pub contended: bool,
    /// Only leases that no open pool of their network has the address of.
    pub out_of_range: bool,
    /// Part of the address or of an owner's text.
    pub text: Option<Text>,
    pub scope: Scope,
}

/// Some leases in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeasePage {
    pub leases: Vec<Arc<Lease>>,
    /// Ask again from here; `None` at the end. There may be a next page after an empty one.
    pub next: Option<LeaseKey>,
}

impl Ledger {
    /// Leases in key order after `after`, at most `limit`; looks at no more than [`Ledger::SCAN`] rows, and at none
    /// outside of what the filter's owner is known for, of what is contended, of its pool, or of its addresses and network.
    /// A network whose leases on the addresses were all looked at is a row as well.
    pub fn leases(&self, filter: &LeaseFilter, after: Option<LeaseKey>, limit: usize) -> LeasePage {
        let row = |key| Some((key, Some(self.rows.leases.get(&key)?)));
        if let Some(owner) = &filter.owner {
            let keys = self.index.identities.of(fingerprint(owner), after);
            return self.page(&mut keys.filter_map(row), filter, limit);
        }
        if filter.contended {
            let keys = self.index.contended.after(after);
            return self.page(&mut keys.filter_map(row), filter, limit);
        }
        if let Some(pool) = filter.pool {
            let keys = self.index.of_pool(pool).into_iter();
            let keys = keys.flat_map(|keys| keys.after(self.before(filter, after)));
            let mut rows = keys
                .filter_map(row)
                .take_while(|(key, _)| !filter.is_past(*key));
            return self.page(&mut rows, filter, limit);
        }
        if let Some(span) = filter.span() {
            let networks = match (filter.network, after) {
                (Some(id), _) => self.rows.networks.range(id..=id),
                (None, Some(after)) => self.rows.networks.range(after.network..),
                (None, None) => self.rows.networks.range(..),
            };
            let mut rows = networks.flat_map(|(id, _)| self.rows_within(*id, span, after));
            return self.page(&mut rows, filter, limit);
        }
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let address = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let first = filter.network.map(|network| LeaseKey { network, address });
        let from = match (from, first) {
            (Bound::Excluded(after), Some(first)) if after >= first => Bound::Excluded(after),
            (_, Some(first)) => Bound::Included(first),
            (from, None) => from,
        };
        let rows = self.rows.leases.range((from, Bound::Unbounded));
        let rows = rows.map(|(key, lease)| (*key, Some(lease)));
        let mut rows = rows.take_while(|(key, _)| is(filter.network, key.network));
        self.page(&mut rows, filter, limit)
    }

    /// The first of `rows` that match.
    fn page<'a>(
        &'a self,
        rows: &mut dyn Iterator<Item = (LeaseKey, Option<&'a Arc<Lease>>)>,
        filter: &LeaseFilter,
        limit: usize,
    ) -> LeasePage {
        let mut page = LeasePage::default();
        let (mut last, mut scanned, mut text) = (None, 0, String::new());
        let out_of_range = |lease: &Lease| self.marks(lease).contains(&Mark::OutOfRange);
        for (key, lease) in rows {
            if scanned >= Self::SCAN || (page.leases.len() >= limit && lease.is_some()) {
                page.next = last;
                break;
            }
            scanned += 1;
            count(1);
            last = Some(key);
            let matches = |lease: &&Arc<Lease>| {
                filter.matches(lease, &mut text) && (!filter.out_of_range || out_of_range(lease))
            };
            page.leases.extend(lease.filter(matches).cloned());
        }
        page
    }

    /// Leases of the network that have any of the span's addresses, after `after`, and then the network itself.
    fn rows_within(
        &self,
        network: NetworkId,
        span: Span,
        after: Option<LeaseKey>,
    ) -> impl Iterator<Item = (LeaseKey, Option<&Arc<Lease>>)> {
        let (first, last) = LeaseKey::within(network, span).into_inner();
        let around = self.lease_around(first).map(|lease| lease.key);
        let first = around.unwrap_or(first);
        let from = match after {
            Some(after) if after >= first => Bound::Excluded(after),
            Some(_) | None => Bound::Included(first),
        };
        let some = after.is_none_or(|after| after < last);
        let rows = some.then(|| self.rows.leases.range((from, Bound::Included(last))));
        let rows = rows.into_iter().flatten();
        rows.map(|(key, lease)| (*key, Some(lease)))
            .chain([(last, None)])
    }

    /// The key after which leases of the filter's pool on its addresses begin.
    fn before(&self, filter: &LeaseFilter, after: Option<LeaseKey>) -> Option<LeaseKey> {
        let pool = filter.pool.and_then(|id| self.rows.pools.get(&id));
        let start = pool.zip(filter.span()).and_then(|(pool, span)| {
            let first = rounded(span, pool.spec.lease_length()).first;
            Some(LeaseKey {
                network: pool.spec.network,
                address: span.family.address(first.checked_sub(1)?),
            })
        });
        after.max(start)
    }
}

impl LeaseFilter {
    /// All wanted addresses are in it.
    fn span(&self) -> Option<Span> {
        // Only one lease has the first of the addresses that it is to contain.
        let first = self.containing.map(|span| span.first_address());
        let address = self.address.or(first).map(Span::single);
        address.or(self.within)
    }

    /// Whether all leases of one network from this one on are beyond the addresses.
    fn is_past(&self, key: LeaseKey) -> bool {
        let last = self.span().map(|span| LeaseKey {
            network: key.network,
            address: span.last_address(),
        });
        last.is_some_and(|last| key > last)
    }

    /// Whether the lease is to be shown. What is looked for in its address and owners is written to `text`.
    fn matches(&self, lease: &Lease, text: &mut String) -> bool {
        let key = lease.key;
        let owner = |test: &dyn Fn(&Identity) -> bool| lease.owners().any(test);
        let of_system = |system: &System| owner(&|one| one.system == *system);
        let of_cluster = |cluster: &ClusterId| owner(&|one| one.cluster.as_ref() == Some(cluster));
        let of_namespace = |name: &Text| owner(&|one| one.namespace == *name);
        is(self.network, key.network)
            && (self.pool.is_none() || self.pool == lease.pool)
            && is(self.state, lease.state)
            && self.system.as_ref().is_none_or(of_system)
            && self.cluster.as_ref().is_none_or(of_cluster)
            && self.namespace.as_ref().is_none_or(of_namespace)
            && self.owner.as_ref().is_none_or(|one| lease.held_by(one))
            && self
                .address
                .is_none_or(|address| lease.span().contains(address))
            && self
                .containing
                .is_none_or(|span| lease.span().covers(&span))
            && self.within.is_none_or(|span| span.covers(&lease.span()))
            && (self.tenant.is_none() || self.tenant == lease.tenant)
            && lease.labels.fit(&self.labels)
            && (!self.contended || !lease.contenders.is_empty())
            && self.scope.has_lease(lease)
            && (self.text.as_deref()).is_none_or(|part| shows(lease, part, text))
    }
}

/// Whether it is what is wanted, if anything is.
fn is<T: PartialEq>(wanted: Option<T>, found: T) -> bool {
    wanted.is_none_or(|wanted| wanted == found)
}

/// Whether the part is in the lease's address or in an owner's text; they are written to `text`, one after the other.
fn shows(lease: &Lease, part: &str, text: &mut String) -> bool {
    let mut owners = lease.owners();
    // Writing to a string cannot fail.
    let mut is_in = |what: &dyn Display| {
        text.clear();
        write!(text, "{what}").is_ok() && text.contains(part)
    };
    let of_address = |one: char| one.is_ascii_hexdigit() || matches!(one, '.' | ':' | '/');
    (part.chars().all(of_address) && is_in(&lease.prefix())) || owners.any(|owner| is_in(owner))
}
