//! Pools: whether they can be used, what they overlap with, and what their status says of addresses nobody has.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use fipd_core::AddressSpec;
use fipd_crds::floating_ip::{EXCLUDED, FloatingIPPool};

use super::{
    found::Found,
    report::{By, Kind, Report, some},
};
use crate::{
    controllers::rancher_fip::{names::NETWORK, rancher::annotation},
    fip_rules::pool::{Ranges, raw, validate},
};

/// The pools that can be used, with their addresses.
pub struct Known(BTreeMap<String, Room>);

/// The addresses of a pool.
pub struct Room {
    /// The routing domain that the pool names; inside one an address is given once.
    pub network: String,
    first: IpAddr,
    last: IpAddr,
    excluded: BTreeSet<IpAddr>,
}

impl Known {
    pub fn of(pools: &BTreeMap<String, FloatingIPPool>) -> Self {
        let room = |(name, pool): (&String, &FloatingIPPool)| {
            let ranges = validate(raw(&pool.spec).as_ref()).ok()?;
            Some((name.clone(), Room::of(pool, &ranges)?))
        };
        Self(pools.iter().filter_map(room).collect())
    }

    pub fn get(&self, pool: &str) -> Option<&Room> {
        self.0.get(pool)
    }
}

impl Room {
    fn of(pool: &FloatingIPPool, ranges: &Ranges) -> Option<Self> {
        let AddressSpec::Range(first, last) = ranges.addresses else {
            return None;
        };
        let singles = ranges.exclusions.iter().filter_map(|one| match one {
            AddressSpec::Single(address) => Some(*address),
            AddressSpec::Cidr(_) | AddressSpec::Range(..) => None,
        });
        let excluded: BTreeSet<IpAddr> = singles.collect();
        let network = annotation(pool, NETWORK).unwrap_or_default().to_owned();
        Some(Self {
            network,
            first,
            last,
            excluded,
        })
    }

    /// Whether the pool can give the address.
    pub fn has(&self, address: IpAddr) -> bool {
        let inside = self.first <= address && address <= self.last;
        inside && !self.excluded.contains(&address)
    }

    /// How many addresses the pool can give.
    pub fn size(&self) -> u128 {
        let listed = number(self.last)
            .saturating_sub(number(self.first))
            .saturating_add(1);
        listed.saturating_sub(self.excluded.len() as u128)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// Says how each pool is.
pub fn judge(found: &Found, known: &Known, report: &mut Report) {
    let overlaps = overlaps(known);
    let held = held(found);
    for (name, pool) in &found.pools {
        report.count("pools", 1);
        let Some(room) = known.get(name) else {
            let why = validate(raw(&pool.spec).as_ref()).err();
            let why = why.map_or_else(String::new, |why| why.to_string());
            report.wrong(Kind::Pool, name, format!("cannot be used: {why}"));
            continue;
        };
        report.count("usable pools", 1);
        let count = held.get(&**name).map_or(0, BTreeSet::len);
        let says = format!("{} addresses, {count} held", room.size());
        let mut wrongs = Vec::new();
        if let Some(others) = overlaps.get(&**name) {
            wrongs.push(format!("overlaps with {}", some(others)));
        }
        if let Some(target) = missing_target(found, pool) {
            wrongs.push(format!(
                "its targetCluster {target:?} is no cluster of Rancher"
            ));
        }
        let stale = stale(pool, held.get(&**name));
        if !stale.is_empty() {
            wrongs.push(format!(
                "its status counts {}, which no FloatingIP has",
                some(&stale)
            ));
            report.change(
                By::Itself,
                format!("FloatingIPPool {name}"),
                "writes its status anew",
            );
        }
        if wrongs.is_empty() {
            report.fine(Kind::Pool, name, says);
        } else {
            report.wrong(Kind::Pool, name, format!("{says}; {}", wrongs.join("; ")));
        }
    }
}

fn missing_target<'a>(found: &Found, pool: &'a FloatingIPPool) -> Option<&'a str> {
    let target = &*pool.spec.target_cluster;
    let mut clusters = found.clusters.iter();
    let there = clusters.any(|(id, cluster)| id == target || cluster.display_name == target);
    (!target.is_empty() && !there).then_some(target)
}

/// The addresses that FloatingIPs show, by the pool they name.
fn held(found: &Found) -> BTreeMap<&str, BTreeSet<IpAddr>> {
    let mut held: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
    for fip in found.fips.values() {
        if let Some(address) = fip.shown() {
            held.entry(&*fip.pool).or_default().insert(address);
        }
    }
    held
}

/// What the status counts beside excluded addresses and those in use.
fn stale(pool: &FloatingIPPool, held: Option<&BTreeSet<IpAddr>>) -> Vec<String> {
    let allocated = pool.status.iter().flat_map(|status| &status.allocated);
    let is_stale = |address: &str| {
        let parsed = address.parse::<IpAddr>();
        !parsed.is_ok_and(|address| held.is_some_and(|held| held.contains(&address)))
    };
    let stale = allocated.filter(|(address, user)| *user != EXCLUDED && is_stale(address));
    stale.map(|(address, _)| address.clone()).collect()
}

/// The pools that have addresses in common with each, inside one network.
fn overlaps(known: &Known) -> BTreeMap<&str, Vec<String>> {
    let mut rooms: Vec<(&str, &Room)> =
        known.0.iter().map(|(name, room)| (&**name, room)).collect();
    rooms.sort_by(|(_, one), (_, other)| {
        (&one.network, one.first).cmp(&(&other.network, other.first))
    });
    let mut overlaps: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (place, (name, room)) in rooms.iter().enumerate() {
        let after = rooms.iter().skip(place + 1);
        let meets =
            |(_, other): &&(&str, &Room)| other.network == room.network && other.first <= room.last;
        for (other, _) in after.take_while(meets) {
            overlaps.entry(*name).or_default().push((*other).to_owned());
            overlaps.entry(*other).or_default().push((*name).to_owned());
        }
    }
    overlaps
}
