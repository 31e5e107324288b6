//! What a FloatingIPPool says, as typed ranges; nothing is taken over half.

use std::{collections::BTreeSet, net::IpAddr};

use fipd_core::{AddressSpec, Ends, EndsOf, Family};
use fipd_crds::floating_ip::IpConfig;
use ipnet::{IpNet, Ipv4Net};

use super::Wrong;

const SUBNET: &str = "spec.ipConfig.subnet";
const START: &str = "spec.ipConfig.pool.start";
const END: &str = "spec.ipConfig.pool.end";
const EXCLUDE: &str = "spec.ipConfig.pool.exclude";

/// The addresses of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    pub subnet: IpNet,
    pub addresses: AddressSpec,
    pub exclusions: Vec<AddressSpec>,
    pub ends: Ends,
}

/// Checks all of it. `None`: there is no `ipConfig`.
pub fn validate(config: Option<&IpConfig>) -> Result<Ranges, Wrong> {
    let Some(config) = config else {
        let allowed = "it must be there, with subnet, pool.start and pool.end";
        return Err(Wrong::new("spec.ipConfig", "", allowed));
    };
    let subnet = subnet(&config.subnet)?;
    check_family(&config.family, &subnet)?;
    let range = &config.pool;
    let start = inside(START, &range.start, &subnet)?;
    let end = inside(END, &range.end, &subnet)?;
    if start > end {
        let allowed = format!("it must not be above {END} ({end})");
        return Err(Wrong::new(START, &range.start, allowed));
    }
    if broadcast(&subnet) == Some(end) {
        let allowed = format!(
            "it is the broadcast address of {SUBNET} ({subnet}), which nobody can have; end before it"
        );
        return Err(Wrong::new(END, &range.end, allowed));
    }
    let mut exclusions: BTreeSet<IpAddr> = BTreeSet::new();
    for (index, text) in range.exclude.iter().enumerate() {
        let field = format!("{EXCLUDE}[{index}]");
        let address = inside(&field, text, &subnet)?;
        if address < start || address > end {
            let allowed = format!("it must lie in the pool, from {start} to {end}");
            return Err(Wrong::new(field, text, allowed));
        }
        exclusions.insert(address);
    }
    Ok(Ranges {
        subnet,
        addresses: AddressSpec::Range(start, end),
        exclusions: exclusions.into_iter().map(AddressSpec::Single).collect(),
        ends: ends(&subnet),
    })
}

/// What is excluded more than once, which does no harm.
pub fn doubles(config: &IpConfig) -> Vec<String> {
    let mut seen: BTreeSet<IpAddr> = BTreeSet::new();
    let addresses = config.pool.exclude.iter().enumerate();
    let doubles = addresses.filter_map(|(index, text)| {
        let address = text.parse::<IpAddr>().ok()?.to_canonical();
        (!seen.insert(address))
            .then(|| format!("{EXCLUDE}[{index}]: {address} is excluded more than once"))
    });
    doubles.collect()
}

/// The broadcast address of a subnet that has one.
fn broadcast(subnet: &IpNet) -> Option<IpAddr> {
    match subnet {
        IpNet::V4(subnet) if subnet.prefix_len() < 31 => Some(subnet.broadcast().into()),
        IpNet::V4(_) | IpNet::V6(_) => None,
    }
}

/// The broadcast address of an IPv4 subnet is never given; its network address may be, and a subnet of one
/// or two addresses has neither.
fn ends(subnet: &IpNet) -> Ends {
    Ends {
        first: 0,
        last: broadcast(subnet).map_or(0, |_| 1),
        of: EndsOf::Prefix,
    }
}

fn subnet(text: &str) -> Result<IpNet, Wrong> {
    let subnet: IpNet = text.parse().map_err(|_| {
        let allowed = "it must be a CIDR such as 192.0.2.0/24 or 2001:db8::/64";
        Wrong::new(SUBNET, text, allowed)
    })?;
    Ok(canonical(subnet).trunc())
}

/// An IPv4-mapped subnet is the IPv4 subnet.
pub fn canonical(subnet: IpNet) -> IpNet {
    let IpNet::V6(six) = subnet else {
        return subnet;
    };
    let length = six.prefix_len().checked_sub(96);
    let mapped = six.addr().to_ipv4_mapped().zip(length);
    let four = mapped.and_then(|(address, length)| Ipv4Net::new(address, length).ok());
    four.map_or(subnet, IpNet::V4)
}

fn check_family(said: &str, subnet: &IpNet) -> Result<(), Wrong> {
    let family = Family::of(subnet.addr());
    if said.is_empty() || said.eq_ignore_ascii_case(&family.to_string()) {
        return Ok(());
    }
    let allowed = format!("{SUBNET} ({subnet}) is {family}; write that, or leave the family out");
    Err(Wrong::new("spec.ipConfig.family", said, allowed))
}

fn inside(field: &str, text: &str, subnet: &IpNet) -> Result<IpAddr, Wrong> {
    let wrong = |allowed: String| Err(Wrong::new(field, text, allowed));
    let Ok(address) = text.parse::<IpAddr>() else {
        return wrong(format!("it must be an address in {SUBNET} ({subnet})"));
    };
    let address = address.to_canonical();
    let family = Family::of(subnet.addr());
    if Family::of(address) != family {
        return wrong(format!(
            "it must be an {family} address: {SUBNET} ({subnet}) is {family}"
        ));
    }
    if subnet.contains(&address) {
        Ok(address)
    } else {
        wrong(format!("it must lie in {SUBNET} ({subnet})"))
    }
}

/// What a pool says, for tests.
#[cfg(any(test, feature = "fuzz"))]
pub fn written(subnet: &str, start: &str, end: &str, exclude: &[&str]) -> IpConfig {
    let exclude = exclude.iter().map(|one| (*one).to_owned());
    IpConfig {
        subnet: subnet.to_owned(),
        pool: fipd_crds::floating_ip::AddressRange {
            start: start.to_owned(),
            end: end.to_owned(),
            exclude: exclude.collect(),
        },
        ..IpConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use fipd_crds::floating_ip::FloatingIPPoolSpec;

    use super::*;

    #[test]
    fn a_good_pool_is_taken_as_written() {
        let good = written(
            "10.0.0.0/24",
            "10.0.0.10",
            "10.0.0.20",
            &["10.0.0.15", "10.0.0.12", "10.0.0.15"],
        );
        let ranges = validate(Some(&good)).expect("valid");
        assert!(ranges.subnet.addr().is_ipv4());
        assert_eq!(
            ranges.addresses,
            AddressSpec::Range(
                "10.0.0.10".parse().expect("v4"),
                "10.0.0.20".parse().expect("v4")
            )
        );
        let exclusions: Vec<IpAddr> = vec![
            "10.0.0.12".parse().expect("v4"),
            "10.0.0.15".parse().expect("v4"),
        ];
        assert_eq!(
            ranges.exclusions,
            exclusions
                .into_iter()
                .map(AddressSpec::Single)
                .collect::<Vec<_>>()
        );
        assert_eq!(ranges.ends.last, 1);
    }

    #[test]
    fn text_forms_of_v6_are_one_address() {
        let good = written(
            "2001:DB8::/64",
            "2001:db8:0::1",
            "2001:db8::ffff:ffff:ffff:ffff",
            &["2001:0db8::5"],
        );
        let ranges = validate(Some(&good)).expect("valid");
        assert!(ranges.subnet.addr().is_ipv6());
        assert_eq!(
            ranges.exclusions,
            [AddressSpec::Single("2001:db8::5".parse().expect("v6"))]
        );
        assert_eq!(ranges.ends.last, 0);
    }

    #[test]
    fn host_bits_of_a_subnet_do_not_matter() {
        let good = written("10.0.0.7/24", "10.0.0.1", "10.0.0.2", &[]);
        assert_eq!(
            validate(Some(&good)).expect("valid").subnet.to_string(),
            "10.0.0.0/24"
        );
        let tiny = written("10.0.0.7/32", "10.0.0.7", "10.0.0.7", &[]);
        assert_eq!(validate(Some(&tiny)).expect("valid").ends.last, 0);
    }

    #[test]
    fn each_fault_names_its_field() {
        let field = |raw: Option<IpConfig>| validate(raw.as_ref()).expect_err("invalid").field;
        let v4 = |start, end, exclude| Some(written("10.0.0.0/24", start, end, exclude));
        assert_eq!(field(None), "spec.ipConfig");
        assert_eq!(
            field(Some(written("10.0.0.0", "10.0.0.1", "10.0.0.2", &[]))),
            "spec.ipConfig.subnet"
        );
        assert_eq!(field(v4("x", "10.0.0.2", &[])), "spec.ipConfig.pool.start");
        assert_eq!(field(v4("10.0.0.1", "", &[])), "spec.ipConfig.pool.end");
        assert_eq!(
            field(v4("10.0.0.1", "10.0.1.1", &[])),
            "spec.ipConfig.pool.end"
        );
        assert_eq!(
            field(v4("10.0.0.1", "2001:db8::1", &[])),
            "spec.ipConfig.pool.end"
        );
        assert_eq!(
            field(v4("10.0.0.9", "10.0.0.2", &[])),
            "spec.ipConfig.pool.start"
        );
        assert_eq!(
            field(v4("10.0.0.1", "10.0.0.5", &["10.0.0.2", "10.0.0.9"])),
            "spec.ipConfig.pool.exclude[1]"
        );
        assert_eq!(
            field(v4("10.0.0.1", "10.0.0.5", &["10.0.0.0/30"])),
            "spec.ipConfig.pool.exclude[0]"
        );
        let mut other = written("10.0.0.0/24", "10.0.0.1", "10.0.0.5", &[]);
        other.family = "IPv6".into();
        assert_eq!(field(Some(other)), "spec.ipConfig.family");
    }

    #[test]
    fn defect_10_an_end_that_is_the_broadcast_address_is_refused_where_there_is_one() {
        let whole = written("10.0.0.0/24", "10.0.0.0", "10.0.0.255", &[]);
        let wrong = validate(Some(&whole)).expect_err("the broadcast address");
        assert_eq!(wrong.field, END);
        assert!(wrong.to_string().contains("\"10.0.0.255\""), "{wrong}");
        for (subnet, start, end) in [
            ("10.0.0.0/24", "10.0.0.0", "10.0.0.254"),
            ("10.0.0.2/31", "10.0.0.2", "10.0.0.3"),
            ("2001:db8::/126", "2001:db8::", "2001:db8::3"),
        ] {
            validate(Some(&written(subnet, start, end, &[]))).expect(subnet);
        }
    }

    #[test]
    fn families_are_not_mixed_and_the_refusal_says_so() {
        let mixed = written("2001:db8::/64", "10.0.0.1", "2001:db8::9", &[]);
        let wrong = validate(Some(&mixed)).expect_err("mixed");
        let text = "spec.ipConfig.pool.start: \"10.0.0.1\" is not allowed: it must be an IPv6 address: \
                    spec.ipConfig.subnet (2001:db8::/64) is IPv6";
        assert_eq!(wrong.to_string(), text);
        let mut said = written("10.0.0.0/24", "10.0.0.1", "10.0.0.2", &[]);
        for family in ["", "IPv4", "ipv4"] {
            said.family = family.into();
            validate(Some(&said)).expect(family);
        }
        said.family = "dual".into();
        assert_eq!(validate(Some(&said)).expect_err("unknown").value, "dual");
    }

    #[test]
    fn what_is_excluded_twice_is_told_whatever_its_text() {
        let twice = written(
            "2001:db8::/64",
            "2001:db8::1",
            "2001:db8::9",
            &["2001:db8::5", "2001:db8::6", "2001:DB8:0::5"],
        );
        let doubles = doubles(&twice);
        let text = "spec.ipConfig.pool.exclude[2]: 2001:db8::5 is excluded more than once";
        assert_eq!(doubles, [text]);
    }

    #[test]
    fn what_is_no_config_at_all_is_named() {
        let wrong = validate(FloatingIPPoolSpec::default().ip_config.as_ref());
        assert_eq!(wrong.expect_err("missing").field, "spec.ipConfig");
    }
}
