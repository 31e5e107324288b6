//! Which interface of this host is in the network of an address.

use std::{cmp::Reverse, io, net::IpAddr};

use ipnet::IpNet;
use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags, sys::socket::SockaddrStorage};

/// Where this host can see who uses an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalLink {
    /// The interface of that name has it: this host uses it itself.
    Own(String),
    /// The interface of that name has another address of its network.
    Network(String),
}

impl LocalLink {
    /// That of the longest prefix around the address; `None`: no interface has an address in its network.
    ///
    /// # Errors
    /// The kernel does not list its addresses.
    pub fn of(address: IpAddr) -> io::Result<Option<Self>> {
        let all = getifaddrs()?.filter_map(|one| {
            let network = network(one.address?, one.netmask?)?;
            Some((one.interface_name, one.flags, network))
        });
        Ok(Self::choose(all, address))
    }

    fn choose(
        all: impl Iterator<Item = (String, InterfaceFlags, IpNet)>,
        address: IpAddr,
    ) -> Option<Self> {
        let silent = InterfaceFlags::IFF_LOOPBACK
            | InterfaceFlags::IFF_POINTOPOINT
            | InterfaceFlags::IFF_NOARP;
        let around: Vec<_> = all.filter(|(.., net)| net.contains(&address)).collect();
        if let Some((name, ..)) = around.iter().find(|(.., net)| net.addr() == address) {
            return Some(Self::Own(name.clone()));
        }
        let speaking = around
            .into_iter()
            .filter(|(_, flags, _)| !flags.intersects(silent));
        let nearest =
            speaking.min_by_key(|(name, _, net)| (Reverse(net.prefix_len()), name.clone()));
        nearest.map(|(name, ..)| Self::Network(name))
    }
}

/// An address of an interface with its mask.
fn network(address: SockaddrStorage, mask: SockaddrStorage) -> Option<IpNet> {
    let ip = |one: SockaddrStorage| match (one.as_sockaddr_in(), one.as_sockaddr_in6()) {
        (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
        (None, Some(v6)) => Some(IpAddr::V6(v6.ip())),
        (None, None) => None,
    };
    IpNet::with_netmask(ip(address)?, ip(mask)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(all: &[(&str, InterfaceFlags, &str)], address: &str) -> Option<LocalLink> {
        let all = all.iter().map(|(name, flags, net)| {
            let net = net.parse().unwrap();
            ((*name).to_owned(), *flags, net)
        });
        LocalLink::choose(all, address.parse().unwrap())
    }

    #[test]
    fn the_nearest_network_of_an_interface_that_can_ask_is_chosen() {
        let up = InterfaceFlags::IFF_UP;
        let all = [
            ("lo", up | InterfaceFlags::IFF_LOOPBACK, "127.0.0.1/8"),
            ("lo", up | InterfaceFlags::IFF_LOOPBACK, "10.0.9.9/24"),
            ("eth0", up, "10.0.0.2/16"),
            ("eth1", up, "10.0.1.2/24"),
            ("br0", up, "10.0.1.3/24"),
            (
                "wg0",
                up | InterfaceFlags::IFF_POINTOPOINT | InterfaceFlags::IFF_NOARP,
                "10.0.2.2/24",
            ),
            ("eth0", up, "2001:db8::2/64"),
        ];
        let on = |name: &str| Some(LocalLink::Network(name.to_owned()));
        let own = |name: &str| Some(LocalLink::Own(name.to_owned()));
        for (address, expected) in [
            ("10.0.3.5", on("eth0")),
            ("10.0.1.5", on("br0")),
            ("10.0.2.5", on("eth0")),
            ("10.0.9.5", on("eth0")),
            ("2001:db8::5", on("eth0")),
            ("10.0.1.2", own("eth1")),
            ("10.0.9.9", own("lo")),
            ("10.1.0.5", None),
            ("127.0.0.5", None),
            ("2001:db8:1::5", None),
        ] {
            assert_eq!(chosen(&all, address), expected, "{address}");
        }
    }

    #[test]
    fn the_kernels_list_is_read() {
        let none = LocalLink::of("192.0.2.77".parse().unwrap());
        assert!(none.is_ok(), "{none:?}");
        let loopback = LocalLink::of("127.0.0.1".parse().unwrap());
        assert_eq!(loopback.unwrap(), Some(LocalLink::Own("lo".to_owned())));
    }
}
