//! Kinds of links and what distinguishes links of a kind, in netlink's form.

use netlink_packet_route::link::{
    InfoData, InfoIpVlan, InfoKind, InfoMacVlan, InfoVlan, IpVlanFlags, IpVlanMode, LinkInfo,
    MacVlanMode, VlanProtocol,
};

use crate::attachment::{IpvlanFlag, IpvlanMode, LinkKind, MacvlanMode};

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
    /// Reads it; `None`: a link without a kind, such as a network card.
    pub(super) fn read(infos: &[LinkInfo]) -> Option<Self> {
        let kind = infos.iter().find_map(|info| match info {
            LinkInfo::Kind(kind) => Some(kind),
            _ => None,
        })?;
        let data = infos.iter().find_map(|info| match info {
            LinkInfo::Data(data) => Some(data),
            _ => None,
        });
        Some(match (kind, data) {
            (InfoKind::MacVlan, Some(InfoData::MacVlan(parts))) => Self::Macvlan(macvlan(parts)),
            (InfoKind::IpVlan, Some(InfoData::IpVlan(parts))) => Self::Ipvlan(ipvlan(parts)),
            (InfoKind::Vlan, Some(InfoData::Vlan(parts))) => vlan(parts),
            (kind, _) => Self::Other(kind.to_string()),
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

fn macvlan(parts: &[InfoMacVlan]) -> Option<MacvlanMode> {
    parts.iter().find_map(|part| match part {
        InfoMacVlan::Mode(MacVlanMode::Bridge) => Some(MacvlanMode::Bridge),
        InfoMacVlan::Mode(MacVlanMode::Vepa) => Some(MacvlanMode::Vepa),
        InfoMacVlan::Mode(MacVlanMode::Private) => Some(MacvlanMode::Private),
        InfoMacVlan::Mode(MacVlanMode::Passthrough) => Some(MacvlanMode::Passthru),
        _ => None,
    })
}

fn ipvlan(parts: &[InfoIpVlan]) -> Option<(IpvlanMode, IpvlanFlag)> {
    let mode = parts.iter().find_map(|part| match part {
        InfoIpVlan::Mode(IpVlanMode::L2) => Some(IpvlanMode::L2),
        InfoIpVlan::Mode(IpVlanMode::L3) => Some(IpvlanMode::L3),
        InfoIpVlan::Mode(IpVlanMode::L3S) => Some(IpvlanMode::L3s),
        _ => None,
    })?;
    let flags = parts.iter().find_map(|part| match part {
        InfoIpVlan::Flags(flags) => Some(*flags),
        _ => None,
    });
    let flags = flags.unwrap_or_default();
    let flag = if flags.contains(IpVlanFlags::Private) {
        IpvlanFlag::Private
    } else if flags.contains(IpVlanFlags::Vepa) {
        IpvlanFlag::Vepa
    } else {
        IpvlanFlag::Bridge
    };
    Some((mode, flag))
}

fn vlan(parts: &[InfoVlan]) -> KindOfLink {
    let id = parts.iter().find_map(|part| match part {
        InfoVlan::Id(id) => Some(*id),
        _ => None,
    });
    let protocol = parts.iter().find_map(|part| match part {
        InfoVlan::Protocol(protocol) => Some(u16::from(*protocol)),
        _ => None,
    });
    KindOfLink::Vlan {
        id: id.unwrap_or_default(),
        protocol: protocol.unwrap_or(VlanProtocol::Ieee8021Q.into()),
    }
}

/// What makes a link of this kind.
pub(super) fn container_infos(kind: LinkKind) -> Vec<LinkInfo> {
    match kind {
        LinkKind::Macvlan(mode) => {
            let mode = match mode {
                MacvlanMode::Bridge => MacVlanMode::Bridge,
                MacvlanMode::Vepa => MacVlanMode::Vepa,
                MacvlanMode::Private => MacVlanMode::Private,
                MacvlanMode::Passthru => MacVlanMode::Passthrough,
            };
            let data = InfoData::MacVlan(vec![InfoMacVlan::Mode(mode)]);
            vec![LinkInfo::Kind(InfoKind::MacVlan), LinkInfo::Data(data)]
        }
        LinkKind::Ipvlan(mode, flag) => {
            let mode = match mode {
                IpvlanMode::L2 => IpVlanMode::L2,
                IpvlanMode::L3 => IpVlanMode::L3,
                IpvlanMode::L3s => IpVlanMode::L3S,
            };
            let flags = match flag {
                IpvlanFlag::Bridge => IpVlanFlags::empty(),
                IpvlanFlag::Private => IpVlanFlags::Private,
                IpvlanFlag::Vepa => IpVlanFlags::Vepa,
            };
            let parts = vec![InfoIpVlan::Mode(mode), InfoIpVlan::Flags(flags)];
            let data = InfoData::IpVlan(parts);
            vec![LinkInfo::Kind(InfoKind::IpVlan), LinkInfo::Data(data)]
        }
    }
}

/// What makes a VLAN of 802.1Q.
pub(super) fn vlan_infos(id: u16) -> Vec<LinkInfo> {
    let data = InfoData::Vlan(vec![InfoVlan::Id(id)]);
    vec![LinkInfo::Kind(InfoKind::Vlan), LinkInfo::Data(data)]
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{LinkAttribute, LinkMessage};

    use netlink_packet_core::{Emitable as _, Parseable as _};

    use super::*;

    /// The bytes of IFLA_LINKINFO, behind the header of the message and the attribute's.
    fn bytes(infos: Vec<LinkInfo>) -> Vec<u8> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::LinkInfo(infos)];
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        let read = LinkMessage::parse(&bytes).unwrap();
        assert_eq!(read, message, "what is written is read");
        bytes.split_off(16 + 4)
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
        let got = bytes(vlan_infos(100));
        assert_eq!(got[4..8], *b"vlan");
        assert_eq!(got[got.len() - 8..], [6, 0, 1, 0, 100, 0, 0, 0]);
    }

    #[test]
    fn kinds_are_read_as_they_are_written() {
        let macvlans = [
            MacvlanMode::Bridge,
            MacvlanMode::Vepa,
            MacvlanMode::Private,
            MacvlanMode::Passthru,
        ];
        let flags = [IpvlanFlag::Bridge, IpvlanFlag::Private, IpvlanFlag::Vepa];
        let modes = [IpvlanMode::L2, IpvlanMode::L3, IpvlanMode::L3s];
        let ipvlans = modes
            .into_iter()
            .flat_map(|mode| flags.map(|flag| LinkKind::Ipvlan(mode, flag)));
        for kind in macvlans.map(LinkKind::Macvlan).into_iter().chain(ipvlans) {
            let read = KindOfLink::read(&container_infos(kind)).unwrap();
            assert!(read.is(kind) && read.is_of_containers(), "{kind:?}");
        }
        let vlan = KindOfLink::read(&vlan_infos(7)).unwrap();
        assert_eq!(
            vlan,
            KindOfLink::Vlan {
                id: 7,
                protocol: 0x8100
            }
        );
        let source = InfoData::MacVlan(vec![InfoMacVlan::Mode(MacVlanMode::Source)]);
        let infos = [LinkInfo::Kind(InfoKind::MacVlan), LinkInfo::Data(source)];
        assert_eq!(KindOfLink::read(&infos), Some(KindOfLink::Macvlan(None)));
        assert_eq!(KindOfLink::read(&[]), None);
    }
}
