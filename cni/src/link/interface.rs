//! Network interfaces.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, Nla as _};
use nix::libc::{
    EEXIST, ENODEV, IFF_PROMISC, IFF_UP, IFLA_ADDRESS, IFLA_IFALIAS, IFLA_IFNAME, IFLA_LINK,
    IFLA_LINK_NETNSID, IFLA_LINKINFO, IFLA_MTU, IFLA_NET_NS_FD, RTM_DELLINK, RTM_GETLINK,
    RTM_NEWLINK, RTM_SETLINK,
};

use super::{
    KindOfLink, Netlink,
    kind::{container_infos, vlan_infos},
    link_message::{LinkMessage, nest, number, read_number, read_text, text, value},
};
use crate::{attachment::LinkKind, frame::Mac};

/// linux/if_ether.h
const ETH_P_8021Q: u16 = 0x8100;

/// An interface as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// In bytes.
    pub mtu: u32,
    /// `None`: not Ethernet.
    pub mac: Option<Mac>,
    /// An administrator wants it up; it may lack a carrier.
    pub up: bool,
    /// An administrator made it promiscuous. Programs that capture packets are not counted.
    pub promiscuous: bool,
    pub alias: Option<String>,
    /// `None`: a network card or the loopback.
    pub kind: Option<KindOfLink>,
    /// Index of the interface below. Where `parent_is_elsewhere`, an index of another namespace.
    pub parent: Option<u32>,
    pub parent_is_elsewhere: bool,
}

impl Link {
    /// In lower case; empty where it has none.
    pub fn mac_text(&self) -> String {
        self.mac.map(|mac| mac.to_string()).unwrap_or_default()
    }

    /// Whether it is this VLAN of 802.1Q on `master`, which is in the same namespace.
    pub fn is_vlan_on(&self, master: &Self, id: u16) -> bool {
        let tagged = KindOfLink::Vlan {
            id,
            protocol: ETH_P_8021Q,
        };
        let is_below = self.parent == Some(master.index) && !self.parent_is_elsewhere;
        is_below && self.kind == Some(tagged)
    }
}

/// A macvlan or ipvlan to create.
#[derive(Clone, Copy, Debug)]
pub struct MemberLink<'a> {
    pub name: &'a str,
    pub kind: LinkKind,
    /// Index of the interface below, in the namespace of the [`Netlink`].
    pub parent: u32,
    /// In bytes; `None`: the parent's.
    pub mtu: Option<u32>,
    /// `None`: the kernel chooses. An ipvlan has its parent's in any case.
    pub mac: Option<Mac>,
    pub up: bool,
}

impl Netlink {
    /// # Errors
    /// When the kernel does not answer.
    pub fn find(&mut self, name: &str) -> io::Result<Option<Link>> {
        let attributes = vec![text(IFLA_IFNAME, name)];
        match self.get(RTM_GETLINK, &message(0, attributes)) {
            Ok(found) => Ok(Some(read(found))),
            Err(error) if error.raw_os_error() == Some(ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All interfaces.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn list(&mut self) -> io::Result<Vec<Link>> {
        let found = self.dump(RTM_GETLINK, &message(0, Vec::new()))?;
        Ok(found.into_iter().map(read).collect())
    }

    /// Creates a macvlan or ipvlan in `namespace`, under its name from the start.
    ///
    /// # Errors
    /// `EEXIST` where the name is taken, `EINVAL` where the parent or the MTU does not fit, `EOPNOTSUPP` where the kernel
    /// lacks the kind.
    pub fn create_in(
        &mut self,
        namespace: BorrowedFd<'_>,
        link: &MemberLink<'_>,
    ) -> io::Result<()> {
        self.create(&member(namespace, link))
    }

    /// Creates a VLAN of 802.1Q, down and with its parent's MTU. Returns whether it is new: `false` where the name or the VLAN was
    /// taken.
    ///
    /// # Errors
    /// When the kernel refuses; `EEXIST` never.
    pub fn create_vlan(&mut self, name: &str, parent: u32, id: u16) -> io::Result<bool> {
        match self.create(&vlan(name, parent, id)) {
            Err(error) if error.raw_os_error() == Some(EEXIST) => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Renames a link that is down.
    ///
    /// # Errors
    /// `EEXIST` where the name is taken, `EBUSY` where the link is up.
    pub fn rename(&mut self, index: u32, name: &str) -> io::Result<()> {
        let name = vec![text(IFLA_IFNAME, name)];
        self.request(RTM_SETLINK, &message(index, name), 0)
    }

    /// # Errors
    /// When the kernel refuses.
    pub fn set_alias(&mut self, index: u32, alias: &str) -> io::Result<()> {
        // Without the zero that other texts end with.
        let alias = vec![DefaultNla::new(IFLA_IFALIAS, alias.as_bytes().to_vec())];
        self.request(RTM_SETLINK, &message(index, alias), 0)
    }

    /// Returns whether there was such a link.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn delete(&mut self, index: u32) -> io::Result<bool> {
        match self.request(RTM_DELLINK, &message(index, Vec::new()), 0) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(ENODEV) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// # Errors
    /// When the kernel refuses.
    pub fn set_up(&mut self, index: u32, up: bool) -> io::Result<()> {
        self.set_flag(index, IFF_UP, up)
    }

    /// # Errors
    /// When the kernel refuses.
    pub fn set_promiscuous(&mut self, index: u32, promiscuous: bool) -> io::Result<()> {
        self.set_flag(index, IFF_PROMISC, promiscuous)
    }

    fn set_flag(&mut self, index: u32, flag: i32, on: bool) -> io::Result<()> {
        let mut change = message(index, Vec::new());
        set(&mut change, flag, on);
        self.request(RTM_SETLINK, &change, 0)
    }

    fn create(&mut self, link: &LinkMessage) -> io::Result<()> {
        self.request(RTM_NEWLINK, link, NLM_F_CREATE | NLM_F_EXCL)
    }
}

fn message(index: u32, attributes: Vec<DefaultNla>) -> LinkMessage {
    LinkMessage {
        index,
        attributes,
        ..LinkMessage::default()
    }
}

fn set(message: &mut LinkMessage, flag: i32, on: bool) {
    message.change = flag.cast_unsigned();
    message.flags = if on { message.change } else { 0 };
}

fn member(namespace: BorrowedFd<'_>, link: &MemberLink<'_>) -> LinkMessage {
    let namespace = namespace.as_raw_fd().cast_unsigned();
    let mut attributes = vec![
        text(IFLA_IFNAME, link.name),
        number(IFLA_LINK, link.parent),
        number(IFLA_NET_NS_FD, namespace),
        nest(IFLA_LINKINFO, &container_infos(link.kind)),
    ];
    attributes.extend(link.mtu.map(|mtu| number(IFLA_MTU, mtu)));
    if let LinkKind::Macvlan(_) = link.kind {
        let mac = link
            .mac
            .map(|mac| DefaultNla::new(IFLA_ADDRESS, mac.0.to_vec()));
        attributes.extend(mac);
    }
    let mut message = message(0, attributes);
    if link.up {
        set(&mut message, IFF_UP, true);
    }
    message
}

fn vlan(name: &str, parent: u32, id: u16) -> LinkMessage {
    let attributes = vec![
        text(IFLA_IFNAME, name),
        number(IFLA_LINK, parent),
        nest(IFLA_LINKINFO, &vlan_infos(id)),
    ];
    message(0, attributes)
}

fn read(message: LinkMessage) -> Link {
    let has = |flag: i32| message.flags & flag.cast_unsigned() != 0;
    let mut link = Link {
        index: message.index,
        up: has(IFF_UP),
        promiscuous: has(IFF_PROMISC),
        ..Link::default()
    };
    for attribute in &message.attributes {
        let value = value(attribute);
        match attribute.kind() {
            IFLA_IFNAME => link.name = read_text(&value),
            IFLA_MTU => link.mtu = read_number(&value),
            IFLA_ADDRESS => link.mac = value.try_into().ok().map(Mac),
            IFLA_IFALIAS => link.alias = Some(read_text(&value)),
            IFLA_LINK => link.parent = Some(read_number(&value)).filter(|parent| *parent != 0),
            IFLA_LINK_NETNSID => link.parent_is_elsewhere = true,
            IFLA_LINKINFO => link.kind = KindOfLink::read(&value),
            _ => {}
        }
    }
    link
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use netlink_packet_core::{Emitable as _, Parseable as _};

    use super::*;
    use crate::attachment::{IpvlanFlag, IpvlanMode, MacvlanMode};

    #[test]
    fn a_vlan_is_known_by_its_id_and_its_master() {
        let vlan = |id, protocol, parent| Link {
            kind: Some(KindOfLink::Vlan { id, protocol }),
            parent: Some(parent),
            ..Link::default()
        };
        let master = Link {
            index: 7,
            ..Link::default()
        };
        let found = vlan(100, 0x8100, 7);
        assert!(found.is_vlan_on(&master, 100));
        let elsewhere = Link {
            parent_is_elsewhere: true,
            ..found
        };
        let other = [
            vlan(101, 0x8100, 7),
            vlan(100, 0x88a8, 7),
            vlan(100, 0x8100, 8),
        ];
        for other in other.iter().chain([&elsewhere, &master]) {
            assert!(!other.is_vlan_on(&master, 100), "{other:?}");
        }
    }

    #[test]
    fn a_link_is_created_in_its_namespace_under_its_name() {
        let file = tempfile::tempfile().unwrap();
        let mut link = MemberLink {
            name: "eth1",
            kind: LinkKind::Macvlan(MacvlanMode::Bridge),
            parent: 7,
            mtu: Some(1400),
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            up: false,
        };
        let macvlan = member(file.as_fd(), &link);
        for wanted in [
            text(IFLA_IFNAME, "eth1"),
            number(IFLA_LINK, 7),
            number(IFLA_NET_NS_FD, file.as_raw_fd().cast_unsigned()),
            number(IFLA_MTU, 1400),
            DefaultNla::new(IFLA_ADDRESS, vec![2, 0, 0, 0, 0, 1]),
        ] {
            assert!(macvlan.attributes.contains(&wanted), "{wanted:?}");
        }
        assert_eq!(macvlan.change, 0);
        link.kind = LinkKind::Ipvlan(IpvlanMode::L2, IpvlanFlag::Bridge);
        link.up = true;
        let ipvlan = member(file.as_fd(), &link);
        let address = |one: &DefaultNla| one.kind() == IFLA_ADDRESS;
        assert!(!ipvlan.attributes.iter().any(address), "has its parent's");
        assert_eq!((ipvlan.flags, ipvlan.change), (1, 1));
    }

    #[test]
    fn a_vlan_is_made_down_and_read_as_one() {
        let mut message = vlan("up0.100", 3, 100);
        message.index = 9;
        message.attributes.push(text(IFLA_IFALIAS, "fipd"));
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        assert_eq!(LinkMessage::parse(&bytes).unwrap(), message);
        for length in 0..bytes.len() {
            // Cut anywhere, it is read as far as it goes.
            let _ = LinkMessage::parse(&bytes[..length]).map(read);
        }
        let link = read(message);
        assert!(!link.up && !link.promiscuous);
        assert_eq!((link.index, link.parent), (9, Some(3)));
        assert_eq!(link.alias.as_deref(), Some("fipd"));
        let kind = KindOfLink::Vlan {
            id: 100,
            protocol: 0x8100,
        };
        assert_eq!(link.kind, Some(kind));
    }
}
