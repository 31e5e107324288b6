//! Routes of the host to pods.

use std::{io, net::IpAddr};

use fipd_cni::link::Netlink;

use super::{HostState, is_vlan, open};
use crate::cni::{
    host_route::{self, HostRoute, PROTOCOL_BOOT},
    record::{AttachmentRecord, HostUse},
    refusal::{CallRefusal, kernel},
};

impl HostState {
    /// Routes addresses to the other end of the container's first interface, which has the addresses `via`. Their source is
    /// the first address of the interface below the attachment, as the original has it.
    pub fn route(&self, record: &AttachmentRecord, via: &[IpAddr]) -> Result<(), CallRefusal> {
        let mut netlink = open()?;
        let sources = sources(&mut netlink, record)
            .map_err(|error| kernel("list the addresses of the master", &error))?;
        for one in &record.uses {
            let HostUse::Route(address) = one else {
                continue;
            };
            let same = |one: &&IpAddr| one.is_ipv4() == address.is_ipv4();
            if let Some(via) = via.iter().find(same) {
                let route = HostRoute {
                    address: *address,
                    via: *via,
                    src: sources.iter().find(same).copied(),
                    protocols: &self.protocols,
                };
                route.ensure(&mut netlink)?;
            }
        }
        Ok(())
    }

    /// Takes away routes to a pod that the journal does not have: the original's, and fipd's own where the journal was lost.
    pub fn unroute_unknown(&mut self, addresses: &[IpAddr]) -> Result<(), CallRefusal> {
        self.settle()?;
        let mut netlink = open()?;
        let protocols: Vec<u8> = [PROTOCOL_BOOT]
            .iter()
            .chain(&self.protocols)
            .copied()
            .collect();
        for address in addresses {
            if !self.journal.uses().has(&HostUse::Route(*address)) {
                host_route::remove(&mut netlink, *address, &protocols)?;
            }
        }
        Ok(())
    }
}

/// The addresses of the interface below an attachment, in the kernel's order, but for those that are valid on their link only.
fn sources(netlink: &mut Netlink, record: &AttachmentRecord) -> io::Result<Vec<IpAddr>> {
    let Some(master) = netlink.find(&record.master)? else {
        return Ok(Vec::new());
    };
    let vlan = record.uses.iter().find_map(|one| match one {
        HostUse::Vlan(vlan) => Some(vlan.id),
        HostUse::Ipvlan(_) | HostUse::Promiscuous(_) | HostUse::Route(_) => None,
    });
    let below = match vlan {
        Some(id) => {
            let all = netlink.list()?;
            all.into_iter().find(|link| is_vlan(link, &master, id))
        }
        None => Some(master),
    };
    let Some(below) = below else {
        return Ok(Vec::new());
    };
    let addresses = netlink.addresses()?.into_iter();
    let on_it = addresses.filter(|one| one.interface == below.index && !one.tentative);
    let wide = on_it.filter(|one| !one.is_link_local());
    Ok(wide.map(|one| one.address.addr()).collect())
}
