//! `[cluster.flat-network]`: what fipd serves of flat-network in a cluster.

use std::{sync::LazyLock, time::Duration};

use fipd_core::Text;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{attachment::AttachmentConfig, names::NAMESPACE};
use crate::{
    clock,
    config::{Draws, SettingsTable, SystemConfig, SystemSettings, TypedSettings, Webhook},
};

/// What the configuration knows of the system.
pub static CONFIG: SystemConfig = SystemConfig {
    name: FlatNetworkSettings::NAME,
    tick: "flat-network: pods of this cluster get addresses on macvlan and ipvlan networks",
    draws: Draws::Own,
    metrics: false,
    host_wishes: None,
    cni: true,
    cluster: SettingsTable::of::<FlatNetworkSettings>(),
    discovery: SettingsTable::of::<FlatNetworkSettings>(),
    alike: &[],
    compat: super::compat::FLAGS,
    operations: Some(&super::operations::OPERATIONS),
};

/// `[cluster.flat-network]`
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct FlatNetworkSettings {
    /// The only namespace whose subnets are served.
    pub namespace: Text,
    /// How long a pod may have an address without using it before it is deleted, so that its node tries again, from `30s` to
    /// `1d`; `off`: for ever.
    pub pending_limit: PodLimit,
    /// How long after its end a pod on a node that does not answer keeps its address, from `30s` to `1d`; `off`: until the pod
    /// or its Node is gone.
    pub dead_node_limit: PodLimit,
    /// Whether fipd holds the Lease of the original's operator, and waits for it.
    pub leader_elect: bool,
    /// Version of CNI in the NetworkAttachmentDefinitions, from `0.3.1` to `1.1.0`: the Multus of RKE2 wants `0.3.1`.
    pub cni_version: CniVersion,
    /// Addresses of pods on the primary network: one CIDR, or several with commas.
    pub cluster_cidr: CidrList,
    /// The same of Services.
    pub service_cidr: CidrList,
    /// How nodes announce the addresses of pods.
    pub arp_policy: ArpPolicy,
    /// Whether nodes answer for the addresses of others on the interfaces of pods.
    pub proxy_arp: bool,
    /// Of the interfaces of pods, in bytes, from 576 to 9216.
    pub mtu: Mtu,
    /// Whether this host is a node of the cluster: fipd then answers CNI plugins for its pods. One cluster at most may have it; without
    /// it the only `[[cluster]]` with this system counts.
    pub node: Option<bool>,
    /// Whether the API server asks fipd before it stores subnets, and workloads and pods on flat networks.
    pub webhook: Webhook,
}

fipd_core::words! {
    /// How a node announces an address.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
    pub enum ArpPolicy {
        /// The kernel does.
        #[default]
        Notify = "arp_notify",
        /// The CNI plugin sends ARP itself.
        Arping = "arping",
    }
}

/// The MTU of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "u32")]
pub struct Mtu(pub u32);

impl TryFrom<u32> for Mtu {
    type Error = String;

    fn try_from(bytes: u32) -> Result<Self, String> {
        let allowed = (576..=9_216).contains(&bytes);
        allowed
            .then_some(Self(bytes))
            .ok_or_else(|| format!("{bytes}: allowed is 576 to 9216 bytes, such as 1500"))
    }
}

/// A version of the CNI specification that the plugin speaks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct CniVersion(pub Text);

impl TryFrom<String> for CniVersion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let known = fipd_cni::SUPPORTED.contains(&&*text);
        known
            .then(|| Self(text.as_str().into()))
            .ok_or_else(|| format!("{text:?}: allowed are {}", fipd_cni::SUPPORTED.join(", ")))
    }
}

/// CIDRs, separated by commas; none where it is empty.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct CidrList(pub Text);

impl TryFrom<String> for CidrList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match fipd_cni::wrong_cidr(&text) {
            None => Ok(Self(text.as_str().into())),
            Some(wrong) => Err(format!(
                "{wrong:?} is no CIDR; allowed are CIDRs such as 10.42.0.0/16, separated by commas"
            )),
        }
    }
}

impl FlatNetworkSettings {
    /// What NetworkAttachmentDefinitions say.
    pub fn attachment(&self) -> AttachmentConfig {
        AttachmentConfig {
            cni_version: self.cni_version.0.to_string(),
            cluster_cidr: self.cluster_cidr.0.to_string(),
            service_cidr: self.service_cidr.0.to_string(),
            arp_policy: self.arp_policy.as_str().to_owned(),
            proxy_arp: self.proxy_arp,
            mtu: self.mtu.0,
        }
    }
}

impl Default for FlatNetworkSettings {
    fn default() -> Self {
        Self {
            namespace: NAMESPACE.into(),
            pending_limit: PodLimit(Some(Duration::from_secs(300))),
            dead_node_limit: PodLimit(None),
            leader_elect: true,
            cni_version: CniVersion("1.0.0".into()),
            cluster_cidr: CidrList("10.42.0.0/16".into()),
            service_cidr: CidrList("10.43.0.0/16".into()),
            arp_policy: ArpPolicy::default(),
            proxy_arp: false,
            // The original's operator always writes this: c.1 of the contract.
            mtu: Mtu(1_500),
            node: None,
            webhook: Webhook::default(),
        }
    }
}

/// How long a pod is waited for; `None`: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct PodLimit(pub Option<Duration>);

impl TryFrom<String> for PodLimit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let given = clock::duration(&text).ok();
        let given = given.filter(|given| (30..=86_400).contains(&given.as_secs()));
        given.map(|given| Self(Some(given))).ok_or_else(|| {
            format!("{text:?}: allowed is 30s to 1d, such as 5m, and \"off\" for ever")
        })
    }
}

impl TypedSettings for FlatNetworkSettings {
    const NAME: &'static str = "flat-network";

    fn fallback() -> &'static Self {
        static FALLBACK: LazyLock<FlatNetworkSettings> = LazyLock::new(Default::default);
        &FALLBACK
    }
}

impl SystemSettings for FlatNetworkSettings {
    fn node(&self) -> Option<bool> {
        self.node
    }

    fn set_node(&mut self, is_node: bool) {
        self.node = Some(is_node);
    }

    fn webhook(&self) -> Option<&Webhook> {
        Some(&self.webhook)
    }

    fn webhook_mut(&mut self) -> Option<&mut Webhook> {
        Some(&mut self.webhook)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn read(settings: &str) -> Result<FlatNetworkSettings, String> {
        let text = format!(
            "[[cluster]]\nname = \"m\"\nin-cluster = true\nsystems = [\"flat-network\"]\n[cluster.flat-network]\n{settings}"
        );
        let config = Config::read(*crate::systems::SYSTEMS, &text, Path::new("/etc/fipd"))?;
        let settings = &config.clusters[0].settings;
        Ok(settings.of::<FlatNetworkSettings>().clone())
    }

    /// Another cluster could answer for pods of the first.
    #[test]
    fn a_host_is_a_node_of_one_cluster() {
        let read = |settings: [&str; 2], rest: &str| {
            let cluster = |name: &str, settings: &str| {
                format!(
                    "[[cluster]]\nname = \"{name}\"\nkubeconfig = \"{name}\"\nsystems = [\"flat-network\"]\n[cluster.flat-network]\n{settings}\n"
                )
            };
            let [first, second] = settings;
            let text = format!("{}{}{rest}", cluster("a", first), cluster("b", second));
            let config = Config::read(*crate::systems::SYSTEMS, &text, Path::new("/etc/fipd"))?;
            let nodes = config.clusters.iter();
            let nodes = nodes.map(|one| one.settings.of::<FlatNetworkSettings>().node);
            Ok::<_, String>(nodes.collect::<Vec<_>>())
        };
        assert_eq!(read(["", ""], ""), Ok(vec![Some(false), Some(false)]));
        let one = read(["", "node = true"], "");
        assert_eq!(one, Ok(vec![Some(false), Some(true)]));
        let error = read(["node = true", "node = true"], "").expect_err("two");
        assert!(error.contains("\"a\" and for \"b\""), "{error}");
        let discovery = "[discovery]\ncluster = \"a\"\nsystems = [\"flat-network\"]\n";
        assert!(read(["", ""], discovery).is_ok());
        let discovery = format!("{discovery}[discovery.flat-network]\nnode = true\n");
        let error = read(["", ""], &discovery).expect_err("many");
        assert!(error.contains("[discovery]: node = true"), "{error}");
    }

    #[test]
    fn every_key_is_checked() {
        let expected = FlatNetworkSettings {
            node: Some(true),
            ..FlatNetworkSettings::default()
        };
        assert_eq!(read("").expect("settings"), expected);
        assert_eq!(expected.attachment().mtu, 1_500, "as the original has it");
        let given = read("pending-limit = \"off\"\ndead-node-limit = \"10m\"").expect("settings");
        assert_eq!(given.pending_limit.0, None);
        assert_eq!(given.dead_node_limit.0, Some(Duration::from_secs(600)));
        for (wrong, named) in [
            ("pending-limit = \"5s\"", "30s to 1d"),
            ("pending-limit = 5", "pending-limit"),
            ("dead-node-limit = \"2d\"", "30s to 1d"),
            ("nodes = []", "nodes"),
            ("mtu = 100", "576 to 9216"),
            ("cni-version = \"0.2.0\"", "0.3.1"),
            ("cluster-cidr = \"10.42.0.0/160\"", "10.42.0.0/160"),
            ("service-cidr = \"10.43.0.0/16,x\"", "\"x\""),
            ("arp-policy = \"none\"", "arping"),
        ] {
            let error = read(wrong).expect_err(wrong);
            assert!(error.contains(named), "{wrong}: {error}");
        }
    }
}
