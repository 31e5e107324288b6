//! Routes of the host to single addresses of containers.

use std::{cmp::Reverse, io, net::IpAddr};

use fipd_cni::link::{Family, ListedRoute, MAIN_TABLE, Netlink, Route};
use ipnet::IpNet;

use super::refusal::{CallRefusal, kernel};

/// `RTPROT_BOOT` of `linux/rtnetlink.h`, which the original's routes have.
pub const PROTOCOL_BOOT: u8 = 3;

/// A route to an address, over the interface that leads to `via`.
pub struct HostRoute<'a> {
    pub address: IpAddr,
    pub via: IpAddr,
    pub src: Option<IpAddr>,
    /// Tags of fipd's routes: that of new ones first, then those of earlier settings.
    pub protocols: &'a [u8],
}

impl HostRoute<'_> {
    /// Makes it in the place of an earlier one of fipd or of the original. A third program's stays: where it leads elsewhere, there is
    /// no room for this one.
    pub fn ensure(&self, netlink: &mut Netlink) -> Result<(), CallRefusal> {
        let (address, own) = (self.address, IpNet::from(self.address));
        let said = |error: io::Error| kernel(&format!("route {address} to the container"), &error);
        let all = netlink
            .routes(Family::of(address), MAIN_TABLE)
            .map_err(said)?;
        let interface = self.interface(&all)?;
        let leads_there = |one: &ListedRoute| one.route.interface == Some(interface);
        let protocol = self.protocols.first().copied().unwrap_or(PROTOCOL_BOOT);
        let replaced =
            |one: &&ListedRoute| is_of(one, self.protocols) || is_of(one, &[PROTOCOL_BOOT]);
        let (known, foreign): (Vec<_>, Vec<_>) = all
            .iter()
            .filter(|one| one.route.dst == own)
            .partition(replaced);
        match foreign.first() {
            Some(one) if leads_there(one) => return Ok(()),
            Some(_) => {
                let why = format!(
                    "this host has another route to {address}, which is not fipd's; remove it"
                );
                return Err(CallRefusal::later(why));
            }
            None => {}
        }
        let is_it = |one: &&ListedRoute| is_of(one, &[protocol]) && leads_there(one);
        for stale in known.into_iter().filter(|one| !is_it(one)) {
            netlink.delete_listed(stale).map_err(said)?;
        }
        let route = Route {
            src: self.src,
            protocol,
            ..Route::over(interface, own)
        };
        netlink.add_route(&route).map(drop).map_err(said)
    }

    /// The interface that leads to the container.
    fn interface(&self, all: &[ListedRoute]) -> Result<u32, CallRefusal> {
        let (address, via) = (self.address, self.via);
        let there = all.iter().filter(|one| one.route.dst.contains(&via));
        // As the kernel chooses: the longest prefix, then the lowest priority.
        let near = there.min_by_key(|one| {
            let longest = Reverse(one.route.dst.prefix_len());
            (longest, one.route.priority.unwrap_or_default())
        });
        let interface = near.filter(|one| !one.route.is_default());
        interface
            .and_then(|one| one.route.interface)
            .ok_or_else(|| {
                let why = format!(
                    "this host has no route to {via}, over which {address} could be reached"
                );
                CallRefusal::later(why)
            })
    }
}

/// Takes away the routes over a link to one address that a program of one of these tags made.
pub fn remove(netlink: &mut Netlink, address: IpAddr, protocols: &[u8]) -> Result<(), CallRefusal> {
    let said = |error: io::Error| kernel(&format!("remove the route to {address}"), &error);
    let own = IpNet::from(address);
    let all = netlink.routes(Family::of(address), MAIN_TABLE);
    let all = all.map_err(said)?.into_iter();
    for route in all.filter(|one| one.route.dst == own && is_of(one, protocols)) {
        netlink.delete_listed(&route).map_err(said)?;
    }
    Ok(())
}

/// Whether a program of one of these tags made it, over a link without a gateway.
fn is_of(one: &ListedRoute, protocols: &[u8]) -> bool {
    one.route.gw.is_none() && protocols.contains(&one.route.protocol)
}
