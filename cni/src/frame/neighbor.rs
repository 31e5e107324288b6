//! Duplicate address detection of IPv6, by RFC 4862, section 5.4, with the checks of RFC 4861, section 7.1, and unsolicited
//! advertisements of that, section 7.2.6. Pure.

use std::net::Ipv6Addr;

use etherparse::{
    EtherType, Ethernet2Header, Ethernet2Slice, Icmpv6Header, Icmpv6Slice, Icmpv6Type, IpNumber,
    Ipv6Header, Ipv6HeaderSlice,
    checksum::Sum16BitWords,
    icmpv6::{Icmpv6PayloadSlice, NdpOptionSlice, NeighborAdvertisementHeader},
};

use super::Mac;

/// Routers forward nothing of this hop limit, and it cannot be reached through them.
const HOP_LIMIT: u8 = 255;
/// The option with the MAC of the target, and its length of eight bytes.
const TARGET_MAC: [u8; 2] = [2, 1];
/// Of RFC 4291, section 2.7.1, without the last three bytes.
const SOLICITED_NODE: [u8; 13] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The group that everybody with this address listens to.
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let mut group = address.octets();
    group[..SOLICITED_NODE.len()].copy_from_slice(&SOLICITED_NODE);
    group.into()
}

/// Where Ethernet sends what is for an IPv6 group: RFC 2464, section 7.
fn ethernet_group(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

/// Where others send what [`conflict`] is to see.
pub(super) fn groups(address: Ipv6Addr) -> [Mac; 2] {
    [ALL_NODES, solicited_node(address)].map(ethernet_group)
}

/// A Neighbor Solicitation for `address`, from nobody's address and without options.
pub(super) fn probe(own: Mac, address: Ipv6Addr) -> Vec<u8> {
    let solicitation = Icmpv6Type::NeighborSolicitation;
    let ends = (Ipv6Addr::UNSPECIFIED, solicited_node(address));
    to_group(own, ends, solicitation, &address.octets())
}

/// A Neighbor Advertisement that nobody asked for: all nodes shall remember that `address` is at `own`.
pub(super) fn announcement(own: Mac, address: Ipv6Addr) -> Vec<u8> {
    let flags = NeighborAdvertisementHeader {
        router: false,
        solicited: false,
        r#override: true,
    };
    let rest = [&address.octets()[..], &TARGET_MAC, &own.0].concat();
    let advertisement = Icmpv6Type::NeighborAdvertisement(flags);
    to_group(own, (address, ALL_NODES), advertisement, &rest)
}

/// A message to a group: `rest` follows its first eight bytes.
fn to_group(
    own: Mac,
    (source, group): (Ipv6Addr, Ipv6Addr),
    message: Icmpv6Type,
    rest: &[u8],
) -> Vec<u8> {
    let ethernet = Ethernet2Header {
        source: own.0,
        destination: ethernet_group(group).0,
        ether_type: EtherType::IPV6,
    };
    let mut icmp = Icmpv6Header {
        icmp_type: message,
        checksum: 0,
    };
    let ip = Ipv6Header {
        payload_length: (icmp.header_len() + rest.len()) as u16,
        next_header: IpNumber::IPV6_ICMP,
        hop_limit: HOP_LIMIT,
        source: source.octets(),
        destination: group.octets(),
        ..Ipv6Header::default()
    };
    let sum = Sum16BitWords::new()
        .add_16bytes(ip.source)
        .add_16bytes(ip.destination)
        .add_2bytes(ip.payload_length.to_be_bytes())
        .add_2bytes([0, IpNumber::IPV6_ICMP.0])
        .add_slice(&icmp.to_bytes())
        .add_slice(rest);
    icmp.checksum = sum.ones_complement().to_be();
    let (ethernet, ip, icmp) = (ethernet.to_bytes(), ip.to_bytes(), icmp.to_bytes());
    [&ethernet[..], &ip, &icmp, rest].concat()
}

/// Who uses `address` or probes for it, by this frame. Frames that are malformed say nothing.
pub(super) fn conflict(own: Mac, address: Ipv6Addr, frame: &[u8]) -> Option<Mac> {
    let ethernet = Ethernet2Slice::from_slice_without_fcs(frame).ok()?;
    if ethernet.ether_type() != EtherType::IPV6 {
        return None;
    }
    let packet = ethernet.payload_slice();
    let ip = Ipv6HeaderSlice::from_slice(packet).ok()?;
    // Nobody sends neighbor discovery behind extension headers, and none of it may be fragmented: RFC 6980.
    if ip.hop_limit() != HOP_LIMIT || ip.next_header() != IpNumber::IPV6_ICMP {
        return None;
    }
    let body = packet.get(Ipv6Header::LEN..)?;
    let body = body.get(..usize::from(ip.payload_length()))?;
    let icmp = Icmpv6Slice::from_slice(body).ok()?;
    if !icmp.is_checksum_valid(ip.source(), ip.destination()) {
        return None;
    }
    let kind = icmp.icmp_type();
    let payload = Icmpv6PayloadSlice::from_slice(&kind, icmp.payload()).ok()?;
    let sender = Mac(ethernet.source());
    if let Icmpv6PayloadSlice::NeighborAdvertisement(advertisement) = payload {
        let Icmpv6Type::NeighborAdvertisement(header) = kind else {
            return None;
        };
        let options: Result<Vec<_>, _> = advertisement.options_iterator().collect();
        let told = options.ok()?.into_iter().find_map(target_mac);
        let is_valid = !(header.solicited && ip.destination_addr().is_multicast());
        let is_used = is_valid && advertisement.target_address() == address;
        is_used.then_some(told.unwrap_or(sender))
    } else if let Icmpv6PayloadSlice::NeighborSolicitation(solicitation) = payload {
        let options: Result<Vec<_>, _> = solicitation.options_iterator().collect();
        let has_source = |option| matches!(option, NdpOptionSlice::SourceLinkLayerAddress(_));
        let is_valid = ip.destination_addr() == solicited_node(address)
            && !options.ok()?.into_iter().any(has_source);
        // With a source address it merely asks for the MAC of `address`.
        let is_probed = is_valid
            && ip.source_addr().is_unspecified()
            && solicitation.target_address() == address
            && sender != own;
        is_probed.then_some(sender)
    } else {
        None
    }
}

fn target_mac(option: NdpOptionSlice<'_>) -> Option<Mac> {
    let NdpOptionSlice::TargetLinkLayerAddress(option) = option else {
        return None;
    };
    option.link_layer_address().try_into().ok().map(Mac)
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn address() -> Ipv6Addr {
        "2001:db8::12:3456".parse().unwrap()
    }

    fn group() -> Ipv6Addr {
        "ff02::1:ff12:3456".parse().unwrap()
    }

    fn seen(frame: &[u8]) -> Option<Mac> {
        conflict(OWN, address(), frame)
    }

    #[test]
    fn a_probe_is_the_frame_of_the_rfc() {
        #[rustfmt::skip]
        let expected = [
            0x33, 0x33, 0xff, 0x12, 0x34, 0x56, 2, 0, 0, 0, 0, 1, 0x86, 0xdd,
            0x60, 0, 0, 0, 0, 24, 58, 255,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x12, 0x34, 0x56,
            // The checksum, summed by hand: ~(ff02 + 0001 + ff12 + 3456 + 0018 + 003a + 8700 + 2001 + 0db8 + 0012 + 3456).
            135, 0, 0xe4, 0x1e, 0, 0, 0, 0,
            0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56,
        ];
        assert_eq!(probe(OWN, address()), expected);
        assert_eq!(seen(&expected), None, "our own, sent back");
        let groups = groups(address()).map(|mac| mac.to_string());
        assert_eq!(groups, ["33:33:00:00:00:01", "33:33:ff:12:34:56"]);
    }

    #[test]
    fn an_announcement_is_the_frame_of_the_rfc() {
        #[rustfmt::skip]
        let expected = [
            0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x86, 0xdd,
            0x60, 0, 0, 0, 0, 32, 58, 255,
            0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56,
            0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
            // By hand: ~(2 * (2001 + 0db8 + 0012 + 3456) + ff02 + 0001 + 0020 + 003a + 8800 + 2000 + 0201 + 0200 + 0001).
            136, 0, 0x90, 0x5c, 0x20, 0, 0, 0,
            0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56,
            2, 1, 2, 0, 0, 0, 0, 1,
        ];
        assert_eq!(announcement(OWN, address()), expected);
        assert_eq!(seen(&expected), Some(OWN), "this host itself");
    }

    #[test]
    fn whoever_advertises_the_address_uses_it() {
        let bare = Advertisement::of(address());
        assert_eq!(seen(&bare.frame()), Some(SQUATTER), "of the frame");
        let told = Advertisement {
            options: &[2, 1, 2, 0, 0, 0, 0, 9],
            ..bare
        };
        assert_eq!(seen(&told.frame()), Some(Mac([2, 0, 0, 0, 0, 9])));
        let among_others = Advertisement {
            options: &[
                14, 1, 0, 0, 0, 0, 0, 0, 250, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
                2, 1, 2, 0, 0, 0, 0, 9,
            ],
            ..bare
        };
        let frame = padded(among_others.frame());
        assert_eq!(seen(&frame), Some(Mac([2, 0, 0, 0, 0, 9])));
        let odd_length = Advertisement {
            options: &[2, 2, 2, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0],
            ..bare
        };
        assert_eq!(seen(&odd_length.frame()), Some(SQUATTER), "not Ethernet's");
        let other = Advertisement::of("2001:db8::7".parse().unwrap());
        assert_eq!(seen(&other.frame()), None);
    }

    #[test]
    fn whoever_probes_for_the_address_at_the_same_time_is_a_conflict() {
        let theirs = probe(SQUATTER, address());
        assert_eq!(seen(&theirs), Some(SQUATTER));
        let other = "2001:db8:1::12:3456".parse().unwrap();
        assert_eq!(seen(&probe(SQUATTER, other)), None, "of the group");
        let target = address().octets();
        let unspecified = Ipv6Addr::UNSPECIFIED;
        let nonce = [&target[..], &[14, 1, 1, 2, 3, 4, 5, 6]].concat();
        let enhanced = solicitation(unspecified, group(), &nonce);
        assert_eq!(seen(&enhanced), Some(SQUATTER), "RFC 7527, as Linux has it");
    }

    #[test]
    fn whoever_resolves_the_address_does_not_use_it() {
        let target = address().octets();
        let source = "fe80::9".parse().unwrap();
        assert_eq!(seen(&solicitation(source, group(), &target)), None);
    }

    #[test]
    fn solicitations_that_are_not_valid_say_nothing() {
        let target = address().octets();
        let unspecified = Ipv6Addr::UNSPECIFIED;
        let with_source = [&target[..], &[1, 1, 2, 0, 0, 0, 0, 9]].concat();
        assert_eq!(
            seen(&solicitation(unspecified, group(), &with_source)),
            None
        );
        let all_nodes = solicitation(unspecified, ALL_NODES, &target);
        assert_eq!(seen(&all_nodes), None, "not the group of the address");
        let short = solicitation(unspecified, group(), &target[..15]);
        assert_eq!(seen(&short), None);
    }

    #[test]
    fn advertisements_that_are_not_valid_say_nothing() {
        let good = Advertisement::of(address());
        for hop_limit in [0, 1, 64, 254] {
            let frame = Advertisement { hop_limit, ..good }.frame();
            assert_eq!(seen(&frame), None, "hop limit {hop_limit}");
        }
        let code = Advertisement { code: 1, ..good };
        assert_eq!(seen(&code.frame()), None);
        let solicited = Advertisement {
            solicited: true,
            ..good
        };
        assert_eq!(seen(&solicited.frame()), None, "an answer to everybody");
        let unicast = Advertisement {
            destination: "fe80::1".parse().unwrap(),
            ..solicited
        };
        assert_eq!(seen(&unicast.frame()), Some(SQUATTER));
        let bad_options: [&[u8]; 5] = [
            // Of length 0, which never ends.
            &[2, 0, 2, 0, 0, 0, 0, 9],
            // Cut off.
            &[2],
            &[2, 1, 2, 0],
            &[2, 2, 2, 0, 0, 0, 0, 9],
            &[2, 1, 2, 0, 0, 0, 0, 9, 14, 255],
        ];
        for options in bad_options {
            let frame = Advertisement { options, ..good }.frame();
            assert_eq!(seen(&frame), None, "{options:?}");
        }
    }

    #[test]
    fn each_bit_of_the_packet_is_covered_by_the_checks() {
        let good = Advertisement {
            options: &[2, 1, 2, 0, 0, 0, 0, 9],
            ..Advertisement::of(address())
        };
        let good = good.frame();
        assert!(seen(&good).is_some());
        for length in 0..good.len() {
            assert_eq!(seen(&good[..length]), None, "cut to {length}");
        }
        for bit in 12 * 8..good.len() * 8 {
            let (byte, mask) = (bit / 8, 1 << (bit % 8));
            // The traffic class and the flow label may be anything.
            if (14..18).contains(&byte) && (byte, mask & 0xf0) != (14, mask) {
                continue;
            }
            let mut bad = good.clone();
            bad[byte] ^= mask;
            assert_eq!(seen(&bad), None, "bit {bit}");
        }
    }
}
