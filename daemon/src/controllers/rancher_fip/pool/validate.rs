//! What a FloatingIPPool says, as typed ranges; nothing is taken over half.

use std::net::IpAddr;

use fipd_core::{AddressSpec, Ends, EndsOf, Family};
use ipnet::IpNet;

/// `spec.ipConfig` as it is written.
#[derive(Clone, Debug, Default)]
pub struct RawConfig<'a> {
    pub family: Option<&'a str>,
    pub subnet: &'a str,
    pub start: &'a str,
    pub end: &'a str,
    pub exclude: Vec<&'a str>,
}

/// The addresses of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    pub family: Family,
    pub subnet: IpNet,
    pub addresses: AddressSpec,
    pub exclusions: Vec<AddressSpec>,
    pub ends: Ends,
}

/// A field that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{field}: {value:?} is not allowed: {allowed}; the pool is not changed until this is corrected"
)]
pub struct Wrong {
    pub field: String,
    pub value: String,
    pub allowed: String,
}

/// Checks all of it. `None`: there is no `ipConfig`.
pub fn validate(raw: Option<&RawConfig<'_>>) -> Result<Ranges, Wrong> {
    let Some(raw) = raw else {
        return Err(wrong(
            "spec.ipConfig",
            "",
            "it must be there, with subnet and pool",
        ));
    };
    let subnet = subnet(raw.subnet)?;
    let family = family_of(subnet.addr());
    check_family(raw.family, family, &subnet)?;
    let start = inside("spec.ipConfig.pool.start", raw.start, &subnet)?;
    let end = inside("spec.ipConfig.pool.end", raw.end, &subnet)?;
    if start > end {
        return Err(wrong(
            "spec.ipConfig.pool.start",
            raw.start,
            &format!("it must not be above spec.ipConfig.pool.end ({end})"),
        ));
    }
    let mut exclusions: Vec<IpAddr> = Vec::with_capacity(raw.exclude.len());
    for (index, text) in raw.exclude.iter().enumerate() {
        let field = format!("spec.ipConfig.pool.exclude[{index}]");
        let address = inside(&field, text, &subnet)?;
        if address < start || address > end {
            return Err(wrong(
                &field,
                text,
                &format!("it must lie in the pool, from {start} to {end}"),
            ));
        }
        exclusions.push(address);
    }
    exclusions.sort_unstable();
    exclusions.dedup();
    Ok(Ranges {
        family,
        subnet,
        addresses: AddressSpec::Range(start, end),
        exclusions: exclusions.into_iter().map(AddressSpec::Single).collect(),
        ends: ends(&subnet),
    })
}

/// The broadcast address of an IPv4 subnet is never given; its network address may be, and a subnet of one
/// or two addresses has neither.
fn ends(subnet: &IpNet) -> Ends {
    let last = match subnet {
        IpNet::V4(subnet) if subnet.prefix_len() < 31 => 1,
        IpNet::V4(_) | IpNet::V6(_) => 0,
    };
    Ends {
        first: 0,
        last,
        of: EndsOf::Prefix,
    }
}

fn subnet(text: &str) -> Result<IpNet, Wrong> {
    let subnet: IpNet = text.parse().map_err(|_| {
        wrong(
            "spec.ipConfig.subnet",
            text,
            "it must be a CIDR such as 192.0.2.0/24 or 2001:db8::/64",
        )
    })?;
    Ok(subnet.trunc())
}

fn check_family(said: Option<&str>, family: Family, subnet: &IpNet) -> Result<(), Wrong> {
    let name = match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    };
    match said {
        None | Some("") => Ok(()),
        Some(said) if said.eq_ignore_ascii_case(name) => Ok(()),
        Some(said) => Err(wrong(
            "spec.ipConfig.family",
            said,
            &format!("subnet {subnet} is {name}"),
        )),
    }
}

fn inside(field: &str, text: &str, subnet: &IpNet) -> Result<IpAddr, Wrong> {
    let address: IpAddr = text.parse().map_err(|_| {
        wrong(
            field,
            text,
            &format!("it must be an address in spec.ipConfig.subnet ({subnet})"),
        )
    })?;
    if subnet.contains(&address) {
        Ok(address)
    } else {
        Err(wrong(
            field,
            text,
            &format!("it must lie in spec.ipConfig.subnet ({subnet})"),
        ))
    }
}

pub fn family_of(address: IpAddr) -> Family {
    match address {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

fn wrong(field: &str, value: &str, allowed: &str) -> Wrong {
    Wrong {
        field: field.into(),
        value: value.into(),
        allowed: allowed.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw<'a>(
        subnet: &'a str,
        start: &'a str,
        end: &'a str,
        exclude: &[&'a str],
    ) -> RawConfig<'a> {
        RawConfig {
            family: None,
            subnet,
            start,
            end,
            exclude: exclude.to_vec(),
        }
    }

    #[test]
    fn a_good_pool_is_taken_as_written() {
        let good = raw(
            "10.0.0.0/24",
            "10.0.0.10",
            "10.0.0.20",
            &["10.0.0.15", "10.0.0.12", "10.0.0.15"],
        );
        let ranges = validate(Some(&good)).expect("valid");
        assert_eq!(ranges.family, Family::V4);
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
        let good = raw(
            "2001:DB8::/64",
            "2001:db8:0::1",
            "2001:db8::ffff:ffff:ffff:ffff",
            &["2001:0db8::5"],
        );
        let ranges = validate(Some(&good)).expect("valid");
        assert_eq!(ranges.family, Family::V6);
        assert_eq!(
            ranges.exclusions,
            [AddressSpec::Single("2001:db8::5".parse().expect("v6"))]
        );
        assert_eq!(ranges.ends.last, 0);
    }

    #[test]
    fn host_bits_of_a_subnet_do_not_matter() {
        let good = raw("10.0.0.7/24", "10.0.0.1", "10.0.0.2", &[]);
        assert_eq!(
            validate(Some(&good)).expect("valid").subnet.to_string(),
            "10.0.0.0/24"
        );
        let tiny = raw("10.0.0.7/32", "10.0.0.7", "10.0.0.7", &[]);
        assert_eq!(validate(Some(&tiny)).expect("valid").ends.last, 0);
    }

    #[test]
    fn each_fault_names_its_field() {
        let field = |raw: Option<RawConfig<'_>>| validate(raw.as_ref()).expect_err("invalid").field;
        let v4 = |start, end, exclude| Some(raw("10.0.0.0/24", start, end, exclude));
        assert_eq!(field(None), "spec.ipConfig");
        assert_eq!(
            field(Some(raw("10.0.0.0", "10.0.0.1", "10.0.0.2", &[]))),
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
        let mut other = raw("10.0.0.0/24", "10.0.0.1", "10.0.0.5", &[]);
        other.family = Some("IPv6");
        assert_eq!(field(Some(other)), "spec.ipConfig.family");
    }
}
