//! How pools look in a terminal.

use fipd_crds::names::is_object_name;

use crate::{
    api::wire::{OriginView, PoolList, PoolView},
    cli::output::{Table, or_dash, yes_or_no},
};

pub fn table(list: &PoolList) -> Table {
    let row = |pool: &PoolView| {
        [
            pool.name.clone(),
            pool.network.clone(),
            summary(&pool.addresses),
            pool.usage.size.to_string(),
            pool.usage.used.to_string(),
            pool.usage.free.to_string(),
        ]
    };
    let heads = ["NAME", "NETWORK", "ADDRESSES", "SIZE", "USED", "FREE"];
    Table::of(heads, list.pools.iter().map(row))
}

/// The first few entries; a pool may have thousands.
fn summary(addresses: &[String]) -> String {
    const SHOWN: usize = 3;
    let first: Vec<_> = addresses.iter().take(SHOWN).cloned().collect();
    match addresses.len().saturating_sub(SHOWN) {
        0 => first.join(","),
        more => format!("{},+{more}", first.join(",")),
    }
}

/// Whether clusters that may use the pool have it as an object.
fn objects(pool: &PoolView) -> &'static str {
    match &pool.origin {
        OriginView::Mirror { .. } => "-",
        OriginView::Own if is_object_name(&pool.name) => "where the configuration offers it",
        OriginView::Own => {
            "none: no object can have its name (lower case letters, digits, - and .)"
        }
    }
}

pub fn facts(pool: &PoolView) -> Table {
    let reserve = &pool.reserve;
    Table::facts([
        ("Name", pool.name.clone()),
        ("Network", pool.network.clone()),
        ("Addresses", pool.addresses.join(", ")),
        ("Exclusions", pool.exclusions.join(", ")),
        ("Gateway", or_dash(pool.gateway.as_ref())),
        ("Prefix", or_dash(pool.prefix.as_ref())),
        ("Subnet", or_dash(pool.subnet.as_ref())),
        (
            "Reserved ends",
            format!(
                "{} first, {} last of {}",
                reserve.first, reserve.last, reserve.of
            ),
        ),
        ("Order", pool.order.to_string()),
        ("Quarantine", format!("{} s", pool.quarantine)),
        (
            "Remembered",
            match pool.sticky_for {
                0 => "-".to_owned(),
                time => format!("{} addresses for {time} s", pool.sticky_most),
            },
        ),
        ("Priority", pool.priority.to_string()),
        ("For", for_whom(pool)),
        ("Overlaps", joined(&pool.overlaps, ", ")),
        ("Ambiguous", joined(&pool.ambiguous, ", ")),
        ("Shared", joined(&pool.shared, ", ")),
        ("Forecast", or_dash(pool.forecast.as_ref())),
        ("Objects", objects(pool).to_owned()),
        ("Closed", yes_or_no(pool.closed)),
        ("Size", pool.usage.size.to_string()),
        ("Used", pool.usage.used.to_string()),
        ("Free", pool.usage.free.to_string()),
        ("Quarantined", pool.usage.quarantined.to_string()),
        ("Withheld", pool.usage.withheld.to_string()),
        ("Out of range", pool.usage.out_of_range.to_string()),
        ("Generation", pool.generation.to_string()),
        ("Created", pool.created.clone()),
    ])
}

fn for_whom(pool: &PoolView) -> String {
    match pool.scopes.as_slice() {
        [] => "whoever names it".to_owned(),
        scopes => joined(scopes, "; "),
    }
}

fn joined<T: ToString>(all: &[T], with: &str) -> String {
    let all: Vec<_> = all.iter().map(ToString::to_string).collect();
    all.join(with)
}
