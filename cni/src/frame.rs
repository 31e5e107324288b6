//! The Ethernet frames of ARP and of IPv6 neighbor discovery, to the byte. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub type Mac = [u8; 6];

const BROADCAST: Mac = [0xff; 6];
const ETHERNET: usize = 14;
const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Hardware type 1, protocol IPv4, and the lengths of their addresses.
const ARP_ETHERNET_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const ICMPV6: u8 = 58;
/// Routers do not forward it, so the sender is on the link: RFC 4861, section 7.1.
const HOP_LIMIT: u8 = 255;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const OVERRIDE: u8 = 0x20;
const SOLICITED: u8 = 0x40;
/// Option with the MAC of the target, in units of eight bytes.
const TARGET_MAC: [u8; 2] = [2, 1];
const SOURCE_MAC: u8 = 1;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Tells the link that `ip` is at `mac`: RFC 5227, section 2.3, or an unsolicited advertisement of RFC 4861, section 7.2.6.
pub fn announcement(mac: Mac, ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => arp_request(mac, ip, ip),
        IpAddr::V6(ip) => {
            let option = [&TARGET_MAC[..], &mac].concat();
            let icmp = neighbor(ADVERTISEMENT, OVERRIDE, ip, &option);
            ipv6(mac, ip, ALL_NODES, icmp)
        }
    }
}

/// Asks who uses `ip`: RFC 5227, section 2.1.1, or RFC 4862, section 5.4.2.
pub fn probe(mac: Mac, ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => arp_request(mac, Ipv4Addr::UNSPECIFIED, ip),
        IpAddr::V6(ip) => {
            let icmp = neighbor(SOLICITATION, 0, ip, &[]);
            ipv6(mac, Ipv6Addr::UNSPECIFIED, solicited_node(ip), icmp)
        }
    }
}

/// The group that everybody with this address listens to: RFC 4291, section 2.7.1.
pub fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., high, low] = ip.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | high & 0xff, low)
}

/// Who uses `ip` or probes for it, by this frame. Malformed frames say nothing.
pub fn conflict(own: Mac, ip: IpAddr, frame: &[u8]) -> Option<Mac> {
    let (ethernet, body) = frame.split_at_checked(ETHERNET)?;
    let sender = *ethernet[6..].first_chunk()?;
    match (ip, ethernet[12..].first_chunk()?) {
        (IpAddr::V4(ip), &ARP) => arp_conflict(own, ip, body),
        (IpAddr::V6(ip), &IPV6) => neighbor_conflict(own, ip, sender, body),
        _ => None,
    }
}

fn arp_request(mac: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    [
        &BROADCAST[..],
        &mac,
        &ARP,
        &ARP_ETHERNET_IPV4,
        &[0, REQUEST],
        &mac,
        &sender.octets(),
        &[0; 6],
        &target.octets(),
    ]
    .concat()
}

fn arp_conflict(own: Mac, ip: Ipv4Addr, packet: &[u8]) -> Option<Mac> {
    let packet: &[u8; 28] = packet.first_chunk()?;
    let operation = packet[7];
    if packet[..6] != ARP_ETHERNET_IPV4 || packet[6] != 0 || ![REQUEST, REPLY].contains(&operation)
    {
        return None;
    }
    let mac: Mac = *packet[8..].first_chunk()?;
    let (sender, target) = (&packet[14..18], &packet[24..]);
    let is_used = *sender == ip.octets();
    let is_probed = operation == REQUEST && *sender == [0; 4] && *target == ip.octets();
    (is_used || is_probed && mac != own).then_some(mac)
}

/// A message about `target`, still without its checksum.
fn neighbor(kind: u8, flags: u8, target: Ipv6Addr, option: &[u8]) -> Vec<u8> {
    let head = [kind, 0, 0, 0, flags, 0, 0, 0];
    [&head[..], &target.octets(), option].concat()
}

fn ipv6(mac: Mac, from: Ipv6Addr, to: Ipv6Addr, mut icmp: Vec<u8>) -> Vec<u8> {
    let sum = checksum(from, to, &icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let [.., a, b, c, d] = to.octets();
    let length = [0, icmp.len() as u8];
    [
        &[0x33, 0x33, a, b, c, d][..],
        &mac,
        &IPV6,
        &[0x60, 0, 0, 0],
        &length,
        &[ICMPV6, HOP_LIMIT],
        &from.octets(),
        &to.octets(),
        &icmp,
    ]
    .concat()
}

/// Of RFC 4443, section 2.3. Zero over a message that has its own.
fn checksum(from: Ipv6Addr, to: Ipv6Addr, icmp: &[u8]) -> u16 {
    let pairs = icmp.chunks(2).map(|pair| match pair {
        [high, low] => u16::from_be_bytes([*high, *low]),
        [high] => u16::from_be_bytes([*high, 0]),
        _ => 0,
    });
    let addresses = from.segments().into_iter().chain(to.segments());
    let words = addresses.chain(pairs).map(u64::from);
    let mut sum = words.sum::<u64>() + icmp.len() as u64 + u64::from(ICMPV6);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn neighbor_conflict(own: Mac, ip: Ipv6Addr, sender: Mac, packet: &[u8]) -> Option<Mac> {
    let (header, body) = packet.split_at_checked(40)?;
    let length = usize::from(u16::from_be_bytes(*header[4..].first_chunk()?));
    let icmp = body.get(..length)?;
    let from = Ipv6Addr::from(*header[8..].first_chunk::<16>()?);
    let to = Ipv6Addr::from(*header[24..].first_chunk::<16>()?);
    let is_discovery = header[0] >> 4 == 6 && header[6] == ICMPV6 && header[7] == HOP_LIMIT;
    if !is_discovery || checksum(from, to, icmp) != 0 {
        return None;
    }
    let (message, options) = icmp.split_at_checked(24)?;
    if message[1] != 0 || message[8..] != ip.octets() {
        return None;
    }
    match message[0] {
        ADVERTISEMENT => {
            let is_valid = message[4] & SOLICITED == 0 || !to.is_multicast();
            let mac = option(options, TARGET_MAC[0])?;
            is_valid.then(|| mac.unwrap_or(sender))
        }
        // With a source address somebody merely resolves the address.
        SOLICITATION => {
            let is_valid = to == solicited_node(ip) && option(options, SOURCE_MAC)?.is_none();
            (is_valid && from.is_unspecified() && sender != own).then_some(sender)
        }
        _ => None,
    }
}

/// The MAC of an option; `None` outside: the options are malformed.
fn option(mut options: &[u8], kind: u8) -> Option<Option<Mac>> {
    let mut mac = None;
    while !options.is_empty() {
        let length = usize::from(*options.get(1)?) * 8;
        let (one, rest) = options.split_at_checked(length)?;
        if length == 0 {
            return None;
        }
        if one[0] == kind && length == 8 && mac.is_none() {
            mac = one[2..].first_chunk().copied();
        }
        options = rest;
    }
    Some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = [2, 0, 0, 0, 0, 1];
    const OTHER: Mac = [2, 0, 0, 0, 0, 9];

    fn v4() -> IpAddr {
        "10.0.0.5".parse().unwrap()
    }

    fn v6() -> IpAddr {
        "2001:db8::12:3456".parse().unwrap()
    }

    #[test]
    #[rustfmt::skip]
    fn frames_of_ipv4_are_those_of_the_rfc() {
        let mut expected = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x08, 0x06,
            0, 1, 0x08, 0x00, 6, 4, 0, 1,
            2, 0, 0, 0, 0, 1, 10, 0, 0, 5,
            0, 0, 0, 0, 0, 0, 10, 0, 0, 5,
        ];
        assert_eq!(announcement(OWN, v4()), expected);
        expected[28..32].fill(0);
        assert_eq!(probe(OWN, v4()), expected);
    }

    #[test]
    #[rustfmt::skip]
    fn frames_of_ipv6_are_those_of_the_rfc() {
        let solicitation = [
            0x33, 0x33, 0xff, 0x12, 0x34, 0x56, 2, 0, 0, 0, 0, 1, 0x86, 0xdd,
            0x60, 0, 0, 0, 0, 24, 58, 255,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x12, 0x34, 0x56,
            // As the daemon's probe has it.
            135, 0, 0xe4, 0x1e, 0, 0, 0, 0,
            0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56,
        ];
        assert_eq!(probe(OWN, v6()), solicitation);
        let advertisement = [
            0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x86, 0xdd,
            0x60, 0, 0, 0, 0, 32, 58, 255,
            0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56,
            0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
            // By hand: ~(2 * (2001 + 0db8 + 0012 + 3456) + ff02 + 0001 + 0020 + 003a + 8800 + 2000 + 0201 + 0200 + 0001).
            136, 0, 0x90, 0x5c, 0x20, 0, 0, 0,
            0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56,
            2, 1, 2, 0, 0, 0, 0, 1,
        ];
        assert_eq!(announcement(OWN, v6()), advertisement);
    }

    #[test]
    fn whoever_uses_or_probes_the_address_is_a_conflict() {
        for ip in [v4(), v6()] {
            let other: IpAddr = match ip {
                IpAddr::V4(_) => "10.0.0.6".parse().unwrap(),
                IpAddr::V6(_) => "2001:db8:1::12:3456".parse().unwrap(),
            };
            for frame in [announcement(OTHER, ip), probe(OTHER, ip)] {
                assert_eq!(conflict(OWN, ip, &frame), Some(OTHER));
                let padded = [&frame[..], &[0; 20]].concat();
                assert_eq!(conflict(OWN, ip, &padded), Some(OTHER));
                assert_eq!(conflict(OWN, other, &frame), None);
            }
            assert_eq!(conflict(OWN, ip, &probe(OWN, ip)), None, "our own");
        }
    }

    #[test]
    fn malformed_frames_say_nothing() {
        for ip in [v4(), v6()] {
            for good in [announcement(OTHER, ip), probe(OTHER, ip)] {
                for length in 0..good.len() {
                    assert_eq!(conflict(OWN, ip, &good[..length]), None, "cut to {length}");
                }
                for byte in 12..good.len() {
                    let mut bad = good.clone();
                    bad[byte] ^= 0x40;
                    // Any byte is allowed to lead to None, none to a panic; those of the address must.
                    let seen = conflict(OWN, ip, &bad);
                    assert!(seen.is_none() || ip.is_ipv4() || byte < 18, "byte {byte}");
                }
            }
        }
        assert_eq!(option(&[2, 0, 0, 0, 0, 0, 0, 0], 2), None, "never ends");
    }
}
