//! What the plugin is to make, from what a subnet or a configuration says. Pure.

use std::net::{IpAddr, Ipv6Addr};

use fipd_cni::{
    NetConf,
    attachment::{Attachment, ContainerAddress, ContainerLink, ContainerRoute, Extras, LinkKind},
};
use fipd_crds::flat_network::FlatNetworkSubnetSpec;
use ipnet::IpNet;

use super::record::{HostUse, IpvlanUse, VlanUse};
use crate::validation::flat_network::{link, subnet::FlatSubnet};

/// The interface of a pod on the primary network, and the one of the originals beside it.
const PRIMARY: &str = "eth0";
const FLAT: &str = "eth1";

/// What a pod gets on one interface.
#[derive(Clone, Debug)]
pub struct PodInterfaceAddresses {
    /// It is the one of the originals' annotations.
    pub is_first: bool,
    pub first: PodAddress,
    /// The other family's.
    pub others: Vec<PodAddress>,
}

impl PodInterfaceAddresses {
    /// All of them.
    pub fn addresses(&self) -> impl Iterator<Item = &PodAddress> {
        [&self.first].into_iter().chain(&self.others)
    }
}

/// An address of a pod on its subnet.
#[derive(Clone, Debug)]
pub struct PodAddress {
    pub subnet: FlatSubnet,
    pub address: IpAddr,
    /// The pod also has the 6to4 address of it.
    pub with_6to4: bool,
    /// The MAC that the interface is to have.
    pub mac: Option<String>,
}

/// An address of a pool.
#[derive(Clone, Debug)]
pub struct PoolAddress {
    pub address: IpNet,
    pub gateway: Option<IpAddr>,
    /// Nobody has checked on the wire yet whether somebody else uses it.
    pub is_probing: bool,
}

/// A field of the configuration that makes no sense: its name, and what is allowed.
pub type WrongField = (String, String);

/// The interface of a pod, with what it uses of the host. The first address decides about the link.
pub fn of_pod(
    conf: &NetConf,
    ifname: &str,
    found: &PodInterfaceAddresses,
) -> (Attachment, Vec<HostUse>) {
    let first = &found.first;
    let flat = conf.flat_network.clone().unwrap_or_default();
    let all = || found.addresses();
    let settings = &first.subnet.route_settings;
    let mut via_default_gateway = Vec::new();
    if settings.add_cluster_cidr {
        via_default_gateway.extend(flat.cluster_cidrs());
    }
    if settings.add_service_cidr {
        via_default_gateway.extend(flat.service_cidrs());
    }
    let link = ContainerLink {
        kind: first.subnet.kind,
        parent: first.subnet.interface(),
        mtu: Some(flat.mtu).filter(|mtu| *mtu > 0),
        mac: first.mac.clone().or_else(|| asked_mac(conf)),
    };
    let mut uses: Vec<HostUse> = vlan(&first.subnet.master, first.subnet.vlan)
        .into_iter()
        .collect();
    if let LinkKind::Macvlan(_) = link.kind {
        // As the original has it; the kernel does without where the master filters MACs.
        uses.push(HostUse::Promiscuous(first.subnet.master.clone()));
    }
    uses.extend(ipvlan(link.kind, &link.parent));
    if settings.add_pod_ip_to_host {
        uses.extend(all().map(|one| HostUse::Route(one.address)));
    }
    let attachment = Attachment {
        link,
        addresses: all().flat_map(addresses).collect(),
        routes: all()
            .flat_map(|one| routes(ifname, found.is_first, &one.subnet))
            .collect(),
        extras: Extras {
            via_default_gateway,
            node_networks: settings.add_node_cidr,
            takes_default_route: settings.flat_network_default_gateway,
            host_routes: settings.add_pod_ip_to_host,
            arp_policy: flat.policy(),
            proxy_arp: flat.proxy_arp,
        },
        probe: false,
        confirm: true,
        dns: conf.dns.clone(),
    };
    (attachment, uses)
}

/// Which interface containers get whose addresses are from pools.
///
/// # Errors
/// The field of the configuration that makes no sense.
pub fn kind(conf: &NetConf) -> Result<LinkKind, WrongField> {
    let spec = FlatNetworkSubnetSpec {
        flat_mode: match &*conf.link.flat_mode {
            "" => "macvlan".to_owned(),
            mode => mode.to_owned(),
        },
        mode: conf.link.mode.clone(),
        ipvlan_flag: conf.link.ipvlan_flag.clone(),
        ..FlatNetworkSubnetSpec::default()
    };
    link::kind(&spec).map_err(|wrong| {
        let field = wrong.field.trim_start_matches("spec.").to_owned();
        let why = format!("{:?} is not allowed: {}", wrong.value, wrong.allowed);
        (field, why)
    })
}

/// The interface of a container whose addresses are from pools; `asked`: the MAC of `CNI_ARGS`.
pub fn of_pools(
    conf: &NetConf,
    kind: LinkKind,
    asked: Option<&str>,
    given: &[PoolAddress],
) -> (Attachment, Vec<HostUse>) {
    let flat = conf.flat_network.clone().unwrap_or_default();
    let gateway_for = |route: &ContainerRoute| {
        let same = |one: &&PoolAddress| one.address.addr().is_ipv4() == route.dst.addr().is_ipv4();
        given.iter().find(same).and_then(|one| one.gateway)
    };
    let route = |route: &ContainerRoute| ContainerRoute {
        gw: route.gw.or_else(|| gateway_for(route)),
        ..route.clone()
    };
    let address = |one: &PoolAddress| ContainerAddress {
        address: one.address,
        gateway: one.gateway,
    };
    let mac = Some(&*conf.link.mac).filter(|mac| !mac.is_empty());
    let attachment = Attachment {
        link: ContainerLink {
            kind,
            parent: link::interface(&conf.link.master, conf.link.vlan),
            mtu: Some(conf.link.mtu).filter(|mtu| *mtu > 0),
            mac: asked_mac(conf).or_else(|| asked.or(mac).map(str::to_ascii_lowercase)),
        },
        addresses: given.iter().map(address).collect(),
        routes: conf.ipam.routes.iter().map(route).collect(),
        extras: Extras {
            arp_policy: flat.policy(),
            proxy_arp: flat.proxy_arp,
            ..Extras::default()
        },
        probe: given.iter().any(|one| one.is_probing),
        // Neither a route of the host nor an object of a cluster follows.
        confirm: false,
        dns: conf.dns.clone(),
    };
    let uses = vlan(&conf.link.master, conf.link.vlan).into_iter();
    let uses = uses.chain(ipvlan(kind, &attachment.link.parent)).collect();
    (attachment, uses)
}

fn asked_mac(conf: &NetConf) -> Option<String> {
    let asked = &conf.runtime_config.mac;
    (!asked.is_empty()).then(|| asked.to_ascii_lowercase())
}

fn vlan(master: &str, id: u16) -> Option<HostUse> {
    (id != 0).then(|| {
        HostUse::Vlan(VlanUse {
            master: master.to_owned(),
            id,
            name: link::interface(master, id),
        })
    })
}

fn ipvlan(kind: LinkKind, interface: &str) -> Option<HostUse> {
    matches!(kind, LinkKind::Ipvlan(..)).then(|| {
        HostUse::Ipvlan(IpvlanUse {
            interface: interface.to_owned(),
            mode: link::mode_name(kind).to_owned(),
            flag: link::flag_name(kind).to_owned(),
        })
    })
}

fn addresses(one: &PodAddress) -> Vec<ContainerAddress> {
    let length = one.subnet.cidr.prefix_len();
    let own = IpNet::new(one.address, length).ok();
    let own = own.map(|address| ContainerAddress {
        address,
        gateway: one.subnet.gateway,
    });
    let derived = one
        .with_6to4
        .then(|| six_to_four(one.address, length))
        .flatten();
    let derived = derived.map(|address| ContainerAddress {
        address,
        gateway: None,
    });
    own.into_iter().chain(derived).collect()
}

/// `2002:V4::/16` of RFC 3056, with the length that the original gives it: row 27.
fn six_to_four(address: IpAddr, length: u8) -> Option<IpNet> {
    let IpAddr::V4(v4) = address else { return None };
    let [a, b, c, d] = v4.octets();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let v6 = Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 0);
    IpNet::new(v6.into(), 48_u8.checked_sub(32_u8.checked_sub(length)?)?).ok()
}

/// The subnet's routes: those of the interface that is made have no `dev`. Beside the primary network the first one is what the
/// originals call `eth1`, however Multus calls it.
fn routes(ifname: &str, is_first: bool, subnet: &FlatSubnet) -> Vec<ContainerRoute> {
    let beside = is_first && ifname != PRIMARY;
    let is_own = |dev: &str| dev == ifname || (beside && dev == FLAT);
    let routes = subnet.routes.iter();
    routes
        .map(|route| ContainerRoute {
            dst: route.dst,
            gw: route.via,
            dev: (!is_own(&route.dev)).then(|| route.dev.clone()),
            src: route.src,
            priority: Some(route.priority).filter(|priority| *priority > 0),
            ..ContainerRoute::default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use fipd_cni::attachment::{ArpPolicy, IpvlanFlag, IpvlanMode, MacvlanMode};
    use fipd_crds::flat_network::{FlatRoute, RouteSettings};

    use super::*;

    fn subnet(change: impl FnOnce(&mut FlatNetworkSubnetSpec)) -> FlatSubnet {
        let mut spec = FlatNetworkSubnetSpec {
            flat_mode: "macvlan".into(),
            master: "eth0".into(),
            cidr: "192.168.1.0/24".into(),
            gateway: "192.168.1.1".into(),
            ..FlatNetworkSubnetSpec::default()
        };
        change(&mut spec);
        FlatSubnet::read(&spec).unwrap()
    }

    fn pod(subnet: FlatSubnet) -> PodAddress {
        PodAddress {
            subnet,
            address: "192.168.1.2".parse().unwrap(),
            with_6to4: false,
            mac: None,
        }
    }

    fn alone(first: PodAddress) -> PodInterfaceAddresses {
        PodInterfaceAddresses {
            is_first: true,
            first,
            others: Vec::new(),
        }
    }

    fn conf(more: &str) -> NetConf {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"a"{more}}}"#);
        NetConf::parse(&text, fipd_cni::Verb::Add).unwrap()
    }

    fn route(dev: &str) -> FlatRoute {
        FlatRoute {
            dev: dev.into(),
            dst: "10.9.0.0/16".into(),
            via: "192.168.1.3".into(),
            priority: 5,
            ..FlatRoute::default()
        }
    }

    #[test]
    fn rows_66_and_67_routes_are_of_the_interface_that_they_name() {
        let subnet = subnet(|spec| spec.routes = vec![route("eth1"), route("eth0")]);
        let devices = |ifname: &str| -> Vec<Option<String>> {
            let (made, _) = of_pod(&conf(""), ifname, &alone(pod(subnet.clone())));
            let shown = &made.addresses[0];
            assert_eq!(shown.address.to_string(), "192.168.1.2/24");
            assert_eq!(shown.gateway.unwrap().to_string(), "192.168.1.1");
            made.routes.into_iter().map(|route| route.dev).collect()
        };
        assert_eq!(devices("eth1"), [None, Some("eth0".to_owned())]);
        assert_eq!(devices("eth0"), [Some("eth1".to_owned()), None]);
        assert_eq!(devices("net1"), [None, Some("eth0".to_owned())]);
    }

    #[test]
    fn a_pod_has_what_its_subnet_and_the_attachment_say() {
        let subnet = subnet(|spec| {
            spec.vlan = 10;
            spec.mode = "vepa".into();
            spec.route_settings = RouteSettings {
                add_cluster_cidr: true,
                add_node_cidr: true,
                add_pod_ip_to_host: true,
                flat_network_default_gateway: true,
                ..RouteSettings::default()
            };
        });
        let flat = r#","flatNetwork":{"mtu":1500,"clusterCIDR":"10.42.0.0/16","serviceCIDR":"10.43.0.0/16","arpPolicy":"arping"}"#;
        let (made, uses) = of_pod(&conf(flat), "eth1", &alone(pod(subnet)));
        assert_eq!(made.link.kind, LinkKind::Macvlan(MacvlanMode::Vepa));
        assert_eq!(
            (&*made.link.parent, made.link.mtu),
            ("eth0.10", Some(1_500))
        );
        assert_eq!(
            made.extras.via_default_gateway,
            ["10.42.0.0/16".parse().unwrap()]
        );
        assert!(
            made.extras.node_networks && made.extras.takes_default_route && made.extras.host_routes
        );
        assert_eq!(made.extras.arp_policy, ArpPolicy::Arping);
        let expected = [
            vlan("eth0", 10).unwrap(),
            HostUse::Promiscuous("eth0".into()),
            HostUse::Route("192.168.1.2".parse().unwrap()),
        ];
        assert_eq!(uses, expected);
    }

    #[test]
    fn ipvlan_needs_no_promiscuous_master_and_shows_its_mode() {
        let subnet = subnet(|spec| {
            spec.flat_mode = "ipvlan".into();
            spec.mode = "l3s".into();
            spec.ipvlan_flag = "private".into();
        });
        let (made, uses) = of_pod(&conf(""), "eth1", &alone(pod(subnet)));
        assert_eq!(
            made.link.kind,
            LinkKind::Ipvlan(IpvlanMode::L3s, IpvlanFlag::Private)
        );
        let expected = HostUse::Ipvlan(IpvlanUse {
            interface: "eth0".into(),
            mode: "l3s".into(),
            flag: "private".into(),
        });
        assert_eq!(uses, [expected]);
    }

    #[test]
    fn row_27_the_6to4_address_has_the_length_of_the_original() {
        let one = PodAddress {
            with_6to4: true,
            ..pod(subnet(|_| {}))
        };
        let (made, _) = of_pod(&conf(""), "eth1", &alone(one));
        assert_eq!(
            made.addresses[1].address,
            "2002:c0a8:102::/40".parse::<IpNet>().unwrap()
        );
        assert_eq!(six_to_four("fd00::1".parse().unwrap(), 64), None);
    }

    #[test]
    fn pools_give_addresses_and_the_configuration_says_the_rest() {
        let more = r#","master":"eth0","vlan":20,"flatMode":"ipvlan","mode":"l2","mtu":1400,
            "ipam":{"pools":["a","b"],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0","gw":"fd00::9"}]}"#;
        let given = |address: &str, gateway: Option<&str>, is_probing| PoolAddress {
            address: address.parse().unwrap(),
            gateway: gateway.map(|one| one.parse().unwrap()),
            is_probing,
        };
        let all = [
            given("10.0.0.5/24", Some("10.0.0.1"), false),
            given("fd00::5/64", None, true),
        ];
        let conf_of = conf(more);
        let (made, uses) = of_pools(&conf_of, kind(&conf_of).unwrap(), None, &all);
        assert_eq!(
            (&*made.link.parent, made.link.mtu, made.probe),
            ("eth0.20", Some(1_400), true)
        );
        let via: Vec<String> = made
            .routes
            .iter()
            .map(|route| route.gw.unwrap().to_string())
            .collect();
        assert_eq!(via, ["10.0.0.1", "fd00::9"]);
        let shared = ipvlan(kind(&conf_of).unwrap(), "eth0.20").unwrap();
        assert_eq!(uses, [vlan("eth0", 20).unwrap(), shared]);
        let more = r#","master":"eth0","mode":"l4","ipam":{"pools":["a"]}"#;
        let (field, why) = kind(&conf(more)).unwrap_err();
        assert_eq!(field, "mode");
        assert!(why.contains("bridge, vepa"), "{why}");
    }

    #[test]
    fn what_the_runtime_says_of_the_mac_counts_before_the_configuration() {
        let more = r#","master":"eth0","mac":"02:00:00:00:00:01","ipam":{"pools":["a"]},"runtimeConfig":{"mac":"02:00:00:00:00:0A"}"#;
        let in_args = Some("02:00:00:00:00:0B");
        let mac = |more: &str| {
            let conf = conf(more);
            let (made, _) = of_pools(&conf, kind(&conf).unwrap(), in_args, &[]);
            made.link.mac.unwrap()
        };
        assert_eq!(mac(more), "02:00:00:00:00:0a", "row 86");
        let without = more.split(r#","runtimeConfig""#).next().unwrap();
        assert_eq!(mac(without), "02:00:00:00:00:0b");
    }
}
