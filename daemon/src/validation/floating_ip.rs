//! What a FloatingIP says: whose it is, of which pool, and which address it wants.

use std::net::IpAddr;

use fipd_core::{AddressSpec, Family, PoolSpec, Tenant};
use fipd_crds::labels::PROJECT_NAME;

use super::Wrong;

pub const POOL: &str = "spec.floatingIPPool";
pub const POOL_KIND: &str = "FloatingIPPool";
pub const ADDRESS: &str = "spec.ipAddr";

/// The project that is charged, by its label.
pub fn project(label: Option<&str>) -> Result<Tenant, Wrong> {
    match label {
        Some(project) if !project.is_empty() => Ok(Tenant(project.into())),
        Some(_) | None => Err(Wrong::new(
            format!("metadata.labels[{PROJECT_NAME:?}]"),
            "",
            "it must be there and name the Rancher project that is charged",
        )),
    }
}

/// The name of the pool.
pub fn pool(name: &str) -> Result<&str, Wrong> {
    if name.is_empty() {
        return Err(Wrong::new(POOL, name, "it must name a FloatingIPPool"));
    }
    Ok(name)
}

/// The address that is wanted; `None`: any.
pub fn address(text: &str) -> Result<Option<IpAddr>, Wrong> {
    if text.is_empty() {
        return Ok(None);
    }
    let address = text.parse::<IpAddr>().map_err(|_| {
        let allowed = "it must be an IP address without prefix length; correct it or leave it out";
        Wrong::new(ADDRESS, text, allowed)
    })?;
    Ok(Some(address.to_canonical()))
}

/// Whether the pool has the address to give, used or not.
pub fn place(spec: &PoolSpec, pool: &str, address: IpAddr) -> Result<(), Wrong> {
    match outside(spec, address) {
        None => Ok(()),
        Some(why) => Err(Wrong::new(
            ADDRESS,
            &address.to_string(),
            format!("{why} of FloatingIPPool {pool:?}; choose another address or leave it out"),
        )),
    }
}

fn outside(spec: &PoolSpec, address: IpAddr) -> Option<String> {
    if let Some(subnet) = &spec.subnet {
        let family = Family::of(subnet.addr());
        if family != Family::of(address) {
            return Some(format!(
                "it must be an {family} address of the subnet {subnet}"
            ));
        }
        if !subnet.contains(&address) {
            return Some(format!("it must lie in the subnet {subnet}"));
        }
    }
    let has = |one: &AddressSpec| one.span().contains(address);
    if !spec.addresses.iter().any(has) {
        let ranges: Vec<String> = spec.addresses.iter().map(ToString::to_string).collect();
        return Some(format!("it must lie in the range {}", ranges.join(", ")));
    }
    if spec.exclusions.iter().any(has) {
        return Some("it must not be among the excluded addresses".to_owned());
    }
    let last = spec.subnet.map(|subnet| subnet.broadcast());
    (spec.ends.last > 0 && last == Some(address))
        .then(|| "it must not be the broadcast address".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::{
        ClusterId, Ledger, NetworkId, Op, Planned, PoolId, Refusal, Request, Timestamp, testing,
    };

    use super::*;
    use crate::{
        systems::rancher_fip::pool::desired,
        validation::{
            mirror::MirrorOf,
            pool::{validate, written},
        },
    };

    fn spec() -> PoolSpec {
        let raw = written("10.0.0.0/28", "10.0.0.4", "10.0.0.14", &["10.0.0.6"]);
        let cluster = ClusterId("id".into());
        let mirror = MirrorOf {
            cluster: &cluster,
            cluster_name: "rancher",
            object: "net",
            uid: "u",
        };
        desired(
            &mirror,
            false,
            &validate(Some(&raw)).expect("valid"),
            (NetworkId::DEFAULT, true),
        )
    }

    #[test]
    fn the_book_gives_exactly_the_addresses_that_the_rule_lets_through() {
        let spec = spec();
        let pool = testing::pool(spec.clone());
        let rows = [Op::PutPool(Arc::new(pool)), Op::PutNextPool(PoolId(2))];
        for last in 0..20 {
            let address = IpAddr::from([10, 0, 0, last]);
            let mut ledger = Ledger::load(rows.iter().cloned(), 0).expect("rows");
            let holder = testing::holder(format!("fipd/Host/lab/{last}"), "");
            let request = Request::Allocate(testing::allocate(
                holder,
                [testing::want(PoolId(1), Some(address))],
            ));
            let given = match ledger.plan(&request, Timestamp(1)) {
                Planned::Tentative { .. } => true,
                Planned::Refused(Refusal::NotAssignable { .. }) => false,
                other @ (Planned::Answer(_) | Planned::Busy | Planned::Refused(_)) => {
                    panic!("{address}: {other:?}")
                }
            };
            let ours = place(&spec, "net", address);
            assert_eq!(ours.is_ok(), given, "{address}: {ours:?}");
        }
    }

    #[test]
    fn each_fault_says_what_is_allowed() {
        let spec = spec();
        let text = |address: &str| {
            let address = address.parse().expect("an address");
            place(&spec, "net", address)
                .expect_err("outside")
                .to_string()
        };
        assert!(
            text("2001:db8::1").contains("it must be an IPv4 address of the subnet 10.0.0.0/28")
        );
        assert!(text("10.0.1.1").contains("must lie in the subnet 10.0.0.0/28"));
        assert!(text("10.0.0.2").contains("must lie in the range 10.0.0.4-10.0.0.14"));
        let excluded = text("10.0.0.6");
        assert!(
            excluded.starts_with("spec.ipAddr: \"10.0.0.6\" is not allowed"),
            "{excluded}"
        );
        assert!(excluded.contains("excluded") && excluded.contains("FloatingIPPool \"net\""));
    }

    #[test]
    fn an_address_is_read_in_any_text_form() {
        let read = |text| {
            address(text)
                .expect("fine")
                .map(|address| address.to_string())
        };
        assert_eq!(read(""), None);
        assert_eq!(read("2001:DB8:0::5").as_deref(), Some("2001:db8::5"));
        assert_eq!(read("::ffff:10.0.0.5").as_deref(), Some("10.0.0.5"));
        for text in ["10.0.0.300", "10.0.0.5/32", "10.0.0", "web", " 10.0.0.5"] {
            assert_eq!(address(text).expect_err(text).field, ADDRESS);
        }
    }

    #[test]
    fn project_and_pool_must_be_named() {
        assert_eq!(project(Some("p-1")), Ok(Tenant("p-1".into())));
        for label in [None, Some("")] {
            let text = project(label).expect_err("no project").to_string();
            assert!(
                text.contains("rancher.k8s.binbash.org/project-name"),
                "{text}"
            );
        }
        assert_eq!(pool("net"), Ok("net"));
        assert_eq!(pool("").expect_err("no pool").field, POOL);
    }
}
