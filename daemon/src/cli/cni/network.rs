//! The configuration of a network that `fipd cni install` writes, and how it is recognized later.

use std::net::IpAddr;

use clap::Args;
use fipd_cni::{NetConf, SUPPORTED, Verb};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::places::NAMES;
use crate::cni;

/// Value of the key `fipd.io/written-by` of a configuration that `fipd cni uninstall` may remove. Runtimes ignore it.
const WRITER: &str = "fipd cni install";
/// The name of the file has to fit as well, and that of its new version beside it.
const LONGEST_NAME: usize = 200;

/// A network without Multus.
#[derive(Clone, Debug, Default, Args)]
pub struct NetworkArgs {
    /// Also write the configuration of a network of this name; runtimes use the first file of their directory for every container
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Pool of the address book; once for each address. Left out: Kubernetes decides, by annotations of the pods
    #[arg(long, value_name = "POOL", requires_all = ["network", "master"])]
    pool: Vec<String>,
    /// Interface of this host that containers share
    #[arg(long, value_name = "INTERFACE", requires = "pool")]
    master: Option<String>,
    /// Kind of the interface of containers [default: macvlan]
    #[arg(long, value_name = "KIND", value_parser = ["macvlan", "ipvlan"], requires = "pool")]
    flat_mode: Option<String>,
    /// macvlan: bridge (default), vepa, private, passthru; ipvlan: l2 (default), l3, l3s
    #[arg(long, value_name = "MODE", requires = "pool")]
    mode: Option<String>,
    /// Only with --flat-mode ipvlan [default: bridge]
    #[arg(long, value_name = "FLAG", value_parser = ["bridge", "private", "vepa"], requires = "pool")]
    ipvlan_flag: Option<String>,
    /// VLAN of the interface, 1 to 4094; 0: none
    #[arg(long, value_name = "ID", requires = "pool", value_parser = clap::value_parser!(u16).range(0..=4094))]
    vlan: Option<u16>,
    /// Largest packet, in bytes; left out: the interface's
    #[arg(long, value_name = "BYTES", requires = "pool", value_parser = clap::value_parser!(u32).range(68..=65_535))]
    mtu: Option<u32>,
    /// A route of containers, such as 0.0.0.0/0; may be repeated. Left out of it: the gateway of the pool
    #[arg(long, value_name = "CIDR[,GATEWAY]", requires = "pool", value_parser = route)]
    route: Vec<Route>,
    /// Check on the wire that nobody else uses an address
    #[arg(long, requires = "pool")]
    probe: bool,
    /// Version of the CNI specification that the runtime knows; STATUS and GC need 1.1.0
    #[arg(long, value_name = "VERSION", default_value = "1.1.0", value_parser = SUPPORTED)]
    cni_version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Route {
    dst: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    gw: Option<IpAddr>,
}

fn route(text: &str) -> Result<Route, String> {
    let (dst, gw) = match text.split_once(',') {
        Some((dst, gw)) => (dst, Some(gw)),
        None => (text, None),
    };
    let dst: IpNet = dst
        .trim()
        .parse()
        .map_err(|_| format!("{dst:?} is no CIDR"))?;
    let gw: Option<IpAddr> = gw
        .map(|gw| {
            gw.trim()
                .parse()
                .map_err(|_| format!("{gw:?} is no address"))
        })
        .transpose()?;
    if gw.is_some_and(|gw| gw.is_ipv4() != dst.addr().is_ipv4()) {
        return Err("CIDR and gateway are of different families".to_owned());
    }
    Ok(Route { dst, gw })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfList<'a> {
    cni_version: &'a str,
    name: &'a str,
    #[serde(rename = "fipd.io/written-by")]
    written_by: &'a str,
    plugins: [Plugin<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Plugin<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    capabilities: Capabilities,
    #[serde(skip_serializing_if = "Option::is_none")]
    flat_mode: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    master: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipvlan_flag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    probe: bool,
    ipam: Ipam<'a>,
}

/// What the runtime may ask for a container.
#[derive(Serialize)]
struct Capabilities {
    ips: bool,
    mac: bool,
}

#[derive(Serialize)]
struct Ipam<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pools: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    routes: &'a [Route],
}

/// A configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkFile {
    pub name: String,
    pub text: String,
}

impl NetworkArgs {
    /// The file of the network; `None`: none is asked for.
    ///
    /// # Errors
    /// A value that the plugin would refuse, in one line.
    pub fn file(&self) -> Result<Option<NetworkFile>, String> {
        let Some(name) = &self.network else {
            return Ok(None);
        };
        if name.len() > LONGEST_NAME {
            return Err(format!(
                "--network has {} bytes; at most {LONGEST_NAME} are allowed",
                name.len()
            ));
        }
        let plugin = Plugin {
            kind: NAMES[0],
            capabilities: Capabilities {
                ips: true,
                mac: true,
            },
            flat_mode: self.flat_mode.as_deref(),
            master: self.master.as_deref(),
            mode: self.mode.as_deref(),
            ipvlan_flag: self.ipvlan_flag.as_deref(),
            vlan: self.vlan.filter(|vlan| *vlan > 0),
            mtu: self.mtu,
            probe: self.probe,
            ipam: Ipam {
                kind: "fipd",
                pools: &self.pool,
                routes: &self.route,
            },
        };
        self.accepted(name, &plugin)?;
        let list = ConfList {
            cni_version: &self.cni_version,
            name,
            written_by: WRITER,
            plugins: [plugin],
        };
        let text = serde_json::to_string_pretty(&list).map_err(|error| error.to_string())?;
        Ok(Some(NetworkFile {
            name: format!("10-{name}.conflist"),
            text: text + "\n",
        }))
    }

    /// Whether the plugin takes it, as a runtime hands it over.
    fn accepted(&self, name: &str, plugin: &Plugin<'_>) -> Result<(), String> {
        let mut conf = serde_json::to_value(plugin).map_err(|error| error.to_string())?;
        conf["name"] = name.into();
        conf["cniVersion"] = self.cni_version.as_str().into();
        let parsed = NetConf::parse(&conf.to_string(), Verb::Add);
        let parsed = parsed.map_err(|error| error.to_string())?;
        let kind = cni::kind(&parsed).map(drop);
        kind.map_err(|(field, why)| format!("{field}: {why}"))
    }
}

/// A configuration that calls fipd's plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundNetwork {
    pub name: String,
    /// By `fipd cni install`.
    pub is_ours: bool,
}

#[derive(Deserialize)]
struct AnyConf {
    #[serde(default)]
    name: String,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    plugins: Vec<AnyPlugin>,
    #[serde(default, rename = "fipd.io/written-by")]
    written_by: Option<String>,
}

#[derive(Deserialize)]
struct AnyPlugin {
    #[serde(default, rename = "type")]
    kind: String,
}

/// What a file of the configuration directory is; `None`: nothing that calls fipd's plugin.
pub fn found(text: &[u8]) -> Option<FoundNetwork> {
    let conf: AnyConf = serde_json::from_slice(text).ok()?;
    let kinds = conf.plugins.iter().map(|plugin| &*plugin.kind);
    let mut kinds = kinds.chain([&*conf.kind]);
    kinds
        .any(|kind| NAMES.contains(&kind))
        .then_some(FoundNetwork {
            name: conf.name,
            is_ours: conf.written_by.as_deref() == Some(WRITER),
        })
}

/// Whether runtimes read a file of this name.
pub fn is_configuration(name: &str) -> bool {
    [".conf", ".conflist", ".json"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// The file that runtimes use instead of `ours`: of those in the directory the first one.
pub fn used_instead<'a>(ours: &str, all: &'a [String]) -> Option<&'a str> {
    let read = all.iter().filter(|name| is_configuration(name));
    let first = read.map(String::as_str).min()?;
    (first < ours).then_some(first)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        network: NetworkArgs,
    }

    fn args(line: &str) -> Result<NetworkArgs, clap::Error> {
        let words = ["install"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.network)
    }

    fn value(line: &str) -> Value {
        let file = args(line).unwrap().file().unwrap().unwrap();
        serde_json::from_str(&file.text).unwrap()
    }

    #[test]
    fn a_network_with_pools_says_what_containers_get() {
        let line = "--network lan --master eth0 --vlan 10 --pool lan4 --pool lan6 --route 0.0.0.0/0,192.0.2.1 --route ::/0";
        let file = args(line).unwrap().file().unwrap().unwrap();
        assert_eq!(file.name, "10-lan.conflist");
        let expected = json!({
            "cniVersion": "1.1.0", "name": "lan", "fipd.io/written-by": WRITER,
            "plugins": [{
                "type": "fipd-cni", "capabilities": { "ips": true, "mac": true }, "master": "eth0", "vlan": 10,
                "ipam": { "type": "fipd", "pools": ["lan4", "lan6"], "routes": [{ "dst": "0.0.0.0/0", "gw": "192.0.2.1" }, { "dst": "::/0" }] },
            }],
        });
        assert_eq!(value(line), expected);
        let found = found(file.text.as_bytes()).unwrap();
        assert_eq!((found.name.as_str(), found.is_ours), ("lan", true));
    }

    #[test]
    fn without_pools_kubernetes_decides() {
        let conf = value("--network pods --cni-version 1.0.0");
        assert_eq!(conf["cniVersion"], "1.0.0");
        assert_eq!(conf["plugins"][0]["ipam"], json!({ "type": "fipd" }));
        assert_eq!(args("").unwrap().file(), Ok(None));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_name() {
        for (line, says) in [
            ("--network a/b", "name"),
            ("--network .hidden", "name"),
            ("--network lan --master a/b --pool p", "master"),
            (
                "--network lan --master eth0 --pool p --mode l2",
                "mode: \"l2\"",
            ),
            (
                "--network lan --master eth0 --pool p --flat-mode ipvlan --mode vepa",
                "l2, l3, l3s",
            ),
            (
                "--network lan --master eth0 --pool p --ipvlan-flag vepa",
                "ipvlanFlag: \"vepa\"",
            ),
        ] {
            let error = args(line).unwrap().file().unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
        let long = format!("--network {}", "a".repeat(201));
        assert!(args(&long).unwrap().file().unwrap_err().contains("200"));
        for line in [
            "--pool p",
            "--network lan --pool p",
            "--network lan --master eth0",
            "--network lan --master eth0 --pool p --vlan 4095",
            "--network lan --master eth0 --pool p --mtu 67",
            "--network lan --master eth0 --pool p --route 0.0.0.0/0,",
            "--network lan --master eth0 --pool p --route 192.0.2.1",
            "--network lan --master eth0 --pool p --route 0.0.0.0/0,fd00::1",
            "--network lan --cni-version 2.0.0",
        ] {
            assert!(args(line).is_err(), "{line}");
        }
    }

    #[test]
    fn only_what_install_wrote_is_ours() {
        let ours = |text: &str| found(text.as_bytes()).map(|found| found.is_ours);
        let list = |marker: &str, kind: &str| {
            format!(r#"{{"name":"n",{marker}"plugins":[{{"type":"{kind}"}}]}}"#)
        };
        let marker = r#""fipd.io/written-by":"fipd cni install","#;
        assert_eq!(ours(&list(marker, "fipd-cni")), Some(true));
        assert_eq!(ours(&list("", "fipd-cni")), Some(false));
        assert_eq!(ours(&list("", "rancher-flat-network-cni")), Some(false));
        assert_eq!(ours(&list(marker, "macvlan")), None);
        assert_eq!(ours(r#"{"name":"n","type":"fipd-cni"}"#), Some(false));
        for text in ["", "[]", "{", "\u{0}", r#"{"plugins":{}}"#] {
            assert_eq!(ours(text), None, "{text}");
        }
    }

    #[test]
    fn runtimes_use_the_first_file() {
        let all = ["00-multus.conf", "10-lan.conflist", "0-notes.txt"].map(str::to_owned);
        let other = used_instead("10-lan.conflist", &all);
        assert_eq!(other, Some("00-multus.conf"));
        assert_eq!(used_instead("10-lan.conflist", &all[1..]), None);
        assert_eq!(used_instead("10-lan.conflist", &[]), None);
    }
}
