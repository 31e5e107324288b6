//! From the ledger's values to what pages show.

use fipd_core::{AuditEntry, ClusterId, Family, Lease, Ledger, Mark, Origin, Pool, Timestamp};
use fipd_web_ui::{AuditRow, LeaseRow, Moment, PoolRow, Usage, links};

use crate::api::{
    convert::{network_name, owner_text},
    wire::ForecastView,
};

/// Empty for nothing.
pub fn text(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

pub fn moment(at: Timestamp) -> Moment {
    Moment(at.0)
}

/// The name people know the cluster by; its id where it has none.
pub fn cluster_name(ledger: &Ledger, id: &ClusterId) -> String {
    let name = ledger.cluster(id).and_then(|record| record.names.first());
    name.map_or_else(|| id.to_string(), ToString::to_string)
}

pub fn lease_row(ledger: &Ledger, lease: &Lease) -> LeaseRow {
    let marks = ledger.marks(lease);
    LeaseRow {
        network: lease.key.network.0,
        address: lease.key.address,
        length: lease.prefix().explicit_length(),
        state: lease.state,
        contended: marks.contains(&Mark::Contended),
        out_of_range: marks.contains(&Mark::OutOfRange),
        owner: owner(ledger, lease),
        others: lease.members.len().saturating_sub(1),
        since: moment(lease.since),
        until: lease.until.map(moment),
    }
}

pub fn lease_rows(ledger: &Ledger, leases: impl IntoIterator<Item: AsRef<Lease>>) -> Vec<LeaseRow> {
    let leases = leases.into_iter();
    leases
        .map(|lease| lease_row(ledger, lease.as_ref()))
        .collect()
}

/// The first holder; empty for nobody.
pub fn owner(ledger: &Ledger, lease: &Lease) -> String {
    text(
        lease
            .owner()
            .map(|holder| owner_text(ledger, &holder.identity)),
    )
}

pub fn pool_row(ledger: &Ledger, pool: &Pool, now: Timestamp) -> PoolRow {
    let forecast = ledger.forecast(pool.id, now);
    PoolRow {
        id: pool.id.0,
        name: pool.spec.name.to_string(),
        network: network_name(ledger, pool.spec.network),
        family: family(pool),
        usage: Usage(ledger.usage(pool.id).unwrap_or_default()),
        closed: pool.spec.closed,
        full_in: forecast.hours(),
        forecast: ForecastView::from(forecast).to_string(),
        mirrors: mirrored(ledger, pool).unwrap_or_default(),
        waiting: ledger.waiter_count(pool.id),
    }
}

/// The object that the pool follows and where that is; `None` for a pool of fipd's own.
pub fn mirrored(ledger: &Ledger, pool: &Pool) -> Option<String> {
    match &pool.spec.origin {
        Origin::Own => None,
        Origin::Mirror {
            system,
            cluster,
            object,
            uid: _,
        } => Some(format!(
            "{object} of {system} in cluster {}",
            cluster_name(ledger, cluster)
        )),
    }
}

/// How long an address of the pool cools; empty where it does not.
pub fn quarantine(pool: &Pool) -> String {
    time(pool.spec.quarantine)
}

/// How many addresses or prefixes are remembered for whom had them, and for how long; empty where none are.
pub fn remembered(pool: &Pool) -> String {
    let sticky = pool.spec.sticky;
    let units = match pool.spec.allocation_length {
        Some(_) => "prefixes",
        None => "addresses",
    };
    match sticky.is_on() {
        true => format!("{} {units} for {}", sticky.most, time(sticky.lasts)),
        false => String::new(),
    }
}

/// Seconds in the largest unit that they are a multiple of; empty for none.
fn time(seconds: u32) -> String {
    whole(seconds, [" d", " h", " min", " s"])
}

/// Seconds in the largest unit that they are a multiple of, with these names of days, hours, minutes and seconds; empty for none.
pub fn whole(seconds: u32, names: [&str; 4]) -> String {
    let mut units = [86_400, 3_600, 60, 1].into_iter().zip(names);
    match units.find(|(unit, _)| seconds.is_multiple_of(*unit)) {
        Some((unit, name)) if seconds > 0 => format!("{}{name}", seconds / unit),
        Some(_) | None => String::new(),
    }
}

/// `IPv4` or `IPv6`.
pub fn family(pool: &Pool) -> &'static str {
    match pool.spec.family() {
        Some(Family::V6) => "IPv6",
        Some(Family::V4) | None => "IPv4",
    }
}

pub fn audit_row(ledger: &Ledger, entry: &AuditEntry) -> AuditRow {
    let address = entry.address.map(|address| {
        let link = entry
            .network
            .map(|network| links::lease(network.0, address));
        (text(entry.what()), text(link))
    });
    let pool = entry.pool.map(|id| match ledger.pool(id) {
        Some(pool) => (pool.spec.name.to_string(), links::pool(id.0)),
        None => (format!("number {}, deleted", id.0), String::new()),
    });
    AuditRow {
        at: moment(entry.at),
        actor: entry.actor.to_string(),
        action: entry.action.to_string(),
        address,
        pool,
        owner: text((entry.identity.as_ref()).map(|identity| owner_text(ledger, identity))),
        detail: entry.detail.to_string(),
    }
}
