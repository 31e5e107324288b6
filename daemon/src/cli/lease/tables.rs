//! Leases as text.

use crate::{
    api::wire::{LeaseSummary, LeaseView, Released, ReleasedAddress},
    cli::output::{Table, or_dash},
};

pub fn summaries(leases: &mut dyn Iterator<Item = &LeaseSummary>) -> Table {
    let heads = [
        "ADDRESS", "PREFIX", "GATEWAY", "NETWORK", "POOL", "STATE", "UNTIL", "OWNER",
    ];
    let row = |lease: &LeaseSummary| {
        [
            lease.what(),
            lease.prefix.to_string(),
            or_dash(lease.gateway.as_ref()),
            lease.network.clone(),
            or_dash(lease.pool.as_ref()),
            lease.state.to_string(),
            or_dash(lease.until.as_ref()),
            or_dash(lease.owner.as_ref()),
        ]
    };
    Table::of(heads, leases.map(row))
}

pub fn releases(released: &Released) -> Table {
    let row = |one: &ReleasedAddress| [one.what(), one.network.clone()];
    Table::of(["RELEASED", "NETWORK"], released.released.iter().map(row))
}

pub fn facts(lease: &LeaseView) -> Table {
    let summary = &lease.summary;
    let marks: Vec<_> = lease.marks.iter().map(ToString::to_string).collect();
    let contenders: Vec<_> = lease
        .contenders
        .iter()
        .map(|one| match one.uses.as_slice() {
            [] => one.owner.clone(),
            uses => format!("{} (uses {})", one.owner, uses.join(", ")),
        })
        .collect();
    let owners: Vec<_> = lease
        .members
        .iter()
        .map(|member| match member.ports.as_slice() {
            [] => member.owner.clone(),
            ports => format!("{} ({})", member.owner, ports.join(", ")),
        })
        .collect();
    let labels = lease.labels.iter();
    let labels: Vec<_> = labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    Table::facts([
        ("Address", format!("{}/{}", summary.address, summary.prefix)),
        ("Leased", summary.what()),
        ("Gateway", or_dash(summary.gateway.as_ref())),
        ("Network", summary.network.clone()),
        ("Pool", or_dash(summary.pool.as_ref())),
        ("State", summary.state.to_string()),
        ("Marks", marks.join(", ")),
        ("Owner", owners.join(", ")),
        ("Sharing key", or_dash(lease.group.as_ref())),
        ("Contenders", contenders.join(", ")),
        ("Tenant", or_dash(lease.tenant.as_ref())),
        ("Labels", labels.join(" ")),
        ("Since", lease.since.clone()),
        ("Until", or_dash(summary.until.as_ref())),
    ])
}
