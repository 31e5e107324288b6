//! The interfaces that a pod asks for on flat networks: the one of the originals, and by annotations of fipd's further ones and the
//! other family on each.

use std::{collections::BTreeSet, fmt, ops::Deref};

use fipd_crds::flat_network::names::{ADDITIONAL_INTERFACES, DUAL_STACK};
use serde::Deserialize;

use super::{
    super::Wrong,
    annotations::{Annotations, AskedFields, PodAddresses, annotation},
    labels,
    link::is_interface_name,
    subnet::FlatSubnet,
};

/// The most further interfaces that a pod may ask for.
const MOST: usize = 16;
/// The longest text of the annotation, in bytes.
const LONGEST: usize = 16 * 1024;
/// Before the digest in the names of their FlatNetworkIPs.
const MARK: &str = ".if-";
/// Behind the name of an interface, for its address of the other family.
const PARTNER: &str = "/partner";
/// Hexadecimal digits of the digest.
const DIGITS: usize = 8;
/// The longest name of an object, in bytes.
const LONGEST_NAME: usize = 253;

/// Which interface of a pod, and which of its two families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceId {
    /// As the pod calls it; empty: that of the annotations of the originals.
    pub name: String,
    /// The address is of the partner of the subnet, and thus of the other family.
    pub is_partner: bool,
}

/// An interface of a pod, and what it asks for there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodInterface {
    pub id: InterfaceId,
    /// Of a partner only the subnet is known whose partner it is.
    pub asked: PodAddresses,
    /// What messages call the fields.
    pub fields: AskedFields,
}

/// A member of the annotation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InterfaceEntry {
    interface: String,
    subnet: String,
    #[serde(default)]
    ip: String,
    #[serde(default)]
    mac: String,
}

impl InterfaceId {
    /// Reads what [`Self::list`] wrote.
    pub fn read_list(text: &str) -> Vec<Self> {
        let members = text.split(' ').filter(|one| !one.is_empty());
        let read = |one: &str| match one.strip_suffix(PARTNER) {
            Some(name) => (name.to_owned(), true),
            None => (one.to_owned(), false),
        };
        let all = members.map(read);
        all.map(|(name, is_partner)| Self { name, is_partner })
            .collect()
    }

    /// Several as one text: no name of an interface has a space.
    pub fn list(all: &[&Self]) -> String {
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        texts.join(" ")
    }

    /// Whether it is the one of the originals, whose FlatNetworkIP is called like the pod.
    pub fn is_first(&self) -> bool {
        *self == Self::default()
    }

    /// The name of its FlatNetworkIP. `path` is where the annotations of the pod are.
    ///
    /// # Errors
    /// The name of the pod leaves no room for it, or is one that only FlatNetworkIPs have.
    pub fn object_name(&self, path: &str, pod: &str) -> Result<String, Wrong> {
        if !is_pod_name(pod) {
            let allowed = format!(
                "pods on flat networks must not be called *{MARK}{}; name the pod differently",
                "x".repeat(DIGITS)
            );
            return Err(Wrong::new("metadata.name", pod, allowed));
        }
        if self.is_first() {
            return Ok(pod.to_owned());
        }
        let digest = labels::digest(&self.to_string());
        let name = format!("{pod}{MARK}{digest}");
        if name.len() > LONGEST_NAME {
            let allowed = format!(
                "the name of the pod has {} bytes, and at most {} leave room for further addresses; name the pod shorter",
                pod.len(),
                LONGEST_NAME - MARK.len() - DIGITS
            );
            let field = annotation(path, ADDITIONAL_INTERFACES);
            return Err(Wrong::new(field, &self.name, allowed));
        }
        Ok(name)
    }
}

impl fmt::Display for InterfaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.is_partner { PARTNER } else { "" };
        write!(f, "{}{family}", self.name)
    }
}

impl PodInterface {
    /// Reads the annotations of a pod or template; `path` is where they are, for messages. The first is that of the originals;
    /// empty: it is no flat pod.
    ///
    /// # Errors
    /// The first annotation that makes no sense.
    pub fn read_all(path: &str, annotations: &Annotations) -> Result<Vec<Self>, Wrong> {
        let Some(asked) = PodAddresses::read(path, annotations)? else {
            return Ok(Vec::new());
        };
        let first = Self {
            id: InterfaceId::default(),
            asked,
            fields: AskedFields::annotations(path),
        };
        let further = further(path, annotations)?;
        let alone: Vec<Self> = [first].into_iter().chain(further).collect();
        check_apart(&alone)?;
        let partners = match is_dual(path, annotations)? {
            true => alone.iter().map(|one| one.partner(path)).collect(),
            false => Vec::new(),
        };
        Ok(alone.into_iter().chain(partners).collect())
    }

    /// The same interface in the other family, whose subnet the first one names.
    fn partner(&self, path: &str) -> Self {
        Self {
            id: InterfaceId {
                is_partner: true,
                ..self.id.clone()
            },
            asked: PodAddresses {
                subnet: self.asked.subnet.clone(),
                ..PodAddresses::default()
            },
            fields: AskedFields {
                subnet: annotation(path, DUAL_STACK),
                ..self.fields.clone()
            },
        }
    }
}

/// The name of the pod whose FlatNetworkIP is called so.
pub fn pod_of(object: &str) -> &str {
    let is_digest = |text: &str| {
        text.len() == DIGITS
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    match object.rsplit_once(MARK) {
        Some((pod, digest)) if !pod.is_empty() && is_digest(digest) => pod,
        Some(_) | None => object,
    }
}

/// Whether a pod on a flat network may be called so.
pub fn is_pod_name(name: &str) -> bool {
    pod_of(name) == name
}

/// Interfaces of one pod name different addresses and MACs: one would wait for the other for good.
fn check_apart(all: &[PodInterface]) -> Result<(), Wrong> {
    let (mut addresses, mut macs) = (BTreeSet::new(), BTreeSet::new());
    let wrong = |field: &str, value: String| {
        let allowed = "another interface of the pod names it too; write it once";
        Err(Wrong::new(field, &value, allowed))
    };
    for one in all {
        let (asked, fields) = (&one.asked, &one.fields);
        if let Some(twice) = add(&mut addresses, &asked.subnet, &asked.addresses) {
            return wrong(&fields.ip, twice.to_string());
        }
        if let Some(twice) = add(&mut macs, &asked.subnet, &asked.macs) {
            return wrong(&fields.mac, twice.to_string());
        }
    }
    Ok(())
}

/// Adds what one interface names; the first that another one names on the same subnet.
fn add<'a, T: Ord>(
    all: &mut BTreeSet<(&'a str, &'a T)>,
    subnet: &'a str,
    own: &'a [T],
) -> Option<&'a T> {
    let own: BTreeSet<&T> = own.iter().collect();
    own.into_iter().find(|one| !all.insert((subnet, one)))
}

/// Why an interface gets no second family.
pub fn no_partner(field: &str, why: &str) -> Wrong {
    let allowed = format!("{why}; or take the annotation away");
    Wrong::new(field, "true", allowed)
}

/// The name of the partner of a subnet, which `find` finds; an interface can have an address of both.
///
/// # Errors
/// Why there is none, and what to do.
pub fn partner_of<S: Deref<Target = FlatSubnet>>(
    name: &str,
    find: impl Fn(&str) -> Option<S>,
) -> Result<String, String> {
    let usable = |name: &str, what: &str| {
        let none = || {
            format!("there is no usable FlatNetworkSubnet {name:?}{what}; see its condition Ready")
        };
        find(name).ok_or_else(none)
    };
    let subnet = usable(name, "")?;
    let partner = subnet.partner.as_ref().ok_or_else(|| {
        format!("subnet {name:?} names no subnet of the other family; name one in its spec.partner")
    })?;
    let found = usable(partner, &format!(", the spec.partner of {name:?}"))?;
    let link = |subnet: &FlatSubnet| (subnet.kind, subnet.interface());
    let why = if found.family() == subnet.family() {
        "it is of the same family"
    } else if link(&found) != link(&subnet) {
        "flatMode, mode, ipvlanFlag, master and vlan of both must be the same"
    } else {
        return Ok(partner.clone());
    };
    Err(format!(
        "{partner:?}, the spec.partner of subnet {name:?}, does not fit it: {why}; name another there"
    ))
}

fn further(path: &str, annotations: &Annotations) -> Result<Vec<PodInterface>, Wrong> {
    let Some(text) = annotations.get(ADDITIONAL_INTERFACES) else {
        return Ok(Vec::new());
    };
    let field = annotation(path, ADDITIONAL_INTERFACES);
    let wrong = |why: String| {
        let allowed = format!(
            "{why}; write a list of at most {MOST} such as [{{\"interface\": \"eth2\", \"subnet\": \"storage\", \"ip\": \"auto\", \"mac\": \"auto\"}}]"
        );
        Wrong::new(&field, text, allowed)
    };
    if text.len() > LONGEST {
        return Err(wrong(format!("it must not be longer than {LONGEST} bytes")));
    }
    let entries: Vec<InterfaceEntry> =
        serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if entries.len() > MOST {
        return Err(wrong(format!("it has {} members", entries.len())));
    }
    let mut found = Vec::<PodInterface>::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let one = interface(&format!("{field}[{index}]"), entry)?;
        if found.iter().any(|other| other.id == one.id) {
            return Err(wrong(format!("interface {} is there twice", one.id.name)));
        }
        found.push(one);
    }
    Ok(found)
}

fn interface(field: &str, entry: InterfaceEntry) -> Result<PodInterface, Wrong> {
    if !is_interface_name(&entry.interface) {
        let allowed = "it must name an interface of the pod, such as eth2: 1 to 15 bytes without space, '/' and ':'";
        let field = format!("{field}.interface");
        return Err(Wrong::new(field, &entry.interface, allowed));
    }
    let fields = AskedFields {
        subnet: format!("{field}.subnet"),
        ip: format!("{field}.ip"),
        mac: format!("{field}.mac"),
    };
    let asked = PodAddresses::of_texts(&fields, [&entry.subnet, &entry.ip, &entry.mac])?;
    Ok(PodInterface {
        id: InterfaceId {
            name: entry.interface,
            is_partner: false,
        },
        asked,
        fields,
    })
}

fn is_dual(path: &str, annotations: &Annotations) -> Result<bool, Wrong> {
    match annotations.get(DUAL_STACK).map(|text| text.trim()) {
        None | Some("" | "false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => {
            let allowed = "it must be true or false";
            Err(Wrong::new(annotation(path, DUAL_STACK), other, allowed))
        }
    }
}

#[cfg(test)]
mod tests {
    use fipd_crds::flat_network::{
        FlatNetworkSubnetSpec,
        names::{IP, SUBNET},
    };
    use serde_json::{Value, json};

    use super::*;

    const PATH: &str = "metadata.annotations";

    fn read(more: &[(&str, &str)]) -> Result<Vec<PodInterface>, Wrong> {
        let flat = [(IP, "auto"), (SUBNET, "lab")];
        let all = flat.iter().chain(more);
        let all = all.map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        PodInterface::read_all(PATH, &all.collect())
    }

    fn list(entries: &Value) -> Result<Vec<PodInterface>, Wrong> {
        read(&[(ADDITIONAL_INTERFACES, &entries.to_string())])
    }

    #[test]
    fn a_pod_asks_on_each_interface_and_in_both_families() {
        let none = PodInterface::read_all(PATH, &Annotations::new());
        assert_eq!(none, Ok(Vec::new()));
        let one = read(&[]).unwrap();
        assert!(one.len() == 1 && one[0].id.is_first());
        let further = json!([
            { "interface": "eth2", "subnet": "blue", "ip": "10.0.0.1-10.0.0.2" },
            { "interface": "eth3", "subnet": "lab", "mac": "02:00:00:00:00:01" },
        ]);
        let text = further.to_string();
        let all = read(&[(ADDITIONAL_INTERFACES, &text), (DUAL_STACK, "true")]).unwrap();
        let seen: Vec<_> = all
            .iter()
            .map(|one| (&*one.id.name, &*one.asked.subnet, one.id.is_partner))
            .collect();
        let alone = [
            ("", "lab", false),
            ("eth2", "blue", false),
            ("eth3", "lab", false),
        ];
        let partners = alone.map(|(name, subnet, _)| (name, subnet, true));
        assert_eq!(seen, [alone, partners].concat());
        let counts = |one: &PodInterface| (one.asked.addresses.len(), one.asked.macs.len());
        assert_eq!(
            all.iter().map(counts).collect::<Vec<_>>(),
            [(0, 0), (2, 0), (0, 1), (0, 0), (0, 0), (0, 0)]
        );
        let names = all
            .iter()
            .map(|one| one.id.object_name(PATH, "web-0").unwrap());
        let names: BTreeSet<String> = names.collect();
        assert_eq!(names.len(), 6, "{names:?}");
        assert!(names.contains("web-0") && names.iter().all(|one| pod_of(one) == "web-0"));
    }

    #[test]
    fn what_makes_no_sense_is_said_with_its_field() {
        let many: Vec<_> = (0..17)
            .map(|one| json!({ "interface": format!("e{one}"), "subnet": "lab" }))
            .collect();
        for (entries, field, word) in [
            (json!("x"), "", "expected"),
            (
                json!([{ "interface": "eth2" }]),
                "",
                "missing field `subnet`",
            ),
            (
                json!([{ "interface": "eth2", "subnet": "a", "cidr": "x" }]),
                "",
                "unknown field",
            ),
            (json!(many), "", "17 members"),
            (
                json!([{ "interface": "e", "subnet": "a" }, { "interface": "e", "subnet": "b" }]),
                "",
                "twice",
            ),
            (
                json!([{ "interface": "a/b", "subnet": "lab" }]),
                "[0].interface",
                "1 to 15 bytes",
            ),
            (
                json!([{ "interface": "", "subnet": "lab" }]),
                "[0].interface",
                "1 to 15 bytes",
            ),
            (
                json!([{ "interface": "e", "subnet": "-" }]),
                "[0].subnet",
                "name of a FlatNetworkSubnet",
            ),
            (
                json!([{ "interface": "e", "subnet": "lab", "ip": "x" }]),
                "[0].ip",
                "IP address",
            ),
            (
                json!([{ "interface": "e", "subnet": "lab", "mac": "x" }]),
                "[0].mac",
                "auto",
            ),
        ] {
            let wrong = list(&entries).unwrap_err();
            let expected = format!("{PATH}[{ADDITIONAL_INTERFACES}]{field}");
            assert_eq!(wrong.field, expected, "{entries}");
            assert!(wrong.allowed.contains(word), "{entries}: {}", wrong.allowed);
        }
        let long = read(&[(ADDITIONAL_INTERFACES, &" ".repeat(LONGEST + 1))]).unwrap_err();
        assert!(long.allowed.contains("16384 bytes"), "{}", long.allowed);
        assert_eq!(read(&[(DUAL_STACK, "false")]).unwrap().len(), 1);
        for (first, second, field) in [
            (
                json!({ "ip": "10.0.0.1" }),
                json!({ "ip": "10.0.0.2-10.0.0.1" }),
                "[1].ip",
            ),
            (
                json!({ "mac": "02:00:00:00:00:0a" }),
                json!({ "mac": "02:00:00:00:00:0A" }),
                "[1].mac",
            ),
        ] {
            let on = |interface: &str, subnet: &str, rest: &Value| {
                let mut entry = rest.clone();
                entry["interface"] = json!(interface);
                entry["subnet"] = json!(subnet);
                entry
            };
            let apart = json!([on("eth2", "lab", &first), on("eth3", "red", &second)]);
            assert!(list(&apart).is_ok(), "{apart}");
            let wrong = list(&json!([
                on("eth2", "lab", &first),
                on("eth3", "lab", &second)
            ]));
            let wrong = wrong.unwrap_err();
            assert!(wrong.field.ends_with(field), "{wrong}");
            assert!(wrong.allowed.contains("another interface"), "{wrong}");
        }
        let dual = read(&[(DUAL_STACK, "yes")]).unwrap_err();
        assert_eq!(dual.field, format!("{PATH}[{DUAL_STACK}]"));
    }

    /// A pod cannot be called like the further address of another one.
    #[test]
    fn the_names_of_further_addresses_are_theirs_alone() {
        let all = read(&[(DUAL_STACK, "true")]).unwrap();
        let further = all[1].id.object_name(PATH, "web-0").unwrap();
        for one in &all {
            let wrong = one.id.object_name(PATH, &further).unwrap_err();
            assert_eq!(wrong.field, "metadata.name");
        }
        let like = "web.if-1a2b3c4";
        assert_eq!(all[0].id.object_name(PATH, like).as_deref(), Ok(like));
        let long = "a".repeat(242);
        assert_eq!(all[0].id.object_name(PATH, &long).as_deref(), Ok(&*long));
        let wrong = all[1].id.object_name(PATH, &long).unwrap_err();
        assert!(wrong.allowed.contains("at most 241"), "{}", wrong.allowed);
        assert_eq!(all[1].id.object_name(PATH, &long[1..]).unwrap().len(), 253);
    }

    #[test]
    fn a_partner_is_of_the_other_family_on_the_same_interface() {
        let subnet = |cidr: &str, partner: &str, vlan: u16| {
            let spec = json!({
                "flatMode": "macvlan", "master": "eth0", "vlan": vlan, "cidr": cidr, "partner": partner,
            });
            let spec: FlatNetworkSubnetSpec = serde_json::from_value(spec).unwrap();
            Box::new(FlatSubnet::read(&spec).unwrap())
        };
        let of = |partner: &str, found: Option<Box<FlatSubnet>>| {
            partner_of("four", |name| match name {
                "four" => Some(subnet("10.1.2.0/24", partner, 3)),
                _ => found.clone(),
            })
        };
        let six = |vlan| Some(subnet("fd00:1::/64", "", vlan));
        assert_eq!(of("six", six(3)), Ok("six".to_owned()));
        for (partner, found, word) in [
            ("", None, "spec.partner"),
            ("six", None, "no usable FlatNetworkSubnet"),
            ("six", six(4), "vlan"),
            ("six", Some(subnet("10.1.3.0/24", "", 3)), "same family"),
        ] {
            let why = of(partner, found).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
}
