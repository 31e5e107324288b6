//! What a FlatNetworkIP asks for. Pure.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Identity, LeaseKey, Ledger, Pool};
use fipd_crds::flat_network::FlatNetworkIPSpec;

use super::FlatIpView;
use crate::{
    controller::{
        address_user::settle::KeptLease,
        site::Site,
        unserved::{TAKEN, Unserved},
        waiters::Cause,
    },
    validation::{flat_network::annotations::PodAddresses, held_address::gives},
};

/// What the original says where a subnet has no address left.
const NONE_LEFT: &str = "no available IP address";

/// The subnet that it names.
pub fn pool(
    ledger: &Ledger,
    site: &Site,
    object: &str,
    ip: &FlatIpView,
) -> Result<Arc<Pool>, Unserved> {
    let found = site
        .mirror_in(ledger, object)
        .filter(|pool| !pool.spec.closed);
    found.cloned().ok_or_else(|| {
        let message = format!(
            "spec.subnet: there is no usable FlatNetworkSubnet {:?} ({object}); make it, or name another; it is tried again when one appears",
            ip.spec.subnet
        );
        Unserved::new("SubnetNotFound", message, Some(Cause::Pools))
    })
}

/// The addresses that it names.
pub fn addresses(ip: &FlatNetworkIPSpec) -> Result<Vec<IpAddr>, Unserved> {
    let read = PodAddresses::of_ip(ip);
    let read = read.map_err(|wrong| Unserved::new("Invalid", wrong.to_string(), None))?;
    Ok(read.addresses)
}

/// What it is to have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChosenAddress {
    /// `None`: any will do.
    pub address: Option<IpAddr>,
    /// Its workload has it for its pods.
    pub kept: Option<KeptLease>,
}

impl ChosenAddress {
    fn free(address: IpAddr) -> Self {
        Self {
            address: Some(address),
            kept: None,
        }
    }
}

/// The address, where it is free or kept for the pods of the workload.
fn available(
    ledger: &Ledger,
    workload: Option<&Identity>,
    place: LeaseKey,
) -> Option<ChosenAddress> {
    let free = ChosenAddress::free(place.address);
    let Some(lease) = ledger.lease(place) else {
        return Some(free);
    };
    // Somebody else was found using it, who gets it next.
    let owner = lease.owner().filter(|_| lease.contenders.is_empty())?;
    let kept = || KeptLease {
        from: owner.clone(),
        key: lease.key,
        reason: "its workload keeps it for its pods",
    };
    (Some(&owner.identity) == workload).then(|| ChosenAddress {
        kept: Some(kept()),
        ..free
    })
}

/// The first of those that is free, or kept for the pods of its workload.
pub fn choose(
    ledger: &Ledger,
    (own, workload): (&Identity, Option<&Identity>),
    pool: &Pool,
    wanted: &[IpAddr],
) -> Result<ChosenAddress, Unserved> {
    if wanted.is_empty() {
        return Ok(ChosenAddress::default());
    }
    let held = ledger.addresses_of(own);
    if let Some(one) = held
        .iter()
        .find(|lease| wanted.contains(&lease.key.address))
    {
        return Ok(ChosenAddress::free(one.key.address));
    }
    let mut fit = wanted
        .iter()
        .filter(|one| gives(&pool.spec, **one))
        .peekable();
    let Some(first) = fit.peek().copied().copied() else {
        let message = format!(
            "{NONE_LEFT}: spec.addrs: {} is not in the subnet {}; name addresses of its ranges, or none for any",
            wanted
                .iter()
                .take(3)
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
            pool.spec.name
        );
        return Err(Unserved::new(
            "AddressNotInSubnet",
            message,
            Some(Cause::Pools),
        ));
    };
    let place = |address| LeaseKey {
        network: pool.spec.network,
        address,
    };
    let chosen = fit.find_map(|one| available(ledger, workload, place(*one)));
    match (chosen, wanted) {
        (Some(chosen), _) => Ok(chosen),
        // The ledger says who has it.
        (None, [only]) => Ok(ChosenAddress::free(*only)),
        (None, _) => {
            let message = format!(
                "{NONE_LEFT}: all {} addresses of spec.addrs are in use; it gets the first that becomes free",
                wanted.len()
            );
            Err(Unserved::new(
                TAKEN,
                message,
                Some(Cause::Address(place(first))),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::{Op, PoolId, PoolSpec, System, Timestamp, testing};

    use super::*;

    fn ledger(taken: &[&str]) -> (Ledger, Arc<Pool>) {
        let mut ledger = Ledger::new();
        let pool = Arc::new(Pool {
            id: PoolId(1),
            spec: PoolSpec {
                ..testing::pool_spec("lab", &["10.128.1.0/24"])
            },
            created: Timestamp(0),
            generation: 1,
        });
        ledger.apply(&Op::PutPool(Arc::clone(&pool)));
        for address in taken {
            let key = testing::key_of(address);
            let lease = testing::lease(
                key,
                Some(PoolId(1)),
                [testing::holder("fipd/vm/lab/web", "1")],
            );
            ledger.apply(&Op::PutLease(Arc::new(lease)));
        }
        (ledger, pool)
    }

    fn own() -> Identity {
        let cluster = fipd_core::ClusterId("c".into());
        crate::controller::store::Key::new("ns", "web-0").identity(
            System::flat_network(),
            &cluster,
            "FlatNetworkIP",
        )
    }

    fn chosen(taken: &[&str], wanted: &[&str]) -> Result<Option<String>, String> {
        let (ledger, pool) = ledger(taken);
        let wanted = addresses(&FlatNetworkIPSpec {
            subnet: "lab".to_owned(),
            addrs: wanted.iter().map(|&text| text.to_owned()).collect(),
            ..FlatNetworkIPSpec::default()
        });
        let wanted = wanted.map_err(|problem| problem.message)?;
        let chosen = choose(&ledger, (&own(), None), &pool, &wanted);
        let text = chosen.map(|one| one.address.map(|one| one.to_string()));
        text.map_err(|problem| problem.message)
    }

    /// Rows 15, 17, 45 and 46 of the contract.
    #[test]
    fn the_first_free_address_of_those_that_are_named_is_chosen() {
        assert_eq!(chosen(&[], &[]), Ok(None));
        let one = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(chosen(&[], &["10.128.1.200"]), one("10.128.1.200"));
        let three = ["10.128.1.7", "10.128.1.8", "10.128.1.9"];
        assert_eq!(chosen(&[], &three), one("10.128.1.7"));
        assert_eq!(chosen(&["10.128.1.7"], &three), one("10.128.1.8"));
        assert_eq!(
            chosen(&["10.128.1.8"], &["10.9.9.9", "10.128.1.9"]),
            one("10.128.1.9")
        );
        // The ledger refuses it, and says who has it.
        assert_eq!(
            chosen(&["10.128.1.200"], &["10.128.1.200"]),
            one("10.128.1.200")
        );
        let full = chosen(&three, &three).expect_err("none is free");
        assert!(full.starts_with("no available IP address: all 3"), "{full}");
        let outside = chosen(&[], &["10.9.9.9"]).expect_err("it is outside");
        assert!(
            outside.contains("10.9.9.9 is not in the subnet"),
            "{outside}"
        );
        let wrong = chosen(&[], &["10.128.1.1a3"]).expect_err("no address");
        assert!(wrong.starts_with("spec.addrs: \"10.128.1.1a3\""), "{wrong}");
    }

    /// Defect g1-8: what a workload keeps is for its own pods.
    #[test]
    fn g1_8_an_address_that_is_kept_for_the_workload_of_the_pod_is_as_good_as_free() {
        let (mut ledger, pool) = ledger(&["10.128.1.8"]);
        let workload = testing::holder("flat-network/c/Deployment/ns/web", "d");
        let key = testing::key_of("10.128.1.7");
        let lease = testing::lease(key, Some(PoolId(1)), [workload.clone()]);
        ledger.apply(&Op::PutLease(Arc::new(lease)));
        let other = testing::holder("flat-network/c/Deployment/ns/other", "o");
        let wanted: Vec<IpAddr> = ["10.128.1.8", "10.128.1.7", "10.128.1.9"]
            .map(|text| text.parse().expect("an address"))
            .to_vec();
        let chosen = |of: Option<&Identity>| {
            let chosen = choose(&ledger, (&own(), of), &pool, &wanted);
            chosen.expect("one is free")
        };
        let kept = chosen(Some(&workload.identity));
        assert_eq!(kept.address, Some(key.address));
        assert_eq!(
            kept.kept.map(|kept| (kept.from, kept.key)),
            Some((workload, key))
        );
        for of in [None, Some(&other.identity)] {
            assert_eq!(chosen(of), ChosenAddress::free(wanted[2]));
        }
    }
}
