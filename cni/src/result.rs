//! What `ADD` prints, in the version that is asked for, and what earlier plugins printed.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::SUPPORTED;

/// A result in the form of version 1.1.0. Reading takes that of every version from 0.3.0 on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddResult {
    pub cni_version: String,
    #[serde(deserialize_with = "nullable")]
    pub interfaces: Vec<Interface>,
    #[serde(deserialize_with = "nullable")]
    pub ips: Vec<IpConfig>,
    #[serde(deserialize_with = "nullable")]
    pub routes: Vec<RouteConfig>,
    #[serde(deserialize_with = "crate::config::dns")]
    pub dns: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    pub name: String,
    pub mac: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Path of the network namespace; empty: the host's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    #[serde(rename = "socketPath", skip_serializing_if = "String::is_empty")]
    pub socket_path: String,
    #[serde(rename = "pciID", skip_serializing_if = "String::is_empty")]
    pub pci_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpConfig {
    pub address: IpNet,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Index into the interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteConfig {
    pub dst: IpNet,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

/// Go writes an empty list as `null`.
fn nullable<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl AddResult {
    /// Reads the `prevResult` of a configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(value: &Value) -> Result<Self, String> {
        if !value.is_object() {
            return Err("it is no object".to_owned());
        }
        let read: Self = serde_path_to_error::deserialize(value).map_err(|error| {
            let (path, inner) = (error.path().to_string(), error.inner());
            format!("{path}: {inner}")
        })?;
        let version = &*read.cni_version;
        // Runtimes put the result in without one where the configuration has it.
        if !version.is_empty() && !SUPPORTED.contains(&version) {
            return Err(format!(
                "cniVersion {version:?}; supported: {}",
                SUPPORTED.join(", ")
            ));
        }
        let beyond = |ip: &&IpConfig| ip.interface.is_some_and(|at| at >= read.interfaces.len());
        match read.ips.iter().find(beyond) {
            Some(ip) => Err(format!("{} is on no interface of the list", ip.address)),
            None => Ok(read),
        }
    }

    /// The index of the container's interface of this name.
    pub fn interface(&self, name: &str) -> Option<usize> {
        let is_it = |one: &Interface| one.name == name && !one.sandbox.is_empty();
        self.interfaces.iter().position(is_it)
    }

    /// Addresses of an interface.
    pub fn ips_of(&self, interface: usize) -> impl Iterator<Item = &IpConfig> {
        let ips = self.ips.iter();
        ips.filter(move |ip| ip.interface == Some(interface))
    }

    /// Puts what a later plugin made behind what earlier ones made.
    pub fn merge(mut self, later: Self) -> Self {
        let shift = self.interfaces.len();
        self.interfaces.extend(later.interfaces);
        self.ips.extend(later.ips.into_iter().map(|mut ip| {
            ip.interface = ip.interface.map(|at| at + shift);
            ip
        }));
        self.routes.extend(later.routes);
        if has_members(&later.dns) {
            self.dns = later.dns;
        }
        self
    }

    /// Writes it as `version` has it.
    ///
    /// # Errors
    /// Never for what [`Self::read`] accepts.
    pub fn write(mut self, version: &str) -> serde_json::Result<String> {
        self.cni_version = version.to_owned();
        if !has_members(&self.dns) {
            self.dns = json!({});
        }
        if version != "1.1.0" {
            self.interfaces.iter_mut().for_each(Interface::before_1_1_0);
            self.routes.iter_mut().for_each(RouteConfig::before_1_1_0);
        }
        let ips = &self.ips;
        let families: Vec<_> = ips.iter().map(|ip| family(ip.address.addr())).collect();
        let mut text = serde_json::to_value(self)?;
        if version.starts_with("0.") {
            let ips = text.get_mut("ips").and_then(Value::as_array_mut);
            for (ip, family) in ips.into_iter().flatten().zip(families) {
                ip["version"] = family.into();
            }
        }
        serde_json::to_string(&text)
    }
}

fn family(ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V4(_) => "4",
        IpAddr::V6(_) => "6",
    }
}

fn has_members(dns: &Value) -> bool {
    dns.as_object().is_some_and(|members| !members.is_empty())
}

impl Interface {
    fn before_1_1_0(&mut self) {
        self.mtu = None;
        self.socket_path.clear();
        self.pci_id.clear();
    }
}

impl RouteConfig {
    fn before_1_1_0(&mut self) {
        *self = Self {
            dst: self.dst,
            gw: self.gw,
            mtu: None,
            advmss: None,
            priority: None,
            table: None,
            scope: None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Value {
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [{"name": "eth1", "mac": "02:00:00:00:00:01", "mtu": 1400, "sandbox": "/n", "socketPath": "/s", "pciID": "p"}],
            "ips": [{"address": "10.0.0.5/24", "gateway": "10.0.0.1", "interface": 0}, {"address": "fd00::5/64", "interface": 0}],
            "routes": [{"dst": "10.42.0.0/16", "gw": "10.0.0.1", "mtu": 1400, "advmss": 1360, "priority": 5, "table": 9, "scope": 0}],
            "dns": {"nameservers": ["10.0.0.1"]},
        })
    }

    fn written(version: &str) -> Value {
        let result = AddResult::read(&full()).unwrap();
        serde_json::from_str(&result.write(version).unwrap()).unwrap()
    }

    #[test]
    fn row_87_a_result_has_the_form_of_the_version_that_is_asked_for() {
        assert_eq!(written("1.1.0"), full());
        let mut old = full();
        old["cniVersion"] = "1.0.0".into();
        old["interfaces"][0] = json!({"name": "eth1", "mac": "02:00:00:00:00:01", "sandbox": "/n"});
        old["routes"][0] = json!({"dst": "10.42.0.0/16", "gw": "10.0.0.1"});
        assert_eq!(written("1.0.0"), old);
        for version in ["0.3.0", "0.3.1", "0.4.0"] {
            old["cniVersion"] = version.into();
            old["ips"][0]["version"] = "4".into();
            old["ips"][1]["version"] = "6".into();
            assert_eq!(written(version), old);
        }
    }

    #[test]
    fn results_of_every_version_are_read() {
        for version in SUPPORTED {
            let read = AddResult::read(&written(version)).unwrap();
            assert_eq!(read.cni_version, version);
            assert_eq!(read.ips_of(0).count(), 2);
            assert_eq!(read.interface("eth1"), Some(0));
        }
        let bare = json!({"ips": null, "interfaces": null, "routes": null});
        assert_eq!(AddResult::read(&bare).unwrap(), AddResult::default());
        for wrong in [
            json!(null),
            json!([]),
            json!({"cniVersion": "0.2.0"}),
            json!({"ips": [{"address": "10.0.0.5/24", "interface": 0}]}),
            json!({"ips": [{"address": "10.0.0.5/24", "interface": -1}]}),
            json!({"ips": [{"address": "x"}]}),
        ] {
            AddResult::read(&wrong).unwrap_err();
        }
        let wrong = AddResult::read(&json!({ "dns": { "search": "a" } })).unwrap_err();
        assert!(wrong.starts_with("dns.search: "), "{wrong}");
        let wrong = AddResult::read(&json!({ "ips": [{ "address": "x" }] })).unwrap_err();
        assert!(wrong.starts_with("ips[0].address: "), "{wrong}");
    }

    #[test]
    fn a_later_plugins_interfaces_come_behind_and_their_addresses_follow() {
        let ours = json!({
            "interfaces": [{"name": "eth2", "sandbox": "/n"}],
            "ips": [{"address": "10.9.0.5/24", "interface": 0}],
            "routes": [{"dst": "10.9.0.0/16"}],
        });
        let merged = AddResult::read(&full())
            .unwrap()
            .merge(AddResult::read(&ours).unwrap());
        assert_eq!(merged.interface("eth2"), Some(1));
        assert_eq!(merged.ips[2].interface, Some(1));
        assert_eq!(merged.ips[1].interface, Some(0));
        assert_eq!(merged.routes.len(), 2);
        assert_eq!(merged.dns["nameservers"][0], "10.0.0.1");
    }
}
