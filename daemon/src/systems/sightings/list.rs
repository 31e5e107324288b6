//! What one list of a cluster's foreign Services amounts to.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use fipd_core::{
    Holder, Identity, LeaseKey, Ledger, Pool, Span, Text, Timestamp,
    sighting::{ForeignUser, HeldFor, Moot, Ruling, SightingRules},
};

use super::{
    observe::ForeignService,
    stage::{Stage, Stages},
};
use crate::{clusters::adoption::Sighting, ipam::Ipam};

/// A reader holds the ledger for at most so many addresses.
pub const CHUNK: usize = 500;

/// The most addresses of pools that are taken from one list, so that nobody fills fipd's memory with them.
const MOST: usize = 65_536;

/// Addresses of pools as Services show them, whatever is leased around them, and who does: the oldest, and those that have
/// it in the address book.
pub type Users = BTreeMap<LeaseKey, (Arc<Pool>, BTreeSet<ForeignUser>)>;

/// Services by identity; without what they show where an object cannot be read.
pub type Services = Vec<(Identity, Option<ForeignService>)>;

/// What one list amounts to.
#[derive(Default)]
pub struct SightingList {
    pub adopt: Vec<Sighting>,
    /// Who shows an address, the one that has it first.
    pub users: BTreeMap<LeaseKey, Holder>,
    pub reported: BTreeSet<LeaseKey>,
    /// Contenders for what is held for their own cluster.
    pub moot: Vec<Moot>,
}

impl SightingList {
    /// Rules on each address that is shown.
    pub async fn of(
        ipam: &Ipam,
        rules: &mut SightingRules<'_>,
        users: &Users,
        stages: &Stages,
        held_for: impl Fn(&Identity) -> HeldFor,
    ) -> Self {
        let mut list = Self::default();
        let mut users = users.iter();
        loop {
            let some: Vec<_> = users.by_ref().take(CHUNK).collect();
            if some.is_empty() {
                list.moot = rules.take_moot();
                return list;
            }
            tokio::task::yield_now().await;
            ipam.read(|ledger| {
                for (key, (pool, users)) in some {
                    let stage = stages.get(key.network);
                    if stage == Some(Stage::Waiting) {
                        continue;
                    }
                    let may_keep = stage == Some(Stage::Hold);
                    let ruling = rules.rule(ledger, (*key, pool), users, may_keep, &held_for);
                    list.note(*key, ruling, users);
                }
            });
        }
    }

    fn note(&mut self, key: LeaseKey, ruling: Ruling, users: &BTreeSet<ForeignUser>) {
        match ruling {
            Ruling::Adopt(holder) => {
                self.users.insert(key, holder.clone());
                let since = users.iter().find(|user| user.holder == holder);
                self.adopt.push(Sighting {
                    uses: vec![key.into()],
                    since: since.map_or(Timestamp(0), |user| user.since),
                    ..present(holder)
                });
            }
            Ruling::Known(Some(holder)) => drop(self.users.insert(key, holder)),
            Ruling::Known(None) => {}
            Ruling::Report => drop(self.reported.insert(key)),
        }
    }
}

/// Addresses in the range of a pool that foreign Services show, at most [`MOST`].
pub async fn users(ipam: &Ipam, services: &Services, stages: &Stages) -> Users {
    let mut users = Users::new();
    let mut shown = Vec::new();
    for (identity, service) in services {
        if let Some(service) = service {
            let addresses = service.addresses.iter();
            shown.extend(addresses.map(|address| (identity, service, *address)));
        }
    }
    // Each address is looked up in each network.
    let chunk = (Ledger::SCAN / stages.0.len().max(1)).clamp(1, CHUNK);
    for some in shown.chunks(chunk) {
        tokio::task::yield_now().await;
        ipam.read(|ledger| {
            for (identity, service, address) in some {
                for (place, pool) in pools(ledger, stages, *address) {
                    if users.len() >= MOST && !users.contains_key(&place) {
                        continue;
                    }
                    let (_, of_place) = users
                        .entry(place)
                        .or_insert_with(|| (pool, BTreeSet::new()));
                    note(ledger, place, of_place, user(identity, service));
                }
            }
        });
    }
    users
}

/// However many show an address, only the oldest of them and those that have it matter.
fn note(ledger: &Ledger, place: LeaseKey, users: &mut BTreeSet<ForeignUser>, user: ForeignUser) {
    let known = |user: &ForeignUser| {
        let identity = &user.holder.identity;
        let lease = ledger.lease_around(place);
        lease.is_some_and(|lease| lease.is_used_by(identity, Span::single(place.address)))
    };
    match users.first().cloned() {
        Some(first) if user > first => {
            if known(&user) {
                users.insert(user);
            }
        }
        Some(first) => {
            if !known(&first) {
                users.remove(&first);
            }
            users.insert(user);
        }
        None => drop(users.insert(user)),
    }
}

fn user(identity: &Identity, service: &ForeignService) -> ForeignUser {
    ForeignUser {
        since: service.created,
        holder: Holder {
            identity: identity.clone(),
            instance: Text::clone(&service.uid),
        },
    }
}

/// The pools of mapped networks that may allocate the address.
fn pools(ledger: &Ledger, stages: &Stages, address: IpAddr) -> Vec<(LeaseKey, Arc<Pool>)> {
    let places = stages
        .networks()
        .map(|network| LeaseKey { network, address });
    let with_pool = |key: LeaseKey| Some((key, Arc::clone(ledger.pool_in_range(key)?)));
    places.filter_map(with_pool).collect()
}

/// A Service that is there; nothing is asked for it.
pub fn present(holder: Holder) -> Sighting {
    Sighting {
        holder,
        tenant: None,
        uses: Vec::new(),
        since: Timestamp(0),
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::{Contender, Lease, Op, testing};

    use super::*;

    fn numbered(number: u64) -> ForeignUser {
        ForeignUser {
            since: Timestamp(number),
            holder: testing::holder(format!("foreign/X/Service/ns/s{number}"), "1"),
        }
    }

    #[test]
    fn who_waits_for_the_prefix_around_an_address_is_remembered_beside_the_oldest() {
        let waits = Contender {
            holder: numbered(9).holder,
            tenant: None,
            since: Timestamp(9),
            uses: Vec::new(),
        };
        let other = testing::holder("rancher-fip/Y/Service/ns/web", "1");
        let lease = Lease {
            length: 64,
            contenders: vec![waits],
            ..testing::lease(testing::key_of("2001:db8::"), None, [other])
        };
        let mut ledger = Ledger::new();
        ledger.apply(&Op::PutLease(Arc::new(lease)));
        let key = testing::key_of("2001:db8::77");
        let mut users = BTreeSet::new();
        for number in [9, 5, 1] {
            note(&ledger, key, &mut users, numbered(number));
        }
        assert_eq!(users, BTreeSet::from([numbered(1), numbered(9)]));
    }

    #[test]
    fn of_many_users_of_one_address_the_oldest_is_remembered() {
        let ledger = Ledger::new();
        let key = testing::key([10, 60, 0, 1]);
        let mut users = BTreeSet::new();
        for number in (500..1_000).rev().chain(700..2_000) {
            note(&ledger, key, &mut users, numbered(number));
            assert_eq!(users.len(), 1);
        }
        assert_eq!(users.first(), Some(&numbered(500)));
    }
}
