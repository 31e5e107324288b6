//! The routes of an attachment, over the new link and over others.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{
    container::{Container, ContainerPlan, FIRST},
    note,
    undo::Undo,
};
use crate::{
    CniError,
    attachment::{ContainerAddress, ContainerRoute},
    link::{Family, InterfaceAddress, ListedRoute, MAIN_TABLE, PROTOCOL_BESIDE, Route},
    result::RouteConfig,
};

/// Default routes that routers advertise have 1024, which comes back on the other interface and may come first on the new one.
const BEFORE_ROUTERS: u32 = 1023;

pub(super) struct Routes<'a, 'c> {
    container: &'a mut Container<'c>,
    plan: &'a ContainerPlan<'a>,
    undo: &'a mut Undo,
    /// Of all interfaces; `None`: not listed yet.
    addresses: Option<Vec<InterfaceAddress>>,
    made: Vec<RouteConfig>,
}

impl<'a, 'c> Routes<'a, 'c> {
    pub fn new(
        container: &'a mut Container<'c>,
        plan: &'a ContainerPlan<'a>,
        undo: &'a mut Undo,
    ) -> Self {
        Self {
            container,
            plan,
            undo,
            addresses: None,
            made: Vec::new(),
        }
    }

    /// Returns those that are new. The default gateway is used before it is replaced.
    pub fn make(mut self) -> Result<Vec<RouteConfig>, CniError> {
        let extras = &self.plan.attachment.extras;
        for family in Family::BOTH {
            self.via_default_gateway(family)?;
        }
        if extras.takes_default_route {
            for family in Family::BOTH {
                self.take_default_route(family)?;
            }
        }
        for route in &self.plan.attachment.routes {
            self.custom(route)?;
        }
        Ok(self.made)
    }

    /// Networks that stay behind the gateway of another interface; without one of this family, none.
    fn via_default_gateway(&mut self, family: Family) -> Result<(), CniError> {
        let extras = &self.plan.attachment.extras;
        let networks = extras
            .via_default_gateway
            .iter()
            .chain(self.plan.node_networks);
        let networks = networks.filter(|net| Family::of(net.addr()) == family);
        let networks: Vec<IpNet> = networks.copied().collect();
        if networks.is_empty() {
            return Ok(());
        }
        let mut defaults = self.defaults(family)?;
        defaults.sort_by_key(|one| one.route.priority.unwrap_or(0));
        let Some(gateway) = defaults.first().map(|one| one.route.clone()) else {
            return Ok(());
        };
        for dst in networks {
            let mut route = Route::over(0, dst);
            route.gw = gateway.gw;
            route.onlink = gateway.onlink;
            route.interface = gateway.interface;
            self.add(route)?;
        }
        Ok(())
    }

    fn take_default_route(&mut self, family: Family) -> Result<(), CniError> {
        let addresses = self.plan.attachment.addresses.iter();
        let mut ours = addresses.filter(|one| Family::of(one.address.addr()) == family);
        let Some(first) = ours.clone().next() else {
            return Ok(());
        };
        let address = ours.find(|one| one.gateway.is_some()).unwrap_or(first);
        let defaults = self.defaults(family)?;
        let is_first = self.container.link.name == FIRST;
        if is_first && !defaults.is_empty() {
            return Ok(());
        }
        // The first interface of a container is its way to everywhere.
        if !is_first && defaults.is_empty() {
            let family = if family == Family::V4 { "IPv4" } else { "IPv6" };
            note(&format!(
                "the container has no default route of {family} to replace"
            ));
            return Ok(());
        }
        for default in defaults {
            let removed = self.container.netlink.delete_listed(&default);
            let doing = "remove the default route";
            if removed.map_err(|error| self.container.refused(doing, &error))? {
                self.undo.removed.push(default);
            }
        }
        let route = self.default_over(family, address)?;
        self.add(route)
    }

    fn default_over(
        &mut self,
        family: Family,
        address: &ContainerAddress,
    ) -> Result<Route, CniError> {
        let index = self.container.link.index;
        let mut route = Route::over(index, family.everything());
        route.gw = address.gateway;
        route.onlink = self.is_far(address.gateway, index)?;
        route.src = Some(address.address.addr());
        route.priority = (family == Family::V6).then_some(BEFORE_ROUTERS);
        Ok(route)
    }

    fn custom(&mut self, wanted: &ContainerRoute) -> Result<(), CniError> {
        let own = &self.container.link;
        let index = match wanted.dev.as_deref().filter(|dev| *dev != own.name) {
            None => own.index,
            Some(dev) => {
                let found = self.container.netlink.find(dev);
                let doing = format!("look up {dev}");
                let found = found.map_err(|error| self.container.refused(&doing, &error))?;
                let Some(link) = found else {
                    return Ok(());
                };
                link.index
            }
        };
        let is_v6_default = wanted.dst == Family::V6.everything() && index == own.index;
        let before_routers = (is_v6_default && wanted.table.is_none()).then_some(BEFORE_ROUTERS);
        let route = Route {
            gw: wanted.gw,
            onlink: self.is_far(wanted.gw, index)?,
            src: wanted.src,
            priority: wanted.priority.or(before_routers),
            mtu: wanted.mtu,
            advmss: wanted.advmss,
            table: wanted.table.unwrap_or(MAIN_TABLE),
            scope: wanted.scope,
            ..Route::over(index, wanted.dst)
        };
        self.add(route)
    }

    /// Default routes over other interfaces.
    fn defaults(&mut self, family: Family) -> Result<Vec<ListedRoute>, CniError> {
        let own = self.container.link.index;
        let routes = self.container.netlink.routes(family, MAIN_TABLE);
        let routes = routes.map_err(|error| self.container.refused("list routes", &error))?;
        let is_other =
            |one: &ListedRoute| one.route.is_default() && one.route.interface != Some(own);
        Ok(routes.into_iter().filter(is_other).collect())
    }

    /// A route to the same destination that is there already stays as it is.
    fn add(&mut self, mut route: Route) -> Result<(), CniError> {
        let is_beside = route.interface != Some(self.container.link.index);
        if is_beside {
            route.protocol = PROTOCOL_BESIDE;
        }
        let added = self.container.netlink.add_route(&route);
        let doing = format!("add the route to {}", route.dst);
        if !added.map_err(|error| self.container.refused(&doing, &error))? {
            return self.note_other(&route);
        }
        self.made.push(RouteConfig {
            dst: route.dst,
            gw: route.gw,
            mtu: route.mtu,
            advmss: route.advmss,
            priority: route.priority,
            table: Some(route.table).filter(|table| *table != MAIN_TABLE),
            scope: route.scope,
        });
        self.undo.added.extend(is_beside.then_some(route));
        Ok(())
    }

    /// Says so if the route that is there is not the one that was wanted.
    fn note_other(&mut self, wanted: &Route) -> Result<(), CniError> {
        let family = Family::of(wanted.dst.addr());
        let listed = self.container.netlink.routes(family, wanted.table);
        let listed = listed.map_err(|error| self.container.refused("list routes", &error))?;
        let of = |route: &Route| (route.dst, route.gw, route.interface);
        if !listed.iter().any(|one| of(&one.route) == of(wanted)) {
            note(&format!(
                "another route to {} is there, and stays",
                wanted.dst
            ));
        }
        Ok(())
    }

    /// Whether the kernel does not find the gateway in a network of the interface.
    fn is_far(&mut self, gateway: Option<IpAddr>, interface: u32) -> Result<bool, CniError> {
        let Some(gateway) = gateway else {
            return Ok(false);
        };
        if matches!(gateway, IpAddr::V6(gateway) if gateway.is_unicast_link_local()) {
            return Ok(false);
        }
        let addresses = match &mut self.addresses {
            Some(listed) => listed,
            unlisted => {
                let listed = self.container.netlink.addresses();
                let refused = |error| self.container.refused("list addresses", &error);
                unlisted.insert(listed.map_err(refused)?)
            }
        };
        let mut of_it = addresses.iter().filter(|one| one.interface == interface);
        Ok(!of_it.any(|one| one.address.contains(&gateway)))
    }
}
