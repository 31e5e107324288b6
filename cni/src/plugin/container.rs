//! What is made of an attachment in the container's namespace.

use std::{
    io,
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use ipnet::IpNet;

use super::{
    call::{PluginCall, Sandbox},
    note,
    routes::Routes,
    undo::Undo,
};
use crate::{
    CniError, Code,
    announce::announce,
    attachment::{ArpPolicy, Attachment, IpvlanMode, LinkKind, Made},
    link::{Family, Link, Netlink},
    namespace::Namespace,
    result::{AddResult, Interface, IpConfig, RouteConfig},
    sysctl::{read_of_interface, set_of_interface},
};

/// The first interface of a pod.
pub(super) const FIRST: &str = "eth0";
/// Duplicate address detection begins within a second; what is beyond is for the timers of a kernel that is busy.
const BEFORE_DETECTION: Duration = Duration::from_secs(10);
/// The longest that it is waited for.
const LONGEST_DETECTION: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// What to configure, once the addresses are agreed on.
pub(super) struct ContainerPlan<'a> {
    pub attachment: &'a Attachment,
    pub node_networks: &'a [IpNet],
    /// The plugin has looked for other users of the addresses; the kernel need not.
    pub probed: bool,
}

/// The container's namespace with the new link.
pub(super) struct Container<'a> {
    pub call: &'a PluginCall,
    pub namespace: &'a Namespace,
    pub netlink: &'a mut Netlink,
    pub link: Link,
}

impl<'a> Container<'a> {
    pub fn open(call: &'a PluginCall, sandbox: &'a mut Sandbox) -> Result<Self, CniError> {
        let Sandbox { namespace, netlink } = sandbox;
        let name = call.ifname();
        let found = netlink.find(name);
        let found =
            found.map_err(|error| call.refused(&format!("look up {name}"), &error, netlink))?;
        let gone = || call.failed("use the new interface", format!("somebody deleted {name}"));
        Ok(Self {
            call,
            namespace,
            netlink,
            link: found.ok_or_else(gone)?,
        })
    }

    /// Settings that count from the moment the link is up, and for a probe that it is.
    pub fn prepare(&mut self, attachment: &Attachment) -> Result<(), CniError> {
        let extras = &attachment.extras;
        let has_ipv6 = attachment
            .addresses
            .iter()
            .any(|one| one.address.addr().is_ipv6());
        let settings = [
            (
                Family::V4,
                "arp_notify",
                1,
                extras.arp_policy == ArpPolicy::ArpNotify,
            ),
            (
                Family::V6,
                "ndisc_notify",
                1,
                extras.arp_policy == ArpPolicy::ArpNotify,
            ),
            (Family::V4, "proxy_arp", 1, extras.proxy_arp),
            // Runtimes switch IPv6 off where their own network lacks it.
            (Family::V6, "disable_ipv6", 0, has_ipv6),
        ];
        self.call.inside(self.namespace, || {
            for (family, name, value, _) in settings.into_iter().filter(|one| one.3) {
                let set = set_of_interface(family, &self.link.name, name, value);
                set.map_err(|error| self.call.failed(&format!("set {name}"), error))?;
            }
            Ok(())
        })?;
        match attachment.probe {
            true => self.bring_up(),
            false => Ok(()),
        }
    }

    pub fn configure(
        mut self,
        plan: &ContainerPlan<'_>,
        undo: &mut Undo,
    ) -> Result<(Made, AddResult), CniError> {
        let attachment = plan.attachment;
        self.add_addresses(plan)?;
        // Only now: the kernel announces the addresses that a link has when it comes up.
        self.bring_up()?;
        self.await_detection(attachment)?;
        let routes = Routes::new(&mut self, plan, undo).make()?;
        self.announce(plan);
        let made = Made {
            mac: self.link.mac_text(),
            first_interface: self.first_interface()?,
        };
        let result = self.result(attachment, routes, &made.mac);
        Ok((made, result))
    }

    pub fn refused(&self, doing: &str, error: &io::Error) -> CniError {
        self.call.refused(doing, error, self.netlink)
    }

    fn bring_up(&mut self) -> Result<(), CniError> {
        let up = self.netlink.set_up(self.link.index, true);
        up.map_err(|error| self.refused(&format!("bring {} up", self.link.name), &error))
    }

    /// Without a probe of ours the kernel looks for other users of IPv6 addresses, which takes a second or two; after one it
    /// need not, and the address is usable at once.
    fn add_addresses(&mut self, plan: &ContainerPlan<'_>) -> Result<(), CniError> {
        for one in &plan.attachment.addresses {
            let index = self.link.index;
            let added = self.netlink.add_address(index, one.address, plan.probed);
            added.map_err(|error| self.refused(&format!("add {}", one.address), &error))?;
        }
        Ok(())
    }

    /// Until then nobody can use the addresses, nor can a route have one as its source.
    fn await_detection(&mut self, attachment: &Attachment) -> Result<(), CniError> {
        if !attachment
            .addresses
            .iter()
            .any(|one| one.address.addr().is_ipv6())
        {
            return Ok(());
        }
        let wanted = |ip: &IpNet| attachment.addresses.iter().any(|one| one.address == *ip);
        let detection = self
            .call
            .inside(self.namespace, || Ok(detection(&self.link.name)))?;
        let end = Instant::now() + detection;
        loop {
            let found = self.netlink.addresses();
            let found = found.map_err(|error| self.refused("list addresses", &error))?;
            let ours = found.iter().filter(|one| one.interface == self.link.index);
            let ours = ours.filter(|one| wanted(&one.address));
            let pending = ours.clone().find(|one| one.tentative && !one.duplicate);
            if let Some(taken) = ours.clone().find(|one| one.duplicate) {
                let what = "another host uses the address";
                let address = taken.address.to_string();
                return Err(self.call.error(Code::AddressConflict, what, address));
            }
            let Some(pending) = pending else {
                return Ok(());
            };
            if Instant::now() >= end {
                let details = format!("{}; has the interface a carrier?", pending.address);
                let what = "the kernel still looks for other users of the address";
                return Err(self.call.error(Code::TryAgain, what, details));
            }
            thread::sleep(POLL);
        }
    }

    /// With `arp_notify` the kernel does it, unless the link was up for the probe. An attachment works without.
    fn announce(&self, plan: &ContainerPlan<'_>) {
        let attachment = plan.attachment;
        let is_kernels = attachment.extras.arp_policy == ArpPolicy::ArpNotify && !plan.probed;
        let is_routed = matches!(
            attachment.link.kind,
            LinkKind::Ipvlan(IpvlanMode::L3 | IpvlanMode::L3s, _)
        );
        if is_kernels || is_routed {
            return;
        }
        let addresses = attachment.addresses.iter();
        let addresses: Vec<_> = addresses.map(|one| one.address.addr()).collect();
        let announced = self.namespace.run(|| announce(&self.link.name, &addresses));
        if let Err(error) = announced.flatten() {
            note(&format!("cannot announce the addresses: {error}"));
        }
    }

    /// Addresses of the container's first interface, unless that is the new one.
    fn first_interface(&mut self) -> Result<Vec<IpAddr>, CniError> {
        if self.link.name == FIRST {
            return Ok(Vec::new());
        }
        let first = self.netlink.find(FIRST);
        let Some(first) = first.map_err(|error| self.refused("look up eth0", &error))? else {
            return Ok(Vec::new());
        };
        let addresses = self.netlink.addresses();
        let addresses = addresses.map_err(|error| self.refused("list addresses", &error))?;
        let of_first = addresses.iter().filter(|one| one.interface == first.index);
        let wide = of_first.filter(|one| !one.is_link_local());
        Ok(wide.map(|one| one.address.addr()).collect())
    }

    fn result(&self, attachment: &Attachment, routes: Vec<RouteConfig>, mac: &str) -> AddResult {
        let ips = attachment.addresses.iter().map(|one| IpConfig {
            address: one.address,
            gateway: one.gateway,
            interface: Some(0),
        });
        AddResult {
            interfaces: vec![Interface {
                name: self.link.name.clone(),
                mac: mac.to_owned(),
                mtu: Some(self.link.mtu),
                sandbox: self.call.environment.netns.clone(),
                ..Interface::default()
            }],
            ips: ips.collect(),
            routes,
            dns: attachment.dns.clone(),
            ..AddResult::default()
        }
    }
}

/// How long the kernel may look for other users of an address of IPv6, in the namespace of the calling thread.
fn detection(interface: &str) -> Duration {
    let read = |of, name| read_of_interface(Family::V6, of, interface, name);
    let probes = read("conf", "dad_transmits").unwrap_or(1);
    let apart = read("neigh", "retrans_time_ms").unwrap_or(1_000);
    let all = Duration::from_millis(u64::from(probes) * u64::from(apart));
    (BEFORE_DETECTION + all).min(LONGEST_DETECTION)
}
