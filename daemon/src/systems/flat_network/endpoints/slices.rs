//! The EndpointSlices of a Service, at most a hundred endpoints in each.
//!
//! An endpoint stays in the slice that it is in: where it moved to another, it would be in none between the two writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use fipd_core::Text;
use k8s_openapi::api::{
    core::v1::ObjectReference,
    discovery::v1::{Endpoint, EndpointConditions, EndpointPort},
};
use serde_json::{Value, json};

use super::{
    observe::{SliceContent, SliceView, labels},
    resolve::{EndpointGroups, FlatEndpoint, FlatSubject, ResolvedPort},
};
use crate::{
    controller::{kind::ENDPOINT_SLICE, store::Key},
    systems::flat_network::service::plan::owner,
    validation::flat_network::labels::digest,
};

/// Endpoints of one slice at most, as Kubernetes' controller has it.
const MOST: usize = 100;
/// What stands between the name of the Service and the family in the name of a slice.
const MARK: &str = "-flat-";

/// What is to be written, and what is to go.
#[derive(Debug, Default, PartialEq)]
pub struct SlicePlan {
    /// By name, for server-side apply.
    pub apply: BTreeMap<String, Value>,
    /// With their UIDs.
    pub delete: Vec<(Key, Text)>,
}

/// Plans the slices of a Service, of which these are there. Slices that the original took from Kubernetes' controller go: nobody
/// else keeps them.
pub fn plan(
    subject: &FlatSubject<'_>,
    groups: &EndpointGroups,
    found: &[(Key, Arc<SliceView>)],
) -> SlicePlan {
    let own = found.iter().filter_map(|(key, slice)| {
        let content = slice.content.as_ref()?;
        Some((&*key.name, content))
    });
    let own: BTreeMap<&str, &SliceContent> = own.collect();
    let wanted = contents(subject, groups, &own);
    let differs = |name: &str, content: &SliceContent| own.get(name) != Some(&content);
    let apply = wanted
        .iter()
        .filter(|(name, content)| differs(name, content));
    let is_left = |key: &Key| !wanted.contains_key(&*key.name);
    let delete = found.iter().filter(|(key, slice)| {
        is_left(key) && (slice.content.is_some() || subject.has_own_endpoints)
    });
    SlicePlan {
        apply: apply
            .map(|(name, content)| (name.clone(), body(subject, name, content)))
            .collect(),
        delete: delete
            .map(|(key, slice)| (key.clone(), Text::clone(&slice.uid)))
            .collect(),
    }
}

/// The Service of a slice, by the slice's name.
pub fn service_of(slice: &Key) -> Option<Key> {
    let (service, _) = slice.name.rsplit_once(MARK)?;
    Some(Key::new(&slice.namespace, service))
}

/// What each slice is to say, by name.
fn contents(
    subject: &FlatSubject<'_>,
    groups: &EndpointGroups,
    own: &BTreeMap<&str, &SliceContent>,
) -> BTreeMap<String, SliceContent> {
    let mut all = BTreeMap::new();
    for (ports, group) in groups {
        for (family, address_type) in [("v4", "IPv4"), ("v6", "IPv6")] {
            let of_family = |address: &IpAddr| address.is_ipv4() == (family == "v4");
            let wanted = group.iter().filter(|(address, _)| of_family(address));
            let wanted: BTreeMap<IpAddr, &FlatEndpoint> =
                wanted.map(|(address, one)| (*address, one)).collect();
            let base = format!("{}{MARK}{family}-{}-", subject.key.name, digest_of(ports));
            for (name, endpoints) in distribute(&base, wanted, own) {
                let content = SliceContent {
                    address_type: address_type.to_owned(),
                    is_headless: subject.service.is_headless,
                    owners: vec![subject.service.meta.uid.to_string()],
                    endpoints: endpoints.into_iter().map(endpoint).collect(),
                    ports: ports.iter().map(port).collect(),
                };
                all.insert(name, content);
            }
        }
    }
    all
}

/// What tells slices of other ports apart by their names.
fn digest_of(ports: &[ResolvedPort]) -> String {
    let texts = ports.iter().map(|one| {
        let app = one.app_protocol.as_deref().unwrap_or_default();
        format!("{} {} {} {app},", one.name, one.protocol, one.number)
    });
    digest(&texts.collect::<String>())
}

/// Which slice of this base has which endpoints.
fn distribute<'a>(
    base: &str,
    mut left: BTreeMap<IpAddr, &'a FlatEndpoint>,
    own: &BTreeMap<&str, &SliceContent>,
) -> BTreeMap<String, Vec<&'a FlatEndpoint>> {
    let mut slices: BTreeMap<String, BTreeMap<IpAddr, &FlatEndpoint>> = BTreeMap::new();
    for (name, content) in own.iter().filter(|(name, _)| name.starts_with(base)) {
        let shown: BTreeSet<IpAddr> = content.endpoints.iter().filter_map(address).collect();
        let kept = shown.into_iter().filter_map(|one| left.remove_entry(&one));
        let kept: BTreeMap<_, _> = kept.take(MOST).collect();
        if !kept.is_empty() {
            slices.insert((*name).to_owned(), kept);
        }
    }
    let mut numbers = 0..;
    while !left.is_empty() {
        let room = slices.iter().find(|(_, kept)| kept.len() < MOST);
        let name = match room {
            Some((name, _)) => name.clone(),
            None => {
                let mut names = numbers
                    .by_ref()
                    .map(|number: usize| format!("{base}{number}"));
                names
                    .find(|name| !slices.contains_key(name))
                    .unwrap_or_default()
            }
        };
        let slice = slices.entry(name).or_default();
        while slice.len() < MOST
            && let Some((address, one)) = left.pop_first()
        {
            slice.insert(address, one);
        }
    }
    let slices = slices.into_iter();
    slices
        .map(|(name, all)| (name, all.into_values().collect()))
        .collect()
}

fn address(endpoint: &Endpoint) -> Option<IpAddr> {
    endpoint.addresses.first()?.parse().ok()
}

fn endpoint(one: &FlatEndpoint) -> Endpoint {
    Endpoint {
        addresses: vec![one.address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(one.is_ready),
            serving: Some(one.is_serving),
            terminating: Some(false),
        }),
        hostname: one.hostname.clone(),
        node_name: one.node.clone(),
        target_ref: Some(target(one)),
        ..Endpoint::default()
    }
}

/// The pod behind an endpoint.
pub fn target(one: &FlatEndpoint) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some(one.pod.namespace.to_string()),
        name: Some(one.pod.name.to_string()),
        uid: Some(one.uid.to_string()),
        ..ObjectReference::default()
    }
}

fn port(one: &ResolvedPort) -> EndpointPort {
    EndpointPort {
        name: Some(one.name.clone()),
        protocol: Some(one.protocol.clone()),
        port: Some(one.number),
        app_protocol: one.app_protocol.clone(),
    }
}

fn body(subject: &FlatSubject<'_>, name: &str, content: &SliceContent) -> Value {
    let (key, service) = (subject.key, subject.service);
    json!({
        "apiVersion": ENDPOINT_SLICE.api_version(),
        "kind": ENDPOINT_SLICE.kind,
        "metadata": {
            "namespace": &*key.namespace,
            "name": name,
            "labels": labels(&key.name, content.is_headless),
            "ownerReferences": [owner((key, service))],
        },
        "addressType": content.address_type,
        "endpoints": content.endpoints,
        "ports": content.ports,
    })
}

#[cfg(test)]
mod tests;
