//! `rke-machine-config.cattle.io/v1`: what a Harvester node is made of, read only.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::lenient::{self, is_default};

/// The machines of one pool on Harvester. Its fields stand at the top of the object, beside `metadata`.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "rke-machine-config.cattle.io",
    version = "v1",
    kind = "HarvesterConfig",
    plural = "harvesterconfigs",
    namespaced,
    no_spec,
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    doc = "The machines of one pool on Harvester."
)]
pub struct HarvesterMachine {
    /// The namespace in the Harvester cluster where the machines run.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub vm_namespace: String,
    /// JSON text: `{"interfaces": [{"networkName": "<namespace>/<name>", ...}]}`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub network_info: String,
    /// The one network, as older releases wrote it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub network_name: String,
}

/// One interface of a machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interface {
    /// Namespace of the Harvester network; empty if none was given.
    pub namespace: String,
    /// Name of the Harvester network.
    pub network: String,
    /// The fixed hardware address; empty if none was given.
    pub mac_address: String,
}

impl HarvesterMachine {
    /// What the older field names, which counts where the newer one lists nothing.
    #[must_use]
    pub fn older_network(&self) -> Option<Interface> {
        interface(&self.network_name, "")
    }

    /// The interfaces in order, of the older field if the newer one is empty or is not what it should be. Interfaces without a
    /// network are left out.
    #[must_use]
    pub fn interfaces(&self) -> Vec<Interface> {
        let parsed: Value = serde_json::from_str(&self.network_info).unwrap_or_default();
        let listed: Vec<Interface> = parsed
            .get("interfaces")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|item| interface(text(item, "networkName"), text(item, "macAddress")))
            .collect();
        if listed.is_empty() {
            self.older_network().into_iter().collect()
        } else {
            listed
        }
    }
}

fn text<'a>(item: &'a Value, key: &str) -> &'a str {
    item.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn interface(network: &str, mac_address: &str) -> Option<Interface> {
    let (namespace, name) = network.split_once('/').unwrap_or(("", network));
    (!name.is_empty()).then(|| Interface {
        namespace: namespace.to_owned(),
        network: name.to_owned(),
        mac_address: mac_address.to_owned(),
    })
}

#[cfg(test)]
mod tests;
