//! What making or editing a pool would change, told before it is done.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    Lease, LeaseKey, LeaseState, Pool, PoolId, PoolSize, PoolSpec, Refusal,
    layout::Layout,
    ledger::{
        LeasePage, Ledger,
        keyset::KeySet,
        rows_read::{CountedRows as _, count},
    },
};

/// What a specification would come to. Lists are bounded by [`Ledger::PREVIEWED`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPreview {
    /// `None` for a pool to be made.
    pub before: Option<PoolSize>,
    pub after: PoolSize,
    /// Leases of the pool that would be out of range, in key order; what cools is not among them.
    pub leaving: Vec<Arc<Lease>>,
    /// Ask again from here: there may be more of them.
    pub next: Option<LeaseKey>,
    /// Other pools of the network that list an address of it, by number.
    pub overlaps: Vec<PoolId>,
}

impl Ledger {
    /// A preview looks at so many leases of the pool, and at as many shares of other pools.
    pub const PREVIEWED: usize = Self::SCAN / 2;

    /// What `spec` would come to as a new pool, or in place of what `pool` is.
    ///
    /// # Errors
    /// What the request itself would be refused for, but for leases that would be out of range.
    pub fn preview_pool(
        &self,
        pool: Option<PoolId>,
        spec: &PoolSpec,
    ) -> Result<PoolPreview, Refusal> {
        self.preview_pool_after(pool, spec, None, Self::PREVIEWED)
    }

    /// The same with the leases after `after` that would be out of range, from at most `limit` of them.
    ///
    /// # Errors
    /// Those of [`Ledger::preview_pool`].
    pub fn preview_pool_after(
        &self,
        pool: Option<PoolId>,
        spec: &PoolSpec,
        after: Option<LeaseKey>,
        limit: usize,
    ) -> Result<PoolPreview, Refusal> {
        let pool = pool.map(|id| self.known_pool(id)).transpose()?;
        let layout = self.check_spec(spec, pool)?;
        let room = pool.and_then(|pool| self.free.room(pool.id));
        // One more tells whether there are more.
        let limit = limit.min(Self::PREVIEWED - 1);
        let leaving = pool.map(|pool| self.would_leave(pool, spec, &layout, after, limit));
        let leaving = leaving.unwrap_or_default();
        let mut overlaps = self.also_listing(spec, &layout);
        overlaps.retain(|id| pool.is_none_or(|pool| pool.id != *id));
        Ok(PoolPreview {
            before: room.map(|room| room.layout.size),
            after: layout.size,
            leaving: leaving.leases,
            next: leaving.next,
            overlaps: overlaps.into_iter().collect(),
        })
    }

    fn would_leave(
        &self,
        pool: &Pool,
        spec: &PoolSpec,
        layout: &Layout,
        after: Option<LeaseKey>,
        limit: usize,
    ) -> LeasePage {
        let gone = self.leaving(pool, spec, layout);
        let of_pool = self.index.of_pool(pool.id);
        let within = |mine: &KeySet| {
            let spans = gone.iter().flat_map(|span| {
                let (first, last) = LeaseKey::within(pool.spec.network, *span).into_inner();
                let start = after.map_or(first, |after| first.max(after));
                let rest = mine.within(start, last);
                rest.filter(move |key| after.is_none_or(|after| *key > after))
            });
            spans.take(limit + 1).collect::<Vec<_>>()
        };
        let mut found = of_pool.map_or_else(Vec::new, within);
        count(found.len());
        let more = found.len() > limit;
        found.truncate(limit);
        let leases = found.iter().filter_map(|key| self.rows.leases.get(key));
        let leases = leases.filter(|lease| lease.state != LeaseState::Quarantined);
        LeasePage {
            leases: leases.cloned().collect(),
            next: found.last().copied().filter(|_| more),
        }
    }

    /// Pools that list an address of the layout, from the first shares of any in its runs.
    fn also_listing(&self, spec: &PoolSpec, layout: &Layout) -> BTreeSet<PoolId> {
        let listed = layout.listed.iter();
        let runs = listed.flat_map(|span| self.free.segments(spec.network, *span));
        let shared = runs.flat_map(|(_, parts)| parts).take(Self::PREVIEWED);
        shared.counted().map(|part| part.pool).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NetworkId, Op, Timestamp, testing};

    fn pool(id: u32, name: &str, addresses: &[&str]) -> Op {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Op::PutPool(Arc::new(Pool {
            id: PoolId(id),
            spec: PoolSpec::own(name, addresses),
            created: Timestamp(0),
            generation: 1,
        }))
    }

    fn lease(pool: u32, address: &str, state: LeaseState) -> Op {
        let holder = testing::holder(format!("fipd/Host/lab/{address}"), "");
        let cools = state == LeaseState::Quarantined;
        let member = testing::member(holder);
        let members = if cools { vec![] } else { vec![member] };
        Op::PutLease(Arc::new(Lease {
            members: members.into(),
            state,
            until: cools.then_some(Timestamp(9)),
            ..testing::lease(testing::key_of(address), Some(PoolId(pool)), None)
        }))
    }

    fn ledger() -> Ledger {
        let ops = [
            pool(1, "a", &["10.0.0.0/24"]),
            pool(2, "b", &["10.0.1.0/24"]),
            pool(3, "c", &["10.0.0.128/25"]),
            lease(1, "10.0.0.7", LeaseState::Allocated),
            lease(1, "10.0.0.9", LeaseState::Quarantined),
            lease(3, "10.0.0.200", LeaseState::Allocated),
        ];
        Ledger::load(ops.into_iter(), 0).unwrap()
    }

    #[test]
    fn says_who_would_be_left_out_and_what_overlaps() {
        let ledger = ledger();
        let spec = PoolSpec::own(
            "a",
            vec![
                "10.0.0.16/28".parse().unwrap(),
                "10.0.1.0/30".parse().unwrap(),
            ],
        );
        let preview = ledger.preview_pool(Some(PoolId(1)), &spec).unwrap();
        assert_eq!(preview.before.unwrap().assignable, 256);
        assert_eq!(preview.after.assignable, 20);
        let addresses = preview
            .leaving
            .iter()
            .map(|lease| lease.key.address.to_string());
        assert_eq!(addresses.collect::<Vec<_>>(), ["10.0.0.7"]);
        assert_eq!(preview.next, None);
        assert_eq!(preview.overlaps, [PoolId(2)]);
    }

    #[test]
    fn a_new_pool_leaves_nobody_out() {
        let ledger = ledger();
        let spec = testing::pool_spec("new", &["10.0.0.0/16"]);
        let preview = ledger.preview_pool(None, &spec).unwrap();
        assert_eq!((preview.before, preview.leaving.len()), (None, 0));
        assert_eq!(preview.overlaps, [PoolId(1), PoolId(2), PoolId(3)]);
    }

    #[test]
    fn what_would_be_refused_is_refused() {
        let ledger = ledger();
        let spec = testing::pool_spec("b", &["10.9.0.0/16"]);
        let taken = Refusal::PoolExists("b".into());
        assert_eq!(ledger.preview_pool(None, &spec), Err(taken.clone()));
        assert_eq!(ledger.preview_pool(Some(PoolId(1)), &spec), Err(taken));
        let unknown = ledger.preview_pool(Some(PoolId(9)), &spec);
        assert_eq!(unknown, Err(Refusal::UnknownPool(PoolId(9))));
        let moved = PoolSpec {
            network: NetworkId(7),
            ..testing::pool_spec("a", &["10.0.0.0/24"])
        };
        let unknown = ledger.preview_pool(Some(PoolId(1)), &moved);
        assert_eq!(unknown, Err(Refusal::UnknownNetwork(NetworkId(7))));
    }

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let mut ops = vec![pool(1, "a", &["10.0.0.0/16"])];
        for number in 0..Ledger::PREVIEWED {
            let address = format!("10.0.{}.{}", number / 256, number % 256);
            ops.push(lease(1, &address, LeaseState::Allocated));
        }
        let ledger = Ledger::load(ops.into_iter(), 0).unwrap();
        let spec = testing::pool_spec("a", &["10.0.255.0/24"]);
        let preview = ledger.preview_pool(Some(PoolId(1)), &spec).unwrap();
        assert_eq!(preview.leaving.len(), Ledger::PREVIEWED - 1);
        let last = preview.leaving.last().map(|lease| lease.key);
        assert_eq!(preview.next, last);
        let rest = ledger.preview_pool_after(Some(PoolId(1)), &spec, last, 9);
        let rest = rest.unwrap();
        assert_eq!((rest.leaving.len(), rest.next), (1, None));
        let some = ledger.preview_pool_after(Some(PoolId(1)), &spec, None, 9);
        let some = some.unwrap();
        assert_eq!((some.leaving.len(), some.next.is_some()), (9, true));
    }
}
