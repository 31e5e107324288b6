//! ARP probes, what answers them, and announcements, by RFC 5227. Pure.

use std::net::Ipv4Addr;

use etherparse::{
    ArpEthIpv4Packet, ArpOperation, ArpPacketSlice, EtherType, Ethernet2Header, Ethernet2Slice,
};

use super::Mac;

/// Asks everybody who has `address`, without an address of our own that others might remember: section 2.1.1.
pub(super) fn probe(own: Mac, address: Ipv4Addr) -> Vec<u8> {
    request(own, Ipv4Addr::UNSPECIFIED, address)
}

/// Has everybody remember that `address` is at `own`: section 2.3.
pub(super) fn announcement(own: Mac, address: Ipv4Addr) -> Vec<u8> {
    request(own, address, address)
}

fn request(own: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let ethernet = Ethernet2Header {
        source: own.0,
        destination: Mac::BROADCAST.0,
        ether_type: EtherType::ARP,
    };
    let arp = ArpEthIpv4Packet {
        operation: ArpOperation::REQUEST,
        sender_mac: own.0,
        sender_ipv4: sender.octets(),
        target_mac: [0; 6],
        target_ipv4: target.octets(),
    };
    [&ethernet.to_bytes()[..], &arp.to_bytes()[..]].concat()
}

/// Who uses `address` or probes for it, by this frame. Frames that are malformed say nothing.
pub(super) fn conflict(own: Mac, address: Ipv4Addr, frame: &[u8]) -> Option<Mac> {
    let ethernet = Ethernet2Slice::from_slice_without_fcs(frame).ok()?;
    if ethernet.ether_type() != EtherType::ARP {
        return None;
    }
    let arp = ArpPacketSlice::from_slice(ethernet.payload_slice()).ok()?;
    let arp = ArpEthIpv4Packet::try_from(arp.to_packet()).ok()?;
    let is_request = arp.operation == ArpOperation::REQUEST;
    if !is_request && arp.operation != ArpOperation::REPLY {
        return None;
    }
    let sender = Mac(arp.sender_mac);
    let is_used = arp.sender_ipv4_addr() == address;
    let is_probed = is_request
        && arp.sender_ipv4_addr().is_unspecified()
        && arp.target_ipv4_addr() == address
        && sender != own;
    (is_used || is_probed).then_some(sender)
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 6);

    fn seen(frame: &[u8]) -> Option<Mac> {
        conflict(OWN, ADDRESS, frame)
    }

    #[test]
    fn a_probe_and_an_announcement_are_the_frames_of_the_rfc() {
        #[rustfmt::skip]
        let mut expected = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x08, 0x06,
            0, 1, 0x08, 0x00, 6, 4, 0, 1,
            2, 0, 0, 0, 0, 1, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 10, 0, 0, 5,
        ];
        assert_eq!(probe(OWN, ADDRESS), expected);
        assert_eq!(seen(&probe(OWN, ADDRESS)), None, "our own, sent back");
        expected[28..32].copy_from_slice(&ADDRESS.octets());
        assert_eq!(announcement(OWN, ADDRESS), expected);
    }

    #[test]
    fn whoever_sends_from_the_address_uses_it() {
        for operation in [ArpOperation::REQUEST, ArpOperation::REPLY] {
            let packet = arp_packet(operation, SQUATTER, ADDRESS, OTHER);
            assert_eq!(seen(&packet), Some(SQUATTER));
            assert_eq!(seen(&padded(packet)), Some(SQUATTER), "to 60 bytes");
        }
        let announced = arp_packet(ArpOperation::REQUEST, OWN, ADDRESS, ADDRESS);
        assert_eq!(seen(&announced), Some(OWN), "this host itself");
    }

    #[test]
    fn whoever_probes_for_the_address_at_the_same_time_is_a_conflict() {
        let unspecified = Ipv4Addr::UNSPECIFIED;
        let probe_of = |mac, target| arp_packet(ArpOperation::REQUEST, mac, unspecified, target);
        assert_eq!(seen(&probe_of(SQUATTER, ADDRESS)), Some(SQUATTER));
        assert_eq!(seen(&probe_of(SQUATTER, OTHER)), None);
        assert_eq!(seen(&probe_of(OWN, ADDRESS)), None);
        let reply = arp_packet(ArpOperation::REPLY, SQUATTER, unspecified, ADDRESS);
        assert_eq!(seen(&reply), None, "a probe is a request");
    }

    #[test]
    fn others_who_only_talk_about_the_address_do_not_use_it() {
        let asked = arp_packet(ArpOperation::REQUEST, SQUATTER, OTHER, ADDRESS);
        assert_eq!(seen(&asked), None);
        let inverse = arp_packet(ArpOperation(8), SQUATTER, ADDRESS, OTHER);
        assert_eq!(seen(&inverse), None, "InARP");
    }

    #[test]
    fn malformed_frames_say_nothing() {
        let good = arp_packet(ArpOperation::REPLY, SQUATTER, ADDRESS, OTHER);
        assert!(seen(&good).is_some());
        for length in 0..good.len() {
            assert_eq!(seen(&good[..length]), None, "cut to {length}");
        }
        // Ethernet type, hardware and protocol type, the two lengths, the high byte of the operation.
        for offset in [12, 13, 14, 15, 16, 17, 18, 19, 20] {
            let mut bad = good.clone();
            bad[offset] ^= 0x40;
            assert_eq!(seen(&bad), None, "byte {offset}");
        }
        let mut tagged = good.clone();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        assert_eq!(seen(&tagged), None, "of another VLAN");
    }
}
