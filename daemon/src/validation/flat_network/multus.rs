//! Multus' annotations, as far as they are about the flat network.

use std::net::IpAddr;

use fipd_crds::flat_network::names::{ATTACHMENT, DEFAULT_NETWORK, NETWORKS};
use serde::Deserialize;

use super::{
    super::Wrong,
    annotations::{Annotations, annotation},
};

/// The longest text, in bytes: all annotations of an object together have no more.
const LONGEST: usize = 256 * 1024;
/// The most networks of a pod.
const SELECTED: usize = 64;
/// The most addresses that a pod shows.
const SHOWN: usize = 256;
const PRIMARY: &str = "eth0";

/// An interface of a pod on the flat network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatAttachment {
    /// Its name in the pod.
    pub interface: String,
    /// Whether it is in the place of the cluster's own network.
    pub is_default: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NetworkSelection {
    name: Option<String>,
    interface: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusNetwork {
    name: Option<String>,
    ips: Option<Vec<String>>,
}

/// Whether Multus is told anything at all: without, no rule of workloads applies.
pub fn is_told(annotations: &Annotations) -> bool {
    [NETWORKS, DEFAULT_NETWORK].iter().any(|key| {
        let text = annotations.get(*key);
        text.is_some_and(|text| !text.trim().is_empty())
    })
}

/// The interfaces that a pod has on the flat network; `path` is where its annotations are.
///
/// # Errors
/// An annotation that Multus does not understand.
pub fn attachments(path: &str, annotations: &Annotations) -> Result<Vec<FlatAttachment>, Wrong> {
    let mut found = Vec::new();
    for (key, is_default) in [(DEFAULT_NETWORK, true), (NETWORKS, false)] {
        let text = annotations.get(key).map_or("", |text| text.trim());
        let selections = selections(&annotation(path, key), text)?;
        for (index, selection) in selections.into_iter().enumerate() {
            if selection.name.as_deref() != Some(ATTACHMENT) {
                continue;
            }
            let named = selection.interface.filter(|name| !name.is_empty());
            // As Multus names those that nobody named.
            let interface = named.unwrap_or_else(|| match is_default {
                true => PRIMARY.to_owned(),
                false => format!("net{}", index + 1),
            });
            found.push(FlatAttachment {
                interface,
                is_default,
            });
        }
    }
    Ok(found)
}

/// The attachments that an annotation of a Service or pod names: a list in JSON, or `[NAMESPACE/]NAME[@INTERFACE]` and
/// commas.
fn selections(field: &str, text: &str) -> Result<Vec<NetworkSelection>, Wrong> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    bounded(field, text)?;
    let selections: Vec<NetworkSelection> = match text.contains(['[', '{', '"']) {
        true => serde_json::from_str(text).map_err(|error| {
            let allowed = format!(
                "it must be a JSON list such as [{{\"name\":\"{ATTACHMENT}\",\"interface\":\"eth1\"}}]: {error}"
            );
            Wrong::new(field, text, allowed)
        })?,
        false => text.split(',').take(SELECTED + 1).map(selection).collect(),
    };
    if selections.len() > SELECTED {
        let allowed = format!("a pod has at most {SELECTED} networks");
        return Err(Wrong::new(field, &selections.len().to_string(), allowed));
    }
    Ok(selections)
}

fn selection(text: &str) -> NetworkSelection {
    let text = text.trim();
    let (name, interface) = match text.split_once('@') {
        Some((name, interface)) => (name, Some(interface.to_owned())),
        None => (text, None),
    };
    let name = name.rsplit_once('/').map_or(name, |(_, name)| name);
    NetworkSelection {
        name: Some(name.to_owned()),
        interface,
    }
}

/// Whether the annotation of a Service names the flat network.
pub fn names_flat_network(field: &str, text: &str) -> Result<bool, Wrong> {
    let selections = selections(field, text.trim())?;
    let mut selections = selections.into_iter();
    Ok(selections.any(|one| one.name.as_deref() == Some(ATTACHMENT)))
}

/// The addresses that Multus shows of a pod of this namespace on the flat network, from its `network-status`.
///
/// # Errors
/// The text is not as Multus writes it.
pub fn shown_addresses(namespace: &str, field: &str, text: &str) -> Result<Vec<IpAddr>, Wrong> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    bounded(field, text)?;
    let shown: Vec<StatusNetwork> = serde_json::from_str(text).map_err(|error| {
        let allowed = format!("it must be a JSON list of networks, as Multus writes it: {error}");
        Wrong::new(field, text, allowed)
    })?;
    let is_flat = |name: &str| {
        let rest = name.strip_suffix(ATTACHMENT);
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_suffix('/') == Some(namespace))
    };
    let flat = shown
        .into_iter()
        .filter(|one| one.name.as_deref().is_some_and(is_flat));
    let texts = flat.flat_map(|one| one.ips.unwrap_or_default());
    let address = |text: String| {
        let address = text.parse().map(|address: IpAddr| address.to_canonical());
        address.map_err(|_| Wrong::new(field, &text, "ips must be IP addresses"))
    };
    texts.take(SHOWN).map(address).collect()
}

fn bounded(field: &str, text: &str) -> Result<(), Wrong> {
    if text.len() <= LONGEST {
        return Ok(());
    }
    let allowed = format!("it must not be longer than {LONGEST} bytes");
    Err(Wrong::new(field, text, allowed))
}
