//! What pools of Cluster API's in-cluster provider may say: its rules, and its sets of addresses.

use std::net::IpAddr;

use fipd_core::{
    AddressError, AddressSpec, Ends, EndsOf, Family, LeasePrefix, PoolSpec, Span, Sticky, Text,
};
use fipd_crds::cluster_api::{InClusterIPPoolSpec, InClusterPrefixPoolSpec};
use ipnet::IpNet;

use super::{Wrong, addresses::number};

const ADDRESSES: &str = "spec.addresses";
const EXCLUDED: &str = "spec.excludedAddresses";
const PREFIX: &str = "spec.prefix";
const GATEWAY: &str = "spec.gateway";
const GRACE: &str = "spec.addressReuseGracePeriodSeconds";
const STICKY: &str = "spec.stickySeconds";
const PREFIXES: &str = "spec.prefixes";
const EXCLUDED_PREFIXES: &str = "spec.excludedPrefixes";
const LENGTH: &str = "spec.allocationPrefixLength";

/// Lengths whose addresses may all be hosts (RFC 3021, RFC 6164), and those of a single address.
fn has_no_ends(family: Family, length: u8) -> bool {
    length >= family.bits() - 1
}

/// The pool that an `InClusterIPPool` or its global form describes, but for its name and origin.
pub fn addresses(raw: &InClusterIPPoolSpec) -> Result<PoolSpec, String> {
    let addresses = entries(ADDRESSES, &raw.addresses)?;
    let Some(family) = addresses.first().map(AddressSpec::family) else {
        let allowed = "addresses is required: write at least one address, range or CIDR";
        return Err(Wrong::new(ADDRESSES, "", allowed).to_string());
    };
    one_family(ADDRESSES, &addresses, family, "the first entry")?;
    let length: u8 = number(PREFIX, raw.prefix)?;
    if length > family.bits() {
        let allowed = format!("it must be 0 to {} for {family}", family.bits());
        return Err(Wrong::new(PREFIX, &raw.prefix.to_string(), allowed).to_string());
    }
    one_network(&addresses, family, length)?;
    let mut exclusions = entries(EXCLUDED, &raw.excluded_addresses)?;
    one_family(EXCLUDED, &exclusions, family, ADDRESSES)?;
    let all = raw.allocate_reserved_ip_addresses || length == 0;
    let all = all || raw.usable_ends && has_no_ends(family, length);
    if !all && has_no_ends(family, length) {
        // The address book keeps back no ends of such networks, and the provider does.
        let ends = addresses.iter().map(|one| one.span().first).min();
        let network = Span::of_prefix(family.address(ends.unwrap_or_default()), length);
        let last = (family == Family::V4).then(|| network.last_address());
        exclusions.push(AddressSpec::Single(network.first_address()));
        exclusions.extend(last.map(AddressSpec::Single));
    }
    let ends = match (all, family) {
        (true, _) => Ends::NONE,
        (false, Family::V4) => ends(1, 1),
        (false, Family::V6) => ends(1, 0),
    };
    let spec = PoolSpec {
        exclusions,
        gateway: gateway(&raw.gateway, family)?,
        // The address book has no length of 0 bits; an IPAddress of such a pool has it all the same.
        prefix_len: Some(length).filter(|length| *length > 0),
        ends,
        quarantine: grace(raw.address_reuse_grace_period_seconds)?,
        sticky: sticky(raw.sticky_seconds)?,
        ..PoolSpec::own("pool", addresses)
    };
    Ok(spec)
}

/// The same of an `InClusterPrefixPool` or its global form.
pub fn prefixes(raw: &InClusterPrefixPoolSpec) -> Result<PoolSpec, String> {
    let length = raw.allocation_length();
    let allowed = || "it must be 1 to 128".to_owned();
    let length = u8::try_from(length)
        .ok()
        .filter(|one| (1..=128).contains(one));
    let length = length.ok_or_else(|| {
        let value = raw.allocation_length().to_string();
        Wrong::new(LENGTH, &value, allowed()).to_string()
    })?;
    if raw.prefixes.is_empty() {
        let allowed = "prefixes is required: write at least one IPv6 CIDR";
        return Err(Wrong::new(PREFIXES, "", allowed).to_string());
    }
    let prefixes = raw.prefixes.iter().enumerate().map(|(index, text)| {
        let wrong = |allowed: String| Wrong::new(format!("{PREFIXES}[{index}]"), text, allowed);
        let net: Option<IpNet> = text.parse().ok();
        match net {
            Some(IpNet::V6(net)) if net.addr() != net.network() => {
                Err(wrong(format!("it has host bits; write {}", net.trunc())))
            }
            Some(IpNet::V6(net)) if net.prefix_len() > length => Err(wrong(format!(
                "it must be /{length} or larger, as each claim gets a /{length} ({LENGTH})"
            ))),
            Some(IpNet::V6(net)) => Ok(AddressSpec::Cidr(net.into())),
            Some(IpNet::V4(_)) | None => Err(wrong("it must be an IPv6 CIDR".into())),
        }
    });
    let prefixes: Vec<_> = prefixes
        .collect::<Result<_, _>>()
        .map_err(|wrong: Wrong| wrong.to_string())?;
    let exclusions = entries(EXCLUDED_PREFIXES, &raw.excluded_prefixes)?;
    one_family(EXCLUDED_PREFIXES, &exclusions, Family::V6, PREFIXES)?;
    Ok(PoolSpec {
        exclusions,
        allocation_length: Some(length),
        gateway: gateway(&raw.gateway, Family::V6)?,
        quarantine: grace(raw.address_reuse_grace_period_seconds)?,
        sticky: sticky(raw.sticky_seconds)?,
        ..PoolSpec::own("pool", prefixes)
    })
}

/// What is not as the pool says it, although it is accepted.
pub fn remark(grace: Option<i64>) -> Option<String> {
    let most = i64::from(PoolSpec::MAX_QUARANTINE);
    let longer = grace.filter(|seconds| *seconds > most)?;
    Some(format!("{GRACE}: {longer} counts as {most} (30 days)"))
}

const fn ends(first: u32, last: u32) -> Ends {
    Ends {
        first,
        last,
        of: EndsOf::Prefix,
    }
}

/// Each entry: an address, a range or a CIDR, of which host bits do not count.
fn entries(field: &str, texts: &[String]) -> Result<Vec<AddressSpec>, String> {
    let parse = |(index, text): (usize, &String)| match text.parse() {
        Ok(spec) => Ok(spec),
        Err(AddressError::HostBits { network, .. }) => Ok(AddressSpec::Cidr(network)),
        Err(wrong) => {
            let allowed = format!("it is not a valid IP, range or CIDR: {wrong}");
            Err(Wrong::new(format!("{field}[{index}]"), text, allowed).to_string())
        }
    };
    texts.iter().enumerate().map(parse).collect()
}

fn one_family(field: &str, specs: &[AddressSpec], family: Family, of: &str) -> Result<(), String> {
    let other = specs
        .iter()
        .enumerate()
        .find(|(_, one)| one.family() != family);
    other.map_or(Ok(()), |(index, one)| {
        let allowed = format!("mixed IP families: it must be {family}, as {of} is");
        let wrong = Wrong::new(format!("{field}[{index}]"), &one.to_string(), allowed);
        Err(wrong.to_string())
    })
}

/// Every entry lies in the network around the lowest address.
fn one_network(specs: &[AddressSpec], family: Family, length: u8) -> Result<(), String> {
    let lowest = specs.iter().map(|one| one.span().first).min();
    let address = family.address(lowest.unwrap_or_default());
    let network = Span::of_prefix(address, length);
    let outside = specs.iter().enumerate();
    let mut outside = outside.filter(|(_, one)| !network.covers(&one.span()));
    outside.next().map_or(Ok(()), |(index, one)| {
        let first = network.first_address();
        let allowed = format!(
            "it belongs to a different subnet: all must lie in {first}/{length}, the network of {PREFIX} around the lowest address"
        );
        let wrong = Wrong::new(format!("{ADDRESSES}[{index}]"), &one.to_string(), allowed);
        Err(wrong.to_string())
    })
}

fn gateway(text: &str, family: Family) -> Result<Option<IpAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let address = text.parse::<IpAddr>().map(|address| address.to_canonical());
    let wrong = |allowed: String| Wrong::new(GATEWAY, text, allowed).to_string();
    match address {
        Ok(address) if Family::of(address) == family => Ok(Some(address)),
        Ok(_) => Err(wrong(format!(
            "mixed IP families: it must be {family}, as the pool's addresses are"
        ))),
        Err(_) => Err(wrong("it must be an IP address".into())),
    }
}

/// Longer ones than the address book knows are as long as it knows.
fn grace(seconds: Option<i64>) -> Result<u32, String> {
    let seconds: u32 = number(GRACE, seconds.unwrap_or_default())?;
    Ok(seconds.min(PoolSpec::MAX_QUARANTINE))
}

fn sticky(seconds: Option<i64>) -> Result<Sticky, String> {
    Ok(match number(STICKY, seconds.unwrap_or_default())? {
        0 => Sticky::OFF,
        lasts => Sticky {
            lasts,
            ..Sticky::OWN_DEFAULT
        },
    })
}

/// The leases that a pool of this specification would not give, as ranges; `None`: it has them all.
pub fn outside(spec: &PoolSpec, leases: impl Iterator<Item = LeasePrefix>) -> Option<String> {
    let lost = spec.outside(leases).unwrap_or_default();
    let mut texts: Vec<String> = lost.iter().take(NAMED).map(ToString::to_string).collect();
    if lost.len() > NAMED {
        texts.push("...".to_owned());
    }
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Leases that a refusal names.
const NAMED: usize = 10;

/// Name and origin of the pool in the address book.
pub fn named(spec: PoolSpec, name: Text, origin: fipd_core::Origin) -> Result<PoolSpec, String> {
    let spec = PoolSpec {
        name,
        origin,
        ..spec
    };
    spec.validate().map_err(|wrong| wrong.to_string())?;
    Ok(spec)
}

#[cfg(test)]
mod tests;
