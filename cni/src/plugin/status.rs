//! `STATUS`: whether the daemon can serve `ADD`, and the host has the interface for it.

use std::time::Duration;

use super::{
    call::PluginCall,
    construct::{check_mtu, parent},
};
use crate::{
    AskStep, CniError, Code, Verb,
    link::{Link, Netlink},
};

/// Runtimes ask for the state every few seconds.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn status(call: &PluginCall) -> Result<String, CniError> {
    let said = call.output(Verb::Status, AskStep::Begin, PATIENCE, Code::NotAvailable)?;
    // Pods have theirs from their subnets.
    if call.conf.is_standalone() {
        // Each key is valid by itself, and an admin of the host can change what is wrong: code 50, whatever ADD answers.
        check_host(call).map_err(|error| CniError {
            code: Code::NotAvailable as u32,
            ..error
        })?;
    }
    Ok(said)
}

/// Fails where the host has no parent for `ADD`, or one with a smaller MTU than the configuration's.
fn check_host(call: &PluginCall) -> Result<(), CniError> {
    let conf = &call.conf.link;
    let mut host = call.netlink()?;
    let master = parent(call, &mut host, &conf.master)?;
    let vlan = match conf.vlan {
        0 => None,
        id => find_vlan(call, &mut host, &master, id)?,
    };
    // A VLAN that ADD creates has the MTU of its master.
    check_mtu(call, Some(conf.mtu), vlan.as_ref().unwrap_or(&master))
}

/// The interface of a VLAN, under any name.
fn find_vlan(
    call: &PluginCall,
    host: &mut Netlink,
    master: &Link,
    id: u16,
) -> Result<Option<Link>, CniError> {
    let links = host.list();
    let mut links = links
        .map_err(|error| call.refused("list the interfaces of the host", &error, host))?
        .into_iter();
    Ok(links.find(|link| link.is_vlan_on(master, id)))
}
