//! Multus' annotations, as far as they are about the flat network.

use std::net::IpAddr;

use fipd_crds::flat_network::names::{ATTACHMENT, DEFAULT_NETWORK, NETWORK_STATUS, NETWORKS};
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

/// A network as an annotation names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NetworkRef {
    pub name: Option<String>,
    /// None: the namespace of who names it.
    pub namespace: Option<String>,
    /// None: any.
    pub interface: Option<String>,
}

/// An interface of a pod as Multus reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NetworkStatus {
    /// `[NAMESPACE/]NAME` of the attachment.
    pub name: Option<String>,
    pub interface: Option<String>,
    pub ips: Option<Vec<String>>,
}

impl NetworkRef {
    /// The networks that an annotation names. What Multus does not understand names none.
    pub fn parse_all(text: &str) -> Vec<Self> {
        let mut all = networks(NETWORKS, text).unwrap_or_default();
        all.retain(|one| one.name.as_deref() != Some(""));
        all
    }

    /// Whether an interface of a pod of this namespace is of this network. Older versions of Multus name no namespace.
    pub fn is(&self, status: &NetworkStatus, namespace: &str) -> bool {
        let (of, name) = split_name(status.name.as_deref().unwrap_or_default());
        let wanted = self.namespace.as_deref().unwrap_or(namespace);
        self.name.as_deref() == Some(name)
            && of.unwrap_or(namespace) == wanted
            && (self.interface.is_none() || self.interface == status.interface)
    }
}

impl NetworkStatus {
    /// The interfaces that Multus reports. What cannot be parsed reports none.
    pub fn parse_all(text: &str) -> Vec<Self> {
        reported(NETWORK_STATUS, text).unwrap_or_default()
    }

    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let ips = self.ips.iter().flatten();
        ips.filter_map(|text| text.parse().ok())
    }
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
        let text = annotations.get(key).map_or("", String::as_str);
        let networks = networks(&annotation(path, key), text)?;
        for (index, network) in networks.into_iter().enumerate() {
            if network.name.as_deref() != Some(ATTACHMENT) {
                continue;
            }
            let named = network.interface.filter(|name| !name.is_empty());
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
fn networks(field: &str, text: &str) -> Result<Vec<NetworkRef>, Wrong> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    bounded(field, text)?;
    let networks: Vec<NetworkRef> = match text.contains(['[', '{', '"']) {
        true => serde_json::from_str(text).map_err(|error| {
            let allowed = format!(
                "it must be a JSON list such as [{{\"name\":\"{ATTACHMENT}\",\"interface\":\"eth1\"}}]: {error}"
            );
            Wrong::new(field, text, allowed)
        })?,
        false => text.split(',').take(SELECTED + 1).map(network).collect(),
    };
    if networks.len() > SELECTED {
        let allowed = format!("a pod has at most {SELECTED} networks");
        return Err(Wrong::new(field, &networks.len().to_string(), allowed));
    }
    Ok(networks)
}

fn network(text: &str) -> NetworkRef {
    let text = text.trim();
    let (path, interface) = match text.split_once('@') {
        Some((path, interface)) => (path, Some(interface.to_owned())),
        None => (text, None),
    };
    let (namespace, name) = split_name(path);
    NetworkRef {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        interface,
    }
}

fn split_name(path: &str) -> (Option<&str>, &str) {
    match path.rsplit_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, path),
    }
}

/// Whether the annotation of a Service names the flat network.
pub fn names_flat_network(field: &str, text: &str) -> Result<bool, Wrong> {
    let networks = networks(field, text)?;
    let mut networks = networks.into_iter();
    Ok(networks.any(|one| one.name.as_deref() == Some(ATTACHMENT)))
}

/// The addresses that Multus shows of a pod of this namespace on the flat network, from its `network-status`.
///
/// # Errors
/// The text is not as Multus writes it.
pub fn shown_addresses(namespace: &str, field: &str, text: &str) -> Result<Vec<IpAddr>, Wrong> {
    let is_flat = |name: &str| {
        let rest = name.strip_suffix(ATTACHMENT);
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_suffix('/') == Some(namespace))
    };
    let flat = reported(field, text)?
        .into_iter()
        .filter(|one| one.name.as_deref().is_some_and(is_flat));
    let texts = flat.flat_map(|one| one.ips.unwrap_or_default());
    let address = |text: String| {
        let address = text.parse().map(|address: IpAddr| address.to_canonical());
        address.map_err(|_| Wrong::new(field, &text, "ips must be IP addresses"))
    };
    texts.take(SHOWN).map(address).collect()
}

fn reported(field: &str, text: &str) -> Result<Vec<NetworkStatus>, Wrong> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    bounded(field, text)?;
    serde_json::from_str(text).map_err(|error| {
        let allowed = format!("it must be a JSON list of networks, as Multus writes it: {error}");
        Wrong::new(field, text, allowed)
    })
}

fn bounded(field: &str, text: &str) -> Result<(), Wrong> {
    if text.len() <= LONGEST {
        return Ok(());
    }
    let allowed = format!("it must not be longer than {LONGEST} bytes");
    Err(Wrong::new(field, text, allowed))
}
