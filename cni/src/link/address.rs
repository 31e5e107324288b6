//! Addresses of interfaces.

use std::{io, net::IpAddr};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use nix::libc::{EEXIST, RTM_GETADDR, RTM_NEWADDR};

use super::{Family, Netlink};

/// An address as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Index of the interface.
    pub interface: u32,
    /// The address and the length of its network.
    pub address: IpNet,
    /// Duplicate address detection is not done yet: nobody can use the address.
    pub tentative: bool,
    /// Duplicate address detection found another user.
    pub duplicate: bool,
}

impl InterfaceAddress {
    /// Whether it is valid on its link only.
    pub fn is_link_local(&self) -> bool {
        match self.address {
            IpNet::V4(net) => net.addr().is_link_local(),
            IpNet::V6(net) => net.addr().is_unicast_link_local(),
        }
    }
}

impl Netlink {
    /// Adds an address; `false`: the interface has it already. With `probed` the kernel omits its own duplicate address
    /// detection of IPv6.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_address(
        &mut self,
        interface: u32,
        address: IpNet,
        probed: bool,
    ) -> io::Result<bool> {
        let mut message = message(interface, address);
        if probed && address.addr().is_ipv6() {
            let flags = AddressAttribute::Flags(AddressFlags::Nodad);
            message.attributes.push(flags);
        }
        match self.request(RTM_NEWADDR, &message, NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(EEXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Addresses of all interfaces, of both families.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn addresses(&mut self) -> io::Result<Vec<InterfaceAddress>> {
        let found = self.dump(RTM_GETADDR, &AddressMessage::default())?;
        Ok(found.iter().filter_map(read).collect())
    }
}

fn message(interface: u32, address: IpNet) -> AddressMessage {
    let ip = address.addr();
    let mut message = AddressMessage::default();
    message.header.family = Family::of(ip).into();
    message.header.prefix_len = address.prefix_len();
    message.header.index = interface;
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    if let IpNet::V4(net) = address
        && net.prefix_len() < 31
    {
        let broadcast = AddressAttribute::Broadcast(net.broadcast());
        message.attributes.push(broadcast);
    }
    message
}

fn read(message: &AddressMessage) -> Option<InterfaceAddress> {
    let (mut local, mut peer) = (None::<IpAddr>, None::<IpAddr>);
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => peer = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    Some(InterfaceAddress {
        interface: message.header.index,
        address: IpNet::new(local.or(peer)?, message.header.prefix_len).ok()?,
        tentative: flags.contains(AddressFlags::Tentative),
        duplicate: flags.contains(AddressFlags::Dadfailed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["10.0.0.5/24", "10.0.0.5/32", "2001:db8::5/64"] {
            let address: IpNet = text.parse().unwrap();
            let mut message = message(3, address);
            let bare = read(&message).unwrap();
            assert_eq!((bare.interface, bare.address), (3, address));
            assert!(!bare.tentative && !bare.duplicate);
            let flags = AddressFlags::Tentative | AddressFlags::Dadfailed;
            message.attributes.push(AddressAttribute::Flags(flags));
            let failed = read(&message).unwrap();
            assert!(failed.tentative && failed.duplicate);
        }
        assert_eq!(read(&AddressMessage::default()), None);
    }
}
