//! Filters in the kernel (classic BPF), so that busy networks and floods do not fill the socket with frames about other
//! addresses. Pure.
//!
//! They are no more than a first look: [`conflict`](fipd_cni::frame::conflict) decides. Only they see
//! the VLAN tag, which the kernel takes out of the frame: what is tagged belongs to another network, unless the tag is of
//! VLAN 0, which only has a priority.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::libc::{self, sock_filter};

const WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const VLAN_TAG: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG) as u32;
const VLAN_ID: u32 = 0x0fff;

// Offsets in the frame.
const ETHER_TYPE: u32 = 12;
const ARP_SENDER: u32 = 28;
const ARP_TARGET: u32 = 38;
const NEXT_HEADER: u32 = 20;
const NEIGHBOR_TARGET: u32 = 62;

/// All bytes of the frame.
const ACCEPT: u32 = u32::MAX;
const DROP: u32 = 0;

/// Untagged frames about the address.
pub(super) fn about(address: IpAddr) -> Vec<sock_filter> {
    match address {
        IpAddr::V4(address) => arp(address),
        IpAddr::V6(address) => neighbor(address),
    }
}

/// Untagged ARP from or about the address.
fn arp(address: Ipv4Addr) -> Vec<sock_filter> {
    let address = address.to_bits();
    vec![
        load(WORD, VLAN_TAG),
        jump(ANY_BIT, VLAN_ID, 6, 0),
        load(HALF, ETHER_TYPE),
        jump(EQUAL, 0x0806, 0, 4),
        load(WORD, ARP_SENDER),
        jump(EQUAL, address, 3, 0),
        load(WORD, ARP_TARGET),
        jump(EQUAL, address, 1, 0),
        verdict(DROP),
        verdict(ACCEPT),
    ]
}

/// Untagged ICMPv6 about the address.
fn neighbor(address: Ipv6Addr) -> Vec<sock_filter> {
    let bits = address.to_bits();
    let word = |index: u32| (bits >> (96 - 32 * index)) as u32;
    vec![
        load(WORD, VLAN_TAG),
        jump(ANY_BIT, VLAN_ID, 12, 0),
        load(HALF, ETHER_TYPE),
        jump(EQUAL, 0x86dd, 0, 10),
        load(BYTE, NEXT_HEADER),
        jump(EQUAL, 58, 0, 8),
        load(WORD, NEIGHBOR_TARGET),
        jump(EQUAL, word(0), 0, 6),
        load(WORD, NEIGHBOR_TARGET + 4),
        jump(EQUAL, word(1), 0, 4),
        load(WORD, NEIGHBOR_TARGET + 8),
        jump(EQUAL, word(2), 0, 2),
        load(WORD, NEIGHBOR_TARGET + 12),
        jump(EQUAL, word(3), 1, 0),
        verdict(DROP),
        verdict(ACCEPT),
    ]
}

fn load(code: u16, offset: u32) -> sock_filter {
    jump(code, offset, 0, 0)
}

fn verdict(bytes: u32) -> sock_filter {
    jump(RETURN, bytes, 0, 0)
}

/// Skips as many instructions as `yes` or `no` says.
fn jump(code: u16, k: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter {
        code,
        jt: yes,
        jf: no,
        k,
    }
}

#[cfg(test)]
mod tests {
    use fipd_cni::frame::{self, testing::*};

    use super::*;

    /// What the kernel does with a frame that came with this tag.
    fn accepts(filter: &[sock_filter], tag: u32, frame: &[u8]) -> bool {
        let (mut at, mut value) = (0, 0);
        loop {
            let one = filter[at];
            at += 1;
            let bytes = |count: usize| frame.get(one.k as usize..one.k as usize + count);
            let number = |bytes: &[u8]| {
                bytes
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
            };
            let loaded = match one.code {
                WORD if one.k == VLAN_TAG => Some(tag),
                WORD => bytes(4).map(number),
                HALF => bytes(2).map(number),
                BYTE => bytes(1).map(number),
                RETURN => return one.k == ACCEPT,
                EQUAL | ANY_BIT => {
                    let holds = match one.code {
                        EQUAL => value == one.k,
                        _ => value & one.k != 0,
                    };
                    at += usize::from(if holds { one.jt } else { one.jf });
                    continue;
                }
                other => panic!("{other:#x}"),
            };
            let Some(loaded) = loaded else {
                return false;
            };
            value = loaded;
        }
    }

    #[test]
    fn arp_of_and_about_the_address_passes() {
        let [one, other] = [5, 6].map(|last| Ipv4Addr::new(10, 0, 0, last));
        let filter = arp(one);
        let packet = |from, target| arp_packet(ArpOperation::REPLY, SQUATTER, from, target);
        for (from, target, passes) in [
            (one, other, true),
            (other, one, true),
            (one, one, true),
            (other, other, false),
        ] {
            let frame = packet(from, target);
            for (tag, own_network) in [(0, true), (0xe000, true), (7, false), (0xe007, false)] {
                let expected = passes && own_network;
                assert_eq!(
                    accepts(&filter, tag, &frame),
                    expected,
                    "{from} {target} {tag}"
                );
            }
            assert!(!accepts(&filter, 0, &frame[..31]));
        }
        let mut ip = packet(one, one);
        ip[12..14].copy_from_slice(&[8, 0]);
        assert!(!accepts(&filter, 0, &ip));
    }

    #[test]
    fn neighbor_discovery_about_the_address_passes() {
        let address: Ipv6Addr = "2001:db8:1:2:3:4:5:6".parse().unwrap();
        let filter = neighbor(address);
        let advertised = Advertisement::of(address).frame();
        assert!(accepts(&filter, 0, &advertised));
        assert!(!accepts(&filter, 7, &advertised));
        let probe = frame::probe(SQUATTER, address.into());
        assert!(accepts(&filter, 0, &probe));
        for group in 0..8 {
            let mut segments = address.segments();
            segments[group] ^= 1;
            let other = Advertisement::of(segments.into()).frame();
            assert!(!accepts(&filter, 0, &other), "{group}");
        }
        for offset in [12, 13, 20] {
            let mut bad = advertised.clone();
            bad[offset] ^= 1;
            assert!(!accepts(&filter, 0, &bad), "{offset}");
        }
        assert!(!accepts(&filter, 0, &advertised[..77]));
    }
}
