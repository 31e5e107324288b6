//! How the pools stand, each with its network's name.

use fipd_core::{Forecast, Ledger, PoolStanding, PoolUsage, Timestamp};

use super::series::{Labels, Series};
use crate::ipam::Ipam;

/// What a floating-point number tells from its neighbours.
const EXACT: u128 = 1 << 53;

/// A pool that has a place.
struct PoolSeries {
    pool: String,
    network: String,
    closed: bool,
    usage: PoolUsage,
    /// Addresses in a prefix that the pool gives; `None` for a pool of addresses.
    prefix_size: Option<u128>,
    forecast: Forecast,
}

impl PoolSeries {
    fn of(ledger: &Ledger, one: &PoolStanding<'_>, now: Timestamp) -> Option<Self> {
        let network = ledger.network(one.pool.spec.network);
        Some(Self {
            pool: one.pool.spec.name.to_string(),
            network: network.map_or_else(String::new, |network| network.name.to_string()),
            closed: one.pool.spec.closed,
            usage: one.usage()?,
            prefix_size: one.pool.spec.prefix_size(),
            forecast: one.forecast(now),
        })
    }

    /// Addresses in a prefix, where those of all prefixes can be told exactly: all series of addresses of a pool are there,
    /// or none, however full it is.
    fn exact_prefix_size(&self) -> Option<u128> {
        let unit = self.prefix_size?;
        let all = self.usage.size.checked_mul(unit)?;
        (all <= EXACT).then_some(unit)
    }
}

/// All pools; the ledger is let go after each step, so that no decision waits for more than one of them.
fn figures(ipam: &Ipam) -> Vec<PoolSeries> {
    let now = ipam.now();
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let step = ipam.read(|ledger| {
            let mut last = None;
            for one in ledger.standings_after(after).take(Ledger::SCAN) {
                last = Some(one.pool.id);
                all.extend(PoolSeries::of(ledger, &one, now));
            }
            last
        });
        if step.is_none() {
            return all;
        }
        after = step;
    }
}

/// Names and meanings of the counts that all pools have.
const COUNTS: [(&str, &str); 8] = [
    (
        "pool_size",
        "Addresses the pool can give, or prefixes of a pool of those, as in all counts of pools",
    ),
    (
        "pool_used",
        "Of these, leased; of prefixes also those that have leases in them",
    ),
    ("pool_free", "Of these, free"),
    ("pool_quarantined", "Of the used, cooling after a release"),
    (
        "pool_withheld",
        "Addresses that a pool of another network may mean as well; no part of the size",
    ),
    (
        "pool_withheld_in_use",
        "Leases of the pool on withheld addresses",
    ),
    (
        "pool_out_of_range",
        "Leases outside of the pool's addresses",
    ),
    (
        "pool_closed",
        "1 while the pool gives nothing more by an admin's word, or as what it follows is gone",
    ),
];
/// The same of those that count addresses where a pool gives prefixes.
const ADDRESSES: [(&str, &str); 3] = [
    (
        "pool_size_addresses",
        "Addresses in all prefixes of a pool of prefixes; a pool with more than 2^53 has none of the three series of addresses",
    ),
    (
        "pool_used_addresses",
        "Of these, in prefixes that are leased or have leases in them",
    ),
    ("pool_free_addresses", "Of these, in free prefixes"),
];

pub(super) fn series(ipam: &Ipam) -> Vec<Series<'static>> {
    let mut counts_of: [Vec<(Labels<'static>, f64)>; COUNTS.len()] = Default::default();
    let mut addresses_of: [Vec<(Labels<'static>, f64)>; ADDRESSES.len()] = Default::default();
    let mut full_in = Vec::new();
    for one in figures(ipam) {
        let unit = one.exact_prefix_size();
        let labels = vec![("pool", one.pool), ("network", one.network)];
        let hours = one.forecast.hours().into_iter();
        full_in.extend(hours.map(|hours| (labels.clone(), f64::from(hours) * 3_600.0)));
        if let Some(unit) = unit {
            let counts = [one.usage.size, one.usage.used, one.usage.free];
            for (values, count) in addresses_of.iter_mut().zip(counts) {
                values.push((labels.clone(), count.saturating_mul(unit) as f64));
            }
        }
        let counts = [
            one.usage.size,
            one.usage.used,
            one.usage.free,
            one.usage.quarantined,
            one.usage.withheld,
            one.usage.withheld_in_use,
            one.usage.out_of_range,
            one.closed.into(),
        ];
        for (values, count) in counts_of.iter_mut().zip(counts) {
            values.push((labels.clone(), count as f64));
        }
    }
    let counts = COUNTS.into_iter().zip(counts_of);
    let addresses = ADDRESSES.into_iter().zip(addresses_of);
    let all = counts.chain(addresses);
    let all = all.map(|((name, help), values)| Series::new(name, help, values));
    let full_in = Series::new(
        "pool_full_in_seconds",
        "Time until the pool is full at the pace of the last seven days; missing where that is not in sight",
        full_in,
    );
    all.chain([full_in]).collect()
}
