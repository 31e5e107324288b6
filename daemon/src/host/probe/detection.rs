//! One address looked for from one network card: what is sent, and which frames are a conflict. Pure.

use std::net::IpAddr;

use nix::libc::sock_filter;

use super::{
    Mac, arp, neighbor,
    schedule::{self, Timing},
    socket_filter,
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Detection {
    pub own: Mac,
    pub address: IpAddr,
}

impl Detection {
    /// The frame to send.
    pub fn probe(&self) -> Vec<u8> {
        match self.address {
            IpAddr::V4(address) => arp::probe(self.own, address),
            IpAddr::V6(address) => neighbor::probe(self.own, address),
        }
    }

    /// Who uses the address or probes for it as well, if this frame says so.
    pub fn conflict(&self, frame: &[u8]) -> Option<Mac> {
        match self.address {
            IpAddr::V4(address) => arp::conflict(self.own, address, frame),
            IpAddr::V6(address) => neighbor::conflict(self.own, address, frame),
        }
    }

    /// The groups to listen to; broadcast is heard anyway.
    pub fn groups(&self) -> Vec<Mac> {
        match self.address {
            IpAddr::V4(_) => Vec::new(),
            IpAddr::V6(address) => neighbor::groups(address).into(),
        }
    }

    pub fn filter(&self) -> Vec<sock_filter> {
        match self.address {
            IpAddr::V4(address) => socket_filter::arp(address),
            IpAddr::V6(address) => socket_filter::neighbor(address),
        }
    }

    pub fn timing(&self) -> &'static Timing {
        match self.address {
            IpAddr::V4(_) => &schedule::ARP,
            IpAddr::V6(_) => &schedule::NEIGHBOR,
        }
    }
}

/// Any bytes as a frame from the network.
#[cfg(test)]
pub(super) fn fuzz(frame: &[u8]) {
    let own = Mac([2, 0, 0, 0, 0, 1]);
    for address in ["10.0.0.5", "2001:db8::5"] {
        let address = address.parse().unwrap();
        let _ = Detection { own, address }.conflict(frame);
    }
}

#[cfg(test)]
mod tests {
    use etherparse::ArpOperation;
    use proptest::prelude::*;

    use super::{super::test_frames::*, *};

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
            neighbor::probe(SQUATTER, v6),
        ]
    }

    proptest! {
        #[test]
        fn no_frame_is_a_reason_to_panic(frame in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzz(&frame);
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
            fuzz(&frame);
            frame.extend(more);
            fuzz(&frame);
            frame.truncate(length.index(frame.len()));
            fuzz(&frame);
        }
    }
}
