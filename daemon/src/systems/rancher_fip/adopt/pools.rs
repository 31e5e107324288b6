//! Pools: whether they can be used, what they overlap with, and what their status says of addresses nobody has.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use fipd_crds::floating_ip::{EXCLUDED, FloatingIPPool};

use super::pool_ranges::{Overlap, PoolRanges, Uses};
use super::{
    SiteReport,
    inventory::{Placed, SiteInventory},
    more, some,
};
use crate::adopt::{ChangeBy, FindingKind};
use crate::{config::DEFAULT_NETWORK, validation::pool::validate};

/// Says how each pool is.
pub fn judge(
    found: &SiteInventory,
    known: &PoolRanges<'_>,
    uses: &Uses<'_>,
    report: &mut SiteReport,
) {
    let overlaps = known.overlaps();
    let targets = targets(found);
    for (name, pool) in &found.pools {
        report.count("pools", 1);
        let Some(room) = known.get(name) else {
            let why = validate(pool.spec.ip_config.as_ref()).err();
            let why = why.map_or_else(String::new, |why| why.to_string());
            report.wrong(FindingKind::Pool, name, format!("cannot be used: {why}"));
            continue;
        };
        report.count("usable pools", 1);
        let held = uses.held(name);
        let count = held.map_or(0, BTreeSet::len);
        let mut says = format!("{} addresses, {count} held", room.size());
        let network = found.book.network(name);
        if network != DEFAULT_NETWORK {
            says += &format!(", network {network}");
        }
        let mut wrongs = placing(found.book.pools.get(name), overlaps.get(&**name));
        let target = &*pool.spec.target_cluster;
        if !target.is_empty() && !targets.contains(target) {
            wrongs.push(format!(
                "its targetCluster {target:?} is no cluster of Rancher"
            ));
        }
        let stale = stale(pool, held);
        if !stale.is_empty() {
            wrongs.push(format!(
                "its status counts {}, which nobody has",
                some(&stale)
            ));
            let object = format!("FloatingIPPool {name}");
            report.change(ChangeBy::Itself, object, "writes its status anew");
        }
        report.judge(FindingKind::Pool, name, says, wrongs);
    }
}

/// What is wrong with where it is.
fn placing(placed: Option<&Placed>, overlap: Option<&Overlap<'_>>) -> Vec<String> {
    let mut wrongs = Vec::new();
    if let Some(overlap) = overlap {
        let shown = overlap.shown.join(", ");
        wrongs.push(format!(
            "overlaps with {}",
            more(shown, overlap.count.saturating_sub(overlap.shown.len()))
        ));
    }
    let Some(placed) = placed else { return wrongs };
    if let Some(others) = &placed.overlap {
        wrongs.push(format!("gives addresses of {others} as well"));
    }
    wrongs.extend(placed.doubt.clone());
    wrongs.extend(placed.ignored_annotation.clone());
    wrongs.extend(placed.refused_move.as_ref().map(|to| {
        format!("is to be in network {to}, where its leases do not go by themselves: `fipd pool move-network`")
    }));
    wrongs
}

/// What a pool may call the clusters of Rancher.
fn targets(found: &SiteInventory) -> BTreeSet<&str> {
    let clusters = found.clusters.iter();
    let names = clusters.flat_map(|(id, cluster)| [&**id, &*cluster.display_name]);
    names.collect()
}

/// What the status counts beside excluded addresses and those in use.
fn stale(pool: &FloatingIPPool, held: Option<&BTreeSet<IpAddr>>) -> Vec<String> {
    let allocated: Option<&BTreeMap<String, String>> =
        pool.status.as_ref().map(|status| &status.allocated);
    let is_stale = |address: &str| {
        let parsed = address.parse::<IpAddr>();
        !parsed.is_ok_and(|address| held.is_some_and(|held| held.contains(&address)))
    };
    let stale = allocated.into_iter().flatten();
    let stale = stale.filter(|(address, user)| *user != EXCLUDED && is_stale(address));
    stale.map(|(address, _)| address.clone()).collect()
}
