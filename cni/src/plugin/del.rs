//! `DEL`: the interface goes, then what the daemon keeps for it. Succeeds however much of it is gone.

use std::{
    collections::BTreeSet, io, iter, net::IpAddr, panic::resume_unwind, path::Path, thread,
    time::Duration,
};

use super::{
    call::{PATIENCE, PluginCall, Sandbox},
    note,
};
use crate::{
    CniError, MOST_ADDRESSES,
    link::{Family, KindOfLink, Link, MAIN_TABLE, Netlink, PROTOCOL_BESIDE},
    namespace::{Namespace, NamespaceError},
};

/// Between two look-ups of the link. Each waits until the kernel has made the change that it is at.
const POLL: Duration = Duration::from_micros(200);

pub(super) fn del(call: &PluginCall) -> Result<String, CniError> {
    match container(call)? {
        None => call.release(PATIENCE, Vec::new(), None)?,
        Some(namespace) => delete_and_release(call, call.sandbox(namespace)?)?,
    }
    Ok(String::new())
}

/// The kernel unlinks an interface first and then waits for whoever still refers to it. In that time the daemon releases what it
/// keeps.
fn delete_and_release(call: &PluginCall, sandbox: Sandbox) -> Result<(), CniError> {
    let Sandbox {
        namespace,
        mut netlink,
    } = sandbox;
    let addresses = match call.conf.is_standalone() {
        true => Vec::new(),
        false => addresses(call, &mut netlink),
    };
    if !call.is_own(&namespace)?
        && let Err(error) = remove_routes(call, &mut netlink)
    {
        note(&format!("cannot remove routes of the container: {error}"));
    }
    let release = || call.release(PATIENCE, addresses.clone(), None);
    let watcher = call.inside(&namespace, || call.netlink());
    let watched = watcher.ok().and_then(|mut watcher| {
        thread::scope(|scope| {
            let builder = thread::Builder::new();
            let deletion = builder.spawn_scoped(scope, || delete_link(call, &mut netlink));
            let deletion = deletion.ok()?;
            let is_gone = loop {
                let has_ended = deletion.is_finished();
                if !is_there(call, &mut watcher) {
                    break true;
                }
                // It is not ours, or the kernel refused.
                if has_ended {
                    break false;
                }
                thread::sleep(POLL);
            };
            let released = is_gone.then(release);
            let deleted = deletion.join().unwrap_or_else(|panic| resume_unwind(panic));
            Some((deleted, released))
        })
    });
    // Without another socket or thread, one after the other.
    let (deleted, released) = watched.unwrap_or_else(|| (delete_link(call, &mut netlink), None));
    deleted?;
    released.unwrap_or_else(release)
}

/// The addresses of the interface, by which the daemon finds routes of the host that nobody wrote down. DEL works without.
fn addresses(call: &PluginCall, netlink: &mut Netlink) -> Vec<IpAddr> {
    let listed = netlink.find(call.ifname()).and_then(|link| {
        let Some(link) = link.filter(is_ours) else {
            return Ok(Vec::new());
        };
        let all = netlink.addresses()?.into_iter();
        let on_it = all.filter(|one| one.interface == link.index && !one.is_link_local());
        let ips = on_it.map(|one| one.address.addr());
        Ok(ips.take(MOST_ADDRESSES).collect())
    });
    listed.unwrap_or_else(|error| {
        note(&format!(
            "cannot list the addresses of {}: {error}",
            call.ifname()
        ));
        Vec::new()
    })
}

/// The routes of `ADD` over other interfaces, unless another such link is left that may need them.
fn remove_routes(call: &PluginCall, netlink: &mut Netlink) -> io::Result<()> {
    let routes = &call.conf.ipam.routes;
    if call.conf.is_standalone() && routes.iter().all(|one| one.dev.is_none()) {
        return Ok(());
    }
    let links = netlink.list()?;
    if links
        .iter()
        .any(|link| link.name != call.ifname() && is_ours(link))
    {
        return Ok(());
    }
    let tables = routes.iter().filter_map(|one| one.table);
    let tables: BTreeSet<u32> = tables.chain(iter::once(MAIN_TABLE)).collect();
    for table in tables {
        for family in Family::BOTH {
            let listed = netlink.routes(family, table)?.into_iter();
            for route in listed.filter(|one| one.route.protocol == PROTOCOL_BESIDE) {
                netlink.delete_listed(&route)?;
            }
        }
    }
    Ok(())
}

/// Whether this plugin or the original's makes such links.
fn is_ours(link: &Link) -> bool {
    link.kind.as_ref().is_some_and(KindOfLink::is_of_containers)
}

/// Also where the kernel does not say.
fn is_there(call: &PluginCall, netlink: &mut Netlink) -> bool {
    !matches!(netlink.find(call.ifname()), Ok(None))
}

/// The container's namespace; `None`: it is gone, or nobody knows it.
fn container(call: &PluginCall) -> Result<Option<Namespace>, CniError> {
    let netns = &call.environment.netns;
    if netns.is_empty() {
        return Ok(None);
    }
    let namespace = match Namespace::open(Path::new(netns)) {
        Ok(namespace) => namespace,
        // After a reboot the file is there that the namespace was mounted on.
        Err(NamespaceError::Missing(_) | NamespaceError::NotNamespace(_)) => return Ok(None),
        Err(error @ NamespaceError::Io { .. }) => {
            return Err(call.failed("open CNI_NETNS", error));
        }
    };
    if call.is_own(&namespace)? && !call.environment.own_namespace {
        note("CNI_NETNS is the namespace of the host, whose interfaces stay");
        return Ok(None);
    }
    Ok(Some(namespace))
}

/// Only links that this plugin makes: whatever else has the name is somebody else's.
pub(super) fn delete_link(call: &PluginCall, netlink: &mut Netlink) -> Result<(), CniError> {
    let name = call.ifname();
    let found = netlink.find(name);
    let found = found.map_err(|error| call.refused(&format!("look up {name}"), &error, netlink))?;
    let Some(link) = found else {
        return Ok(());
    };
    if !is_ours(&link) {
        note(&format!(
            "{name} is neither a macvlan nor an ipvlan, and stays"
        ));
        return Ok(());
    }
    let deleted = netlink.delete(link.index).map(drop);
    deleted.map_err(|error| call.refused(&format!("delete {name}"), &error, netlink))
}
