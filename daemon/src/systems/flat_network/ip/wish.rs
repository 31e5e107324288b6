//! What a FlatNetworkIP asks for. Pure.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Identity, LeaseKey, Ledger, Pool};
use fipd_crds::flat_network::FlatNetworkIPSpec;

use super::FlatIpView;
use crate::{
    controller::{
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

/// The first free one of those; `None`: any will do.
pub fn choose(
    ledger: &Ledger,
    own: &Identity,
    pool: &Pool,
    wanted: &[IpAddr],
) -> Result<Option<IpAddr>, Unserved> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let held = ledger.addresses_of(own);
    if let Some(one) = held
        .iter()
        .find(|lease| wanted.contains(&lease.key.address))
    {
        return Ok(Some(one.key.address));
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
    let free = fit
        .find(|one| ledger.lease(place(**one)).is_none())
        .copied();
    match (free, wanted) {
        (Some(free), _) => Ok(Some(free)),
        // The ledger says who has it.
        (None, [only]) => Ok(Some(*only)),
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
        let chosen = choose(&ledger, &own(), &pool, &wanted);
        let text = chosen.map(|one| one.map(|one| one.to_string()));
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
}
