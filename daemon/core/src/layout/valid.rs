//! Which specifications are valid; an error names the field, its value and what is allowed.

use std::net::IpAddr;

use rangemap::RangeInclusiveSet;

use crate::{AddressSpec, Family, Origin, PoolError, PoolSpec, Span, address::number};

pub(super) fn error(
    field: &'static str,
    value: impl ToString,
    allowed: impl Into<String>,
) -> PoolError {
    PoolError {
        field,
        value: value.to_string(),
        allowed: allowed.into(),
    }
}

/// One family throughout, and not too much of it.
pub(super) fn check_families(spec: &PoolSpec) -> Result<Family, PoolError> {
    let specs = spec.addresses.len() + spec.exclusions.len();
    if specs > PoolSpec::MAX_SPECS {
        return Err(error(
            "addresses",
            format!("{specs} entries"),
            format!(
                "at most {} addresses and exclusions together",
                PoolSpec::MAX_SPECS
            ),
        ));
    }
    let Some(family) = spec.family() else {
        return Err(error(
            "addresses",
            "",
            "at least one CIDR, range or address",
        ));
    };
    let families = [
        ("addresses", &spec.addresses),
        ("exclusions", &spec.exclusions),
    ];
    for (field, specs) in families {
        for entry in specs {
            if entry.family() != family {
                return Err(error(
                    field,
                    entry,
                    format!("{family} only, as the pool's first entry"),
                ));
            }
            if let AddressSpec::Range(first, last) = entry
                && (Family::of(*first) != Family::of(*last) || first > last)
            {
                return Err(error(
                    field,
                    entry,
                    "a range from its lowest to its highest address",
                ));
            }
        }
    }
    Ok(family)
}

pub(super) fn check_quarantine(spec: &PoolSpec) -> Result<(), PoolError> {
    let most = PoolSpec::MAX_QUARANTINE;
    if spec.quarantine > most {
        let allowed = format!("0 to {most} seconds (30 days)");
        return Err(error("quarantine", spec.quarantine, allowed));
    }
    Ok(())
}

pub(super) fn check_sticky(spec: &PoolSpec) -> Result<(), PoolError> {
    let (lasts, most) = (spec.sticky.lasts, spec.sticky.most);
    if lasts > PoolSpec::MAX_STICKY {
        let allowed = format!("0 to {} seconds (365 days)", PoolSpec::MAX_STICKY);
        return Err(error("sticky_for", lasts, allowed));
    }
    if most > PoolSpec::MAX_REMEMBERED || (most == 0 && spec.sticky.is_on()) {
        let allowed = format!("1 to {} addresses", PoolSpec::MAX_REMEMBERED);
        return Err(error("sticky_most", most, allowed));
    }
    Ok(())
}

pub(super) fn check_name(spec: &PoolSpec) -> Result<(), PoolError> {
    let part = |part: &str, most: usize| {
        (1..=most).contains(&part.len())
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    match &spec.origin {
        Origin::Own if part(&spec.name, 63) => Ok(()),
        Origin::Own => Err(error(
            "name",
            &spec.name,
            "1 to 63 letters, digits, '-', '.' and '_', starting with a letter or digit",
        )),
        Origin::Mirror { .. } => {
            let parts = spec.name.split('/').count();
            let fine = spec.name.len() <= PoolSpec::MAX_NAME
                && (3..=4).contains(&parts)
                && spec.name.split('/').all(|text| part(text, 253));
            if fine {
                Ok(())
            } else {
                Err(error("name", &spec.name, "system/cluster/[namespace/]name"))
            }
        }
    }
}

/// What a pool of prefixes has and has not.
pub(super) fn check_prefixes(spec: &PoolSpec, family: Family) -> Result<(), PoolError> {
    let Some(length) = spec.allocation_length else {
        return Ok(());
    };
    let bits = family.bits();
    if !(1..=bits).contains(&length) {
        let allowed = format!("1 to {bits} for {family}");
        return Err(error("allocation_length", length, allowed));
    }
    let fits =
        |entry: &AddressSpec| matches!(entry, AddressSpec::Cidr(net) if net.prefix_len() <= length);
    if let Some(entry) = spec.addresses.iter().find(|entry| !fits(entry)) {
        let allowed =
            format!("CIDRs of /{length} or larger, as the pool gives prefixes of /{length}");
        return Err(error("addresses", entry, allowed));
    }
    if let Some(len) = spec.prefix_len.filter(|len| *len != length) {
        let allowed = format!("none, or the allocation length {length}");
        return Err(error("prefix", len, allowed));
    }
    if let Some(subnet) = spec.subnet {
        return Err(error("subnet", subnet, "none in a pool of prefixes"));
    }
    let ends = spec.ends;
    if ends.first > 0 || ends.last > 0 {
        let value = format!("{} and {}", ends.first, ends.last);
        return Err(error("ends", value, "0 and 0 in a pool of prefixes"));
    }
    Ok(())
}

/// Gateway, prefix length and subnet fit the addresses.
pub(super) fn check_link(
    spec: &PoolSpec,
    family: Family,
    listed: &RangeInclusiveSet<u128>,
) -> Result<(), PoolError> {
    if let Some(len) = spec.prefix_len
        && !(1..=family.bits()).contains(&len)
    {
        return Err(error(
            "prefix",
            len,
            format!("1 to {} for {family}", family.bits()),
        ));
    }
    if let Some(subnet) = spec.subnet {
        let span = Span::of_net(subnet);
        let outside = listed
            .iter()
            .find(|run| *run.start() < span.first || *run.end() > span.last);
        if span.family != family {
            return Err(error(
                "subnet",
                subnet,
                format!("{family} only, as the pool's addresses"),
            ));
        }
        if let Some(run) = outside {
            let end = if *run.start() < span.first {
                run.start()
            } else {
                run.end()
            };
            let address = family.address(*end);
            return Err(error(
                "addresses",
                address,
                format!("addresses of the subnet {subnet}"),
            ));
        }
    }
    let Some(gateway) = spec.gateway else {
        return Ok(());
    };
    if Family::of(gateway) != family {
        return Err(error(
            "gateway",
            gateway,
            format!("{family} only, as the pool's addresses"),
        ));
    }
    // Which gateways a mirror may have is a rule of its system.
    if spec.allocation_length.is_some() || spec.origin != Origin::Own {
        return Ok(());
    }
    match gateway_link(spec, gateway) {
        Some(link) if listed.overlaps(&(link.first..=link.last)) => Ok(()),
        Some(_) => Err(error(
            "gateway",
            gateway,
            "an address on the link of the pool's addresses (say the prefix length or subnet of a wider link)",
        )),
        None => Ok(()),
    }
}

/// The link a gateway must share with the pool's addresses; `None` where nothing says how wide links are.
fn gateway_link(spec: &PoolSpec, gateway: IpAddr) -> Option<Span> {
    let family = Family::of(gateway);
    if let Some(subnet) = spec.subnet {
        return Some(if subnet.contains(&gateway) {
            Span::of_net(subnet)
        } else {
            Span::single(gateway)
        });
    }
    if let Some(len) = spec.prefix_len {
        return Some(family.network(number(gateway), len));
    }
    spec.addresses
        .iter()
        .any(|spec| matches!(spec, AddressSpec::Cidr(_)))
        .then(|| Span::single(gateway))
}
