//! What a request for addresses asks of the pools, and what its identity has of it already.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Ledger, plan::Stop, plan_remember::Again, quotas::Need};
use crate::{Allocate, Lease, LeaseKey, LeaseState, Pool, Refusal, Want};

/// One want with what the identity has of it already.
pub(super) struct Asked {
    pub pool: Arc<Pool>,
    pub key: Option<LeaseKey>,
    pub existing: SmallVec<[Arc<Lease>; 1]>,
    /// How many new leases it takes.
    pub missing: u32,
    /// Their keys, once taken.
    pub fresh: SmallVec<[LeaseKey; 1]>,
    /// Addresses that it is given before others. Those that cool are no part of `fresh`.
    pub again: Again,
}

impl Asked {
    /// How many free addresses it takes.
    pub fn lacks(&self) -> usize {
        let missing = usize::try_from(self.missing).unwrap_or(usize::MAX);
        missing.saturating_sub(self.again.cooling.len())
    }
}

pub(super) type Wants = SmallVec<[(Arc<Pool>, Want); 2]>;

impl Ledger {
    pub(super) fn check_wants(&self, ask: &Allocate) -> Result<Wants, Stop> {
        let invalid = |field, value: String, allowed: &str| Refusal::Invalid {
            field,
            value,
            allowed: allowed.into(),
        };
        if ask.wants.is_empty() || ask.wants.len() > Allocate::MAX_WANTS {
            return Err(invalid(
                "wants",
                ask.wants.len().to_string(),
                &format!("1 to {}", Allocate::MAX_WANTS),
            )
            .into());
        }
        let mut wants = Wants::new();
        for (at, want) in ask.wants.iter().enumerate() {
            if !(1..=Want::MAX_COUNT).contains(&want.count) {
                return Err(invalid(
                    "count",
                    want.count.to_string(),
                    &format!("1 to {}", Want::MAX_COUNT),
                )
                .into());
            }
            if want.address.is_some() && want.count != 1 {
                return Err(invalid(
                    "count",
                    want.count.to_string(),
                    "1 where an address is named",
                )
                .into());
            }
            let pool = self
                .rows
                .pools
                .get(&want.pool)
                .ok_or(Refusal::UnknownPool(want.pool))?;
            let want = Want {
                address: want.address.map(|address| address.to_canonical()),
                ..want.clone()
            };
            let twice = |before: &(Arc<Pool>, Want)| {
                before.1.address == want.address && before.0.spec.network == pool.spec.network
            };
            if want.address.is_some() && wants.iter().take(at).any(twice) {
                let address = want
                    .address
                    .map_or_else(String::new, |address| address.to_string());
                return Err(invalid("address", address, "each address once").into());
            }
            wants.push((Arc::clone(pool), want));
        }
        Ok(wants)
    }

    /// Gives each want the leases that the identity has of it: named addresses first, then the lowest in use, then the
    /// others.
    pub(super) fn match_held(
        &self,
        wants: Wants,
        mut held: Vec<Arc<Lease>>,
    ) -> SmallVec<[Asked; 2]> {
        held.sort_by_key(|lease| lease.state != LeaseState::Allocated);
        let mut asked: SmallVec<[Asked; 2]> = wants
            .into_iter()
            .map(|(pool, want)| {
                let key = want.address.map(|address| LeaseKey {
                    network: pool.spec.network,
                    address,
                });
                let at = key.and_then(|key| held.iter().position(|lease| lease.key == key));
                let existing: SmallVec<[_; 1]> = at.map(|at| held.remove(at)).into_iter().collect();
                let missing = want.count - u32::from(!existing.is_empty());
                Asked {
                    pool,
                    key,
                    existing,
                    missing,
                    fresh: SmallVec::new(),
                    again: Again::default(),
                }
            })
            .collect();
        for want in asked.iter_mut().filter(|want| want.key.is_none()) {
            held.retain(|lease| {
                let takes = want.missing > 0 && self.answers(lease, &want.pool);
                if takes {
                    want.existing.push(Arc::clone(lease));
                    want.missing -= 1;
                }
                !takes
            });
        }
        asked
    }

    /// Whether a lease of the identity is one of the pool's: attributed to it or on its assignable addresses.
    fn answers(&self, lease: &Lease, pool: &Pool) -> bool {
        let assigns = || {
            self.free
                .stab(lease.key)
                .iter()
                .any(|part| part.pool == pool.id && part.assignable)
        };
        lease.key.network == pool.spec.network && (lease.pool == Some(pool.id) || assigns())
    }
}

/// Pools that are to give something free, each once, and how much.
pub(super) fn needs(asked: &[Asked]) -> SmallVec<[Need<'_>; 2]> {
    sums(asked, |want| want.lacks() as u128)
}

/// What is counted of the wants, by pool.
pub(super) fn sums(asked: &[Asked], count: impl Fn(&Asked) -> u128) -> SmallVec<[Need<'_>; 2]> {
    let mut needs: SmallVec<[Need<'_>; 2]> = SmallVec::new();
    for want in asked {
        match (
            count(want),
            needs.iter_mut().find(|(id, ..)| *id == want.pool.id),
        ) {
            (0, _) => {}
            (more, Some((_, need, _))) => *need += more,
            (more, None) => needs.push((want.pool.id, more, &want.pool)),
        }
    }
    needs
}
