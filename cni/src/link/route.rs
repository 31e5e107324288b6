//! Routes.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
        RouteScope, RouteType,
    },
};
use nix::libc::{EEXIST, ENOENT, ESRCH};

use super::Netlink;

/// `RT_TABLE_MAIN`.
pub const MAIN_TABLE: u32 = 254;
/// `RTPROT_STATIC`: routes of an administrator.
pub const PROTOCOL_STATIC: u8 = 4;

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
    message: RouteMessage,
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
        self.add_message(message(route))
    }

    /// Removes a route; `false`: there is none like it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn delete_route(&mut self, route: &Route) -> io::Result<bool> {
        self.delete_message(message(route))
    }

    /// Removes exactly this route, as [`Self::delete_route`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn delete_listed(&mut self, route: &ListedRoute) -> io::Result<bool> {
        self.delete_message(settable(&route.message))
    }

    /// Puts a removed route back; `false`: it is there.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn restore_route(&mut self, route: &ListedRoute) -> io::Result<bool> {
        self.add_message(settable(&route.message))
    }

    /// Unicast routes of a table.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn routes(&mut self, family: Family, table: u32) -> io::Result<Vec<ListedRoute>> {
        let mut asked = RouteMessage::default();
        asked.header.address_family = family.into();
        set_table(&mut asked, table);
        let found = match self.dump(&RouteNetlinkMessage::GetRoute(asked)) {
            // There is no such table as long as it has no route.
            Err(error) if error.raw_os_error() == Some(ENOENT) => Vec::new(),
            found => found?,
        };
        let routes = found.into_iter().filter_map(|one| match one {
            RouteNetlinkMessage::NewRoute(message) => read(message),
            _ => None,
        });
        let in_table = |one: &ListedRoute| one.route.table == table;
        Ok(routes.filter(in_table).collect())
    }

    fn add_message(&mut self, message: RouteMessage) -> io::Result<bool> {
        let request = RouteNetlinkMessage::NewRoute(message);
        match self.request(request, NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(EEXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn delete_message(&mut self, message: RouteMessage) -> io::Result<bool> {
        match self.request(RouteNetlinkMessage::DelRoute(message), 0) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn message(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    let family = Family::of(route.dst.addr());
    message.header.address_family = family.into();
    message.header.destination_prefix_length = route.dst.prefix_len();
    message.header.protocol = route.protocol.into();
    message.header.kind = RouteType::Unicast;
    message.header.scope = match (family, route.scope, route.gw) {
        (Family::V6, _, _) | (Family::V4, None, Some(_)) => RouteScope::Universe,
        (Family::V4, Some(scope), _) => scope.into(),
        (Family::V4, None, None) => RouteScope::Link,
    };
    if route.onlink {
        message.header.flags = RouteFlags::Onlink;
    }
    set_table(&mut message, route.table);
    let destination = RouteAttribute::Destination(route.dst.network().into());
    let attributes = &mut message.attributes;
    attributes.extend((!route.is_default()).then_some(destination));
    attributes.extend(route.gw.map(|ip| RouteAttribute::Gateway(ip.into())));
    attributes.extend(route.interface.map(RouteAttribute::Oif));
    attributes.extend(route.src.map(|ip| RouteAttribute::PrefSource(ip.into())));
    attributes.extend(route.priority.map(RouteAttribute::Priority));
    let metrics = [
        route.mtu.map(RouteMetric::Mtu),
        route.advmss.map(RouteMetric::Advmss),
    ];
    let metrics: Vec<_> = metrics.into_iter().flatten().collect();
    attributes.extend((!metrics.is_empty()).then_some(RouteAttribute::Metrics(metrics)));
    message
}

/// The header has room for the first 256 tables.
fn set_table(message: &mut RouteMessage, table: u32) {
    message.header.table = u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    message.attributes.push(RouteAttribute::Table(table));
}

/// What the kernel listed, without what it says but does not take.
fn settable(listed: &RouteMessage) -> RouteMessage {
    let mut message = listed.clone();
    message.header.flags &= RouteFlags::Onlink;
    let taken = |one: &RouteAttribute| !matches!(one, RouteAttribute::CacheInfo(_));
    message.attributes.retain(taken);
    message
}

fn read(message: RouteMessage) -> Option<ListedRoute> {
    let header = &message.header;
    if header.kind != RouteType::Unicast || header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let everything = match header.address_family {
        AddressFamily::Inet => Family::V4.everything(),
        AddressFamily::Inet6 => Family::V6.everything(),
        _ => return None,
    };
    let mut route = Route {
        dst: everything,
        interface: None,
        onlink: header.flags.contains(RouteFlags::Onlink),
        table: header.table.into(),
        scope: Some(header.scope.into()),
        protocol: header.protocol.into(),
        ..Route::over(0, everything)
    };
    read_attributes(&mut route, &message)?;
    Some(ListedRoute { route, message })
}

fn read_attributes(route: &mut Route, message: &RouteMessage) -> Option<()> {
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(ip) => {
                let length = message.header.destination_prefix_length;
                route.dst = IpNet::new(address(ip)?, length).ok()?;
            }
            RouteAttribute::Gateway(ip) => route.gw = address(ip),
            RouteAttribute::Oif(index) => route.interface = Some(*index),
            RouteAttribute::PrefSource(ip) => route.src = address(ip),
            RouteAttribute::Priority(priority) => route.priority = Some(*priority),
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Metrics(metrics) => read_metrics(route, metrics),
            RouteAttribute::MultiPath(hops) => {
                let first = hops.first()?;
                route.interface = Some(first.interface_index);
                route.gw = first.attributes.iter().find_map(|one| match one {
                    RouteAttribute::Gateway(ip) => address(ip),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some(())
}

fn read_metrics(route: &mut Route, metrics: &[RouteMetric]) {
    for metric in metrics {
        match metric {
            RouteMetric::Mtu(mtu) => route.mtu = Some(*mtu),
            RouteMetric::Advmss(advmss) => route.advmss = Some(*advmss),
            _ => {}
        }
    }
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read_as_they_are_written() {
        for (dst, gw) in [
            ("10.42.0.0/16", Some("10.0.0.1")),
            ("0.0.0.0/0", Some("10.0.0.1")),
            ("10.42.0.0/16", None),
            ("fd00::/48", Some("2001:db8::1")),
            ("::/0", None),
        ] {
            let dst: IpNet = dst.parse().unwrap();
            let mut route = Route::over(4, dst);
            route.gw = gw.map(|gw| gw.parse().unwrap());
            route.onlink = gw.is_some();
            route.priority = Some(50);
            route.mtu = Some(1400);
            route.advmss = Some(1360);
            route.table = 1000;
            let listed = read(message(&route)).unwrap();
            let scope = if dst.addr().is_ipv4() && gw.is_none() {
                253
            } else {
                0
            };
            route.scope = Some(scope);
            assert_eq!(listed.route, route, "{dst}");
            assert_eq!(listed.interfaces(), [4]);
            assert_eq!(route.is_default(), dst.prefix_len() == 0);
        }
    }

    #[test]
    fn what_is_put_back_has_nothing_that_the_kernel_refuses() {
        let mut listed = message(&Route::over(4, Family::V4.everything()));
        listed.header.flags = RouteFlags::Linkdown | RouteFlags::Onlink;
        assert_eq!(settable(&listed).header.flags, RouteFlags::Onlink);
        listed.header.kind = RouteType::Local;
        assert_eq!(read(listed), None);
    }
}
