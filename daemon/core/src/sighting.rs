//! What to do about addresses of our pools that a cluster shows as used by Services of others.
//!
//! Pure. A free address is kept for the Service that shows it, a held one makes it a contender; neither takes anything
//! from anybody. A cluster shows what it likes, so that it gets no more than its [`limit`] of a pool without an admin.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    ClusterId, Contender, Holder, Identity, Lease, LeaseKey, LeasePrefix, LeaseState, Ledger, Pool,
    PoolId, ReleaseScope, Span, Timestamp,
};

/// A Service of others, as the list of a cluster has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignUser {
    /// Since when there is the Service.
    pub since: Timestamp,
    pub holder: Holder,
}

/// The most addresses of a pool of this size that one cluster has as held or contended without an admin. A twentieth of an
/// IPv6 pool would be no limit.
pub fn limit(size: u128) -> usize {
    const LEAST: usize = 16;
    const SHARE: u128 = 20;
    const MOST: usize = 65_536;
    let share = usize::try_from(size / SHARE).unwrap_or(usize::MAX);
    share.clamp(LEAST, MOST)
}

/// The most uses of one leased prefix that a cluster has without an admin, so that it keeps out none of another.
const MOST_OF_PREFIX: usize = 250;

/// For whom an owner holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldFor {
    /// The cluster whose Services show it: both are the same use.
    This,
    Another,
    /// It is not known yet.
    Unknown,
}

/// A contender of its own cluster's use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moot {
    pub contender: Holder,
    pub key: LeaseKey,
    /// Who holds the address for the cluster.
    pub beside: Identity,
}

impl Moot {
    /// What a release of it is about: only its place as contender, and only as long as that one has the address.
    pub fn scope(self) -> ReleaseScope {
        ReleaseScope::Contention {
            contender: self.contender,
            key: self.key,
            beside: Some(self.beside),
        }
    }
}

/// What is to be done about one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The Service gets the lease, or contends for it.
    Adopt(Holder),
    /// Kept already, the same use that its cluster has it for, or perhaps that.
    Known(Option<Holder>),
    /// More than the cluster may have without an admin, none of it may be kept, or no use more of the lease can be noted: only
    /// shown.
    Report,
}

/// Rules on the addresses of one list of one cluster.
#[derive(Debug)]
pub struct SightingRules<'a> {
    cluster: &'a ClusterId,
    /// Reported by an earlier list, and confirmed by an admin since.
    confirmed: &'a BTreeSet<LeaseKey>,
    /// Addresses of each pool that the cluster has by sightings.
    kept: BTreeMap<PoolId, usize>,
    /// New uses of leased prefixes.
    uses: BTreeMap<LeaseKey, usize>,
    /// Contenders of what turned out to be the same use.
    moot: Vec<Moot>,
}

impl<'a> SightingRules<'a> {
    pub fn new(cluster: &'a ClusterId, confirmed: &'a BTreeSet<LeaseKey>) -> Self {
        Self {
            cluster,
            confirmed,
            kept: BTreeMap::new(),
            uses: BTreeMap::new(),
            moot: Vec::new(),
        }
    }

    /// Services that contend for what is held for their own cluster, by the rulings since the last call.
    pub fn take_moot(&mut self) -> Vec<Moot> {
        std::mem::take(&mut self.moot)
    }

    /// Counts a lease that Services of the cluster hold, or each of their uses of one that they contend for. All of them come
    /// before the first ruling.
    pub fn count(&mut self, ledger: &Ledger, lease: &Lease) {
        let mine = |one: &&Contender| one.holder.identity.cluster.as_ref() == Some(self.cluster);
        let contenders = lease.contenders.iter().filter(mine);
        let uses = contenders.flat_map(|one| one.used_of(lease.prefix()));
        let mut uses: BTreeSet<LeasePrefix> = uses.collect();
        if uses.is_empty() {
            uses.insert(lease.prefix());
        }
        for used in uses {
            // An address in a pool of prefixes has no pool of its own.
            let around = || ledger.pool_in_range(used.key).map(|pool| pool.id);
            let own = lease.pool.filter(|_| used == lease.prefix());
            if let Some(pool) = own.or_else(around) {
                *self.kept.entry(pool).or_default() += 1;
            }
        }
    }

    /// How many addresses of a pool the cluster has by sightings.
    pub fn kept(&self, pool: PoolId) -> usize {
        self.kept.get(&pool).copied().unwrap_or(0)
    }

    /// Rules on an address in the range of `pool`. `users` show it and are in order, `may_keep` says whether what is new is
    /// kept at all, `held_for` for whom a holder has it. While that is not known nobody new contends, and nobody stops contending.
    pub fn rule(
        &mut self,
        ledger: &Ledger,
        (key, pool): (LeaseKey, &Pool),
        users: &BTreeSet<ForeignUser>,
        may_keep: bool,
        held_for: impl Fn(&Identity) -> HeldFor,
    ) -> Ruling {
        let lease = ledger.lease_around(key);
        if let Some(lease) = lease {
            let mine = |identity: &Identity| identity.cluster.as_ref() == Some(self.cluster);
            let is = |member: &&Holder, whose| held_for(&member.identity) == whose;
            let mut members = lease.members.iter().map(|member| &member.holder);
            let contenders = lease.contenders.iter().filter(|one| {
                let identity = &one.holder.identity;
                identity.is_foreign() && mine(identity)
            });
            if let Some(member) = members.clone().find(|one| is(one, HeldFor::This)) {
                if self.moot.last().is_none_or(|last| last.key != lease.key) {
                    self.moot.extend(contenders.map(|one| Moot {
                        contender: one.holder.clone(),
                        key: lease.key,
                        beside: member.identity.clone(),
                    }));
                }
                return renewal(lease, member, users);
            }
            let mut here = contenders.filter(|one| one.uses_any(Span::single(key.address)));
            let shows = |one: &&Contender| of(users, &one.holder.identity).is_some();
            if let Some(known) = here.find(shows) {
                return renewal(lease, &known.holder, users);
            }
            if members.any(|one| is(&one, HeldFor::Unknown)) {
                return Ruling::Known(None);
            }
        }
        let Some(first) = users.first() else {
            return Ruling::Known(None);
        };
        let is_confirmed = self.confirmed.contains(&key);
        let lease = lease.filter(|lease| !lease.prefix().is_address());
        if lease.is_some_and(|lease| !self.has_room(lease, &first.holder.identity, is_confirmed)) {
            return Ruling::Report;
        }
        let size = ledger.usage(pool.id).map_or(0, |usage| usage.size);
        let within = may_keep && self.kept(pool.id) < limit(size);
        if !within && !is_confirmed {
            return Ruling::Report;
        }
        *self.kept.entry(pool.id).or_default() += 1;
        if let Some(lease) = lease {
            *self.uses.entry(lease.key).or_default() += 1;
        }
        Ruling::Adopt(first.holder.clone())
    }
}

impl SightingRules<'_> {
    /// Whether one use more of the lease of a prefix may be noted, after those of this list.
    fn has_room(&self, lease: &Lease, user: &Identity, is_confirmed: bool) -> bool {
        let uses = lease.part_uses(|one| one.cluster.as_ref() == Some(self.cluster));
        let new = self.uses.get(&lease.key).copied().unwrap_or(0);
        let within = is_confirmed || uses + new < MOST_OF_PREFIX;
        within && lease.has_room_for_use(user)
    }
}

/// What a Service that has the address needs: another instance of its name, or one that was switched off meanwhile.
fn renewal(lease: &Lease, known: &Holder, users: &BTreeSet<ForeignUser>) -> Ruling {
    if !known.identity.is_foreign() {
        return Ruling::Known(None);
    }
    match of(users, &known.identity) {
        Some(user) if user.holder != *known || lease.state == LeaseState::Orphaned => {
            Ruling::Adopt(user.holder.clone())
        }
        Some(user) => Ruling::Known(Some(user.holder.clone())),
        None => Ruling::Known(users.first().map(|user| user.holder.clone())),
    }
}

fn of<'a>(users: &'a BTreeSet<ForeignUser>, identity: &Identity) -> Option<&'a ForeignUser> {
    users.iter().find(|user| user.holder.identity == *identity)
}
