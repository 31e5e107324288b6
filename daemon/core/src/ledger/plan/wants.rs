//! What a request for addresses asks of the pools, and what its identity has of it already.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use smallvec::SmallVec;

use super::{quota::Need, reserve::Purpose};
use crate::{
    Allocate, Choice, Family, Identity, Lease, LeaseKey, LeaseState, Pool, Refusal, Selection,
    Want,
    ledger::{Ledger, draft::Stop, intern::fingerprint},
};

/// What an identity may have again.
#[derive(Default)]
pub(super) struct Again {
    pub free: SmallVec<[LeaseKey; 1]>,
    /// Cools, and the identity may end that.
    pub cooling: SmallVec<[LeaseKey; 1]>,
}

/// What a request gives out, with its lengths.
pub(super) type Given = BTreeMap<LeaseKey, u8>;

/// One want with what the identity has of it already.
pub(super) struct AskedWant<'a> {
    pub pool: Arc<Pool>,
    /// Where the pool is left open, `pool` is the first that it may be until it is settled.
    pub selection: Option<&'a Selection>,
    /// The selection leads to no pool; `pool` is that of a lease of the identity.
    pub outside: bool,
    /// For later, not to be used at once.
    pub keep: bool,
    pub key: Option<LeaseKey>,
    pub existing: SmallVec<[Arc<Lease>; 1]>,
    /// How many new leases it takes.
    pub missing: u32,
    /// Their keys, once taken.
    pub fresh: SmallVec<[LeaseKey; 1]>,
    /// What it has already has another group or other ports than before.
    pub reshared: bool,
    /// A lease of its group, with the asker as a member.
    pub joins: Option<Arc<Lease>>,
    /// Addresses that it is given before others. Those that cool are no part of `fresh`.
    pub again: Again,
}

impl AskedWant<'_> {
    /// What it names.
    pub fn named(&self) -> Option<(LeaseKey, u8)> {
        let prefix = self.pool.spec.prefix_at(self.key?);
        Some((prefix.key, prefix.length))
    }

    /// How many free addresses it takes.
    pub fn lacks(&self) -> usize {
        let missing = usize::try_from(self.missing).unwrap_or(usize::MAX);
        missing.saturating_sub(self.again.cooling.len())
    }

    /// Takes what it misses of the leases that answer it.
    fn claim(&mut self, held: &mut Vec<Arc<Lease>>, answers: impl Fn(&Lease) -> bool) {
        held.retain(|lease| {
            let takes = self.missing > 0 && answers(lease);
            if takes {
                self.existing.push(Arc::clone(lease));
                self.missing -= 1;
            }
            !takes
        });
    }
}

impl Ledger {
    /// The wants with their pools, before anything is found for them.
    pub(super) fn open<'a>(
        &self,
        ask: &'a Allocate,
        purpose: Purpose,
    ) -> Result<Vec<AskedWant<'a>>, Stop> {
        check_wants(ask)?;
        let mut asked: Vec<AskedWant<'a>> = Vec::with_capacity(ask.wants.len());
        for want in &ask.wants {
            let address = want.address.map(|address| address.to_canonical());
            let mut outside = false;
            let (pool, selection) = match &want.pool {
                Choice::Pool(id) => (Arc::clone(self.known_pool(*id)?), None),
                Choice::Any(selection) => {
                    let first = self.next_candidate(&self.search(selection), address, None);
                    outside = first.is_none();
                    let Selection { family, length, .. } = **selection;
                    let pool = first
                        .or_else(|| self.pool_of_held(&ask.holder.identity, selection, address))
                        .ok_or(Refusal::NoPool {
                            family,
                            length,
                            address,
                        })?;
                    (pool, Some(&**selection))
                }
            };
            let key = address.map(|address| LeaseKey {
                network: pool.spec.network,
                address,
            });
            let twice = |other: &AskedWant<'_>| {
                let open = other.selection.is_some() || selection.is_some();
                let spans = (other.key.zip(key)).map(|(a, b)| {
                    let span = |pool: &Pool, key| pool.spec.prefix_at(key).span();
                    (a.network == b.network || open)
                        && span(&other.pool, a).overlaps(&span(&pool, b))
                });
                spans.unwrap_or(false)
            };
            if asked.iter().any(twice) {
                let address = address.map_or_else(String::new, |address| address.to_string());
                return Err(Refusal::invalid("address", address, "each address once").into());
            }
            asked.push(AskedWant {
                pool,
                selection,
                outside,
                keep: !matches!(purpose, Purpose::Use),
                key,
                existing: SmallVec::new(),
                missing: want.count,
                fresh: SmallVec::new(),
                reshared: false,
                joins: None,
                again: Again::default(),
            });
        }
        Ok(asked)
    }

    /// Gives each want the leases that the identity has of it: named addresses first, then the lowest in use, then the
    /// others.
    pub(super) fn match_held(&self, asked: &mut [AskedWant<'_>], mut held: Vec<Arc<Lease>>) {
        held.sort_by_key(|lease| lease.state != LeaseState::Allocated);
        for want in asked.iter_mut() {
            let Some(key) = want.key else { continue };
            let answers = |lease: &Arc<Lease>| match want.selection {
                None => lease.prefix() == want.pool.spec.prefix_at(key),
                Some(selection) => {
                    lease.key.address == key.address
                        && self.is_selected(lease, &self.search(selection))
                }
            };
            if let Some(at) = held.iter().position(answers) {
                want.existing.push(held.remove(at));
                want.missing = 0;
            }
        }
        for want in asked.iter_mut().filter(|want| want.key.is_none()) {
            match want.selection.map(|selection| self.search(selection)) {
                None => {
                    let pool = Arc::clone(&want.pool);
                    want.claim(&mut held, |lease| self.answers(lease, &pool));
                }
                Some(search) => want.claim(&mut held, |lease| self.is_selected(lease, &search)),
            }
        }
        // What it has stays its own, whatever the scopes of the pool say by now.
        for want in asked.iter_mut() {
            if let Some(selection) = want.selection {
                let address = want.key.map(|key| key.address);
                want.claim(&mut held, |lease| is_like(lease, selection, address));
            }
        }
    }

    /// The pool of an address that the identity has and that answers a selection which leads to no pool.
    fn pool_of_held(
        &self,
        identity: &Identity,
        selection: &Selection,
        address: Option<IpAddr>,
    ) -> Option<Arc<Pool>> {
        let keys = self.index.identities.of(fingerprint(identity), None);
        let mut leases = keys.filter_map(|key| self.rows.leases.get(&key));
        let like =
            |lease: &&Arc<Lease>| lease.held_by(identity) && is_like(lease, selection, address);
        let pool = leases.find(like)?.pool?;
        self.rows.pools.get(&pool).cloned()
    }

    /// Whether a lease of the identity is one of the pool's: attributed to it or on its assignable addresses.
    fn answers(&self, lease: &Lease, pool: &Pool) -> bool {
        let assigns =
            || lease.length == pool.spec.lease_length() && self.assigns(lease.key, pool.id);
        lease.key.network == pool.spec.network && (lease.pool == Some(pool.id) || assigns())
    }
}

/// Whether a lease of a pool answers the selection but for who may use the pool.
fn is_like(lease: &Lease, selection: &Selection, address: Option<IpAddr>) -> bool {
    let key = lease.key;
    lease.pool.is_some()
        && Family::of(key.address) == selection.family
        && lease.length == selection.lease_length()
        && selection
            .network
            .is_none_or(|network| network == key.network)
        && address.is_none_or(|address| address == key.address)
}

/// What can be judged of the wants by themselves.
fn check_wants(ask: &Allocate) -> Result<(), Refusal> {
    let many = ask.wants.len();
    if !(1..=Allocate::MAX_WANTS).contains(&many) {
        let allowed = format!("1 to {}", Allocate::MAX_WANTS);
        return Err(Refusal::invalid("wants", many, allowed));
    }
    for want in &ask.wants {
        if let Choice::Any(selection) = &want.pool
            && let Some(length) = selection.length
            && !(1..=selection.family.bits()).contains(&length)
        {
            let allowed = format!("1 to {}", selection.family.bits());
            return Err(Refusal::invalid("select.length", length, allowed));
        }
        if !(1..=Want::MAX_COUNT).contains(&want.count) {
            let allowed = format!("1 to {}", Want::MAX_COUNT);
            return Err(Refusal::invalid("count", want.count, allowed));
        }
        if want.address.is_some() && want.count != 1 {
            let allowed = "1 where an address is named";
            return Err(Refusal::invalid("count", want.count, allowed));
        }
    }
    Ok(())
}

/// Pools that are to give something free, each once, and how much.
pub(super) fn needs<'a>(asked: &'a [AskedWant<'_>]) -> SmallVec<[Need<'a>; 2]> {
    sums(asked, |want| want.lacks() as u128)
}

/// What is counted of the wants, by pool.
pub(super) fn sums<'a>(
    asked: &'a [AskedWant<'_>],
    count: impl Fn(&AskedWant<'_>) -> u128,
) -> SmallVec<[Need<'a>; 2]> {
    let mut needs: SmallVec<[Need<'a>; 2]> = SmallVec::new();
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
