//! What the daemon keeps of an attachment: whose it is, and which interfaces and routes of the host it uses.

use std::net::IpAddr;

use fipd_cni::{Ask, NetConf};
use serde::{Deserialize, Serialize};

/// Which attachment: what CNI calls it by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttachmentKey {
    /// Name of the network.
    pub network: String,
    pub container_id: String,
    pub ifname: String,
}

impl AttachmentKey {
    /// The one that a call is about.
    pub fn of(conf: &NetConf, ask: &Ask) -> Self {
        Self {
            network: conf.name.clone(),
            container_id: ask.container_id.clone(),
            ifname: ask.ifname.clone(),
        }
    }
}

/// An attachment that uses something of the host, or is a pod's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentRecord {
    /// Of the host, when it was made: no namespace outlives a boot.
    pub boot: String,
    /// Path of the namespace.
    pub netns: String,
    /// The master, not its VLAN's interface.
    pub master: String,
    pub uses: Vec<HostUse>,
    /// `None`: its addresses are from the address book of this host.
    #[serde(default)]
    pub pod: Option<PodOwner>,
}

/// The pod that it is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodOwner {
    /// Name of the cluster in the configuration.
    pub cluster: String,
    pub namespace: String,
    pub uid: String,
    /// Names of its FlatNetworkIPs.
    pub objects: Vec<String>,
    /// What `status.addr` of each was when the interface was given it.
    pub addresses: Vec<String>,
}

/// What attachments share. The last user takes it away.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostUse {
    Vlan(VlanUse),
    /// The interface that has to be promiscuous.
    Promiscuous(String),
    /// The address that the host routes to the container.
    Route(IpAddr),
    /// What all ipvlan interfaces on one of the host are: the kernel gives them those of the newest.
    Ipvlan(IpvlanUse),
}

impl HostUse {
    pub fn is_route(&self) -> bool {
        matches!(self, Self::Route(_))
    }
}

/// Mode and flag, as a FlatNetworkSubnet says them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IpvlanUse {
    /// The master, or its VLAN's.
    pub interface: String,
    pub mode: String,
    pub flag: String,
}

/// An interface for a VLAN.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VlanUse {
    pub master: String,
    /// 1 to 4094.
    pub id: u16,
    /// How fipd calls it where it makes one.
    pub name: String,
}
