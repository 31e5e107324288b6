//! What a FlatNetworkSubnet says, as typed values; nothing is taken over half.

use std::net::IpAddr;

use fipd_cni::attachment::LinkKind;
use fipd_core::{AddressError, AddressSpec, Ends, EndsOf, Family, PoolSpec, Span};
use fipd_crds::{
    flat_network::{FlatNetworkSubnet, FlatNetworkSubnetSpec, FlatRange, RouteSettings},
    names::is_object_name,
};
use ipnet::IpNet;

use super::{
    super::{Wrong, pool::canonical},
    link,
    routes::{self, SubnetRoute},
    spans, spelling,
};

pub(super) const CIDR: &str = "spec.cidr";
pub(super) const RANGES: &str = "spec.ranges";
const GATEWAY: &str = "spec.gateway";
const EXCLUSIONS: &str = "spec.exclusions";
const QUARANTINE: &str = "spec.quarantineSeconds";
const STICKY: &str = "spec.stickySeconds";
const PARTNER: &str = "spec.partner";

/// The most ranges and exclusions: each of both costs where subnets are compared.
pub const ENTRIES: usize = 1_000;

/// A subnet whose fields are as they must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatSubnet {
    pub kind: LinkKind,
    /// Interface of the nodes.
    pub master: String,
    /// VLAN on it; 0: none.
    pub vlan: u16,
    /// Without host bits.
    pub cidr: IpNet,
    pub gateway: Option<IpAddr>,
    /// As they were listed; none: the whole network.
    pub ranges: Vec<Span>,
    pub routes: Vec<SubnetRoute>,
    pub route_settings: RouteSettings,
    pub exclusions: Vec<AddressSpec>,
    /// Whether the first and the last address of the network are given as well.
    pub gives_ends: bool,
    /// Seconds that an address cools after its release.
    pub quarantine: u32,
    /// Seconds that the address of an ordinal of a StatefulSet waits for its successor.
    pub sticky: u32,
    /// Name of the subnet of the other family.
    pub partner: Option<String>,
}

impl FlatSubnet {
    /// Reads a subnet in either spelling: rules S1 to S7, and what nobody checked.
    ///
    /// # Errors
    /// The first field that is not as it must be.
    pub fn read(raw: &FlatNetworkSubnetSpec) -> Result<Self, Wrong> {
        let current = spelling::current(raw);
        let spec = current.as_ref().unwrap_or(raw);
        let kind = link::kind(spec)?;
        let cidr = cidr(&spec.cidr)?;
        let gateway = match spec.gateway.as_str() {
            "" => None,
            text => Some(inside(GATEWAY, text, &cidr)?),
        };
        let ranges = ranges(&spec.ranges, &cidr)?;
        let routes = routes::read(&spec.routes, &cidr)?;
        let vlan = link::vlan(spec)?;
        Ok(Self {
            kind,
            master: link::master(spec)?,
            vlan,
            gateway,
            ranges,
            routes,
            route_settings: spec.route_settings.clone(),
            exclusions: exclusions(&spec.exclusions, &cidr)?,
            gives_ends: spec.allocate_reserved_ip_addresses,
            quarantine: seconds(
                QUARANTINE,
                spec.quarantine_seconds,
                PoolSpec::MAX_QUARANTINE,
            )?,
            sticky: seconds(STICKY, spec.sticky_seconds, PoolSpec::MAX_STICKY)?,
            partner: partner(&spec.partner)?,
            cidr,
        })
    }

    /// The subnet as it was accepted last: an edit that is refused is not in force.
    ///
    /// # Errors
    /// The first field that is not as it must be, or that nobody knows yet what is in force.
    pub fn in_force(subnet: &FlatNetworkSubnet) -> Result<Self, String> {
        let read = |spec| Self::read(spec).map_err(|wrong| wrong.to_string());
        let now = read(&subnet.spec);
        let status = subnet.status.as_ref();
        let Some(accepted) = status.and_then(|status| status.accepted.as_ref()) else {
            return now;
        };
        let accepted = read(accepted)?;
        // The status comes a moment after the decision.
        let mut conditions = status.iter().flat_map(|status| &status.conditions);
        let judged = conditions.any(|one| {
            one.type_ == "Ready" && one.observed_generation == subnet.metadata.generation
        });
        match judged || now.as_ref() == Ok(&accepted) {
            true => Ok(accepted),
            false => Err("an edit of it is not decided yet".to_owned()),
        }
    }

    /// The interface on the nodes that pods are attached to.
    pub fn interface(&self) -> String {
        link::interface(&self.master, self.vlan)
    }

    pub fn family(&self) -> Family {
        Family::of(self.cidr.addr())
    }

    /// A subnet has a partner, not itself.
    ///
    /// # Errors
    /// It names itself.
    pub fn check_partner(&self, name: &str) -> Result<(), Wrong> {
        match &self.partner {
            Some(partner) if partner == name => {
                let allowed =
                    "it is the subnet itself; name the subnet of the other family, or nothing";
                Err(Wrong::new(PARTNER, partner, allowed))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The pool that it is, but for name, origin and network. Nobody is remembered: only an ordinal of a StatefulSet has its
    /// address kept.
    pub fn pool(&self) -> PoolSpec {
        let whole = AddressSpec::Cidr(self.cidr);
        let range = |span: &Span| AddressSpec::Range(span.first_address(), span.last_address());
        let addresses = match self.ranges.is_empty() {
            true => vec![whole],
            false => self.ranges.iter().map(range).collect(),
        };
        let mut exclusions = self.exclusions.clone();
        // The address book reserves no ends of such networks.
        exclusions.extend(self.is_tiny().then_some(whole).filter(|_| !self.gives_ends));
        let ends = u32::from(!self.gives_ends);
        PoolSpec {
            exclusions,
            gateway: self.gateway,
            // The address book has no length of 0 bits.
            prefix_len: Some(self.cidr.prefix_len()).filter(|length| *length > 0),
            subnet: Some(self.cidr),
            ends: Ends {
                first: ends,
                last: ends,
                of: EndsOf::Prefix,
            },
            quarantine: self.quarantine,
            ..PoolSpec::own("pool", addresses)
        }
    }

    /// Networks that have nothing but ends: /31, /32, /127 and /128.
    fn is_tiny(&self) -> bool {
        self.cidr.max_prefix_len() - self.cidr.prefix_len() <= 1
    }

    /// What it names: its ranges or the whole network, sorted and disjoint.
    pub fn listed(&self) -> Vec<Span> {
        match self.ranges.is_empty() {
            true => vec![Span::of_net(self.cidr)],
            false => spans::merged(&self.ranges),
        }
    }

    /// What it gives, sorted and disjoint: less exclusions, gateway and ends.
    pub fn given(&self) -> Vec<Span> {
        let mut kept: Vec<Span> = self.exclusions.iter().map(AddressSpec::span).collect();
        kept.extend(self.gateway.map(Span::single));
        if !self.gives_ends {
            let ends = [self.cidr.network(), self.cidr.broadcast()];
            kept.extend(ends.map(Span::single));
        }
        spans::minus(&self.listed(), &kept)
    }

    /// Why no pod gets the address; `None`: one may. Rules W4 to W6, and the ranges, which nobody checked.
    pub fn why_not(&self, address: IpAddr) -> Option<String> {
        let cidr = self.cidr;
        if !cidr.contains(&address) {
            return Some(format!("it is outside the subnet's CIDR {cidr}"));
        }
        if self.gateway == Some(address) {
            return Some("it is the subnet's gateway".to_owned());
        }
        let is_end = address == cidr.network() || address == cidr.broadcast();
        if is_end && !self.gives_ends {
            return Some(format!("it is the first or the last address of {cidr}"));
        }
        let excludes = |one: &&AddressSpec| one.span().contains(address);
        if let Some(one) = self.exclusions.iter().find(excludes) {
            return Some(format!("{EXCLUSIONS} of the subnet has {one}"));
        }
        let lists = self.ranges.is_empty() || self.ranges.iter().any(|one| one.contains(address));
        (!lists).then(|| {
            let ranges = super::some(self.ranges.iter().map(spans::text), 5);
            format!("it is in none of the subnet's ranges {ranges}")
        })
    }

    /// What is to be said of a subnet that is accepted.
    pub fn remark(&self) -> Option<String> {
        let nothing = self.given().is_empty();
        nothing.then(|| match self.is_tiny() && !self.gives_ends {
            true => format!(
                "{CIDR}: {} gives no address, as it has no others than its first and its last; write a larger network, or set spec.allocateReservedIPAddresses",
                self.cidr
            ),
            false => "the subnet gives no address: gateway, reserved ends and exclusions leave none; widen spec.ranges or spec.cidr".to_owned(),
        })
    }
}

/// Whether subnets count in this namespace: they do in `allowed` alone.
///
/// # Errors
/// They do not.
pub fn check_namespace(namespace: &str, allowed: &str) -> Result<(), Wrong> {
    if namespace == allowed {
        return Ok(());
    }
    let allowed =
        format!("invalid subnet namespace: subnets count in {allowed} only; create it there");
    Err(Wrong::new("metadata.namespace", namespace, allowed))
}

/// Rule S2; host bits do not matter.
fn cidr(text: &str) -> Result<IpNet, Wrong> {
    let cidr: IpNet = text.parse().map_err(|_| {
        let allowed = "it must be a CIDR such as 192.168.1.0/24 or fd00:1::/64";
        Wrong::new(CIDR, text, allowed)
    })?;
    Ok(canonical(cidr).trunc())
}

/// An address of the subnet: rules S3 to S5.
pub(super) fn inside(field: &str, text: &str, cidr: &IpNet) -> Result<IpAddr, Wrong> {
    let address: Option<IpAddr> = text.parse().ok();
    let address = address.map(|address| address.to_canonical());
    let within = address.filter(|address| cidr.contains(address));
    within.ok_or_else(|| {
        let allowed = format!("it must be an IP address inside {CIDR} ({cidr})");
        Wrong::new(field, text, allowed)
    })
}

/// Rule S4. Ranges of one subnet may overlap.
fn ranges(ranges: &[FlatRange], cidr: &IpNet) -> Result<Vec<Span>, Wrong> {
    few(RANGES, ranges.len())?;
    let read = |(index, range): (usize, &FlatRange)| {
        let from = inside(&format!("{RANGES}[{index}].from"), &range.from, cidr)?;
        let to = inside(&format!("{RANGES}[{index}].to"), &range.to, cidr)?;
        if from > to {
            let allowed = format!("it must not be above {RANGES}[{index}].to ({to})");
            return Err(Wrong::new(
                format!("{RANGES}[{index}].from"),
                &range.from,
                allowed,
            ));
        }
        Ok(AddressSpec::Range(from, to).span())
    };
    ranges.iter().enumerate().map(read).collect()
}

fn exclusions(texts: &[String], cidr: &IpNet) -> Result<Vec<AddressSpec>, Wrong> {
    few(EXCLUSIONS, texts.len())?;
    let whole = Span::of_net(*cidr);
    let read = |(index, text): (usize, &String)| {
        let wrong = |allowed: String| Wrong::new(format!("{EXCLUSIONS}[{index}]"), text, allowed);
        let spec: AddressSpec = text
            .parse()
            .map_err(|error: AddressError| wrong(error.to_string()))?;
        match whole.covers(&spec.span()) {
            true => Ok(spec),
            false => Err(wrong(format!("it must lie inside {CIDR} ({cidr})"))),
        }
    };
    texts.iter().enumerate().map(read).collect()
}

fn few(field: &str, count: usize) -> Result<(), Wrong> {
    if count <= ENTRIES {
        return Ok(());
    }
    let allowed = format!("a subnet has at most {ENTRIES} of them; join those that touch");
    Err(Wrong::new(field, &count.to_string(), allowed))
}

/// Left out: 0.
fn seconds(field: &str, number: Option<i64>, most: u32) -> Result<u32, Wrong> {
    let number = number.unwrap_or_default();
    let fits = u32::try_from(number).ok().filter(|one| *one <= most);
    fits.ok_or_else(|| {
        let allowed = format!("it must be 0 to {most} seconds ({} days)", most / 86_400);
        Wrong::new(field, &number.to_string(), allowed)
    })
}

fn partner(name: &str) -> Result<Option<String>, Wrong> {
    if name.is_empty() {
        return Ok(None);
    }
    if is_object_name(name) {
        return Ok(Some(name.to_owned()));
    }
    let allowed = "it must be the name of a FlatNetworkSubnet";
    Err(Wrong::new(PARTNER, name, allowed))
}
