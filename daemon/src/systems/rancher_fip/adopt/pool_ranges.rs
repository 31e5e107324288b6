//! The addresses of pools: what they overlap with, and which of them an address is counted for.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use fipd_core::AddressSpec;
use fipd_crds::floating_ip::FloatingIPPool;

use super::inventory::SiteInventory;
use crate::validation::pool::{Ranges, validate};

/// The pools that can be used, with their addresses.
pub struct PoolRanges<'a>(BTreeMap<&'a str, PoolRange<'a>>);

/// The addresses of a pool.
pub struct PoolRange<'a> {
    /// Inside one an address is given once.
    network: &'a str,
    first: IpAddr,
    last: IpAddr,
    excluded: BTreeSet<IpAddr>,
}

/// The pools that have addresses in common with one.
#[derive(Debug, PartialEq, Eq)]
pub struct Overlap<'a> {
    /// Some of them.
    pub shown: Vec<&'a str>,
    pub count: usize,
}

/// Those of an overlap that are named.
const SHOWN: usize = 5;

impl<'a> PoolRanges<'a> {
    pub fn of(found: &'a SiteInventory) -> Self {
        let room = |(name, pool): (&'a String, &'a FloatingIPPool)| {
            let ranges = validate(pool.spec.ip_config.as_ref()).ok()?;
            let room = PoolRange::of(found.book.network(name), &ranges)?;
            Some((&**name, room))
        };
        Self(found.pools.iter().filter_map(room).collect())
    }

    pub fn get(&self, pool: &str) -> Option<&PoolRange<'a>> {
        self.0.get(pool)
    }

    fn by_network(&self) -> BTreeMap<&'a str, Vec<(&'a str, &PoolRange<'a>)>> {
        let mut networks: BTreeMap<&str, Vec<(&str, &PoolRange<'_>)>> = BTreeMap::new();
        for (name, room) in &self.0 {
            networks.entry(room.network).or_default().push((name, room));
        }
        for rooms in networks.values_mut() {
            rooms.sort_by_key(|(_, room)| room.first);
        }
        networks
    }

    /// The pools that have addresses in common with others, inside one network.
    pub fn overlaps(&self) -> BTreeMap<&'a str, Overlap<'a>> {
        let mut all = BTreeMap::new();
        for rooms in self.by_network().values() {
            let mut lasts: Vec<IpAddr> = rooms.iter().map(|(_, room)| room.last).collect();
            lasts.sort_unstable();
            // Those that begin no later, by where they end.
            let mut begun: BTreeSet<(IpAddr, &str)> = BTreeSet::new();
            for (place, (name, room)) in rooms.iter().enumerate() {
                let start = rooms.partition_point(|(_, other)| other.first <= room.last);
                let ended = lasts.partition_point(|last| *last < room.first);
                let count = start.saturating_sub(ended).saturating_sub(1);
                if count > 0 {
                    let before = begun.range((room.first, "")..).map(|(_, other)| *other);
                    let after = rooms.iter().skip(place + 1).map(|(other, _)| *other);
                    let meeting = start.saturating_sub(place).saturating_sub(1);
                    let shown = before.chain(after.take(meeting)).take(SHOWN).collect();
                    all.insert(*name, Overlap { shown, count });
                }
                begun.insert((room.last, name));
            }
        }
        all
    }

    /// The pool that each address found in use is counted for: of those that list it the smallest, and of those the first.
    pub fn around<'b>(
        &self,
        addresses: &BTreeSet<(&'b str, IpAddr)>,
    ) -> BTreeMap<(&'b str, IpAddr), &'a str> {
        let networks = self.by_network();
        let mut around = BTreeMap::new();
        let mut begun: BTreeSet<(u128, &str, IpAddr)> = BTreeSet::new();
        let (mut now, mut rooms) = ("", [].iter());
        for (network, address) in addresses {
            if now != *network {
                begun.clear();
                now = network;
                rooms = networks.get(now).map_or([].iter(), |rooms| rooms.iter());
            }
            while let Some((name, room)) = rooms.as_slice().first() {
                if room.first > *address {
                    break;
                }
                begun.insert((room.listed(), name, room.last));
                rooms.next();
            }
            while begun.first().is_some_and(|(.., last)| last < address) {
                begun.pop_first();
            }
            if let Some((_, pool, _)) = begun.first() {
                around.insert((*network, *address), *pool);
            }
        }
        around
    }
}

impl<'a> PoolRange<'a> {
    fn of(network: &'a str, ranges: &Ranges) -> Option<Self> {
        let AddressSpec::Range(first, last) = ranges.addresses else {
            return None;
        };
        let singles = ranges.exclusions.iter().filter_map(|one| match one {
            AddressSpec::Single(address) => Some(*address),
            AddressSpec::Cidr(_) | AddressSpec::Range(..) => None,
        });
        Some(Self {
            network,
            first,
            last,
            excluded: singles.collect(),
        })
    }

    /// Whether the pool can give the address.
    pub fn has(&self, address: IpAddr) -> bool {
        let inside = self.first <= address && address <= self.last;
        inside && !self.excluded.contains(&address)
    }

    /// How many addresses the pool can give.
    pub fn size(&self) -> u128 {
        self.listed().saturating_sub(self.excluded.len() as u128)
    }

    fn listed(&self) -> u128 {
        number(self.last)
            .saturating_sub(number(self.first))
            .saturating_add(1)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// What the statuses of pools and quotas are made of.
pub struct Uses<'a> {
    held: BTreeMap<&'a str, BTreeSet<IpAddr>>,
    /// By project and pool.
    charged: BTreeMap<(&'a str, &'a str), u64>,
}

impl<'a> Uses<'a> {
    pub fn of(found: &'a SiteInventory, known: &PoolRanges<'a>) -> Self {
        let mut uses = Self {
            held: BTreeMap::new(),
            charged: BTreeMap::new(),
        };
        for (pool, placed) in &found.book.pools {
            uses.held.insert(pool, placed.held.clone());
            for (project, charge) in &placed.charged {
                uses.charged.insert((project, pool), charge.used);
            }
        }
        uses.take_in(found, known);
        uses
    }

    /// An address is taken in once, for the first that shows it, and counts for a pool that lists it, whichever is named.
    fn take_in(&mut self, found: &'a SiteInventory, known: &PoolRanges<'a>) {
        let mut fresh: BTreeMap<(&str, IpAddr), Option<&str>> = BTreeMap::new();
        for (key, fip) in &found.fips {
            let shown = fip.shown().filter(|_| fip.meta.deleted.is_none());
            if let Some(address) = shown.filter(|_| !found.book.taken.contains(key)) {
                let project = fip.project.as_ref().map(|project| &*project.0);
                let place = (found.book.network(&fip.pool), address);
                fresh.entry(place).or_insert(project);
            }
        }
        let around = known.around(&fresh.keys().copied().collect());
        for ((_, address), pool) in &around {
            self.held.entry(pool).or_default().insert(*address);
        }
        for (place, pool) in around {
            if let Some(Some(project)) = fresh.get(&place) {
                *self.charged.entry((project, pool)).or_default() += 1;
            }
        }
    }

    /// The addresses of the pool that somebody has.
    pub fn held(&self, pool: &str) -> Option<&BTreeSet<IpAddr>> {
        self.held.get(pool)
    }

    /// How much of the pool the project has.
    pub fn charged(&self, project: &str, pool: &str) -> u64 {
        let charged = self.charged.get(&(project, pool));
        charged.copied().unwrap_or_default()
    }

    /// The pools that the project has something of.
    pub fn of_project(&self, project: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        let from = self.charged.range((project, "")..);
        from.take_while(move |((of, _), _)| *of == project)
            .filter(|(_, used)| **used > 0)
            .map(|((_, pool), used)| (*pool, *used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(first: u8, last: u8) -> PoolRange<'static> {
        PoolRange {
            network: "default",
            first: [10, 0, 0, first].into(),
            last: [10, 0, 0, last].into(),
            excluded: BTreeSet::new(),
        }
    }

    fn known(rooms: &[(&'static str, u8, u8)]) -> PoolRanges<'static> {
        let rooms = rooms
            .iter()
            .map(|(name, first, last)| (*name, room(*first, *last)));
        PoolRanges(rooms.collect())
    }

    #[test]
    fn overlaps_are_counted_as_a_comparison_of_all_with_all_counts_them() {
        let rooms = [
            ("a", 1, 9),
            ("b", 5, 5),
            ("c", 9, 20),
            ("d", 10, 11),
            ("e", 30, 40),
            ("f", 1, 9),
            ("g", 2, 50),
            ("h", 51, 51),
        ];
        let mut other = room(1, 99);
        other.network = "lab";
        let mut all = known(&rooms);
        all.0.insert("z", other);
        let seen = all.overlaps();
        for (name, first, last) in rooms {
            let meets = |(other, from, to): &&(&str, u8, u8)| {
                *other != name && *from <= last && first <= *to
            };
            let mut names: Vec<&str> = rooms.iter().filter(meets).map(|one| one.0).collect();
            let Some(overlap) = seen.get(name) else {
                assert!(names.is_empty(), "{name}: {names:?}");
                continue;
            };
            assert_eq!(overlap.count, names.len(), "{name}");
            let mut shown = overlap.shown.clone();
            shown.sort_unstable();
            names.retain(|one| shown.contains(one));
            assert_eq!(shown, names, "{name}");
            assert_eq!(shown.len(), overlap.count.min(SHOWN), "{name}");
        }
        assert_eq!(seen.get("z"), None, "another network");
    }

    #[test]
    fn an_address_counts_for_the_smallest_pool_that_lists_it() {
        let all = known(&[
            ("big", 1, 99),
            ("one", 5, 5),
            ("later", 50, 60),
            ("same", 50, 60),
        ]);
        let place = |last: u8| ("default", IpAddr::from([10, 0, 0, last]));
        let asked = [
            place(1),
            place(5),
            place(6),
            place(55),
            place(61),
            place(100),
        ];
        let asked: BTreeSet<_> = asked.into_iter().chain([("lab", place(5).1)]).collect();
        let expected = [
            (1, "big"),
            (5, "one"),
            (6, "big"),
            (55, "later"),
            (61, "big"),
        ];
        let expected = expected.map(|(last, pool)| (place(last), pool));
        assert_eq!(all.around(&asked), expected.into());
    }
}
