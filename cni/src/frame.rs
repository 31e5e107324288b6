//! The Ethernet frames about one address, to the byte: ARP for IPv4, neighbor discovery for IPv6. Pure.

mod arp;
mod mac;
mod neighbor;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::net::IpAddr;

pub use mac::{InvalidMac, Mac};
pub use neighbor::solicited_node;

/// Asks the link who uses the address.
pub fn probe(own: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp::probe(own, address),
        IpAddr::V6(address) => neighbor::probe(own, address),
    }
}

/// Tells the link that the address is at `own`.
pub fn announcement(own: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp::announcement(own, address),
        IpAddr::V6(address) => neighbor::announcement(own, address),
    }
}

/// Who uses the address or probes for it as well, if this frame says so. Malformed frames say nothing.
pub fn conflict(own: Mac, address: IpAddr, frame: &[u8]) -> Option<Mac> {
    match address {
        IpAddr::V4(address) => arp::conflict(own, address, frame),
        IpAddr::V6(address) => neighbor::conflict(own, address, frame),
    }
}

/// The groups to listen to for [`conflict`]; broadcast is heard anyway.
pub fn groups(address: IpAddr) -> Vec<Mac> {
    match address {
        IpAddr::V4(_) => Vec::new(),
        IpAddr::V6(address) => neighbor::groups(address).into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{testing::*, *};

    fn read(frame: &[u8]) {
        for address in ["10.0.0.5", "2001:db8::5"] {
            let _ = conflict(OWN, address.parse().unwrap(), frame);
        }
    }

    fn valid_frames() -> Vec<Vec<u8>> {
        let v4 = "10.0.0.5".parse().unwrap();
        let v6 = "2001:db8::5".parse().unwrap();
        let advertisement = Advertisement {
            options: &[2, 1, 2, 0, 0, 0, 0, 9],
            ..Advertisement::of(v6)
        };
        vec![
            arp_packet(ArpOperation::REPLY, SQUATTER, v4, v4),
            advertisement.frame(),
            probe(SQUATTER, v6.into()),
        ]
    }

    proptest! {
        #[test]
        fn no_frame_is_a_reason_to_panic(frame in prop::collection::vec(any::<u8>(), 0..200)) {
            read(&frame);
        }

        #[test]
        fn neither_is_one_that_is_nearly_valid(
            which in 0_usize..3,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            length in any::<prop::sample::Index>(),
            more in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut frame = valid_frames().swap_remove(which);
            for (at, byte) in changes {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
            read(&frame);
            frame.extend(more);
            read(&frame);
            frame.truncate(length.index(frame.len()));
            read(&frame);
        }
    }
}
