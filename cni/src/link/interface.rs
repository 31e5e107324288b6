//! Network interfaces.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkFlags, LinkMessage},
};
use nix::libc::{EEXIST, ENODEV};

use super::{
    KindOfLink, Netlink,
    kind::{container_infos, vlan_infos},
};
use crate::attachment::LinkKind;

/// An interface as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// In bytes.
    pub mtu: u32,
    /// `None`: not Ethernet.
    pub mac: Option<[u8; 6]>,
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
    pub mac: Option<[u8; 6]>,
    pub up: bool,
}

impl Netlink {
    /// # Errors
    /// When the kernel does not answer.
    pub fn find(&mut self, name: &str) -> io::Result<Option<Link>> {
        let attributes = vec![LinkAttribute::IfName(name.to_owned())];
        let asked = message(0, attributes);
        match self.get(RouteNetlinkMessage::GetLink(asked)) {
            Ok(RouteNetlinkMessage::NewLink(found)) => Ok(Some(read(found))),
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.raw_os_error() == Some(ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All interfaces, without those that the netlink library cannot read.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn list(&mut self) -> io::Result<Vec<Link>> {
        let asked = RouteNetlinkMessage::GetLink(message(0, Vec::new()));
        let found = self.dump(&asked)?.into_iter();
        let links = found.filter_map(|one| match one {
            RouteNetlinkMessage::NewLink(link) => Some(read(link)),
            _ => None,
        });
        Ok(links.collect())
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
        self.create(member(namespace, link))
    }

    /// Creates a VLAN of 802.1Q, up and with its parent's MTU. Returns whether it is new: `false` where the name was taken.
    ///
    /// # Errors
    /// `ENETDOWN` where the parent is down, `EEXIST` never.
    pub fn create_vlan(
        &mut self,
        name: &str,
        parent: u32,
        id: u16,
        alias: &str,
    ) -> io::Result<bool> {
        match self.create(vlan(name, parent, id)) {
            Err(error) if error.raw_os_error() == Some(EEXIST) => return Ok(false),
            result => result?,
        }
        let made = self.find(name)?.ok_or(io::ErrorKind::NotFound)?.index;
        // The kernel takes no alias when it creates a link. Without one nobody knows whose the link is.
        if let Err(error) = self.set_alias(made, alias) {
            self.delete(made)?;
            return Err(error);
        }
        Ok(true)
    }

    /// # Errors
    /// When the kernel refuses.
    pub fn set_alias(&mut self, index: u32, alias: &str) -> io::Result<()> {
        let alias = vec![LinkAttribute::IfAlias(alias.to_owned())];
        self.request(RouteNetlinkMessage::SetLink(message(index, alias)), 0)
    }

    /// Returns whether there was such a link.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn delete(&mut self, index: u32) -> io::Result<bool> {
        let request = RouteNetlinkMessage::DelLink(message(index, Vec::new()));
        match self.request(request, 0) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(ENODEV) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// # Errors
    /// When the kernel refuses.
    pub fn set_up(&mut self, index: u32, up: bool) -> io::Result<()> {
        self.set_flag(index, LinkFlags::Up, up)
    }

    /// # Errors
    /// When the kernel refuses.
    pub fn set_promiscuous(&mut self, index: u32, promiscuous: bool) -> io::Result<()> {
        self.set_flag(index, LinkFlags::Promisc, promiscuous)
    }

    fn set_flag(&mut self, index: u32, flag: LinkFlags, on: bool) -> io::Result<()> {
        let mut change = message(index, Vec::new());
        change.header.change_mask = flag;
        if on {
            change.header.flags = flag;
        }
        self.request(RouteNetlinkMessage::SetLink(change), 0)
    }

    fn create(&mut self, link: LinkMessage) -> io::Result<()> {
        let request = RouteNetlinkMessage::NewLink(link);
        self.request(request, NLM_F_CREATE | NLM_F_EXCL)
    }
}

fn message(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    message
}

fn member(namespace: BorrowedFd<'_>, link: &MemberLink<'_>) -> LinkMessage {
    let mut attributes = vec![
        LinkAttribute::IfName(link.name.to_owned()),
        LinkAttribute::Link(link.parent),
        LinkAttribute::NetNsFd(namespace.as_raw_fd()),
        LinkAttribute::LinkInfo(container_infos(link.kind)),
    ];
    attributes.extend(link.mtu.map(LinkAttribute::Mtu));
    if let LinkKind::Macvlan(_) = link.kind {
        let mac = link.mac.map(|mac| LinkAttribute::Address(mac.to_vec()));
        attributes.extend(mac);
    }
    let mut message = message(0, attributes);
    if link.up {
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
    }
    message
}

fn vlan(name: &str, parent: u32, id: u16) -> LinkMessage {
    let attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Link(parent),
        LinkAttribute::LinkInfo(vlan_infos(id)),
    ];
    let mut message = message(0, attributes);
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message
}

fn read(message: LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        up: message.header.flags.contains(LinkFlags::Up),
        promiscuous: message.header.flags.contains(LinkFlags::Promisc),
        ..Link::default()
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Address(mac) => link.mac = mac.try_into().ok(),
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
            LinkAttribute::Link(parent) if parent != 0 => link.parent = Some(parent),
            LinkAttribute::LinkNetNsId(_) => link.parent_is_elsewhere = true,
            LinkAttribute::LinkInfo(infos) => link.kind = KindOfLink::read(&infos),
            _ => {}
        }
    }
    link
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::attachment::{IpvlanFlag, IpvlanMode, MacvlanMode};

    #[test]
    fn a_link_is_created_in_its_namespace_under_its_name() {
        let file = tempfile::tempfile().unwrap();
        let mut link = MemberLink {
            name: "eth1",
            kind: LinkKind::Macvlan(MacvlanMode::Bridge),
            parent: 7,
            mtu: Some(1400),
            mac: Some([2, 0, 0, 0, 0, 1]),
            up: false,
        };
        let macvlan = member(file.as_fd(), &link);
        for wanted in [
            LinkAttribute::IfName("eth1".into()),
            LinkAttribute::Link(7),
            LinkAttribute::NetNsFd(file.as_raw_fd()),
            LinkAttribute::Mtu(1400),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
        ] {
            assert!(macvlan.attributes.contains(&wanted), "{wanted:?}");
        }
        assert!(macvlan.header.flags.is_empty());
        link.kind = LinkKind::Ipvlan(IpvlanMode::L2, IpvlanFlag::Bridge);
        link.up = true;
        let ipvlan = member(file.as_fd(), &link);
        let address = |one: &LinkAttribute| matches!(one, LinkAttribute::Address(_));
        assert!(!ipvlan.attributes.iter().any(address), "has its parent's");
        assert_eq!(ipvlan.header.flags, LinkFlags::Up);
    }

    #[test]
    fn a_vlan_is_up_and_read_as_one() {
        let mut message = vlan("up0.100", 3, 100);
        message.header.index = 9;
        message
            .attributes
            .push(LinkAttribute::IfAlias("fipd".into()));
        let link = read(message);
        assert!(link.up && !link.promiscuous);
        assert_eq!((link.index, link.parent), (9, Some(3)));
        assert_eq!(link.alias.as_deref(), Some("fipd"));
        let kind = KindOfLink::Vlan {
            id: 100,
            protocol: 0x8100,
        };
        assert_eq!(link.kind, Some(kind));
    }
}
