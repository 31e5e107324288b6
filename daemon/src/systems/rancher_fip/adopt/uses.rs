//! Who holds what of which pool: what the address book says, and what it takes in of FloatingIPs that it does not know yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::inventory::SiteInventory;
use super::pool_ranges::PoolRanges;

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
