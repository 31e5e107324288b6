//! Which leases a Service keeps, which it needs, and which it gives back.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use fipd_core::{Family, Lease, LeaseState, Ledger, Pool, PoolId, Request, Want};

use super::validate::Wish;
use crate::controller::{
    address_user::{
        self,
        settle::{AddressAsker, LeaseMatch, holds},
    },
    unserved::{Unserved, contended},
};

/// The pools for each family of a Service.
pub type PoolsByFamily = BTreeMap<Family, Arc<Pool>>;

/// A lease for each family of a Service.
pub type LeasesByFamily = BTreeMap<Family, Arc<Lease>>;

/// The leases of a Service against its wish.
pub type ServiceMatch = LeaseMatch<Family>;

/// What is to be done about a Service.
pub struct ServicePlan {
    /// Make this instance the holder of what is kept for the Service.
    pub renew: Vec<Request>,
    pub found: ServiceMatch,
    /// Another holds the address that the Service shows: it gets no other meanwhile.
    pub contended: Option<Unserved>,
}

/// What the ledger says of a Service, `shown` being its addresses. As for every object that uses an address, what it holds
/// goes before what it asks for, and what an earlier one of its name left or an admin reserved is its own.
pub fn settle(
    ledger: &Ledger,
    asker: &AddressAsker,
    wish: &Wish,
    named: Option<&PoolsByFamily>,
    shown: &[IpAddr],
) -> ServicePlan {
    let identity = &asker.holder.identity;
    let held = shown_first(ledger.addresses_of(identity), shown);
    let found = compare(wish, &held, named);
    let renewed = found.kept.values();
    let renewed = renewed.filter(|lease| !holds(lease, &asker.holder));
    ServicePlan {
        renew: renewed
            .map(|lease| asker.adopt(lease.prefix(), lease.tenant.clone()))
            .collect(),
        contended: (ledger.contentions_of(identity).first()).map(|lease| contended(lease)),
        found,
    }
}

/// Compares. A lease stays whatever becomes of its pool or of defaults; only what the owner of the Service
/// names counts against it. `named` are the pools the owner named.
pub fn compare(wish: &Wish, held: &[Arc<Lease>], named: Option<&PoolsByFamily>) -> ServiceMatch {
    address_user::settle::compare(&wish.families, held, |lease| {
        let address = lease.key.address;
        fits(wish, named, address, lease.pool).then(|| Family::of(address))
    })
}

/// Whether the owner of the Service could mean this address of a pool.
pub fn fits(
    wish: &Wish,
    named: Option<&PoolsByFamily>,
    address: IpAddr,
    pool: Option<PoolId>,
) -> bool {
    let family = Family::of(address);
    let wanted = wish.addresses.get(&family);
    let named = named.map(|pools| pools.get(&family));
    wanted.is_none_or(|wanted| *wanted == address)
        && named.is_none_or(|named| named.is_some_and(|named| Some(named.id) == pool))
}

/// Whether this is enough to be shown.
pub fn suffices(wish: &Wish, kept: &LeasesByFamily) -> bool {
    !kept.is_empty() && (kept.len() == wish.families.len() || wish.second_optional)
}

/// Leases in the order in which a Service shows them, then those that it does not show, last what is reserved for it.
fn shown_first(mut held: Vec<Arc<Lease>>, shown: &[IpAddr]) -> Vec<Arc<Lease>> {
    held.sort_by_key(|lease| {
        let place = shown.iter().position(|one| *one == lease.key.address);
        let reserved = lease.state == LeaseState::Reserved;
        (reserved, place.unwrap_or(usize::MAX))
    });
    held
}

/// What to ask of the pools for these families.
pub fn wants(wish: &Wish, families: &[Family], pools: &PoolsByFamily) -> Vec<Want> {
    let served = families.iter();
    let served = served.filter_map(|family| Some((family, pools.get(family)?)));
    served
        .map(|(family, pool)| Want {
            pool: pool.id.into(),
            address: wish.addresses.get(family).copied(),
            count: 1,
        })
        .collect()
}

/// Addresses in the order of the families.
pub fn ordered(wish: &Wish, kept: &LeasesByFamily) -> Vec<IpAddr> {
    wish.families
        .iter()
        .filter_map(|family| kept.get(family))
        .map(|lease| lease.key.address)
        .collect()
}

#[cfg(test)]
mod tests {
    use fipd_core::{ClusterId, Holder, Op, PoolId, System, Timestamp};

    use super::*;
    use crate::{controller::store::Key, systems::rancher_fip::sample};

    fn pool(id: u32) -> Arc<Pool> {
        Arc::new(sample::pool(id, &format!("p{id}")))
    }

    fn lease(address: &str, pool: u32) -> Arc<Lease> {
        Arc::new(Lease {
            pool: Some(PoolId(pool)),
            ..sample::lease(sample::place(address), None)
        })
    }

    fn wish(families: &[Family]) -> Wish {
        Wish {
            families: families.to_vec(),
            second_optional: false,
            pool: None,
            addresses: BTreeMap::new(),
        }
    }

    #[test]
    fn a_lease_stays_unless_its_owner_names_another() {
        let held = [lease("10.0.0.1", 1)];
        let mut wish = wish(&[Family::V4]);
        assert!(compare(&wish, &held, None).missing.is_empty());
        let same = BTreeMap::from([(Family::V4, pool(1))]);
        assert!(compare(&wish, &held, Some(&same)).missing.is_empty());
        let other = BTreeMap::from([(Family::V4, pool(2))]);
        let found = compare(&wish, &held, Some(&other));
        assert_eq!(
            (found.missing.as_slice(), found.surplus.len()),
            (&[Family::V4][..], 1)
        );
        wish.addresses
            .insert(Family::V4, "10.0.0.2".parse().expect("v4"));
        let found = compare(&wish, &held, None);
        assert_eq!(
            (found.missing.as_slice(), found.surplus.len()),
            (&[Family::V4][..], 1)
        );
    }

    #[test]
    fn the_second_family_comes_and_goes() {
        let held = [lease("10.0.0.1", 1), lease("2001:db8::1", 2)];
        let both = compare(&wish(&[Family::V6, Family::V4]), &held, None);
        assert!(both.missing.is_empty() && both.surplus.is_empty());
        let texts: Vec<String> = ordered(&wish(&[Family::V6, Family::V4]), &both.kept)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(texts, ["2001:db8::1", "10.0.0.1"]);
        let one = compare(&wish(&[Family::V4]), &held, None);
        assert_eq!(one.surplus, [Arc::clone(&held[1])]);
        let more = compare(&wish(&[Family::V4, Family::V6]), &held[..1], None);
        assert_eq!(more.missing, [Family::V6]);
    }

    #[test]
    fn a_reservation_is_taken_up_only_where_nothing_is_in_use_or_the_owner_names_it() {
        let reserved = Arc::new(Lease {
            state: LeaseState::Reserved,
            ..Lease::clone(&lease("10.0.0.1", 1))
        });
        let in_use = lease("10.0.0.2", 1);
        let held = shown_first(vec![Arc::clone(&reserved), Arc::clone(&in_use)], &[]);
        let found = compare(&wish(&[Family::V4]), &held, None);
        assert_eq!(found.kept.get(&Family::V4), Some(&in_use));
        assert_eq!(found.surplus, [], "it stays reserved");
        let found = compare(&wish(&[Family::V4]), &held[1..], None);
        assert_eq!(found.kept.get(&Family::V4), Some(&reserved));
        let mut named = wish(&[Family::V4]);
        named
            .addresses
            .insert(Family::V4, "10.0.0.1".parse().expect("v4"));
        let found = compare(&named, &held, None);
        assert_eq!(found.kept.get(&Family::V4), Some(&reserved));
        assert_eq!(found.surplus, [in_use]);
    }

    #[test]
    fn what_a_service_shows_is_kept_first() {
        let held = vec![lease("10.0.0.1", 1), lease("10.0.0.2", 2)];
        let shown = ["10.0.0.2".parse().expect("v4")];
        let sorted = shown_first(held.clone(), &shown);
        assert_eq!(sorted, [Arc::clone(&held[1]), Arc::clone(&held[0])]);
        let found = compare(&wish(&[Family::V4]), &sorted, None);
        assert_eq!(found.kept.get(&Family::V4), Some(&held[1]));
        assert!(suffices(&wish(&[Family::V4]), &found.kept));
        assert!(!suffices(&wish(&[Family::V4, Family::V6]), &found.kept));
        assert!(!suffices(&wish(&[Family::V4]), &BTreeMap::new()));
    }

    #[test]
    fn only_what_is_missing_is_asked_for() {
        let pools = BTreeMap::from([(Family::V4, pool(1)), (Family::V6, pool(2))]);
        let wish = wish(&[Family::V4, Family::V6]);
        let asked = wants(&wish, &[Family::V6], &pools);
        assert_eq!(
            asked,
            [Want {
                pool: PoolId(2).into(),
                address: None,
                count: 1
            }]
        );
    }

    #[test]
    fn what_is_kept_for_a_service_becomes_its_own_unless_it_is_already() {
        let key = Key::new("ns", "web");
        let identity = key.identity(System::rancher_fip(), &ClusterId("c".into()), "Service");
        let asker = |instance: &str| AddressAsker {
            holder: Holder {
                identity: identity.clone(),
                instance: instance.into(),
            },
            created: Timestamp(5),
            actor: "a".into(),
        };
        let left = sample::lease(sample::place("10.0.0.1"), Some(asker("before").holder));
        let mut ledger = Ledger::new();
        ledger.apply(&Op::PutLease(Arc::new(left.clone())));
        let settled = |instance| settle(&ledger, &asker(instance), &wish(&[Family::V4]), None, &[]);
        let adopt = asker("now").adopt(left.prefix(), left.tenant.clone());
        assert_eq!(settled("now").renew, [adopt]);
        assert_eq!(settled("before").renew, []);
        assert!(settled("now").found.missing.is_empty() && settled("now").contended.is_none());
    }
}
