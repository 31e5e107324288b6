//! Frames as others send them, for tests.

use std::net::{Ipv4Addr, Ipv6Addr};

pub use etherparse::ArpOperation;
use etherparse::{
    ArpEthIpv4Packet, EtherType, Ethernet2Header, IpNumber, Ipv6Header, checksum::Sum16BitWords,
};

use super::Mac;

pub const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub const SQUATTER: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// The least that Ethernet sends.
pub fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(60) + 4, 0xaa);
    frame
}

fn ethernet(destination: [u8; 6], ether_type: EtherType) -> [u8; 14] {
    let header = Ethernet2Header {
        source: SQUATTER.0,
        destination,
        ether_type,
    };
    header.to_bytes()
}

pub fn arp_packet(
    operation: ArpOperation,
    sender: Mac,
    from: Ipv4Addr,
    target: Ipv4Addr,
) -> Vec<u8> {
    let arp = ArpEthIpv4Packet {
        operation,
        sender_mac: sender.0,
        sender_ipv4: from.octets(),
        target_mac: [0; 6],
        target_ipv4: target.octets(),
    };
    [&ethernet(OWN.0, EtherType::ARP)[..], &arp.to_bytes()].concat()
}

/// A packet of ICMPv6 with a good checksum.
fn icmp_packet(hop_limit: u8, source: Ipv6Addr, destination: Ipv6Addr, body: &[u8]) -> Vec<u8> {
    let ip = Ipv6Header {
        payload_length: body.len() as u16,
        next_header: IpNumber::IPV6_ICMP,
        hop_limit,
        source: source.octets(),
        destination: destination.octets(),
        ..Ipv6Header::default()
    };
    let mut body = body.to_vec();
    let sum = Sum16BitWords::new()
        .add_16bytes(ip.source)
        .add_16bytes(ip.destination)
        .add_4bytes(u32::from(ip.payload_length).to_be_bytes())
        .add_2bytes([0, 58])
        .add_slice(&body)
        .ones_complement();
    body[2..4].copy_from_slice(&sum.to_ne_bytes());
    let ethernet = ethernet([0x33, 0x33, 0, 0, 0, 1], EtherType::IPV6);
    [&ethernet[..], &ip.to_bytes(), &body].concat()
}

/// A Neighbor Solicitation of the squatter.
pub fn solicitation(source: Ipv6Addr, destination: Ipv6Addr, rest: &[u8]) -> Vec<u8> {
    let body = [&[135, 0, 0, 0, 0, 0, 0, 0], rest].concat();
    icmp_packet(255, source, destination, &body)
}

/// A Neighbor Advertisement of the squatter.
#[derive(Clone, Copy)]
pub struct Advertisement<'a> {
    pub target: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub hop_limit: u8,
    pub code: u8,
    pub solicited: bool,
    pub options: &'a [u8],
}

impl Advertisement<'_> {
    /// As it answers a probe.
    pub fn of(target: Ipv6Addr) -> Self {
        Self {
            target,
            destination: Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
            hop_limit: 255,
            code: 0,
            solicited: false,
            options: &[],
        }
    }

    pub fn frame(&self) -> Vec<u8> {
        let flags = 0x20 | u8::from(self.solicited) << 6;
        let header = [136, self.code, 0, 0, flags, 0, 0, 0];
        let body = [&header[..], &self.target.octets(), self.options].concat();
        icmp_packet(self.hop_limit, self.target, self.destination, &body)
    }
}
