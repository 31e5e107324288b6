//! How pools look in a terminal, and `fipd pool history`.

use clap::Args;
use fipd_core::QuotaUnit;
use fipd_crds::names::is_object_name;
use serde::Serialize;

use super::path;
use crate::{
    api::wire::{HistoryPage, HistoryView, OriginView, PoolList, PoolView},
    cli::{
        CliSession,
        client::with_query,
        exit::Failure,
        output::{Table, or_dash, yes_or_no},
    },
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
        (
            "Gives",
            match pool.allocation_length {
                Some(length) => format!("prefixes of /{length}"),
                None => "addresses".to_owned(),
            },
        ),
        (
            "Quotas count",
            match pool.quota_unit {
                QuotaUnit::Lease => "leases".to_owned(),
                QuotaUnit::Address => "addresses".to_owned(),
            },
        ),
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
        ("Withheld in use", pool.usage.withheld_in_use.to_string()),
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

// Its fields are the query of the request: their names are those of the API.
#[derive(Debug, Args, Serialize)]
pub struct History {
    /// Full name, or the last part of it where that is unique
    #[serde(skip)]
    name: String,
    /// One row an hour, or one a day
    #[arg(long, value_name = "STEP", default_value = "hour", value_parser = ["hour", "day"])]
    step: String,
    /// RFC 3339; 7 days before --to when left out, or 90 with --step day
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// RFC 3339; the last hour that is over when left out
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
}

impl History {
    pub async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let path = format!("{}/history", path(&self.name));
        let path = with_query(&path, &self)?;
        session.show_list(&path, "rows", history_table).await
    }
}

fn history_table(history: &HistoryPage) -> Table {
    let row = |row: &HistoryView| {
        [
            row.at.clone(),
            row.size.to_string(),
            row.used.to_string(),
            row.highest.to_string(),
            row.quarantined.to_string(),
            row.given.to_string(),
            row.released.to_string(),
            row.refused.to_string(),
        ]
    };
    let heads = [
        "AT",
        "SIZE",
        "USED",
        "HIGHEST",
        "QUARANTINED",
        "ALLOCATED",
        "RELEASED",
        "REFUSED",
    ];
    Table::of(heads, history.before.iter().chain(&history.rows).map(row))
}
