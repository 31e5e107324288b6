//! FloatingIPs: what they show, and which of them claim the same address.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_crds::floating_ip::STATE_ERROR;

use super::pool_ranges::PoolRanges;
use super::{SiteReport, inventory::SiteInventory, some};
use crate::adopt::{ChangeBy, FindingKind};
use crate::{
    controller::store::Key,
    systems::rancher_fip::{floating_ip::observe::Fip, names::PROJECT},
};

/// Says which FloatingIPs are not as they must be, and counts the others.
pub fn judge(found: &SiteInventory, known: &PoolRanges<'_>, report: &mut SiteReport) {
    for (key, fip) in &found.fips {
        count(fip, report);
        let name = key.to_string();
        let wrongs = wrongs(found, known, fip);
        if !wrongs.is_empty() {
            report.wrong(FindingKind::Address, &name, wrongs.join("; "));
        }
        if fip.status.state == STATE_ERROR && fip.meta.deleted.is_none() {
            let does = "tries again; it gets an address once pool and quota have one";
            report.change(ChangeBy::Itself, format!("FloatingIP {name}"), does);
        }
        if let Some(holder) = found.book.held_by_others.get(key) {
            let address = fip.shown().map(|address| address.to_string());
            let address = address.unwrap_or_default();
            let says = format!("{address} is held by {holder}; it waits for it");
            report.wrong(FindingKind::Conflict, name, says);
        }
    }
    conflicts(found, report);
}

fn count(fip: &Fip, report: &mut SiteReport) {
    report.count("FloatingIPs", 1);
    let state = match (fip.shown(), &fip.cluster) {
        _ if fip.meta.deleted.is_some() => "being deleted",
        (None, _) if fip.status.state == STATE_ERROR => "in state Error",
        (None, _) => "without an address",
        (Some(_), Some(_)) => "assigned",
        (Some(_), None) => "unassigned",
    };
    report.count(state, 1);
}

fn wrongs(found: &SiteInventory, known: &PoolRanges<'_>, fip: &Fip) -> Vec<String> {
    let mut wrongs = Vec::new();
    if fip.project.is_none() {
        wrongs.push(format!("it has no label {PROJECT}"));
    }
    if fip.status.state == STATE_ERROR {
        let why = fip.status.conditions.last().map(|one| &*one.message);
        wrongs.push(format!(
            "in state Error: {}",
            why.unwrap_or("it does not say why")
        ));
    }
    if !fip.wanted.is_empty() && fip.wanted.parse::<IpAddr>().is_err() {
        wrongs.push(format!("spec.ipAddr: {:?} is no IP address", fip.wanted));
    }
    if !found.has_pool(&fip.pool) {
        wrongs.push(format!("there is no pool {:?}", fip.pool));
    }
    match (fip.shown(), known.get(&fip.pool)) {
        (Some(address), Some(room)) if !room.has(address) => {
            let says = format!("{address} is none that pool {} gives; it is kept", fip.pool);
            wrongs.push(says);
        }
        (None, _) if wrongs.is_empty() && fip.meta.deleted.is_none() => {
            wrongs.push("it has no address yet".to_owned());
        }
        _ => {}
    }
    wrongs
}

/// FloatingIPs that show one address.
fn conflicts(found: &SiteInventory, report: &mut SiteReport) {
    let mut users: BTreeMap<(&str, IpAddr), Vec<&Key>> = BTreeMap::new();
    for (key, fip) in &found.fips {
        let network = found.book.network(&fip.pool);
        if let Some(address) = fip.shown().filter(|_| fip.meta.deleted.is_none()) {
            users.entry((network, address)).or_default().push(key);
        }
    }
    for ((_, address), keys) in users {
        if keys.len() > 1 {
            let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
            let says = format!("several FloatingIPs show it: {}", some(&names));
            report.wrong(FindingKind::Conflict, address.to_string(), says);
            let does =
                "one FloatingIP has it; the others say so in a condition until they get another";
            report.change(ChangeBy::Itself, address.to_string(), does);
        }
    }
}
