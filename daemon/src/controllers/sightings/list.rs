//! What one list of a cluster's foreign Services amounts to.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use fipd_core::{
    Holder, Identity, LeaseKey, Ledger, Pool, Text, Timestamp,
    sighting::{ForeignUser, Ruling, SightingRules},
};

use super::{
    guest::Guest,
    observe::ForeignService,
    stage::{Stage, Stages},
};
use crate::{clusters::adoption::Sighting, ipam::Ipam};

/// A reader holds the ledger for at most so many addresses.
pub const CHUNK: usize = 500;

/// Addresses of pools, and who shows them.
pub type Users = BTreeMap<LeaseKey, (Arc<Pool>, BTreeSet<ForeignUser>)>;

/// Services by identity; without what they show where an object cannot be read.
pub type Services = Vec<(Identity, Option<ForeignService>)>;

/// What one list amounts to.
#[derive(Default)]
pub struct List {
    pub adopt: Vec<Sighting>,
    /// Who shows an address, the one that has it first.
    pub users: BTreeMap<LeaseKey, Holder>,
    pub reported: BTreeSet<LeaseKey>,
}

impl List {
    /// Rules on each address that is shown.
    pub fn of(
        ipam: &Ipam,
        rules: &mut SightingRules<'_>,
        users: &Users,
        stages: &Stages,
        guest: &Guest,
    ) -> Self {
        let mut list = Self::default();
        let mut users = users.iter();
        loop {
            let some: Vec<_> = users.by_ref().take(CHUNK).collect();
            if some.is_empty() {
                return list;
            }
            ipam.read(|ledger| {
                for (key, (pool, users)) in some {
                    let stage = stages.get(key.network);
                    if stage == Some(Stage::Waiting) {
                        continue;
                    }
                    let may_keep = stage == Some(Stage::Hold);
                    let of_guest = |identity: &Identity| guest.has(identity);
                    let ruling = rules.rule(ledger, (*key, pool), users, may_keep, of_guest);
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
                    uses: vec![key],
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

/// Addresses in the range of a pool that foreign Services show.
pub fn users(ipam: &Ipam, services: &Services, stages: &Stages) -> Users {
    let mut users = Users::new();
    let mut shown = services.iter().flat_map(|(identity, service)| {
        let service = service.iter();
        service.flat_map(move |service| {
            let addresses = service.addresses.iter();
            addresses.map(move |address| (identity, service, *address))
        })
    });
    loop {
        let some: Vec<_> = shown.by_ref().take(CHUNK).collect();
        if some.is_empty() {
            return users;
        }
        ipam.read(|ledger| {
            for (identity, service, address) in some {
                for (place, pool) in pools(ledger, stages, address) {
                    let of_place = users
                        .entry(place)
                        .or_insert_with(|| (pool, BTreeSet::new()));
                    of_place.1.insert(user(identity, service));
                }
            }
        });
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
