//! Pools whose networks nobody chose and that have addresses in common. Whether such networks are one or two only an admin
//! can say: until then none of these pools gives what they share.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::Bound,
    sync::Arc,
};

use super::{
    Ledger,
    rows_read::CountedRows as _,
    space::{
        runs::Runs,
        segments::{Gives, PoolPart, Space, Stab},
    },
};
use crate::{
    Family, LeaseKey, NetworkId, Op, Overlap, Pool, PoolId, Refusal, Separation, Span, Text,
    layout::Layout,
};

/// Where a pool is, with all that its specification gives.
#[derive(Clone, Debug)]
struct Placement {
    network: NetworkId,
    layout: Arc<Layout>,
}

/// The pools in networks that were chosen by default.
#[derive(Clone, Debug, Default)]
pub(super) struct Ambiguity {
    places: BTreeMap<PoolId, Placement>,
    /// What they give, whatever their networks.
    spaces: BTreeMap<Family, Space>,
    separate: BTreeSet<Separation>,
}

impl Ambiguity {
    /// Puts the pool there, or takes it out, and names the pools that may give more or less since, itself among them; none
    /// where it is there already.
    pub fn set(&mut self, pool: PoolId, to: Option<(NetworkId, &Arc<Layout>)>) -> BTreeSet<PoolId> {
        if self.is_there(pool, to) {
            return BTreeSet::new();
        }
        let mut near = self.near(pool);
        self.put(pool, to);
        near.append(&mut self.near(pool));
        near.insert(pool);
        near
    }

    fn is_there(&self, pool: PoolId, to: Option<(NetworkId, &Arc<Layout>)>) -> bool {
        let place = self.places.get(&pool);
        let place = place.map(|place| (place.network, &place.layout));
        place == to
    }

    fn put(&mut self, pool: PoolId, to: Option<(NetworkId, &Arc<Layout>)>) {
        if let Some(place) = self.places.remove(&pool)
            && let Some(space) = self.spaces.get_mut(&place.layout.family)
        {
            for span in &place.layout.assignable {
                space.subtract(span, pool, &mut Vec::new());
            }
        }
        if let Some((network, layout)) = to {
            let family = layout.family;
            let space = self.spaces.entry(family);
            let space = space.or_insert_with(|| Space::new(Runs::new(family), family.bits()));
            let gives = Gives::Yes;
            let part = PoolPart { pool, gives };
            for span in &layout.assignable {
                space.add(span, part, &mut Vec::new());
            }
            let layout = Arc::clone(layout);
            self.places.insert(pool, Placement { network, layout });
        }
    }

    /// The pool and those that it takes addresses from.
    fn near(&self, pool: PoolId) -> BTreeSet<PoolId> {
        let doubts = self.doubts(pool);
        let parts = self.runs(pool).flat_map(|(_, parts)| parts);
        let others = parts.filter(|part| doubts(part)).map(|part| part.pool);
        others.chain(std::iter::once(pool)).collect()
    }

    /// The runs of the pool's addresses and the pools that have them.
    fn runs(&self, pool: PoolId) -> impl Iterator<Item = (Span, &Stab)> {
        let place = self.places.get(&pool);
        let place = place.and_then(|place| Some((place, self.spaces.get(&place.layout.family)?)));
        place.into_iter().flat_map(|(place, space)| {
            let spans = place.layout.assignable.iter();
            spans.flat_map(|span| space.within(*span))
        })
    }

    /// The runs within the span and the pools that have them, of whatever network.
    fn within(&self, span: Span) -> impl Iterator<Item = (Span, &Stab)> {
        let space = self.spaces.get(&span.family).into_iter();
        space.flat_map(move |space| space.within(span))
    }

    /// Says of a pool whether it may mean the same addresses as this one where they have equal ones.
    fn doubts(&self, pool: PoolId) -> impl Fn(&PoolPart) -> bool {
        let network = |id: PoolId| self.places.get(&id).map(|place| place.network);
        let own = network(pool);
        move |part| {
            let both = own.zip(network(part.pool));
            both.is_some_and(|(own, other)| {
                own != other && !self.separate.contains(&separation(own, other))
            })
        }
    }

    /// What the pool gives, where it is one of these.
    pub fn layout(&self, pool: PoolId) -> Option<(NetworkId, Arc<Layout>)> {
        let place = self.places.get(&pool)?;
        let doubts = self.doubts(pool);
        let runs = self.runs(pool);
        let withheld = runs.filter(|(_, parts)| parts.iter().any(&doubts));
        let withheld: Vec<Span> = withheld.map(|(run, _)| run).collect();
        let layout = match withheld.as_slice() {
            [] => Arc::clone(&place.layout),
            spans => Arc::new(place.layout.without(spans)),
        };
        Some((place.network, layout))
    }

    /// The pools of either network.
    fn of_networks(&self, (a, b): Separation) -> Vec<PoolId> {
        let of = |(_, place): &(&PoolId, &Placement)| place.network == a || place.network == b;
        self.places.iter().filter(of).map(|(id, _)| *id).collect()
    }
}

/// The pair in its order.
pub(super) fn separation(a: NetworkId, b: NetworkId) -> Separation {
    (a.min(b), a.max(b))
}

impl Ledger {
    /// The networks of which an admin said that they are two, after `after`.
    pub fn separations_after(&self, after: Option<Separation>) -> impl Iterator<Item = Separation> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let pairs = self.ambiguity.separate.range((from, Bound::Unbounded));
        pairs.copied().counted()
    }

    /// Whether an admin said so of these.
    pub(super) fn separated(&self, one: NetworkId, other: NetworkId) -> bool {
        self.ambiguity.separate.contains(&separation(one, other))
    }

    /// The runs that the pool withholds, each with the pools that may mean the same addresses. Reads at most
    /// [`Ledger::SCAN`] rows, and leaves out the runs and pools after them.
    fn withheld(&self, pool: PoolId) -> impl Iterator<Item = (Span, PoolId)> {
        let spans = self.free.room(pool).map(|room| &*room.layout.withheld);
        let spans = spans.unwrap_or_default().iter();
        let runs = spans.flat_map(|span| self.ambiguity.within(*span));
        let parts = runs.flat_map(|(run, parts)| parts.iter().map(move |part| (run, part)));
        let doubts = self.ambiguity.doubts(pool);
        let doubted = parts.take(Self::SCAN).counted();
        let doubted = doubted.filter(move |(_, part)| doubts(part));
        doubted.map(|(run, part)| (run, part.pool))
    }

    /// What the pool withholds, and a pool of another network that may mean the same addresses; at most `limit` runs.
    pub fn ambiguities(&self, pool: PoolId, limit: usize) -> Vec<Overlap> {
        let runs = self.withheld(pool).take(limit);
        let overlap = |(run, pool): (Span, PoolId)| Overlap {
            pool,
            first: run.first_address(),
            last: run.last_address(),
        };
        runs.map(overlap).collect()
    }

    /// What an admin is told of a pool that withholds addresses.
    pub fn ambiguity(&self, pool: PoolId) -> Option<String> {
        let (run, other) = self.withheld(pool).next()?;
        let names = |id: PoolId| Some(self.names(self.rows.pools.get(&id)?));
        let ((_, here), (other, there)) = (names(pool)?, names(other)?);
        let withheld = self.free.room(pool)?.layout.withheld_count();
        let (first, last) = (run.first_address(), run.last_address());
        let prefixes = self.rows.pools.get(&pool)?.spec.allocation_length.is_some();
        let what = if prefixes { "prefixes" } else { "addresses" };
        Some(format!(
            "{withheld} {what} are not given, the first of them {first}-{last}: pool {other} of network {there} may mean the same, and nobody chose the networks. An admin says that they are two with `fipd network separate {here} {there}`, or takes one pool to the other's network with `fipd pool move-network`"
        ))
    }

    /// Whether the pool could give the address, but for another that may mean the same.
    pub fn withholds(&self, key: LeaseKey, pool: PoolId) -> bool {
        let part = self.free.part(key, pool);
        part.is_some_and(|part| part.gives == Gives::Withheld)
    }

    /// The names of the pool and of its network.
    fn names(&self, pool: &Pool) -> (Text, Text) {
        let name = Arc::clone(&pool.spec.name);
        (name, self.network_name(pool.spec.network))
    }

    /// Why the pool does not give the address.
    pub(super) fn ambiguous(&self, pool: &Pool, address: IpAddr) -> Refusal {
        let doubts = self.ambiguity.doubts(pool.id);
        let length = pool.spec.lease_length();
        let parts = self.ambiguity.within(Span::of_prefix(address, length));
        let parts = parts.flat_map(|(_, parts)| parts);
        let mut others = parts.filter(|part| doubts(part));
        let other = others.find_map(|part| self.rows.pools.get(&part.pool));
        let unknown = || ("?".into(), "?".into());
        let (other, there) = other.map_or_else(unknown, |other| self.names(other));
        let (pool, network) = self.names(pool);
        Refusal::NetworkAmbiguous {
            address,
            pool,
            network,
            other,
            there,
        }
    }

    /// Puts the pool, and those that it shares addresses with, into their spaces with what they may give.
    pub(super) fn place(&mut self, pool: PoolId, to: Option<(NetworkId, &Arc<Layout>)>) {
        let near = self.ambiguity.set(pool, to);
        self.fit(near);
    }

    pub(super) fn put_separation(&mut self, pair: Separation, apart: bool) {
        let changed = if apart {
            self.ambiguity.separate.insert(pair)
        } else {
            self.ambiguity.separate.remove(&pair)
        };
        if changed {
            self.fit(self.ambiguity.of_networks(pair));
        }
    }

    /// Puts all pools of the rows into their spaces at once, each with what it may give: one after the other would fit
    /// those that it shares addresses with each time.
    pub(super) fn place_all(&mut self, pools: &[Arc<Pool>]) {
        for pool in pools.iter().filter(|pool| pool.spec.network_by_default) {
            if let Ok(layout) = Layout::new(&pool.spec) {
                let place = (pool.spec.network, &Arc::new(layout));
                self.ambiguity.put(pool.id, Some(place));
            }
        }
        let pools: Vec<PoolId> = self.ambiguity.places.keys().copied().collect();
        self.fit(pools);
    }

    fn fit(&mut self, pools: impl IntoIterator<Item = PoolId>) {
        for id in pools {
            if let Some((network, layout)) = self.ambiguity.layout(id) {
                self.free.set_pool(id, network, layout, &self.rows.leases);
            }
        }
    }

    /// Pools that may give more or less once the row is applied.
    pub(super) fn note_ambiguity(&self, op: &Op) -> Vec<PoolId> {
        if let Op::PutSeparation(pair) | Op::DeleteSeparation(pair) = op {
            self.ambiguity.of_networks(*pair)
        } else if let Op::DeletePool(id) = op {
            self.ambiguity.near(*id).into_iter().collect()
        } else if let Op::PutPool(pool) = op {
            let mut near = self.ambiguity.near(pool.id);
            let family = pool.spec.family().unwrap_or(Family::V4);
            let there = self.ambiguity.spaces.get(&family);
            let listed = pool.spec.addresses.iter().map(|entry| entry.span());
            for space in there.iter().filter(|_| pool.spec.network_by_default) {
                let runs = listed.clone().flat_map(|span| space.within(span));
                near.extend(runs.flat_map(|(_, parts)| parts.iter().map(|part| part.pool)));
            }
            near.into_iter().collect()
        } else {
            Vec::new()
        }
    }
}
