//! What an object says of its pool, as a specification of the ledger.

use std::net::IpAddr;

use fipd_core::{AddressSpec, Ends, EndsOf, Family, Order, PoolSpec, System};
use fipd_crds::fipd_io::{self, OF_EACH_CIDR, OF_PREFIX, ReservedEnds};

use crate::validation::{
    addresses::{address_specs, number},
    mirror::MirrorOf,
};

/// The specification, or what is wrong with which field.
pub fn spec(mirror: &MirrorOf<'_>, raw: &fipd_io::PoolSpec) -> Result<PoolSpec, String> {
    let addresses = address_specs("spec.addresses", &raw.addresses)?;
    let family = addresses.first().map(AddressSpec::family);
    let ends = ends(raw.reserved_ends.as_ref(), family.unwrap_or(Family::V4))?;
    let gateway = match raw.gateway.as_str() {
        "" => None,
        text => Some(
            text.parse::<IpAddr>()
                .map_err(|_| format!("spec.gateway: {text:?} is no IP address"))?,
        ),
    };
    let spec = PoolSpec {
        exclusions: address_specs("spec.exclusions", &raw.exclusions)?,
        gateway,
        prefix_len: raw
            .prefix_length
            .map(|length| number("spec.prefixLength", length))
            .transpose()?,
        ends,
        order: Order::Lowest,
        closed: raw.closed,
        quarantine: number("spec.quarantineSeconds", raw.quarantine_seconds)?,
        ..PoolSpec::own("pool", addresses)
    };
    // What fipd's own pools may not say, these may not either.
    spec.validate().map_err(|wrong| wrong.to_string())?;
    let spec = PoolSpec {
        name: mirror.pool_name(&System::claims()),
        origin: mirror.origin(System::claims()),
        ..spec
    };
    spec.validate().map_err(|wrong| wrong.to_string())?;
    Ok(spec)
}

fn ends(raw: Option<&ReservedEnds>, family: Family) -> Result<Ends, String> {
    let Some(raw) = raw else {
        return Ok(Ends::own_default(family));
    };
    let of = match raw.of.as_str() {
        "" | OF_PREFIX => EndsOf::Prefix,
        OF_EACH_CIDR => EndsOf::EachCidr,
        other => {
            return Err(format!(
                "spec.reservedEnds.of: {other:?} is unknown; allowed are {OF_PREFIX:?} and {OF_EACH_CIDR:?}"
            ));
        }
    };
    Ok(Ends {
        first: number("spec.reservedEnds.first", raw.first)?,
        last: number("spec.reservedEnds.last", raw.last)?,
        of,
    })
}

#[cfg(test)]
mod tests {
    use fipd_core::ClusterId;
    use serde_json::json;

    use super::*;

    fn read(raw: serde_json::Value) -> Result<PoolSpec, String> {
        let raw: fipd_io::PoolSpec = serde_json::from_value(raw).expect("a spec");
        let mirror = MirrorOf {
            cluster: &ClusterId("c".into()),
            cluster_name: "x",
            object: "ns/lab",
            uid: "u",
        };
        spec(&mirror, &raw)
    }

    #[test]
    fn every_field_counts_and_every_mistake_is_named() {
        let full = read(json!({
            "addresses": ["10.0.0.0/24", "10.0.1.5-10.0.1.9"], "exclusions": ["10.0.0.7"], "gateway": "10.0.0.1",
            "prefixLength": 16, "reservedEnds": { "first": 2, "of": "EachCidr" }, "quarantineSeconds": 60, "closed": true,
        }))
        .expect("valid");
        assert_eq!(&*full.name, "claims/x/ns/lab");
        assert_eq!(
            (full.prefix_len, full.quarantine, full.closed),
            (Some(16), 60, true)
        );
        assert_eq!(
            (full.ends.first, full.ends.last, full.ends.of),
            (2, 0, EndsOf::EachCidr)
        );
        let plain = read(json!({ "addresses": ["10.0.0.0/24"] })).expect("valid");
        assert_eq!(plain.ends, Ends::own_default(Family::V4));
        for (raw, named) in [
            (json!({}), "addresses"),
            (
                json!({ "addresses": ["10.0.0.0/24", "10.0.0.9/24"] }),
                "spec.addresses[1]",
            ),
            (
                json!({ "addresses": ["10.0.0.9-10.0.0.1"] }),
                "spec.addresses[0]",
            ),
            (
                json!({ "addresses": ["10.0.0.0/24"], "exclusions": ["x"] }),
                "spec.exclusions[0]",
            ),
            (
                json!({ "addresses": ["10.0.0.0/24"], "gateway": "x" }),
                "spec.gateway",
            ),
            (
                json!({ "addresses": ["10.0.0.0/24"], "gateway": "10.0.1.1" }),
                "gateway",
            ),
            (
                json!({ "addresses": ["10.0.0.0/24"], "prefixLength": 300 }),
                "spec.prefixLength",
            ),
            (
                json!({ "addresses": ["10.0.0.0/24"], "prefixLength": 33 }),
                "prefix",
            ),
            (
                json!({ "addresses": ["10.0.0.0/24"], "quarantineSeconds": -1 }),
                "spec.quarantineSeconds",
            ),
        ] {
            let wrong = read(raw.clone()).expect_err("a mistake");
            assert!(wrong.contains(named), "{raw}: {wrong}");
        }
    }
}
