//! Which addresses an `iprange` stands for.

use std::net::{IpAddr, Ipv4Addr};

use fipd_core::{AddressSpec, Ends, Family, Order};
use ipnet::{IpNet, Ipv4Net};

use crate::{
    systems::kube_fip::settings::RangeArithmetic,
    validation::{Wrong, pool::canonical},
};

pub const IPRANGE: &str = "spec.iprange";

/// The addresses of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeAddresses {
    pub subnet: IpNet,
    pub addresses: AddressSpec,
    pub ends: Ends,
    pub order: Order,
}

const NO_CIDR: &str = "it must be a CIDR such as 192.0.2.0/24 or 2001:db8::/64, with a prefix length from 1 on; write one";
const ONLY_BROADCAST: &str =
    "no address is left of it: it begins at the broadcast address; write one that begins before";
const NONE_BELOW_LAST: &str = "no address is left of it: by arithmetic = \"original\" a range ends one below the last address; write a wider one, or have that setting changed";
const MAPPED: &str =
    "it begins or ends among the IPv4-mapped addresses; write the IPv4 range in its place";

/// Reads the text. Host bits say where the range begins: before that the original never gave anything either.
pub fn read(text: &str, arithmetic: RangeArithmetic) -> Result<RangeAddresses, Wrong> {
    let written = text.parse().ok().map(canonical);
    let written = written.filter(|written| written.prefix_len() > 0);
    let read = match (arithmetic, written) {
        (_, None) => Err(NO_CIDR),
        (RangeArithmetic::Original, Some(IpNet::V4(written))) => by_original(written),
        (RangeArithmetic::Default | RangeArithmetic::Original, Some(written)) => {
            by_default(written)
        }
    };
    read.map_err(|allowed| Wrong::new(IPRANGE, text, allowed))
}

fn by_default(written: IpNet) -> Result<RangeAddresses, &'static str> {
    let (first, subnet) = (written.addr(), written.trunc());
    let (last, ends) = (subnet.broadcast(), Ends::own_default(Family::of(first)));
    let has_ends = subnet.max_prefix_len() - subnet.prefix_len() > 1;
    if has_ends && ends.last > 0 && first == last {
        return Err(ONLY_BROADCAST);
    }
    let addresses = match span(first, last) {
        Some(part) if first != subnet.addr() => part,
        Some(_) | None => AddressSpec::Cidr(subnet),
    };
    let is_cidr = matches!(addresses, AddressSpec::Cidr(_));
    if !is_cidr && [first, last].iter().any(|end| end.to_canonical() != *end) {
        return Err(MAPPED);
    }
    Ok(RangeAddresses {
        subnet,
        addresses,
        ends,
        order: Order::Lowest,
    })
}

/// The library of the original counts a last address as broadcast address in every network.
fn by_original(written: Ipv4Net) -> Result<RangeAddresses, &'static str> {
    let last = written.broadcast().to_bits().checked_sub(1);
    let last = last.ok_or(NONE_BELOW_LAST)?;
    let addresses = span(written.addr().into(), Ipv4Addr::from_bits(last).into());
    Ok(RangeAddresses {
        subnet: written.trunc().into(),
        addresses: addresses.ok_or(NONE_BELOW_LAST)?,
        ends: Ends::NONE,
        order: Order::Random,
    })
}

/// First to last; `None`: there is none between.
fn span(first: IpAddr, last: IpAddr) -> Option<AddressSpec> {
    match first.cmp(&last) {
        std::cmp::Ordering::Less => Some(AddressSpec::Range(first, last)),
        std::cmp::Ordering::Equal => Some(AddressSpec::Single(first)),
        std::cmp::Ordering::Greater => None,
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::PoolSpec;
    use proptest::prelude::*;

    use super::*;

    fn spec(read: &RangeAddresses) -> PoolSpec {
        PoolSpec {
            prefix_len: Some(read.subnet.prefix_len()),
            subnet: Some(read.subnet),
            ends: read.ends,
            order: read.order,
            ..PoolSpec::own("range", vec![read.addresses])
        }
    }

    /// The addresses that a pool of this range gives, found one by one: without an address that it gives it is smaller.
    fn given(text: &str, arithmetic: RangeArithmetic) -> Vec<u32> {
        let Ok(read) = read(text, arithmetic) else {
            return Vec::new();
        };
        let (spec, net) = (spec(&read), text.parse::<Ipv4Net>().unwrap().trunc());
        let size = |spec: &PoolSpec| spec.size().unwrap().assignable;
        let (whole, mut given) = (size(&spec), Vec::new());
        for address in net.network().to_bits()..=net.broadcast().to_bits() {
            let mut without = spec.clone();
            let address = IpAddr::from(address.to_be_bytes());
            without.exclusions.push(AddressSpec::Single(address));
            if size(&without) < whole {
                given.push(match address {
                    IpAddr::V4(four) => four.to_bits(),
                    IpAddr::V6(_) => panic!("{address}"),
                });
            }
        }
        assert_eq!(given.len() as u128, whole, "{text} gives nothing else");
        given
    }

    /// What a range is to give, in plain numbers.
    fn model(written: u32, prefix: u8, arithmetic: RangeArithmetic) -> Vec<u32> {
        let hosts = 1_u64 << (32 - prefix);
        let network = u64::from(written) / hosts * hosts;
        let broadcast = network + hosts - 1;
        let all = network..=broadcast;
        let given = all.filter(|address| {
            *address >= u64::from(written)
                && match arithmetic {
                    RangeArithmetic::Original => *address < broadcast,
                    RangeArithmetic::Default => {
                        hosts <= 2 || (*address != network && *address != broadcast)
                    }
                }
        });
        given
            .map(|address| u32::try_from(address).unwrap())
            .collect()
    }

    fn arithmetic() -> impl Strategy<Value = RangeArithmetic> {
        prop_oneof![
            Just(RangeArithmetic::Default),
            Just(RangeArithmetic::Original)
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn a_range_gives_what_the_model_gives(written: u32, prefix in 24_u8..=32, arithmetic in arithmetic()) {
            let address = IpAddr::from(written.to_be_bytes());
            let text = format!("{address}/{prefix}");
            prop_assert_eq!(given(&text, arithmetic), model(written, prefix, arithmetic), "{}", text);
        }

        #[test]
        fn the_ends_of_a_network_are_no_exception(
            network: u32, prefix in 24_u8..=32, from_end in 0_u32..3, above: bool, arithmetic in arithmetic(),
        ) {
            let hosts = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
            let network = network & !hosts;
            let offset = from_end.min(hosts);
            let written = if above { network + hosts - offset } else { network + offset };
            let text = format!("{}/{prefix}", IpAddr::from(written.to_be_bytes()));
            prop_assert_eq!(given(&text, arithmetic), model(written, prefix, arithmetic), "{}", text);
        }
    }

    #[test]
    fn wide_ranges_have_their_true_size() {
        let size = |text: &str, arithmetic| spec(&read(text, arithmetic).unwrap()).size();
        let size = |text: &str, arithmetic| size(text, arithmetic).unwrap().assignable;
        assert_eq!(size("10.0.0.0/8", RangeArithmetic::Default), (1 << 24) - 2);
        assert_eq!(size("10.0.0.0/8", RangeArithmetic::Original), (1 << 24) - 1);
        assert_eq!(size("10.0.0.10/24", RangeArithmetic::Original), 245);
        assert_eq!(size("10.0.0.10/24", RangeArithmetic::Default), 245);
        assert_eq!(
            size("2001:db8::/64", RangeArithmetic::Default),
            (1 << 64) - 1
        );
        for arithmetic in RangeArithmetic::ALL {
            assert_eq!(
                size("2001:db8::5/127", arithmetic),
                1,
                "IPv6 has no broadcast"
            );
            assert_eq!(size("2001:db8::5/128", arithmetic), 1);
            assert_eq!(
                size("::ffff:10.0.0.4/126", arithmetic),
                match arithmetic {
                    RangeArithmetic::Default => 2,
                    RangeArithmetic::Original => 3,
                }
            );
        }
    }

    /// `/31` has one address by the original, `/32` none; by default both are as RFC 3021 has them.
    #[test]
    fn ranges_of_one_and_two_addresses() {
        let size = |text: &str, arithmetic| given(text, arithmetic).len();
        for (text, default, original) in [
            ("10.0.0.4/31", 2, 1),
            ("10.0.0.5/31", 1, 0),
            ("10.0.0.5/32", 1, 0),
            ("0.0.0.0/32", 1, 0),
            ("255.255.255.255/32", 1, 0),
        ] {
            assert_eq!(size(text, RangeArithmetic::Default), default, "{text}");
            assert_eq!(size(text, RangeArithmetic::Original), original, "{text}");
        }
    }

    /// An IPv4-mapped address is the IPv4 one: as an end it would not come back from the store as it went there.
    #[test]
    fn every_range_is_read_back_as_it_was() {
        for text in [
            "10.0.0.10/24",
            "10.0.0.5/32",
            "2001:db8::9/64",
            "::/80",
            "::ffff:10.0.0.9/120",
        ] {
            let one = read(text, RangeArithmetic::Default).unwrap().addresses;
            assert_eq!(one.to_string().parse(), Ok(one), "{text}");
        }
        for text in ["::1/80", "::ffff:10.0.0.9/90"] {
            let wrong = read(text, RangeArithmetic::Default).unwrap_err();
            assert!(wrong.allowed.contains("IPv4-mapped"), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_range_says_what_is() {
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/99",
            "10.0.0.0/33",
            "0.0.0.0/0",
            "x",
            "::/200",
            "::/0",
        ] {
            for arithmetic in RangeArithmetic::ALL {
                let wrong = read(text, arithmetic).unwrap_err();
                assert_eq!((&*wrong.field, &*wrong.value), (IPRANGE, text));
                assert!(wrong.allowed.contains("192.0.2.0/24"), "{wrong}");
            }
        }
        let last = read("10.0.0.255/24", RangeArithmetic::Default).unwrap_err();
        assert!(last.allowed.contains("begins before"), "{last}");
        let none = read("10.0.0.5/32", RangeArithmetic::Original).unwrap_err();
        assert!(none.allowed.contains("arithmetic"), "{none}");
    }
}
