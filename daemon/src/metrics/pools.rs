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

pub(super) fn series(ipam: &Ipam) -> Vec<Series<'static>> {
    let mut figures_of: [Vec<(Labels<'static>, f64)>; 8] = Default::default();
    let mut addresses_of: [Vec<(Labels<'static>, f64)>; 3] = Default::default();
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
        for (values, count) in figures_of.iter_mut().zip(counts) {
            values.push((labels.clone(), count as f64));
        }
    }
    let [
        size,
        used,
        free,
        quarantined,
        withheld,
        withheld_in_use,
        out,
        closed,
    ] = figures_of;
    let [in_size, in_used, in_free] = addresses_of;
    vec![
        Series::new(
            "pool_size",
            "Addresses the pool can give, or prefixes of a pool of those, as in all counts of pools",
            size,
        ),
        Series::new(
            "pool_used",
            "Of these, leased; of prefixes also those that have leases in them",
            used,
        ),
        Series::new("pool_free", "Of these, free", free),
        Series::new(
            "pool_size_addresses",
            "Addresses in all prefixes of a pool of prefixes; a pool with more than 2^53 has none of the three series of addresses",
            in_size,
        ),
        Series::new(
            "pool_used_addresses",
            "Of these, in prefixes that are leased or have leases in them",
            in_used,
        ),
        Series::new("pool_free_addresses", "Of these, in free prefixes", in_free),
        Series::new(
            "pool_quarantined",
            "Of the used, cooling after a release",
            quarantined,
        ),
        Series::new(
            "pool_withheld",
            "Addresses that a pool of another network may mean as well; no part of the size",
            withheld,
        ),
        Series::new(
            "pool_withheld_in_use",
            "Leases of the pool on withheld addresses",
            withheld_in_use,
        ),
        Series::new(
            "pool_out_of_range",
            "Leases outside of the pool's addresses",
            out,
        ),
        Series::new(
            "pool_closed",
            "1 while the pool gives nothing more by an admin's word, or as what it follows is gone",
            closed,
        ),
        Series::new(
            "pool_full_in_seconds",
            "Time until the pool is full at the pace of the last seven days; missing where that is not in sight",
            full_in,
        ),
    ]
}
