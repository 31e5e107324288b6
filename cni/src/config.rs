//! The network configuration on standard input: what the specification says of it, and fipd's own keys.

use std::{net::IpAddr, path::PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::{
    CniError, Code,
    attachment::{ArpPolicy, ContainerRoute},
    frame::Mac,
    verb::{NEWEST, SUPPORTED, Verb},
};

/// Values of `arpPolicy`; the first holds where there is none.
const ARP_NOTIFY: &str = "arp_notify";
const ARPING: &str = "arping";
/// The longest name of a network, in bytes.
const LONGEST_NAME: usize = 253;

/// A network configuration. What is not named here is ignored, as the specification wants it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetConf {
    /// Missing: `0.1.0`, says the specification, which is not supported.
    pub cni_version: String,
    pub name: String,
    /// `fipd-cni` or `rancher-flat-network-cni`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where the daemon listens, if not where it usually does.
    pub socket: Option<PathBuf>,
    /// Which interface, and on which of the host, by keys beside these. For pods their subnet says it, and these are ignored.
    #[serde(skip)]
    pub link: LinkConf,
    pub ipam: IpamConf,
    /// As rancher-flat-network's operator writes it.
    pub flat_network: Option<FlatNetworkConf>,
    pub runtime_config: RuntimeConfig,
    pub args: Args,
    /// The result of the plugin before this one, or of `ADD`.
    pub prev_result: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments", deserialize_with = "list")]
    pub valid_attachments: Option<Vec<ValidAttachment>>,
    /// As libcni also says it.
    #[serde(rename = "cni.dev/attachments", deserialize_with = "list")]
    pub attachments: Option<Vec<ValidAttachment>>,
    #[serde(deserialize_with = "dns")]
    pub dns: Value,
    /// Have `ADD` check on the wire that nobody else uses the addresses.
    pub probe: bool,
}

/// Which interface a network without Kubernetes has.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinkConf {
    /// `macvlan` (also when empty) or `ipvlan`.
    pub flat_mode: String,
    /// Interface of the host.
    pub master: String,
    /// As in a FlatNetworkSubnet.
    pub mode: String,
    pub ipvlan_flag: String,
    /// 0: none.
    pub vlan: u16,
    /// Bytes; 0: the parent's.
    pub mtu: u32,
    pub mac: String,
}

/// Where addresses come from.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpamConf {
    #[serde(rename = "type")]
    pub kind: String,
    /// Pools of the address book; each gives an address. None: Kubernetes says which.
    pub pools: Vec<String>,
    pub routes: Vec<ContainerRoute>,
}

/// Contract of rancher-flat-network, c.1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FlatNetworkConf {
    /// Bytes; 0: the parent's.
    pub mtu: u32,
    /// CIDRs, separated by commas.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    #[serde(rename = "serviceCIDR")]
    pub service_cidr: String,
    #[serde(rename = "arpPolicy")]
    pub arp_policy: String,
    #[serde(rename = "proxyARP")]
    pub proxy_arp: bool,
}

/// What the runtime says for one container, where the configuration allows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeConfig {
    /// Addresses, with or without the length of their network.
    pub ips: Vec<String>,
    pub mac: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Args {
    pub cni: CniArgsConf,
}

/// `args.cni` of the conventions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CniArgsConf {
    pub ips: Vec<String>,
}

/// An attachment that `GC` keeps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct ValidAttachment {
    #[serde(rename = "containerID")]
    pub container_id: String,
    pub ifname: String,
}

impl NetConf {
    /// Reads the configuration of a verb other than `VERSION`, and refuses what makes no sense for it.
    ///
    /// # Errors
    /// No JSON object, or a field of another type (code 6), a version that is not spoken or has no such verb (1), another plugin's
    /// addresses (2), a field with a value that is not allowed (7).
    pub fn parse(text: &str, verb: Verb) -> Result<Self, CniError> {
        let link = read(text)?;
        let conf = Self {
            link,
            ..read(text)?
        };
        conf.check_version(verb)?;
        conf.check(verb).map_err(|(field, details)| {
            let (code, what) = match field {
                "ipam.type" => (Code::UnsupportedField, "not supported"),
                _ => (Code::InvalidConfig, "wrong"),
            };
            let what = format!("{field} of the network configuration is {what}");
            CniError::new(&conf.cni_version, code, &what, details)
        })?;
        Ok(conf)
    }

    /// Whether addresses come from pools of the address book, not from Kubernetes.
    pub fn is_standalone(&self) -> bool {
        !self.ipam.pools.is_empty()
    }

    /// What `GC` keeps; `None`: the runtime does not say.
    pub fn valid(&self) -> Option<&[ValidAttachment]> {
        self.valid_attachments
            .as_deref()
            .or(self.attachments.as_deref())
    }

    fn check_version(&self, verb: Verb) -> Result<(), CniError> {
        let asked = match &*self.cni_version {
            "" => "0.1.0",
            asked => asked,
        };
        let at = SUPPORTED.iter().position(|one| *one == asked);
        let since = SUPPORTED.iter().position(|one| *one == verb.since());
        if at.is_some() && at >= since {
            return Ok(());
        }
        let details = match at {
            None => format!("{asked:?}; supported: {}", SUPPORTED.join(", ")),
            Some(_) => format!("{asked:?}; {verb} needs {} or later", verb.since()),
        };
        Err(CniError::new(
            if at.is_some() { asked } else { NEWEST },
            Code::IncompatibleVersion,
            "cniVersion is not supported",
            details,
        ))
    }

    /// The field that is wrong, and why. What is taken away needs no more than a name: it may have been made by a configuration that
    /// is refused by now.
    fn check(&self, verb: Verb) -> Result<(), (&'static str, String)> {
        if !is_name(&self.name) || self.name.len() > LONGEST_NAME {
            let allowed =
                "1 to 253 letters, digits, '_', '.' and '-', beginning with a letter or digit";
            return Err(("name", format!("{:?}; allowed: {allowed}", self.name)));
        }
        match verb {
            Verb::Del | Verb::Gc => Ok(()),
            Verb::Add | Verb::Check | Verb::Status | Verb::Version => self.check_fields(),
        }
    }

    fn check_fields(&self) -> Result<(), (&'static str, String)> {
        if self.link.vlan > 4094 {
            return Err(("vlan", format!("{}; allowed: 0 to 4094", self.link.vlan)));
        }
        // That of the original is named in its configurations.
        if !["", "fipd", "static-ipam"].contains(&&*self.ipam.kind) {
            let why =
                "nobody but fipd gives addresses here: leave ipam.type out, or write \"fipd\"";
            return Err(("ipam.type", format!("{:?}; {why}", self.ipam.kind)));
        }
        let of_pools = [
            ("probe", self.probe),
            ("ipam.routes", !self.ipam.routes.is_empty()),
        ];
        if let Some((field, _)) = of_pools.iter().find(|(_, given)| *given)
            && !self.is_standalone()
        {
            let why = "counts with ipam.pools alone; the FlatNetworkSubnet of a pod says its routes, and its addresses are not probed";
            return Err((field, why.to_owned()));
        }
        let mtus = [
            ("mtu", self.link.mtu),
            (
                "flatNetwork.mtu",
                self.flat_network.as_ref().map_or(0, |flat| flat.mtu),
            ),
        ];
        if let Some((field, mtu)) = mtus.iter().find(|(_, mtu)| !is_mtu(*mtu)) {
            let allowed = "0, which is that of the parent, or 68 to 65535 bytes";
            return Err((field, format!("{mtu}; allowed: {allowed}")));
        }
        for route in &self.ipam.routes {
            let (dst, is_v4) = (route.dst, route.dst.addr().is_ipv4());
            for (name, address) in [("gw", route.gw), ("src", route.src)] {
                if address.is_some_and(|address| address.is_ipv4() != is_v4) {
                    let why =
                        format!("the {name} of {dst} is of the other family; name one of the same");
                    return Err(("ipam.routes", why));
                }
            }
            if route.table == Some(0) {
                let why = format!(
                    "the table of {dst} is 0, which is none: leave it out for the main table"
                );
                return Err(("ipam.routes", why));
            }
        }
        if self.is_standalone() && self.link.master.is_empty() {
            let needed = "missing; name the interface of the host that containers share";
            return Err(("master", needed.to_owned()));
        }
        if !self.link.master.is_empty() && !is_interface(&self.link.master) {
            return Err((
                "master",
                format!("{:?} is no name of an interface", self.link.master),
            ));
        }
        for mac in [&self.link.mac, &self.runtime_config.mac] {
            if !mac.is_empty() && Mac::of_station(mac).is_none() {
                return Err((
                    "mac",
                    format!("{mac:?}; allowed: six bytes like 02:00:00:00:00:01, not of a group"),
                ));
            }
        }
        for ip in self.runtime_config.ips.iter().chain(&self.args.cni.ips) {
            if address(ip).is_none() {
                return Err(("ips", format!("{ip:?} is no address")));
            }
        }
        self.flat_network
            .as_ref()
            .map_or(Ok(()), FlatNetworkConf::check)
    }

    /// Addresses that the runtime asks for: those of `runtimeConfig`, else of `args`, else of `CNI_ARGS`.
    ///
    /// # Errors
    /// A member of `CNI_ARGS` that is no address.
    pub fn wanted<'a>(&'a self, in_args: Option<&'a str>) -> Result<Vec<IpAddr>, &'a str> {
        let said = [&self.runtime_config.ips, &self.args.cni.ips];
        let said = said.into_iter().find(|ips| !ips.is_empty());
        match said {
            Some(ips) => Ok(ips.iter().filter_map(|ip| address(ip)).collect()),
            None => {
                let ips = in_args.into_iter().flat_map(|ips| ips.split(','));
                ips.map(|ip| address(ip).ok_or(ip)).collect()
            }
        }
    }
}

impl FlatNetworkConf {
    fn check(&self) -> Result<(), (&'static str, String)> {
        let lists = [
            ("flatNetwork.clusterCIDR", &self.cluster_cidr),
            ("flatNetwork.serviceCIDR", &self.service_cidr),
        ];
        for (field, list) in lists {
            if let Some(wrong) = wrong_cidr(list) {
                return Err((
                    field,
                    format!("{wrong:?} is no CIDR; allowed: CIDRs, separated by commas"),
                ));
            }
        }
        match &*self.arp_policy {
            "" | ARP_NOTIFY | ARPING => Ok(()),
            other => {
                let why = format!("{other:?}; allowed: {ARP_NOTIFY}, {ARPING}");
                Err(("flatNetwork.arpPolicy", why))
            }
        }
    }

    /// Networks of pods.
    pub fn cluster_cidrs(&self) -> impl Iterator<Item = IpNet> {
        members(&self.cluster_cidr).filter_map(|one| one.parse().ok())
    }

    /// Networks of Services.
    pub fn service_cidrs(&self) -> impl Iterator<Item = IpNet> {
        members(&self.service_cidr).filter_map(|one| one.parse().ok())
    }

    pub fn policy(&self) -> ArpPolicy {
        match &*self.arp_policy {
            ARPING => ArpPolicy::Arping,
            _ => ArpPolicy::ArpNotify,
        }
    }
}

/// Reads what the configuration says of `T`. An error names the field.
fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, CniError> {
    let wrong = |why: String| {
        CniError::new(
            NEWEST,
            Code::DecodingFailure,
            "network configuration on standard input is not what it should be",
            why,
        )
    };
    // serde would take an array for an object.
    if !text.trim_start().starts_with('{') {
        return Err(wrong("it is no JSON object".to_owned()));
    }
    let mut from = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut from);
    let read = read.map_err(|error| match error.path().iter().next() {
        Some(_) => wrong(format!("{}: {}", error.path(), error.inner())),
        None => wrong(error.inner().to_string()),
    })?;
    from.end().map_err(|error| wrong(error.to_string()))?;
    Ok(read)
}

/// 0, or at least what IPv4 asks of a link (RFC 791) and at most what a packet can have.
fn is_mtu(mtu: u32) -> bool {
    mtu == 0 || (68..=65_535).contains(&mtu)
}

/// The first member of a list of CIDRs, separated by commas, that is none.
pub fn wrong_cidr(list: &str) -> Option<&str> {
    members(list).find(|one| one.parse::<IpNet>().is_err())
}

fn members(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|one| !one.is_empty())
}

/// libcni writes an empty list as `null`.
fn list<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<ValidAttachment>>, D::Error> {
    Option::deserialize(deserializer).map(|list| Some(list.unwrap_or_default()))
}

/// What the specification says of `dns`; it goes into the result as it is.
#[derive(Serialize, Deserialize)]
struct DnsConf {
    #[serde(skip_serializing_if = "Option::is_none")]
    nameservers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Vec<String>>,
}

pub(crate) fn dns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let dns = Option::<DnsConf>::deserialize(deserializer)?;
    serde_json::to_value(dns).map_err(serde::de::Error::custom)
}

/// An address with or without the length of its network.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let parsed = text.parse::<IpAddr>().ok();
    parsed.or_else(|| Some(text.parse::<IpNet>().ok()?.addr()))
}

/// Names of networks and containers: `^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// As the kernel's `dev_valid_name`, without `%`: the kernel would take `eth%d` for a pattern and choose a name.
pub(crate) fn is_interface(text: &str) -> bool {
    let wrong = |one: char| "/:%".contains(one) || one.is_whitespace() || one.is_control();
    (1..=15).contains(&text.len()) && text != "." && text != ".." && !text.contains(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NetConf, CniError> {
        NetConf::parse(text, Verb::Add)
    }

    fn code(text: &str, verb: Verb) -> u32 {
        NetConf::parse(text, verb).unwrap_err().code
    }

    #[test]
    fn rows_71_72_and_74_versions_and_names_are_refused_by_code() {
        assert_eq!(
            code(r#"{"name":"a"}"#, Verb::Add),
            1,
            "a missing version is 0.1.0"
        );
        assert_eq!(code(r#"{"name":"a","cniVersion":"0.1.0"}"#, Verb::Add), 1);
        assert_eq!(code(r#"{"cniVersion":"1.0.0"}"#, Verb::Add), 7);
        assert_eq!(code(r#"{"cniVersion":"1.0.0","name":"a b"}"#, Verb::Del), 7);
        for verb in [Verb::Gc, Verb::Status] {
            assert_eq!(code(r#"{"name":"a","cniVersion":"1.0.0"}"#, verb), 1);
            assert!(NetConf::parse(r#"{"name":"a","cniVersion":"1.1.0"}"#, verb).is_ok());
        }
        assert_eq!(code(r#"{"name":"a","cniVersion":"0.3.1"}"#, Verb::Check), 1);
        for text in ["", "[]", "{", r#"{"cniVersion":1}"#, "null"] {
            assert_eq!(code(text, Verb::Add), 6, "{text}");
        }
    }

    #[test]
    fn a_wrong_field_is_named_with_its_value() {
        let cases = [
            (r#""vlan":4095"#, "vlan", "4095"),
            (r#""mtu":67"#, "mtu", "67"),
            (r#""flatNetwork":{"mtu":65536}"#, "flatNetwork.mtu", "65536"),
            (r#""probe":true"#, "probe", "ipam.pools"),
            (
                r#""ipam":{"routes":[{"dst":"10.1.0.0/16"}]}"#,
                "ipam.routes",
                "ipam.pools",
            ),
            (
                r#""master":"eth0","ipam":{"pools":["a"],"routes":[{"dst":"10.1.0.0/16","gw":"fd00::1"}]}"#,
                "ipam.routes",
                "other family",
            ),
            (r#""ipam":{"pools":["a"]}"#, "master", "missing"),
            (r#""master":"a/b""#, "master", "a/b"),
            (r#""mac":"02:00""#, "mac", "02:00"),
            (
                r#""runtimeConfig":{"mac":"01:00:5e:00:00:01"}"#,
                "mac",
                "group",
            ),
            (
                r#""runtimeConfig":{"ips":["10.0.0.256"]}"#,
                "ips",
                "10.0.0.256",
            ),
            (
                r#""flatNetwork":{"clusterCIDR":"10.42.0.0/16,x"}"#,
                "flatNetwork.clusterCIDR",
                "\"x\"",
            ),
            (
                r#""flatNetwork":{"arpPolicy":"none"}"#,
                "flatNetwork.arpPolicy",
                "arp_notify, arping",
            ),
        ];
        for (part, field, value) in cases {
            let text = format!(r#"{{"cniVersion":"1.1.0","name":"a",{part}}}"#);
            let error = parse(&text).unwrap_err();
            assert_eq!(error.code, 7, "{text}");
            assert!(error.msg.starts_with(field), "{error}");
            assert!(error.details.contains(value), "{error}");
            let del = NetConf::parse(&text, Verb::Del);
            assert!(del.is_ok(), "what was made before can be taken away");
        }
    }

    #[test]
    fn a_field_of_another_type_is_named() {
        for (part, field) in [
            (r#""vlan":"7""#, "vlan: "),
            (r#""ipam":{"pools":"a"}"#, "ipam.pools: "),
            (r#""ipam":{"routes":[{"dst":"x"}]}"#, "ipam.routes[0].dst: "),
            (r#""flatNetwork":{"proxyARP":1}"#, "flatNetwork.proxyARP: "),
            (r#""dns":{"nameservers":5}"#, "dns.nameservers: "),
            (r#""dns":{"search":["a",1]}"#, "dns.search[1]: "),
            (r#""dns":"10.0.0.1""#, "dns: "),
        ] {
            let text = format!(r#"{{"cniVersion":"1.1.0","name":"a",{part}}}"#);
            let error = parse(&text).unwrap_err();
            assert_eq!(error.code, 6, "{text}");
            assert!(error.details.starts_with(field), "{error}");
        }
        assert_eq!(code(r#"{"cniVersion":"1.1.0","name":"a"} x"#, Verb::Add), 6);
    }

    #[test]
    fn dns_is_kept_as_it_is() {
        let dns = |part: &str| {
            let text = format!(r#"{{"cniVersion":"1.1.0","name":"a"{part}}}"#);
            parse(&text).unwrap().dns
        };
        let full =
            r#"{"nameservers":["10.0.0.1"],"domain":"a.b","search":[],"options":["ndots:5"]}"#;
        let given: Value = serde_json::from_str(full).unwrap();
        assert_eq!(dns(&format!(r#","dns":{full}"#)), given);
        let empty = Value::Object(serde_json::Map::new());
        assert_eq!(dns(r#","dns":{"nameservers":null}"#), empty);
        assert_eq!(dns(r#","dns":null"#), Value::Null);
        assert_eq!(dns(""), Value::Null);
    }

    #[test]
    fn the_configuration_of_the_originals_operator_is_read_as_it_is() {
        let text = r#"{"cniVersion":"1.0.0","type":"rancher-flat-network-cni","name":"rancher-flat-network","dns":{},
            "ipam":{"type":"static-ipam"},"flatNetwork":{"mtu":1500,"clusterCIDR":"10.42.0.0/16, fd00::/48",
            "serviceCIDR":"10.43.0.0/16","arpPolicy":"arping","proxyARP":true}}"#;
        let conf = parse(text).unwrap();
        let flat = conf.flat_network.clone().unwrap();
        assert_eq!(
            (flat.mtu, flat.policy(), flat.proxy_arp),
            (1500, ArpPolicy::Arping, true)
        );
        assert_eq!(flat.cluster_cidrs().count(), 2);
        assert_eq!(flat.service_cidrs().count(), 1);
        assert!(!conf.is_standalone());
    }

    #[test]
    fn what_the_runtime_asks_for_has_an_order() {
        let mut conf = NetConf::default();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(
            conf.wanted(Some("10.0.0.1/24,fd00::1")).unwrap(),
            [ip("10.0.0.1"), ip("fd00::1")]
        );
        assert_eq!(conf.wanted(Some("10.0.0.1,x")), Err("x"));
        conf.args.cni.ips = vec!["10.0.0.2".into()];
        assert_eq!(conf.wanted(Some("10.0.0.1")).unwrap(), [ip("10.0.0.2")]);
        conf.runtime_config.ips = vec!["10.0.0.3/24".into()];
        assert_eq!(conf.wanted(None).unwrap(), [ip("10.0.0.3")]);
    }

    #[test]
    fn gc_takes_both_spellings_and_an_empty_list_is_a_list() {
        let of = |key: &str, list: &str| {
            let text = format!(r#"{{"cniVersion":"1.1.0","name":"a","{key}":{list}}}"#);
            NetConf::parse(&text, Verb::Gc)
                .unwrap()
                .valid()
                .map(<[_]>::len)
        };
        let one = r#"[{"containerID":"c","ifname":"eth0"}]"#;
        assert_eq!(of("cni.dev/valid-attachments", one), Some(1));
        assert_eq!(of("cni.dev/attachments", one), Some(1));
        assert_eq!(of("cni.dev/valid-attachments", "[]"), Some(0));
        assert_eq!(of("cni.dev/valid-attachments", "null"), Some(0));
        assert_eq!(of("other", "[]"), None);
    }
}
