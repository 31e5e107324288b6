//! `CHECK`: whether everything is as `ADD` left it. What others have added since is in nobody's way.

use std::collections::{BTreeMap, btree_map::Entry};

use super::call::{PATIENCE, PluginCall};
use crate::{
    AskStep, CniError, Code, NEWEST, NetConf, Verb,
    link::{Family, KindOfLink, Link, MAIN_TABLE, Netlink, Route},
    result::{AddResult, Interface, RouteConfig},
};

pub(super) fn check(call: &PluginCall) -> Result<String, CniError> {
    let previous = call.previous()?.ok_or_else(|| {
        let details = "prevResult; the runtime passes the result of ADD in it";
        let what = "prevResult of the network configuration is missing";
        call.error(Code::InvalidConfig, what, details)
    })?;
    let mut sandbox = call.container().map_err(|error| match error.code {
        // Code 3 would say that no DEL is needed.
        code if code == Code::UnknownContainer as u32 => CniError {
            code: Code::NotAsMade as u32,
            ..error
        },
        _ => error,
    })?;
    let differences = differences(call, &mut sandbox.netlink, &previous)?;
    if !differences.is_empty() {
        let what = "the container's network is not as ADD made it";
        return Err(call.error(Code::NotAsMade, what, differences.join("; ")));
    }
    call.output(Verb::Check, AskStep::Begin, PATIENCE, Code::TryAgain)
}

fn differences(
    call: &PluginCall,
    netlink: &mut Netlink,
    previous: &AddResult,
) -> Result<Vec<String>, CniError> {
    let name = call.ifname();
    let made = previous
        .interface(name)
        .and_then(|at| Some((at, previous.interfaces.get(at)?)));
    let Some((at, made)) = made else {
        return Ok(vec![format!(
            "prevResult has no interface {name} of a container"
        )]);
    };
    let found = netlink.find(name);
    let found = found.map_err(|error| call.refused(&format!("look up {name}"), &error, netlink))?;
    let Some(link) = found else {
        return Ok(vec![format!("interface {name} is missing")]);
    };
    let mut wrong = of_link(call, made, &link);
    let addresses = netlink.addresses();
    let addresses = addresses.map_err(|error| call.refused("list addresses", &error, netlink))?;
    let on_it = addresses.iter().filter(|one| one.interface == link.index);
    let on_it: Vec<_> = on_it.map(|one| one.address).collect();
    let missing = previous
        .ips_of(at)
        .filter(|ip| !on_it.contains(&ip.address));
    wrong.extend(missing.map(|ip| format!("address {} is missing", ip.address)));
    wrong.extend(of_routes(call, netlink, &previous.routes)?);
    Ok(wrong)
}

fn of_link(call: &PluginCall, made: &Interface, link: &Link) -> Vec<String> {
    let mut wrong = Vec::new();
    let netns = &call.environment.netns;
    if made.sandbox != *netns {
        wrong.push(format!("sandbox is {}, CNI_NETNS is {netns}", made.sandbox));
    }
    if !link.kind.as_ref().is_some_and(KindOfLink::is_of_containers) {
        wrong.push(format!("{} is neither a macvlan nor an ipvlan", link.name));
    }
    let mac = link.mac_text();
    if !mac.eq_ignore_ascii_case(&made.mac) {
        wrong.push(format!("the MAC is {mac}, not {}", made.mac));
    }
    if !link.up {
        wrong.push(format!("{} is down", link.name));
    }
    wrong
}

fn of_routes(
    call: &PluginCall,
    netlink: &mut Netlink,
    made: &[RouteConfig],
) -> Result<Vec<String>, CniError> {
    let mut tables: BTreeMap<(Family, u32), Vec<Route>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for route in made {
        let family = Family::of(route.dst.addr());
        let dst = route.dst.trunc();
        let is_it = |one: &Route| one.dst == dst && (route.gw.is_none() || one.gw == route.gw);
        let mut is_there = false;
        for table in tables_of(&call.conf, route) {
            let there = match tables.entry((family, table)) {
                Entry::Occupied(listed) => listed.into_mut(),
                Entry::Vacant(place) => {
                    let listed = netlink.routes(family, table);
                    let listed =
                        listed.map_err(|error| call.refused("list routes", &error, netlink))?;
                    place.insert(listed.into_iter().map(|one| one.route).collect())
                }
            };
            is_there |= there.iter().any(is_it);
        }
        if !is_there {
            wrong.push(format!("the route to {dst} is missing"));
        }
    }
    Ok(wrong)
}

/// The tables that may have a route. Before 1.1.0 a result cannot say which, but the configuration does.
fn tables_of(conf: &NetConf, route: &RouteConfig) -> Vec<u32> {
    let mut tables = vec![route.table.unwrap_or(MAIN_TABLE)];
    if conf.cni_version != NEWEST {
        let dst = route.dst.trunc();
        let same = conf.ipam.routes.iter().filter(|one| one.dst.trunc() == dst);
        tables.extend(same.filter_map(|one| one.table));
    }
    tables
}
