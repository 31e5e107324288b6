//! A subnet of macvlan as a subnet of flat-network.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_crds::{
    flat_network::{
        FlatNetworkSubnet, FlatNetworkSubnetSpec, FlatRange, FlatRoute, RouteSettings,
        names::NAMESPACE,
    },
    macvlan::{MacvlanRange, MacvlanRoute, MacvlanSubnet, MacvlanSubnetSpec, names as macvlan},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::metadata::{MetadataChange, Texts, texts};

/// What `kubectl apply` remembers; it is about the other object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The longest cooling time that the definition takes, in seconds.
const LONGEST_QUARANTINE: i64 = 2_592_000;

/// A subnet to make.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvertedSubnet {
    /// The subnet.
    pub subnet: FlatNetworkSubnet,
    /// What could not be carried over, and what to do about it.
    pub notes: Vec<String>,
}

/// The subnet of flat-network with the name of this one of macvlan.
///
/// # Errors
/// A field without which addresses would be given that must not be, or pods be on another network.
pub fn convert(object: &Value) -> Result<ConvertedSubnet, String> {
    let read: Result<MacvlanSubnet, _> = serde_json::from_value(object.clone());
    let old = read.map_err(|error| format!("it cannot be read: {error}"))?;
    let mut notes = Vec::new();
    check_shape(&object["spec"], &old.spec, &mut notes)?;
    let spec = FlatNetworkSubnetSpec {
        flat_mode: "macvlan".to_owned(),
        master: old.spec.master,
        vlan: old.spec.vlan,
        cidr: old.spec.cidr,
        mode: old.spec.mode,
        gateway: gateway(&old.spec.gateway, &mut notes),
        ranges: ranges(old.spec.ranges)?,
        routes: routes(old.spec.routes, &mut notes)?,
        route_settings: RouteSettings {
            flat_network_default_gateway: old.spec.pod_default_gateway.enable,
            add_service_cidr: !old.spec.pod_default_gateway.service_cidr.is_empty(),
            ..RouteSettings::default()
        },
        quarantine_seconds: quarantine(old.spec.ip_delay_reuse, &mut notes),
        ..FlatNetworkSubnetSpec::default()
    };
    let mut subnet = FlatNetworkSubnet::new(old.metadata.name.as_deref().unwrap_or_default(), spec);
    subnet.metadata = metadata(&object["metadata"], subnet.metadata, &mut notes);
    Ok(ConvertedSubnet { subnet, notes })
}

/// What stands in the object and was not read: a value of the wrong type is refused, but of the gateway; that and a field which
/// flat-network does not have are noted.
fn check_shape(
    raw: &Value,
    read: &MacvlanSubnetSpec,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    const KNOWN: [&str; 8] = [
        "master",
        "vlan",
        "cidr",
        "mode",
        "ranges",
        "routes",
        "podDefaultGateway",
        "ipDelayReuse",
    ];
    let read = serde_json::to_value(read).map_err(|error| error.to_string())?;
    for (field, value) in raw.as_object().into_iter().flatten() {
        let mut lost = Vec::new();
        compare(&format!("spec.{field}"), value, &read[field], &mut lost);
        match lost.first() {
            None => {}
            Some((place, value)) if KNOWN.contains(&&**field) => {
                return Err(format!(
                    "{place}: {value} is not allowed: it has another type than the definition says; correct it in the MacvlanSubnet"
                ));
            }
            Some(_) => notes.push(format!("spec.{field}: {value} is not carried over")),
        }
    }
    Ok(())
}

/// Adds the places whose value was not read; what is empty need not be.
fn compare(place: &str, raw: &Value, read: &Value, lost: &mut Vec<(String, Value)>) {
    match raw {
        Value::Object(fields) => {
            for (field, value) in fields {
                compare(&format!("{place}.{field}"), value, &read[field], lost);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                compare(&format!("{place}[{index}]"), item, &read[index], lost);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            if raw != read && !is_empty(raw) {
                lost.push((place.to_owned(), raw.clone()));
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null()
        || value == &Value::Bool(false)
        || value.as_str() == Some("")
        || value.as_i64() == Some(0)
}

fn gateway(text: &str, notes: &mut Vec<String>) -> String {
    if text.is_empty() || text.parse::<IpAddr>().is_ok() {
        return text.to_owned();
    }
    notes.push(format!(
        "spec.gateway: {text:?} is no address and is left out; set spec.gateway of the FlatNetworkSubnet, or its pods may be given that address"
    ));
    String::new()
}

fn ranges(all: Vec<MacvlanRange>) -> Result<Vec<FlatRange>, String> {
    let mut ranges = Vec::new();
    for (index, range) in all.into_iter().enumerate() {
        for (field, text) in [
            ("rangeStart", &range.range_start),
            ("rangeEnd", &range.range_end),
        ] {
            address(&format!("spec.ranges[{index}].{field}"), text)?;
        }
        ranges.push(FlatRange {
            from: range.range_start,
            to: range.range_end,
            ..FlatRange::default()
        });
    }
    Ok(ranges)
}

fn address(field: &str, text: &str) -> Result<(), String> {
    match text.parse::<IpAddr>() {
        Ok(_) => Ok(()),
        Err(_) => Err(format!(
            "{field}: {text:?} is not allowed: an IPv4 or IPv6 address is; correct it in the MacvlanSubnet"
        )),
    }
}

/// Those that name the interface: without it no subnet of flat-network is taken.
fn routes(all: Vec<MacvlanRoute>, notes: &mut Vec<String>) -> Result<Vec<FlatRoute>, String> {
    let mut routes = Vec::new();
    for (index, route) in all.into_iter().enumerate() {
        let place = format!("spec.routes[{index}]");
        if !route.gw.is_empty() {
            address(&format!("{place}.gw"), &route.gw)?;
        }
        if route.iface.is_empty() {
            notes.push(format!(
                "{place} to {:?} by {:?} names no interface and is left out; add it to spec.routes of the FlatNetworkSubnet with dev, such as eth1",
                route.dst, route.gw
            ));
            continue;
        }
        routes.push(FlatRoute {
            dev: route.iface,
            dst: route.dst,
            via: route.gw,
            ..FlatRoute::default()
        });
    }
    Ok(routes)
}

fn quarantine(seconds: i64, notes: &mut Vec<String>) -> Option<i64> {
    match seconds {
        0 => None,
        1..=LONGEST_QUARANTINE => Some(seconds),
        _ => {
            notes.push(format!(
                "spec.ipDelayReuse: {seconds} is left out: 0 to {LONGEST_QUARANTINE} is allowed; set spec.quarantineSeconds of the FlatNetworkSubnet"
            ));
            None
        }
    }
}

/// Labels and annotations, but not those of macvlan.
fn metadata(old: &Value, new: ObjectMeta, notes: &mut Vec<String>) -> ObjectMeta {
    let mut labels = texts(old, "labels");
    let mut annotations = texts(old, "annotations");
    let change = MetadataChange::of(&annotations, &labels, &Texts::new());
    for (key, value) in change.annotations {
        match value {
            Some(value) => annotations.insert(key, value),
            None => annotations.remove(&key),
        };
    }
    notes.extend(change.notes);
    annotations.remove(LAST_APPLIED);
    let repeated = macvlan::SUBNET_LABELS.map(str::to_owned);
    for label in change.labels.iter().chain(&repeated) {
        labels.remove(label);
    }
    let filled = |texts: BTreeMap<String, String>| Some(texts).filter(|texts| !texts.is_empty());
    ObjectMeta {
        namespace: Some(NAMESPACE.to_owned()),
        labels: filled(labels),
        annotations: filled(annotations),
        ..new
    }
}

#[cfg(test)]
mod tests;
