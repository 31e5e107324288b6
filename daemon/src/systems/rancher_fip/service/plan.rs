//! Which leases a Service keeps, which it needs, and which it gives back.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use fipd_core::{
    Allocate, Family, Holder, Lease, LeaseState, Pool, PoolId, Tenant, Text, Timestamp, Want,
};

use super::validate::Wish;

/// The pools for each family of a Service.
pub type PoolsByFamily = BTreeMap<Family, Arc<Pool>>;

/// A lease for each family of a Service.
pub type LeasesByFamily = BTreeMap<Family, Arc<Lease>>;

/// The leases of a Service against its wish.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Match {
    /// One for each family that is served as wished.
    pub kept: LeasesByFamily,
    /// Families that need an address.
    pub missing: Vec<Family>,
    /// Leases that are not wished any more.
    pub surplus: Vec<Arc<Lease>>,
}

/// Compares. A lease stays whatever becomes of its pool or of defaults; only what the owner of the Service
/// names counts against it. `named` are the pools the owner named. What is reserved for the Service stays reserved
/// unless it is kept.
pub fn compare(wish: &Wish, held: &[Arc<Lease>], named: Option<&PoolsByFamily>) -> Match {
    let mut found = Match::default();
    for lease in held {
        let family = Family::of(lease.key.address);
        if wish.families.contains(&family)
            && !found.kept.contains_key(&family)
            && fits(wish, named, lease.key.address, lease.pool)
        {
            found.kept.insert(family, Arc::clone(lease));
        } else if lease.state != LeaseState::Reserved {
            found.surplus.push(Arc::clone(lease));
        }
    }
    found.missing = wish
        .families
        .iter()
        .copied()
        .filter(|family| !found.kept.contains_key(family))
        .collect();
    found
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
pub fn shown_first(mut held: Vec<Arc<Lease>>, shown: &[IpAddr]) -> Vec<Arc<Lease>> {
    held.sort_by_key(|lease| {
        let place = shown.iter().position(|one| *one == lease.key.address);
        let reserved = lease.state == LeaseState::Reserved;
        (reserved, place.unwrap_or(usize::MAX))
    });
    held
}

/// The request for what is missing, all or nothing.
pub fn allocate(
    holder: &Holder,
    tenant: &Tenant,
    wish: &Wish,
    missing: &[Family],
    pools: &PoolsByFamily,
    since: Timestamp,
    actor: &Text,
) -> Allocate {
    let wants = missing
        .iter()
        .filter_map(|family| {
            let pool = pools.get(family)?;
            Some(Want {
                pool: pool.id.into(),
                address: wish.addresses.get(family).copied(),
                count: 1,
            })
        })
        .collect();
    Allocate {
        holder: holder.clone(),
        tenant: Some(tenant.clone()),
        wants,
        waiting_since: Some(since),
        by_admin: false,
        share: None,
        probe: false,
        actor: Text::clone(actor),
    }
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
    use fipd_core::{Identity, PoolId, System};

    use super::*;
    use crate::systems::rancher_fip::sample;

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
        let identity = Identity {
            system: System::rancher_fip(),
            cluster: None,
            kind: "Service".into(),
            namespace: "ns".into(),
            name: "web".into(),
            interface: "".into(),
        };
        let holder = Holder {
            identity,
            instance: "u".into(),
        };
        let pools = BTreeMap::from([(Family::V4, pool(1)), (Family::V6, pool(2))]);
        let wish = wish(&[Family::V4, Family::V6]);
        let tenant = Tenant("p".into());
        let ask = allocate(
            &holder,
            &tenant,
            &wish,
            &[Family::V6],
            &pools,
            Timestamp(5),
            &"a".into(),
        );
        assert_eq!(
            ask.wants,
            [Want {
                pool: PoolId(2).into(),
                address: None,
                count: 1
            }]
        );
        assert_eq!(ask.waiting_since, Some(Timestamp(5)));
    }
}
