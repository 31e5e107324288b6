//! Routes.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily,
    route::{RouteAttribute, RouteMessage},
};
use nix::libc::{EEXIST, ENOENT, ESRCH, RTM_DELROUTE, RTM_GETROUTE, RTM_NEWROUTE};

use super::{
    Netlink,
    route_message::{message, read, set_table, settable},
};

/// `RT_TABLE_MAIN`.
pub const MAIN_TABLE: u32 = 254;
/// `RTPROT_STATIC`: routes of an administrator.
const PROTOCOL_STATIC: u8 = 4;
/// Tag of the routes that the plugin makes over interfaces of others, which do not go with its link. Not that of the daemon's
/// routes of the host.
pub const PROTOCOL_BESIDE: u8 = 201;

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    V4,
    V6,
}

/// A route of one destination over one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `0.0.0.0/0` or `::/0`: the default route.
    pub dst: IpNet,
    /// `None`: the destination is on the link.
    pub gw: Option<IpAddr>,
    /// The gateway is on the link although no address of the interface has it in its network.
    pub onlink: bool,
    /// Index of the interface; `None`: the kernel finds it by the gateway.
    pub interface: Option<u32>,
    pub src: Option<IpAddr>,
    /// `None`: 0 for IPv4, 1024 for IPv6.
    pub priority: Option<u32>,
    pub mtu: Option<u32>,
    pub advmss: Option<u32>,
    pub table: u32,
    /// `RT_SCOPE_*`; `None`: that of the link without a gateway, else everywhere. IPv6 has none.
    pub scope: Option<u8>,
    /// `RTPROT_*`: who made it.
    pub protocol: u8,
}

/// A route as the kernel lists it, with all it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRoute {
    /// Of several next hops, the first.
    pub route: Route,
    pub(super) message: RouteMessage,
}

impl Family {
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The destination of default routes.
    pub fn everything(self) -> IpNet {
        match self {
            Self::V4 => IpNet::new_assert(Ipv4Addr::UNSPECIFIED.into(), 0),
            Self::V6 => IpNet::new_assert(Ipv6Addr::UNSPECIFIED.into(), 0),
        }
    }
}

impl From<Family> for AddressFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::Inet,
            Family::V6 => Self::Inet6,
        }
    }
}

impl Route {
    /// Over an interface, in the main table, without anything else.
    pub fn over(interface: u32, dst: IpNet) -> Self {
        Self {
            dst: dst.trunc(),
            gw: None,
            onlink: false,
            interface: Some(interface),
            src: None,
            priority: None,
            mtu: None,
            advmss: None,
            table: MAIN_TABLE,
            scope: None,
            protocol: PROTOCOL_STATIC,
        }
    }

    pub fn is_default(&self) -> bool {
        self.dst.prefix_len() == 0
    }
}

impl ListedRoute {
    /// Indices of the interfaces of all next hops.
    pub fn interfaces(&self) -> Vec<u32> {
        let hops = self.message.attributes.iter().flat_map(|one| match one {
            RouteAttribute::MultiPath(hops) => hops.as_slice(),
            _ => &[],
        });
        let hops = hops.map(|hop| hop.interface_index);
        self.route.interface.into_iter().chain(hops).collect()
    }
}

impl Netlink {
    /// Adds a route; `false`: there is one to this destination with this priority.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_route(&mut self, route: &Route) -> io::Result<bool> {
        self.add_message(&message(route)?)
    }

    /// Removes a route; `false`: there is none like it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn delete_route(&mut self, route: &Route) -> io::Result<bool> {
        self.delete_message(&message(route)?)
    }

    /// Removes exactly this route, as [`Self::delete_route`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn delete_listed(&mut self, route: &ListedRoute) -> io::Result<bool> {
        self.delete_message(&settable(&route.message))
    }

    /// Puts a removed route back; `false`: it is there.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn restore_route(&mut self, route: &ListedRoute) -> io::Result<bool> {
        self.add_message(&settable(&route.message))
    }

    /// Unicast routes of a table.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn routes(&mut self, family: Family, table: u32) -> io::Result<Vec<ListedRoute>> {
        let mut asked = RouteMessage::default();
        asked.header.address_family = family.into();
        set_table(&mut asked, table);
        let found = match self.dump(RTM_GETROUTE, &asked) {
            // There is no such table as long as it has no route.
            Err(error) if error.raw_os_error() == Some(ENOENT) => Vec::new(),
            found => found?,
        };
        let routes = found.into_iter().filter_map(read);
        let in_table = |one: &ListedRoute| one.route.table == table;
        Ok(routes.filter(in_table).collect())
    }

    fn add_message(&mut self, message: &RouteMessage) -> io::Result<bool> {
        match self.request(RTM_NEWROUTE, message, NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(EEXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn delete_message(&mut self, message: &RouteMessage) -> io::Result<bool> {
        match self.request(RTM_DELROUTE, message, 0) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
