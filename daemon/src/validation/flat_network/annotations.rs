//! What the annotations of a pod, or of the template of its workload, ask of the flat network.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::PoolSpec;
use fipd_crds::{
    flat_network::{
        FlatNetworkIPSpec,
        names::{IP, KEEP_SECONDS, MAC, SUBNET},
    },
    names::is_object_name,
};

use super::{super::Wrong, mac::MacAddress, spelling};

/// The most addresses or MACs that a list has.
const MEMBERS: usize = 256;
/// The longest text of a list, in bytes.
const LONGEST: usize = 16 * 1024;
/// Between the members of a list.
const SEPARATOR: char = '-';
/// Any address or MAC.
const AUTO: &str = "auto";

/// Annotations of an object.
pub type Annotations = BTreeMap<String, String>;

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodAddresses {
    pub subnet: String,
    /// It gets the first of these that is free. None: any.
    pub addresses: Vec<IpAddr>,
    /// The same of MACs.
    pub macs: Vec<MacAddress>,
}

/// The fields that are named where something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedFields {
    pub subnet: String,
    pub ip: String,
    pub mac: String,
}

impl AskedFields {
    /// Annotations below this path, such as `metadata.annotations`.
    pub fn annotations(path: &str) -> Self {
        Self {
            subnet: annotation(path, SUBNET),
            ip: annotation(path, IP),
            mac: annotation(path, MAC),
        }
    }

    /// Fields of a FlatNetworkIP.
    pub fn of_ip() -> Self {
        Self {
            subnet: "spec.subnet".to_owned(),
            ip: "spec.addrs".to_owned(),
            mac: "spec.macs".to_owned(),
        }
    }
}

impl PodAddresses {
    /// Reads the annotations of a pod; `path` is where they are, for messages. `None`: it is no flat pod, as it names no
    /// address or no subnet.
    ///
    /// # Errors
    /// The first annotation that makes no sense: rules W2 and W7.
    pub fn read(path: &str, annotations: &Annotations) -> Result<Option<Self>, Wrong> {
        let text = |key: &str| annotations.get(key).map_or("", |text| text.trim());
        let (ip, subnet, mac) = (text(IP), text(SUBNET), text(MAC));
        if ip.is_empty() || subnet.is_empty() {
            return Ok(None);
        }
        Self::of_texts(&AskedFields::annotations(path), [subnet, ip, mac]).map(Some)
    }

    /// Reads what annotations say of the subnet, of addresses and of MACs.
    pub(super) fn of_texts(fields: &AskedFields, texts: [&str; 3]) -> Result<Self, Wrong> {
        let [subnet, ip, mac] = texts.map(str::trim);
        let addresses = members(&fields.ip, ip)?;
        let macs = members(&fields.mac, mac)?;
        Self::of(fields, subnet, &addresses, &macs)
    }

    /// The same of a FlatNetworkIP, in either spelling.
    ///
    /// # Errors
    /// The first field that makes no sense.
    pub fn of_ip(spec: &FlatNetworkIPSpec) -> Result<Self, Wrong> {
        let current = spelling::current_ip(spec);
        let spec = current.as_ref().unwrap_or(spec);
        let fields = AskedFields::of_ip();
        for (field, texts) in [(&fields.ip, &spec.addrs), (&fields.mac, &spec.macs)] {
            bounded(field, texts.len())?;
        }
        let texts = |all: &[String]| all.iter().map(|text| text.trim().to_owned()).collect();
        let (addresses, macs): (Vec<String>, Vec<String>) = (texts(&spec.addrs), texts(&spec.macs));
        Self::of(
            &fields,
            spec.subnet.trim(),
            &slices(&addresses),
            &slices(&macs),
        )
    }

    fn of(
        fields: &AskedFields,
        subnet: &str,
        addresses: &[&str],
        macs: &[&str],
    ) -> Result<Self, Wrong> {
        if !is_object_name(subnet) {
            let allowed = "it must be the name of a FlatNetworkSubnet";
            return Err(Wrong::new(&fields.subnet, subnet, allowed));
        }
        let address = |text: &&str| {
            let address = text.parse().map(|address: IpAddr| address.to_canonical());
            let allowed = format!(
                "it must be an IP address: write {AUTO}, one address, or several joined by {SEPARATOR:?}"
            );
            address.map_err(|_| Wrong::new(&fields.ip, text, allowed))
        };
        let mac = |text: &&str| {
            let mac = text.parse::<MacAddress>();
            let mac = mac.map_err(|wrong| {
                let allowed =
                    format!("{wrong}; write {AUTO}, one MAC, or several joined by {SEPARATOR:?}");
                Wrong::new(&fields.mac, text, allowed)
            })?;
            match mac.fault() {
                Some(fault) => Err(Wrong::new(&fields.mac, text, fault)),
                None => Ok(mac),
            }
        };
        Ok(Self {
            subnet: subnet.to_owned(),
            addresses: addresses.iter().map(address).collect::<Result<_, _>>()?,
            macs: macs.iter().map(mac).collect::<Result<_, _>>()?,
        })
    }

    /// Whether somebody chose addresses.
    pub fn is_specific(&self) -> bool {
        !self.addresses.is_empty()
    }
}

/// How many seconds the address of an ordinal waits for its successor, where the template says so.
///
/// # Errors
/// It is no such number.
pub fn keep_seconds(path: &str, annotations: &Annotations) -> Result<Option<u32>, Wrong> {
    let Some(text) = annotations.get(KEEP_SECONDS) else {
        return Ok(None);
    };
    let most = PoolSpec::MAX_STICKY;
    let seconds = text.trim().parse().ok().filter(|seconds| *seconds <= most);
    let seconds = seconds.ok_or_else(|| {
        let allowed = format!("it must be 0 to {most} seconds ({} days)", most / 86_400);
        Wrong::new(annotation(path, KEEP_SECONDS), text, allowed)
    });
    seconds.map(Some)
}

/// How a message names an annotation.
pub fn annotation(path: &str, key: &str) -> String {
    format!("{path}[{key}]")
}

/// The members of a list; none where any will do.
fn members<'a>(field: &str, text: &'a str) -> Result<Vec<&'a str>, Wrong> {
    if matches!(text, "" | AUTO) {
        return Ok(Vec::new());
    }
    if text.len() > LONGEST {
        let allowed = format!("it must not be longer than {LONGEST} bytes; name fewer");
        return Err(Wrong::new(field, text, allowed));
    }
    let members: Vec<&str> = text.split(SEPARATOR).map(str::trim).collect();
    bounded(field, members.len())?;
    Ok(members)
}

fn bounded(field: &str, count: usize) -> Result<(), Wrong> {
    if count <= MEMBERS {
        return Ok(());
    }
    let allowed = format!(
        "at most {MEMBERS} are allowed; name fewer, or narrow spec.ranges of the subnet and write {AUTO}"
    );
    Err(Wrong::new(field, &count.to_string(), allowed))
}

fn slices(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}
