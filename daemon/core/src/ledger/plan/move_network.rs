//! Pools that go to another network with all that they have.
//!
//! It costs as much as the pool has leases; it is an admin's request. Each lease is two rows, under the pool's own audit
//! entry: nothing about who holds it changes.

use std::sync::Arc;

use crate::{
    Action, Answer, Collision, Lease, LeaseKey, LeasePrefix, NetworkId, Op, PastLease, Pool,
    PoolId, PoolSpec, Refusal, Span, Text,
    ledger::{
        Ledger,
        draft::{Draft, Draw, LockedTable, Stop},
        keyset::KeySet,
        rows_read::CountedRows as _,
        space::memory::Age,
    },
};

/// Some leases of a pool that is to go to another network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovePage {
    pub leases: usize,
    /// Those of them whose address somebody has there.
    pub collisions: Vec<Collision>,
    /// Ask again from here; `None` at the end.
    pub next: Option<LeaseKey>,
}

impl Ledger {
    pub(super) fn plan_move_network(&self, id: PoolId, to: NetworkId, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Pools, &mut draft)?;
        let pool = self.known_pool(id)?;
        let from = pool.spec.network;
        self.check_network(to)?;
        if from == to {
            return Err(Stop::Answer(Answer::Pool(Arc::clone(pool))));
        }
        self.check_move(from, to)?;
        let leases: Vec<LeaseKey> = self.index.of_pool(id).map_or_else(Vec::new, all);
        let there = |key: &LeaseKey| LeaseKey {
            network: to,
            ..*key
        };
        self.settled(leases.iter().copied())?;
        let rows = leases.iter().filter_map(|key| self.rows.leases.get(key));
        let spans: Vec<Span> = rows.map(|lease| lease.span()).collect();
        self.unlocked_spans(to, &spans)?;
        let listed = self.listed(id);
        self.unlocked_spans(from, listed)?;
        self.unlocked_spans(to, listed)?;
        self.check_collisions(pool, to, &leases)?;
        let next = Arc::new(Pool {
            spec: PoolSpec {
                network: to,
                network_by_default: false,
                ..pool.spec.clone()
            },
            generation: pool.generation.saturating_add(1),
            ..Pool::clone(pool)
        });
        draft.flight.edits.extend([from, to]);
        draft.flight.ops.push(Op::PutPool(Arc::clone(&next)));
        for lease in leases.iter().filter_map(|key| self.rows.leases.get(key)) {
            let moved = Lease {
                key: there(&lease.key),
                ..Lease::clone(lease)
            };
            draft.flight.keys.extend([lease.key, moved.key]);
            draft.flight.ops.push(Op::DeleteLease(lease.key));
            draft.flight.ops.push(Op::PutLease(Arc::new(moved)));
        }
        let attached = self.attach(&mut draft, &next, listed);
        self.move_memory(&mut draft, id, to);
        let detail = self.moved_text(pool, &next, leases.len(), attached);
        draft.say_pool(Action::PoolMoved, &next, detail);
        Ok((draft, Answer::Pool(next)))
    }

    /// The pool's leases after `after` and what of them collides, at most [`Ledger::SCAN`] at once.
    ///
    /// # Errors
    /// What the move would be refused for but for collisions.
    pub fn preview_move(
        &self,
        id: PoolId,
        to: NetworkId,
        after: Option<LeaseKey>,
    ) -> Result<MovePage, Refusal> {
        let pool = self.known_pool(id)?;
        self.check_network(to)?;
        if pool.spec.network == to {
            return Ok(MovePage::default());
        }
        self.check_move(pool.spec.network, to)?;
        let keys = self.index.of_pool(id).into_iter();
        let mut keys = keys.flat_map(|keys| keys.after(after)).peekable();
        let page: Vec<LeaseKey> = keys.by_ref().take(Self::SCAN).counted().collect();
        Ok(MovePage {
            leases: page.len(),
            collisions: self.collisions(to, &page).collect(),
            next: page.last().filter(|_| keys.peek().is_some()).copied(),
        })
    }

    /// Refuses while somebody not known yet may use the addresses, in either network: where they are held they stay held,
    /// and none goes where it may be another's.
    fn check_move(&self, from: NetworkId, to: NetworkId) -> Result<(), Refusal> {
        self.check_adopted(to)?;
        self.check_adopted(from)?;
        self.check_restored(to)?;
        self.check_restored(from)
    }

    fn collisions(&self, to: NetworkId, leases: &[LeaseKey]) -> impl Iterator<Item = Collision> {
        leases.iter().filter_map(move |key| {
            let here = self.rows.leases.get(key)?.prefix();
            let mut there = here;
            there.key.network = to;
            let lease = self.lease_over(there)?;
            let owner = lease.owner().map_or_else(
                || "in quarantine".to_owned(),
                |owner| owner.identity.to_string(),
            );
            Some(Collision {
                address: here.key.address,
                length: here.explicit_length(),
                owner,
            })
        })
    }

    fn check_collisions(
        &self,
        pool: &Pool,
        to: NetworkId,
        leases: &[LeaseKey],
    ) -> Result<(), Refusal> {
        let mut all = self.collisions(to, leases);
        let first: Vec<Collision> = all.by_ref().take(Collision::LISTED).collect();
        if first.is_empty() {
            return Ok(());
        }
        Err(Refusal::Collisions {
            pool: Arc::clone(&pool.spec.name),
            network: self.network_name(to),
            count: (first.len() + all.count()) as u64,
            first,
        })
    }

    /// What the pool remembers goes along, but for addresses that somebody has or is remembered for there.
    fn move_memory(&self, draft: &mut Draft, pool: PoolId, to: NetworkId) {
        let memory = self.free.memory();
        let pasts = memory.of_pool(pool);
        for past in pasts.filter_map(|(_, key): Age| memory.get(key)) {
            let key = LeaseKey {
                network: to,
                ..past.key
            };
            draft.flight.ops.push(Op::DeletePast(past.key));
            let prefix = LeasePrefix {
                key,
                length: memory.length(past.key),
            };
            if self.lease_over(prefix).is_none() && memory.get(key).is_none() {
                let moved = PastLease {
                    key,
                    ..PastLease::clone(past)
                };
                draft.flight.ops.push(Op::PutPast(Arc::new(moved)));
            }
        }
    }

    fn moved_text(&self, before: &Pool, after: &Pool, leases: usize, attached: usize) -> Text {
        let name = |pool: &Pool| self.network_name(pool.spec.network);
        let mut text = format!(
            "{}: from {} to {} with {leases} leases",
            after.spec.name,
            name(before),
            name(after)
        );
        if attached > 0 {
            text = format!("{text}, and {attached} found there before");
        }
        text.into()
    }
}

fn all(keys: &KeySet) -> Vec<LeaseKey> {
    keys.iter().collect()
}
