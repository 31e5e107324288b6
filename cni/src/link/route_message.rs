//! Routes in netlink's form.

use std::{io, net::IpAddr};

use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
        RouteScope, RouteType,
    },
};

use super::{Family, ListedRoute, Route};

/// # Errors
/// When the addresses are of both families, which the kernel takes for something else.
pub(super) fn message(route: &Route) -> io::Result<RouteMessage> {
    let mut message = RouteMessage::default();
    let family = Family::of(route.dst.addr());
    let mut others = route.gw.into_iter().chain(route.src);
    if others.any(|ip| Family::of(ip) != family) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
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
    Ok(message)
}

/// The header has room for the first 256 tables.
pub(super) fn set_table(message: &mut RouteMessage, table: u32) {
    message.header.table = u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    message.attributes.push(RouteAttribute::Table(table));
}

/// What the kernel listed, without what it says but does not take.
pub(super) fn settable(listed: &RouteMessage) -> RouteMessage {
    let mut message = listed.clone();
    message.header.flags &= RouteFlags::Onlink;
    let taken = |one: &RouteAttribute| !matches!(one, RouteAttribute::CacheInfo(_));
    message.attributes.retain(taken);
    message
}

pub(super) fn read(message: RouteMessage) -> Option<ListedRoute> {
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
            let listed = read(message(&route).unwrap()).unwrap();
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
        let mut listed = message(&Route::over(4, Family::V4.everything())).unwrap();
        listed.header.flags = RouteFlags::Linkdown | RouteFlags::Onlink;
        assert_eq!(settable(&listed).header.flags, RouteFlags::Onlink);
        listed.header.kind = RouteType::Local;
        assert_eq!(read(listed), None);
    }
}
