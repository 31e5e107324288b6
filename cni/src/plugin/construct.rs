//! Makes an attachment: what is done on the host, and in what order the rest follows.

use ipnet::IpNet;

use super::{
    call::{PATIENCE, PluginCall, Sandbox},
    container::{Container, ContainerPlan},
    note,
    undo::Undo,
};
use crate::{
    AskStep, CniError, Code, Verb,
    attachment::{Attachment, IpvlanMode, LinkKind, ProbeResult},
    frame::Mac,
    link::{Family, Link, MAIN_TABLE, MemberLink, Netlink},
    namespace::Namespace,
    probe::probe,
    result::AddResult,
};

/// The least MTU of a link with IPv6, in bytes: RFC 8200. The kernel has no IPv6 there below.
const LEAST_V6: u32 = 1_280;
/// Attachments that are probed before the daemon runs out of addresses that nobody uses.
const ROUNDS: usize = 8;

pub(super) fn construct(
    call: &PluginCall,
    sandbox: &mut Sandbox,
    first: Attachment,
    undo: &mut Undo,
) -> Result<AddResult, CniError> {
    let mut host = call.netlink()?;
    let node_networks = match first.extras.node_networks {
        true => node_networks(call, &mut host)?,
        false => Vec::new(),
    };
    create(call, &mut host, &sandbox.namespace, &first)?;
    undo.link = true;
    let probed = first.probe;
    let mut container = Container::open(call, sandbox)?;
    container.prepare(&first)?;
    let attachment = agree(call, &mut host, container.namespace, first)?;
    let plan = ContainerPlan {
        attachment: &attachment,
        node_networks: &node_networks,
        probed,
    };
    let (made, result) = container.configure(&plan, undo)?;
    if attachment.confirm {
        call.output(Verb::Add, AskStep::Made(made), PATIENCE, Code::TryAgain)?;
    }
    Ok(result)
}

fn create(
    call: &PluginCall,
    host: &mut Netlink,
    namespace: &Namespace,
    attachment: &Attachment,
) -> Result<(), CniError> {
    use std::os::fd::AsFd as _;
    let link = &attachment.link;
    let parent = parent(call, host, &link.parent)?;
    let mtu = mtu(call, attachment, &parent)?;
    let mac = link.mac.as_deref().map(|text| {
        let wrong = || call.failed("read fipd's answer", format!("{text:?} is no MAC"));
        Mac::of_station(text).ok_or_else(wrong)
    });
    let member = MemberLink {
        name: call.ifname(),
        kind: link.kind,
        parent: parent.index,
        mtu,
        mac: mac.transpose()?,
        // After its settings, which decide what the kernel does then.
        up: false,
    };
    let created = host.create_in(namespace.as_fd(), &member);
    created.map_err(|error| {
        let doing = format!("create {} on {}", call.ifname(), link.parent);
        call.refused(&doing, &error, host)
    })
}

/// The MTU to set; `None`: the parent's.
fn mtu(call: &PluginCall, attachment: &Attachment, parent: &Link) -> Result<Option<u32>, CniError> {
    let asked = attachment.link.mtu.filter(|mtu| *mtu > 0);
    // The original's operator writes 1500 whatever the master has, and the kernel takes that for an ipvlan: such pods go on.
    let is_tolerated =
        !call.conf.is_standalone() && matches!(attachment.link.kind, LinkKind::Ipvlan(..));
    match asked.filter(|asked| *asked > parent.mtu) {
        Some(asked) if is_tolerated => note(&format!(
            "an MTU of {asked} is asked for; {} has {}, which is used",
            parent.name, parent.mtu
        )),
        Some(_) | None => check_mtu(call, asked, parent)?,
    }
    let own = asked.filter(|asked| *asked < parent.mtu);
    let used = own.unwrap_or(parent.mtu);
    let addresses = attachment.addresses.iter();
    let mut v6 = addresses.filter(|one| one.address.addr().is_ipv6());
    if used < LEAST_V6
        && let Some(v6) = v6.next()
    {
        let field = match own {
            Some(_) => mtu_field(call).to_owned(),
            None => format!("the MTU of {}", parent.name),
        };
        let allowed = format!(
            "{LEAST_V6} bytes or more, which IPv6 needs ({})",
            v6.address
        );
        return Err(wrong_mtu(call, &field, used, &allowed));
    }
    Ok(own)
}

/// Row 84 of the contract: a container's interface has at most the MTU of its parent.
pub(super) fn check_mtu(
    call: &PluginCall,
    asked: Option<u32>,
    parent: &Link,
) -> Result<(), CniError> {
    let Some(asked) = asked.filter(|asked| *asked > parent.mtu) else {
        return Ok(());
    };
    let (name, most) = (&parent.name, parent.mtu);
    let allowed = format!("at most {most} bytes, the MTU of {name}; write less, or raise that");
    Err(wrong_mtu(call, mtu_field(call), asked, &allowed))
}

fn mtu_field(call: &PluginCall) -> &'static str {
    match call.conf.is_standalone() {
        true => "mtu of the network configuration",
        false => "flatNetwork.mtu of the network configuration",
    }
}

fn wrong_mtu(call: &PluginCall, field: &str, mtu: u32, allowed: &str) -> CniError {
    let details = format!("{mtu}; allowed: {allowed}");
    call.error(Code::InvalidConfig, &format!("{field} is wrong"), details)
}

pub(super) fn parent(call: &PluginCall, host: &mut Netlink, name: &str) -> Result<Link, CniError> {
    let found = host.find(name);
    let found = found.map_err(|error| call.refused(&format!("look up {name}"), &error, host))?;
    found.ok_or_else(|| {
        let details = format!("{name}: create it or correct the master");
        call.error(Code::IoFailure, "the host lacks an interface", details)
    })
}

/// Networks of the interfaces that have the host's default routes.
fn node_networks(call: &PluginCall, host: &mut Netlink) -> Result<Vec<IpNet>, CniError> {
    let mut interfaces = Vec::new();
    for family in Family::BOTH {
        let routes = host.routes(family, MAIN_TABLE);
        let routes =
            routes.map_err(|error| call.refused("list the routes of the host", &error, host))?;
        let defaults = routes.iter().filter(|one| one.route.is_default());
        interfaces.extend(defaults.flat_map(|one| one.interfaces()));
    }
    let addresses = host.addresses();
    let addresses =
        addresses.map_err(|error| call.refused("list the addresses of the host", &error, host))?;
    let on_them = addresses
        .iter()
        .filter(|one| interfaces.contains(&one.interface) && !one.is_link_local());
    let mut networks: Vec<_> = on_them.map(|one| one.address.trunc()).collect();
    networks.sort_unstable();
    networks.dedup();
    Ok(networks)
}

/// Probes until nobody else uses the addresses, or the daemon has had enough of it.
fn agree(
    call: &PluginCall,
    host: &mut Netlink,
    namespace: &Namespace,
    mut attachment: Attachment,
) -> Result<Attachment, CniError> {
    for _ in 0..ROUNDS {
        if !attachment.probe {
            return Ok(attachment);
        }
        let mut results = probe_addresses(call, namespace, &attachment)?;
        find_own(call, host, &mut results)?;
        let next = call.attachment(AskStep::Probed(results))?;
        // The link is there already.
        attachment = Attachment {
            link: attachment.link,
            ..next
        };
    }
    if !attachment.probe {
        return Ok(attachment);
    }
    let details = format!(
        "{ROUNDS} times; another DHCP server or static addresses may be in the pool's range"
    );
    let what = "other hosts use the addresses of the pool";
    Err(call.error(Code::AddressConflict, what, details))
}

fn probe_addresses(
    call: &PluginCall,
    namespace: &Namespace,
    attachment: &Attachment,
) -> Result<Vec<ProbeResult>, CniError> {
    let addresses = attachment.addresses.iter();
    let addresses: Vec<_> = addresses.map(|one| one.address.addr()).collect();
    let doing = "probe the addresses";
    match attachment.link.kind {
        LinkKind::Macvlan(_) => call.inside(namespace, || {
            probe(call.ifname(), &addresses).map_err(|error| call.failed(doing, error))
        }),
        // Answers to a probe are for no address, so the kernel gives them to the parent, whose MAC it is.
        LinkKind::Ipvlan(IpvlanMode::L2, _) => {
            probe(&attachment.link.parent, &addresses).map_err(|error| call.failed(doing, error))
        }
        // Routed: the addresses are not on the parent's link.
        LinkKind::Ipvlan(IpvlanMode::L3 | IpvlanMode::L3s, _) => {
            let nobody = addresses.into_iter().map(|address| ProbeResult {
                address,
                user: None,
            });
            Ok(nobody.collect())
        }
    }
}

/// Marks addresses that this host has itself: neither a macvlan nor an ipvlan reaches its parent, so that nobody answers for them.
fn find_own(
    call: &PluginCall,
    host: &mut Netlink,
    results: &mut [ProbeResult],
) -> Result<(), CniError> {
    let own = host.addresses();
    let own = own.map_err(|error| call.refused("list the addresses of the host", &error, host))?;
    let links = host.list();
    let links =
        links.map_err(|error| call.refused("list the interfaces of the host", &error, host))?;
    for result in results.iter_mut().filter(|one| one.user.is_none()) {
        let found = own.iter().find(|one| one.address.addr() == result.address);
        let link = found.and_then(|one| links.iter().find(|link| link.index == one.interface));
        // The loopback has a MAC of zeros, and a tunnel none.
        result.user = link.map(|link| match Mac::of_station(&link.mac_text()) {
            Some(mac) => mac.to_string(),
            None => link.name.clone(),
        });
    }
    Ok(())
}
