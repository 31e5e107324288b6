//! Ranges that load balancers in clusters draw from, and what fipd's pools have in common with them.
//!
//! A range is no use of an address: it holds nothing back, and is only shown at the pool. What its load balancer allocates from
//! it is seen as a sighting.

use std::{mem, net::IpAddr, sync::Arc};

use fipd_core::{LeaseKey, Pool, Span, Text};
use tokio::sync::watch;

use super::{ClusterSession, Clusters};

/// The condition of pools whose addresses load balancers in clusters of their network may allocate as well.
pub const SHARED_RANGE: &str = "SharedRange";
/// The reason of [`SHARED_RANGE`].
pub const OTHER_LOAD_BALANCER: &str = "OtherLoadBalancer";
/// Ranges that the condition names.
const NAMED: usize = 3;

/// Addresses that a load balancer in a cluster allocates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignRange {
    /// Kind, namespace and name: `IPAddressPool metallb-system/public`.
    pub object: Text,
    pub span: Span,
}

/// Addresses of a pool that a load balancer allocates as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRange {
    pub cluster: Text,
    pub object: Text,
    pub first: IpAddr,
    pub last: IpAddr,
}

/// `10.0.0.4-10.0.0.7 with IPAddressPool metallb-system/public of cluster edge`.
impl std::fmt::Display for SharedRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, last) = (self.first, self.last);
        write!(
            f,
            "{first}-{last} with {} of cluster {}",
            self.object, self.cluster
        )
    }
}

impl ClusterSession {
    /// Shows what load balancers of the cluster draw from.
    pub fn show_ranges(&self, ranges: Vec<ForeignRange>) {
        let told = &self.shared.ranges;
        if told.send_if_modified(|shown| mem::replace(shown, ranges.into()) != *shown) {
            self.clusters.ranges_changed();
        }
    }
}

impl Clusters {
    pub(super) fn ranges_changed(&self) {
        self.0.range_changes.send_modify(|count| *count += 1);
    }

    /// Changes whenever a cluster has other ranges.
    pub fn range_changes(&self) -> watch::Receiver<u64> {
        self.0.range_changes.subscribe()
    }

    /// Calls `then` whenever a cluster has other ranges. Does not end.
    pub async fn follow_ranges(&self, then: impl Fn()) {
        let mut changes = self.range_changes();
        while changes.changed().await.is_ok() {
            then();
        }
        std::future::pending().await
    }

    /// The message of the condition [`SHARED_RANGE`]; `None`: no load balancer allocates addresses of the pool.
    pub fn shared_range_note(&self, pool: &Pool) -> Option<String> {
        let ranges = self.shared_ranges(pool, NAMED + 1);
        let texts: Vec<String> = ranges.iter().take(NAMED).map(ToString::to_string).collect();
        let more = if ranges.len() > NAMED {
            " and more"
        } else {
            ""
        };
        (!texts.is_empty()).then(|| {
            format!(
                "other load balancers may allocate the same addresses: {}{more}; exclude them here or there",
                texts.join(", ")
            )
        })
    }

    /// What load balancers of the clusters in its network may allocate of a pool; the first `most`.
    pub fn shared_ranges(&self, pool: &Pool, most: usize) -> Vec<SharedRange> {
        let network = pool.spec.network;
        let mut sessions = self.sessions();
        sessions.retain(|session| session.mapped_networks().contains(&network));
        sessions.sort_by(|one, other| one.name.cmp(&other.name));
        let ranges: Vec<(Text, Arc<[ForeignRange]>)> = sessions
            .iter()
            .map(|one| {
                (
                    Text::clone(&one.name),
                    Arc::clone(&one.shared.ranges.borrow()),
                )
            })
            .filter(|(_, ranges)| !ranges.is_empty())
            .collect();
        let excluded = excluded(pool);
        let all = ranges.iter().flat_map(|(cluster, ranges)| {
            let ranges = ranges.iter();
            let common = ranges.filter_map(|range| {
                let (first, last) = common(pool, &excluded, range.span)?;
                let copy = range.span.first == range.span.last && self.is_leased(pool, first);
                (!copy).then(|| SharedRange {
                    cluster: Text::clone(cluster),
                    object: Text::clone(&range.object),
                    first,
                    last,
                })
            });
            common.collect::<Vec<_>>()
        });
        all.take(most).collect()
    }

    /// A range of one leased address is what an announcer has for the holder.
    fn is_leased(&self, pool: &Pool, address: IpAddr) -> bool {
        let network = pool.spec.network;
        let key = LeaseKey { network, address };
        self.0
            .ipam
            .read(|ledger| ledger.lease_around(key).is_some())
    }
}

/// What the pool excludes, lowest first.
fn excluded(pool: &Pool) -> Vec<Span> {
    let mut excluded: Vec<Span> = pool.spec.exclusions.iter().map(|one| one.span()).collect();
    excluded.sort_unstable_by_key(|span| (span.family, span.first));
    excluded
}

/// The first run of the range that the pool may allocate.
fn common(pool: &Pool, excluded: &[Span], range: Span) -> Option<(IpAddr, IpAddr)> {
    let family = range.family;
    let entries = pool.spec.addresses.iter().map(|entry| entry.span());
    let mut runs = entries.filter_map(|entry| {
        let (mut first, mut last) = (entry.first.max(range.first), entry.last.min(range.last));
        if entry.family != family || first > last {
            return None;
        }
        for hole in excluded.iter().filter(|hole| hole.family == family) {
            if (hole.first..=hole.last).contains(&first) {
                first = hole.last.checked_add(1)?;
            } else if hole.first > first {
                last = last.min(hole.first - 1);
                break;
            }
        }
        (first <= last).then(|| (family.address(first), family.address(last)))
    });
    runs.next()
}

#[cfg(test)]
mod tests {
    use fipd_core::{AddressSpec, PoolId, Timestamp, testing};

    use super::*;

    fn pool(exclusions: &[&str]) -> Pool {
        let mut spec = testing::pool_spec("p", &["10.60.0.0/28"]);
        let all = exclusions.iter().map(|text| text.parse().expect(text));
        spec.exclusions = all.collect();
        Pool {
            id: PoolId(1),
            spec,
            created: Timestamp(1),
            generation: 1,
        }
    }

    fn shared(pool: &Pool, range: &str) -> Option<String> {
        let range: AddressSpec = range.parse().expect(range);
        let (first, last) = common(pool, &excluded(pool), range.span())?;
        Some(format!("{first}-{last}"))
    }

    #[test]
    fn a_range_shares_what_the_pool_may_allocate_of_it() {
        let whole = pool(&[]);
        let of = |range| shared(&whole, range);
        assert_eq!(of("10.60.0.0/24").as_deref(), Some("10.60.0.0-10.60.0.15"));
        assert_eq!(
            of("10.60.0.9-10.60.0.99").as_deref(),
            Some("10.60.0.9-10.60.0.15")
        );
        assert_eq!(of("10.60.0.7/32").as_deref(), Some("10.60.0.7-10.60.0.7"));
        assert_eq!(of("10.60.0.16-10.60.0.20"), None);
        assert_eq!(of("fd00::/64"), None);
        let holes = pool(&["10.60.0.4-10.60.0.7", "10.60.0.0/30", "10.60.0.12"]);
        assert_eq!(
            shared(&holes, "10.60.0.0/29"),
            None,
            "all of it is excluded"
        );
        assert_eq!(
            shared(&holes, "10.60.0.0/28").as_deref(),
            Some("10.60.0.8-10.60.0.11")
        );
    }
}
