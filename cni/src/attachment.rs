//! What the plugin makes in a container's namespace, as the daemon says it.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An interface with its addresses and routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    pub link: ContainerLink,
    /// At least one, and at most two of each family.
    pub addresses: Vec<ContainerAddress>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<ContainerRoute>,
    #[serde(default)]
    pub extras: Extras,
    /// `ADD` checks that nobody else uses the addresses and reports that, before it configures them.
    #[serde(default)]
    pub probe: bool,
    /// `ADD` reports the finished interface (`AskStep::Made`) before it returns.
    pub confirm: bool,
    /// As the configuration has it; `null` where it has none.
    #[serde(default)]
    pub dns: Value,
}

/// The interface, whose name is `CNI_IFNAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerLink {
    pub kind: LinkKind,
    /// Name of an interface of the host, which is there: the master, or a VLAN on it.
    pub parent: String,
    /// In bytes; `None`: the parent's. `ADD` refuses more than that, but for an ipvlan of a pod, which has the parent's then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// `aa:bb:cc:dd:ee:ff`; `None`: the kernel chooses. An ipvlan has its parent's in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

/// What kind of interface. Modes and flags of `linux/if_link.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    Macvlan(MacvlanMode),
    Ipvlan(IpvlanMode, IpvlanFlag),
}

impl LinkKind {
    /// The kernel's name of it: `macvlan` or `ipvlan`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Macvlan(_) => "macvlan",
            Self::Ipvlan(..) => "ipvlan",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MacvlanMode {
    #[default]
    Bridge,
    Vepa,
    Private,
    Passthru,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpvlanMode {
    #[default]
    L2,
    L3,
    L3s,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpvlanFlag {
    #[default]
    Bridge,
    Private,
    Vepa,
}

/// An address and the length of its network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerAddress {
    pub address: IpNet,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// A route of the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRoute {
    pub dst: IpNet,
    /// `None`: the destination is on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// `None`: the interface that is made. Another that the container does not have: the route is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// `RT_SCOPE_*` of `linux/rtnetlink.h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

/// What else `ADD` does: the settings of routes and announcements of rancher-flat-network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Extras {
    /// Reached through the default gateway that the container has on another interface; where it has none of the family, left out.
    pub via_default_gateway: Vec<IpNet>,
    /// So are the networks of the interfaces that have the host's default routes.
    pub node_networks: bool,
    /// Default routes of the container are replaced by ones over the new interface, unless that is its first (`eth0`).
    pub takes_default_route: bool,
    /// The daemon routes the new addresses on the host to the other end of the container's first interface.
    pub host_routes: bool,
    pub arp_policy: ArpPolicy,
    /// Sets `proxy_arp` of the new interface.
    pub proxy_arp: bool,
}

/// How neighbors hear of the new addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArpPolicy {
    /// The kernel announces them: `arp_notify` and `ndisc_notify`.
    #[default]
    ArpNotify,
    /// The plugin announces them, three times: gratuitous ARP and unsolicited neighbor advertisements.
    Arping,
}

/// What `ADD` has made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Made {
    /// Of the new interface.
    pub mac: String,
    /// Addresses of the container's first interface (`eth0`); empty where that is the new one.
    pub first_interface: Vec<IpAddr>,
}

/// Whether somebody else uses an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeResult {
    pub address: IpAddr,
    /// The MAC that answered, or that of the interface of this host that has the address, or its name where it has no MAC; `None`:
    /// nobody uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}
