//! Routes of the pods of a subnet.

use std::net::IpAddr;

use fipd_core::Family;
use fipd_crds::flat_network::FlatRoute;
use ipnet::IpNet;

use super::{
    super::{Wrong, pool::canonical},
    link::is_interface_name,
    subnet::inside,
};

/// The most routes of a subnet.
const ROUTES: usize = 1_000;
const HIGHEST_PRIORITY: i64 = 2_147_483_647;

/// A route of the pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetRoute {
    /// Interface of the pod.
    pub dev: String,
    pub dst: IpNet,
    pub src: Option<IpAddr>,
    /// `None`: the destination is on the link.
    pub via: Option<IpAddr>,
    /// 0: the kernel's default.
    pub priority: u32,
}

/// Rule S5, and what nobody checked of `src` and families.
pub(super) fn read(routes: &[FlatRoute], cidr: &IpNet) -> Result<Vec<SubnetRoute>, Wrong> {
    if routes.len() > ROUTES {
        let allowed = format!("a subnet has at most {ROUTES} routes");
        return Err(Wrong::new(
            "spec.routes",
            &routes.len().to_string(),
            allowed,
        ));
    }
    let routes = routes.iter().enumerate();
    routes
        .map(|(index, route)| one(index, route, cidr))
        .collect()
}

fn one(index: usize, route: &FlatRoute, cidr: &IpNet) -> Result<SubnetRoute, Wrong> {
    let field = |name: &str| format!("spec.routes[{index}].{name}");
    if !is_interface_name(&route.dev) {
        let allowed = "it must name an interface of the pod, such as eth1";
        return Err(Wrong::new(field("dev"), &route.dev, allowed));
    }
    let dst: IpNet = route.dst.parse().map_err(|_| {
        let allowed = "it must be a CIDR such as 10.0.0.0/8 or 2001:db8::/32; 0.0.0.0/0 or ::/0 is the default route";
        Wrong::new(field("dst"), &route.dst, allowed)
    })?;
    let dst = canonical(dst).trunc();
    let near = |name: &str, text: &str| {
        let address = inside(&field(name), text, cidr)?;
        if Family::of(address) == Family::of(dst.addr()) {
            return Ok(address);
        }
        let allowed = format!("it must be of the family of {} ({dst})", field("dst"));
        Err(Wrong::new(field(name), text, allowed))
    };
    let some = |name: &str, text: &str| match text {
        "" => Ok(None),
        text => near(name, text).map(Some),
    };
    let priority = route.priority;
    let fits = (0..=HIGHEST_PRIORITY).contains(&priority);
    let priority = u32::try_from(priority).ok().filter(|_| fits);
    let priority = priority.ok_or_else(|| {
        let allowed = format!("it must be 0 to {HIGHEST_PRIORITY}");
        Wrong::new(field("priority"), &route.priority.to_string(), allowed)
    })?;
    Ok(SubnetRoute {
        dev: route.dev.clone(),
        src: some("src", &route.src)?,
        via: some("via", &route.via)?,
        dst,
        priority,
    })
}
