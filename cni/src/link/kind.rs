//! Kinds of links and what distinguishes links of a kind.

use netlink_packet_core::{DefaultNla, Nla as _};
use nix::libc::{IFLA_INFO_DATA, IFLA_INFO_KIND};

use super::link_message::{
    nest, number, read_number, read_short, read_text, short, split, text, value,
};
use crate::attachment::{IpvlanFlag, IpvlanMode, LinkKind, MacvlanMode};

const MACVLAN: &str = "macvlan";
const IPVLAN: &str = "ipvlan";
const VLAN: &str = "vlan";
// Attributes in IFLA_INFO_DATA: linux/if_link.h.
const IFLA_MACVLAN_MODE: u16 = 1;
const IFLA_IPVLAN_MODE: u16 = 1;
const IFLA_IPVLAN_FLAGS: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_PROTOCOL: u16 = 5;

const MACVLAN_MODES: [(MacvlanMode, u32); 4] = [
    (MacvlanMode::Private, 1),
    (MacvlanMode::Vepa, 2),
    (MacvlanMode::Bridge, 4),
    (MacvlanMode::Passthru, 8),
];
const IPVLAN_MODES: [(IpvlanMode, u16); 3] = [
    (IpvlanMode::L2, 0),
    (IpvlanMode::L3, 1),
    (IpvlanMode::L3s, 2),
];
const IPVLAN_FLAGS: [(IpvlanFlag, u16); 3] = [
    (IpvlanFlag::Bridge, 0),
    (IpvlanFlag::Private, 1),
    (IpvlanFlag::Vepa, 2),
];

/// What kind of link it is, as far as fipd makes such links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindOfLink {
    /// `None`: a mode that fipd does not make.
    Macvlan(Option<MacvlanMode>),
    Ipvlan(Option<(IpvlanMode, IpvlanFlag)>),
    /// The ethertype is 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    Vlan {
        id: u16,
        protocol: u16,
    },
    /// The kernel's name of another kind.
    Other(String),
}

impl KindOfLink {
    /// Reads IFLA_LINKINFO; `None`: a link without a kind, such as a network card.
    pub(super) fn read(infos: &[u8]) -> Option<Self> {
        let infos = split(infos);
        let kind = read_text(&find(&infos, IFLA_INFO_KIND)?);
        let data = split(&find(&infos, IFLA_INFO_DATA).unwrap_or_default());
        Some(match &*kind {
            MACVLAN => Self::Macvlan(macvlan(&data)),
            IPVLAN => Self::Ipvlan(ipvlan(&data)),
            VLAN => vlan(&data),
            _ => Self::Other(kind),
        })
    }

    /// Whether fipd makes such links in containers.
    pub fn is_of_containers(&self) -> bool {
        matches!(self, Self::Macvlan(_) | Self::Ipvlan(_))
    }

    /// Whether a link is as `wanted`.
    pub fn is(&self, wanted: LinkKind) -> bool {
        match wanted {
            LinkKind::Macvlan(mode) => *self == Self::Macvlan(Some(mode)),
            LinkKind::Ipvlan(mode, flag) => *self == Self::Ipvlan(Some((mode, flag))),
        }
    }
}

fn find(attributes: &[DefaultNla], kind: u16) -> Option<Vec<u8>> {
    attributes.iter().find(|one| one.kind() == kind).map(value)
}

/// The name of a number, or the number of a name.
fn named<T: Copy, N: Copy + PartialEq>(names: &[(T, N)], number: N) -> Option<T> {
    let found = names.iter().find(|(_, one)| *one == number);
    found.map(|(name, _)| *name)
}

fn numbered<T: Copy + PartialEq, N: Copy + Default>(names: &[(T, N)], name: T) -> N {
    let found = names.iter().find(|(one, _)| *one == name);
    found.map(|(_, number)| *number).unwrap_or_default()
}

fn macvlan(data: &[DefaultNla]) -> Option<MacvlanMode> {
    let mode = find(data, IFLA_MACVLAN_MODE)?;
    named(&MACVLAN_MODES, read_number(&mode))
}

fn ipvlan(data: &[DefaultNla]) -> Option<(IpvlanMode, IpvlanFlag)> {
    let mode = find(data, IFLA_IPVLAN_MODE)?;
    // Kernels before 4.15 have no flags.
    let flag = find(data, IFLA_IPVLAN_FLAGS).map_or(0, |flag| read_short(&flag));
    let mode = named(&IPVLAN_MODES, read_short(&mode))?;
    Some((mode, named(&IPVLAN_FLAGS, flag)?))
}

fn vlan(data: &[DefaultNla]) -> KindOfLink {
    let id = find(data, IFLA_VLAN_ID).map_or(0, |id| read_short(&id));
    let protocol = find(data, IFLA_VLAN_PROTOCOL);
    KindOfLink::Vlan {
        id,
        protocol: protocol.map_or(0x8100, |protocol| u16::from_be(read_short(&protocol))),
    }
}

/// What is in IFLA_LINKINFO to make a link of this kind.
pub(super) fn container_infos(kind: LinkKind) -> [DefaultNla; 2] {
    match kind {
        LinkKind::Macvlan(mode) => {
            let mode = number(IFLA_MACVLAN_MODE, numbered(&MACVLAN_MODES, mode));
            infos(MACVLAN, &[mode])
        }
        LinkKind::Ipvlan(mode, flag) => {
            let mode = short(IFLA_IPVLAN_MODE, numbered(&IPVLAN_MODES, mode));
            let flag = short(IFLA_IPVLAN_FLAGS, numbered(&IPVLAN_FLAGS, flag));
            infos(IPVLAN, &[mode, flag])
        }
    }
}

/// What is in IFLA_LINKINFO to make a VLAN of 802.1Q.
pub(super) fn vlan_infos(id: u16) -> [DefaultNla; 2] {
    infos(VLAN, &[short(IFLA_VLAN_ID, id)])
}

fn infos(kind: &str, data: &[DefaultNla]) -> [DefaultNla; 2] {
    [text(IFLA_INFO_KIND, kind), nest(IFLA_INFO_DATA, data)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(infos: [DefaultNla; 2]) -> Vec<u8> {
        value(&nest(0, &infos))
    }

    #[test]
    #[rustfmt::skip]
    fn links_this_kernel_may_lack_have_the_bytes_of_the_headers() {
        // IFLA_INFO_KIND "ipvlan", IFLA_INFO_DATA of IFLA_IPVLAN_MODE 1 (l3) and IFLA_IPVLAN_FLAGS 1 (private).
        let expected = [
            11, 0, 1, 0, b'i', b'p', b'v', b'l', b'a', b'n', 0, 0,
            20, 0, 2, 0, 6, 0, 1, 0, 1, 0, 0, 0, 6, 0, 2, 0, 1, 0, 0, 0,
        ];
        let got = bytes(container_infos(LinkKind::Ipvlan(IpvlanMode::L3, IpvlanFlag::Private)));
        assert_eq!(got, expected);
        // IFLA_INFO_KIND "vlan", IFLA_INFO_DATA of IFLA_VLAN_ID.
        let expected = [
            9, 0, 1, 0, b'v', b'l', b'a', b'n', 0, 0, 0, 0,
            12, 0, 2, 0, 6, 0, 1, 0, 100, 0, 0, 0,
        ];
        assert_eq!(bytes(vlan_infos(100)), expected);
    }

    #[test]
    fn kinds_are_read_as_they_are_written() {
        let macvlans = MACVLAN_MODES.map(|(mode, _)| LinkKind::Macvlan(mode));
        let ipvlans = IPVLAN_MODES
            .into_iter()
            .flat_map(|(mode, _)| IPVLAN_FLAGS.map(|(flag, _)| LinkKind::Ipvlan(mode, flag)));
        for kind in macvlans.into_iter().chain(ipvlans) {
            let read = KindOfLink::read(&bytes(container_infos(kind))).unwrap();
            assert!(read.is(kind) && read.is_of_containers(), "{kind:?}");
        }
        let read = |kind: &str, data| KindOfLink::read(&bytes(infos(kind, data)));
        let vlan = |id, protocol| Some(KindOfLink::Vlan { id, protocol });
        assert_eq!(KindOfLink::read(&bytes(vlan_infos(7))), vlan(7, 0x8100));
        let provider = [short(IFLA_VLAN_PROTOCOL, 0x88a8_u16.to_be())];
        assert_eq!(read(VLAN, &provider), vlan(0, 0x88a8));
        let source = [number(IFLA_MACVLAN_MODE, 16)];
        assert_eq!(read(MACVLAN, &source), Some(KindOfLink::Macvlan(None)));
        assert_eq!(read("veth", &[]), Some(KindOfLink::Other("veth".into())));
        assert_eq!(KindOfLink::read(&[]), None);
        assert_eq!(KindOfLink::read(&[3, 0, 1, 0]), None, "malformed");
    }
}
