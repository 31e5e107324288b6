//! Networks as annotations of Multus name them, and names that are cut.

use std::{collections::BTreeMap, net::IpAddr};

use data_encoding::HEXLOWER;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// What an object is annotated with.
pub type Annotations = BTreeMap<String, String>;

/// A network as the annotation of Multus names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NetworkRef {
    pub name: String,
    /// None: the namespace of who names it.
    pub namespace: Option<String>,
    /// None: any.
    pub interface: Option<String>,
}

/// An interface of a pod as Multus reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NetworkStatus {
    /// `[NAMESPACE/]NAME` of the attachment.
    pub name: String,
    pub interface: String,
    pub ips: Vec<String>,
}

impl NetworkRef {
    /// Networks as a JSON list, or as `[NAMESPACE/]NAME[@INTERFACE]` separated by commas. What is neither names none.
    pub fn parse_all(text: &str) -> Vec<Self> {
        let text = text.trim();
        if text.starts_with('[') {
            return serde_json::from_str(text).unwrap_or_default();
        }
        let parts = text.split(',').map(str::trim);
        parts
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (path, interface) = match part.split_once('@') {
                    Some((path, interface)) => (path, Some(interface.to_owned())),
                    None => (part, None),
                };
                let (namespace, name) = split_name(path);
                Self {
                    name: name.to_owned(),
                    namespace: namespace.map(str::to_owned),
                    interface,
                }
            })
            .collect()
    }

    /// Whether an interface of a pod of this namespace is of this network. Older versions of Multus name no namespace.
    pub fn is(&self, status: &NetworkStatus, namespace: &str) -> bool {
        let (of, name) = split_name(&status.name);
        let wanted = self.namespace.as_deref().unwrap_or(namespace);
        let same_interface = |wanted: &String| *wanted == status.interface;
        name == self.name
            && of.unwrap_or(namespace) == wanted
            && self.interface.as_ref().is_none_or(same_interface)
    }
}

impl NetworkStatus {
    /// The interfaces that Multus reports. What cannot be parsed reports none.
    pub fn parse_all(text: &str) -> Vec<Self> {
        serde_json::from_str(text).unwrap_or_default()
    }

    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.ips.iter().filter_map(|text| text.parse().ok())
    }
}

fn split_name(path: &str) -> (Option<&str>, &str) {
    match path.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, path),
    }
}

/// The beginning of a name and a digest of all of it, at most `longest` bytes, of characters that a label may have.
pub fn shortened(name: &str, longest: usize) -> String {
    let tail = digest(name);
    let room = longest.saturating_sub(tail.len() + 1);
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let head = name.chars().map(|c| if known(c) { c } else { '-' });
    let head: String = head.take(room).collect();
    match head.trim_matches(['-', '_', '.']) {
        "" => tail,
        head => format!("{head}-{tail}"),
    }
}

/// Eight hexadecimal digits, always the same for a text.
pub fn digest(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text)[..4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_a_json_list_or_separated_by_commas() {
        let names = |text: &str| -> Vec<String> {
            let all = NetworkRef::parse_all(text).into_iter();
            all.map(|one| {
                let interface = one.interface.unwrap_or_default();
                let namespace = one.namespace.unwrap_or_default();
                format!("{namespace}/{}@{interface}", one.name)
            })
            .collect()
        };
        assert_eq!(names("rancher-flat-network"), ["/rancher-flat-network@"]);
        assert_eq!(names("shop/a@eth1, b,"), ["shop/a@eth1", "/b@"]);
        assert_eq!(
            names(r#"[{"name":"a","interface":"eth1"},{"name":"b","namespace":"shop"}]"#),
            ["/a@eth1", "shop/b@"]
        );
        assert!(names("").is_empty() && names("[1]").is_empty());
    }

    #[test]
    fn an_interface_is_found_with_and_without_namespace() {
        let status = |name: &str| NetworkStatus {
            name: name.to_owned(),
            interface: "eth1".to_owned(),
            ips: vec!["10.2.3.100".to_owned(), "nonsense".to_owned()],
        };
        let wanted = |text: &str| NetworkRef::parse_all(text).remove(0);
        assert!(wanted("flat").is(&status("shop/flat"), "shop"));
        assert!(wanted("flat").is(&status("flat"), "shop"));
        assert!(wanted("lab/flat").is(&status("lab/flat"), "shop"));
        assert!(!wanted("flat").is(&status("lab/flat"), "shop"));
        assert!(!wanted("flat@eth2").is(&status("shop/flat"), "shop"));
        assert_eq!(status("flat").addresses().count(), 1);
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let cut = |end: &str| shortened(&format!("{}-{end}", "a".repeat(60)), 50);
        assert!(cut("x").len() <= 50 && cut("x") == cut("x"));
        assert_ne!(cut("x"), cut("y"));
    }
}
