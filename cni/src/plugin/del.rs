//! `DEL`: the interface goes, then what the daemon keeps for it. Succeeds however much of it is gone.

use std::path::Path;

use super::{
    call::{Call, PATIENCE},
    note,
};
use crate::{
    CniError,
    link::{KindOfLink, Netlink},
    namespace::{Namespace, NamespaceError},
};

pub(super) fn del(call: &Call) -> Result<String, CniError> {
    if let Some(namespace) = container(call)? {
        call.inside(&namespace, |mut netlink| delete_link(call, &mut netlink))?;
    }
    call.release(PATIENCE, None)?;
    Ok(String::new())
}

/// The container's namespace; `None`: it is gone, or nobody knows it.
fn container(call: &Call) -> Result<Option<Namespace>, CniError> {
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
pub(super) fn delete_link(call: &Call, netlink: &mut Netlink) -> Result<(), CniError> {
    let name = call.ifname();
    let found = netlink.find(name);
    let found = found.map_err(|error| call.refused(&format!("look up {name}"), &error, netlink))?;
    let Some(link) = found else {
        return Ok(());
    };
    if !link.kind.as_ref().is_some_and(KindOfLink::is_of_containers) {
        note(&format!(
            "{name} is neither a macvlan nor an ipvlan, and stays"
        ));
        return Ok(());
    }
    let deleted = netlink.delete(link.index).map(drop);
    deleted.map_err(|error| call.refused(&format!("delete {name}"), &error, netlink))
}
