//! Annotations and labels of macvlan as flat-network has them.

use std::collections::BTreeMap;

use fipd_crds::{
    flat_network::names::{self as flat_network, DEFAULT_NETWORK, NETWORKS},
    macvlan::names as macvlan,
};
use serde_json::Value;

use super::attachment::{self, AttachmentEdit};

/// Annotations, or labels.
pub type Texts = BTreeMap<String, String>;

/// Annotations that flat-network has under another name. All others of macvlan go.
const RENAMED: [(&str, &str); 6] = [
    (macvlan::IP, flat_network::IP),
    (macvlan::SUBNET, flat_network::SUBNET),
    (macvlan::MAC, flat_network::MAC),
    (macvlan::INGRESS, flat_network::INGRESS),
    (macvlan::MACVLAN_SERVICE, flat_network::FLAT_NETWORK_SERVICE),
    (macvlan::IPV6TO4, flat_network::IPV6TO4),
];

/// What changes in the annotations and labels of an object or a template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataChange {
    /// New values of annotations; `None` removes one.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Labels that are removed.
    pub labels: Vec<String>,
    /// Each change, for people.
    pub lines: Vec<String>,
    /// What somebody should look at.
    pub notes: Vec<String>,
}

/// The texts below `metadata.FIELD`; values of another kind cannot be there.
pub fn texts(metadata: &Value, field: &str) -> Texts {
    let all = metadata[field].as_object().into_iter().flatten();
    all.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// Whether pods with these annotations are on a network of macvlan.
pub fn is_on_macvlan(annotations: &Texts) -> bool {
    both(annotations, macvlan::IP, macvlan::SUBNET)
}

/// Whether pods with these annotations are on a flat network.
pub fn is_on_flat_network(annotations: &Texts) -> bool {
    both(annotations, flat_network::IP, flat_network::SUBNET)
}

fn both(annotations: &Texts, ip: &str, subnet: &str) -> bool {
    [ip, subnet]
        .iter()
        .all(|key| annotations.get(*key).is_some_and(|value| !value.is_empty()))
}

/// Whether such pods get addresses that they name, and no others.
pub fn names_addresses(annotations: &Texts) -> bool {
    let keys = [flat_network::IP, macvlan::IP].into_iter();
    let values = keys.filter_map(|key| annotations.get(key));
    let mut values = values.map(|value| value.trim());
    let value = values.find(|value| !value.is_empty());
    value.is_some_and(|value| value != "auto")
}

/// The subnet of such pods after the migration.
pub fn subnet(annotations: &Texts) -> Option<&str> {
    let keys = [flat_network::SUBNET, macvlan::SUBNET];
    let values = keys.iter().filter_map(|key| annotations.get(*key));
    values.map(String::as_str).find(|value| !value.is_empty())
}

impl MetadataChange {
    /// The annotations of flat-network in the place of those of macvlan. Labels of macvlan go, unless they are in `kept`.
    pub fn of(annotations: &Texts, labels: &Texts, kept: &Texts) -> Self {
        let mut change = Self::default();
        for (key, value) in annotations {
            if macvlan::is_of_macvlan(key) {
                change.rename(key, value, annotations);
            } else if [NETWORKS, DEFAULT_NETWORK].contains(&&**key) {
                change.attach(key, value);
            }
        }
        let labels = labels.keys().filter(|key| macvlan::is_of_macvlan(key));
        for key in labels {
            if kept.contains_key(key) {
                let note = format!("label {key} stays, because the selector names it");
                change.notes.push(note);
            } else {
                change.lines.push(format!("label {key} is removed"));
                change.labels.push(key.clone());
            }
        }
        change
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn rename(&mut self, key: &str, value: &str, all: &Texts) {
        let renamed = RENAMED.iter().find(|(old, _)| *old == key);
        let there = |new: &str| all.get(new).filter(|there| !there.is_empty());
        let line = match renamed.map(|(_, new)| (*new, there(new))) {
            None => format!("annotation {key}: {value:?} is removed"),
            Some((new, Some(there))) => {
                format!("annotation {key}: {value:?} is removed, because {new}: {there:?} is there")
            }
            Some((new, None)) => {
                let value = value.to_owned();
                let line = format!("annotation {key} becomes {new}: {value:?}");
                self.annotations.insert(new.to_owned(), Some(value));
                line
            }
        };
        self.annotations.insert(key.to_owned(), None);
        self.lines.push(line);
    }

    fn attach(&mut self, key: &str, value: &str) {
        match attachment::convert(value) {
            AttachmentEdit::Keep => {}
            AttachmentEdit::Replace(converted) => {
                let [before, after] = [value, &converted].map(one_line);
                let line = format!("annotation {key}: {before} becomes {after}");
                self.lines.push(line);
                self.annotations.insert(key.to_owned(), Some(converted));
            }
            AttachmentEdit::Unreadable => self.notes.push(format!(
                "annotation {key}: {value:?} is not understood and stays; {} must become {} there",
                macvlan::ATTACHMENT,
                flat_network::ATTACHMENT
            )),
        }
    }
}

/// The same in one line, and without what would change a terminal.
fn one_line(text: &str) -> String {
    let parts = text.split(|c: char| c.is_whitespace() || c.is_control());
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<const N: usize>(texts: [(&str, &str); N]) -> Texts {
        let owned = texts.map(|(key, value)| (key.to_owned(), value.to_owned()));
        owned.into_iter().collect()
    }

    fn annotations(change: &MetadataChange) -> Vec<(&str, Option<&str>)> {
        let all = change.annotations.iter();
        all.map(|(key, value)| (key.as_str(), value.as_deref()))
            .collect()
    }

    #[test]
    fn each_annotation_of_the_table_gets_its_new_name() {
        for (old, new) in [
            (
                "macvlan.pandaria.cattle.io/ip",
                "flatnetwork.pandaria.io/ip",
            ),
            (
                "macvlan.pandaria.cattle.io/subnet",
                "flatnetwork.pandaria.io/subnet",
            ),
            (
                "macvlan.pandaria.cattle.io/mac",
                "flatnetwork.pandaria.io/mac",
            ),
            (
                "macvlan.panda.io/ingress",
                "flatnetwork.pandaria.io/ingress",
            ),
            (
                "macvlan.panda.io/macvlanService",
                "flatnetwork.pandaria.io/flatNetworkService",
            ),
            (
                "macvlan.panda.io/ipv6to4",
                "flatnetwork.pandaria.io/ipv6to4",
            ),
        ] {
            let change = MetadataChange::of(&all([(old, "v-1")]), &Texts::new(), &Texts::new());
            assert_eq!(annotations(&change), [(new, Some("v-1")), (old, None)]);
            assert!(change.lines[0].contains(new) && change.lines[0].contains("v-1"));
        }
    }

    #[test]
    fn others_of_macvlan_go_and_are_named_and_all_else_stays() {
        let before = all([
            ("macvlan.panda.io/ipDelayReuseTimestamp", "1700000000"),
            ("macvlan.pandaria.cattle.io/whatever", "x"),
            ("app", "web"),
        ]);
        let change = MetadataChange::of(&before, &Texts::new(), &Texts::new());
        assert_eq!(
            annotations(&change),
            [
                ("macvlan.panda.io/ipDelayReuseTimestamp", None),
                ("macvlan.pandaria.cattle.io/whatever", None),
            ]
        );
        assert_eq!(change.lines.len(), 2);
        assert!(change.lines[1].contains("\"x\""), "{:?}", change.lines);
    }

    #[test]
    fn a_value_of_flat_network_that_is_there_wins() {
        let before = all([
            ("macvlan.pandaria.cattle.io/ip", "auto"),
            ("flatnetwork.pandaria.io/ip", "10.0.0.5"),
        ]);
        let change = MetadataChange::of(&before, &Texts::new(), &Texts::new());
        assert_eq!(
            annotations(&change),
            [("macvlan.pandaria.cattle.io/ip", None)]
        );
        assert!(change.lines[0].contains("10.0.0.5"), "{:?}", change.lines);
    }

    #[test]
    fn an_empty_value_of_flat_network_does_not_win() {
        let before = all([
            ("macvlan.pandaria.cattle.io/ip", "auto"),
            ("flatnetwork.pandaria.io/ip", ""),
        ]);
        let change = MetadataChange::of(&before, &Texts::new(), &Texts::new());
        let new = change.annotations.get("flatnetwork.pandaria.io/ip");
        assert_eq!(new, Some(&Some("auto".to_owned())));
    }

    #[test]
    fn what_is_shown_is_one_line() {
        assert_eq!(one_line(" a\n\u{1b}[2J  b\r"), "a [2J b");
    }

    #[test]
    fn networks_are_converted_and_what_is_not_understood_is_a_note() {
        let before = all([
            (
                NETWORKS,
                r#"[{"interface":"eth1","name":"static-macvlan-cni-attach"}]"#,
            ),
            (DEFAULT_NETWORK, "[{static-macvlan-cni-attach"),
        ]);
        let change = MetadataChange::of(&before, &Texts::new(), &Texts::new());
        let expected = r#"[{"interface":"eth1","name":"rancher-flat-network"}]"#;
        assert_eq!(annotations(&change), [(NETWORKS, Some(expected))]);
        assert!(
            change.notes[0].contains(DEFAULT_NETWORK),
            "{:?}",
            change.notes
        );
    }

    #[test]
    fn labels_of_macvlan_go_unless_a_selector_names_them() {
        let labels = all([
            ("macvlan.panda.io/macvlanIpType", "auto"),
            ("macvlan.panda.io/selectedMac", "x"),
            ("app", "web"),
        ]);
        let kept = all([("macvlan.panda.io/selectedMac", "x")]);
        let change = MetadataChange::of(&Texts::new(), &labels, &kept);
        assert_eq!(change.labels, ["macvlan.panda.io/macvlanIpType"]);
        assert_eq!(change.notes.len(), 1);
    }

    #[test]
    fn pods_are_on_macvlan_with_both_annotations_and_on_a_subnet() {
        let both = all([(macvlan::IP, "auto"), (macvlan::SUBNET, "lab")]);
        assert!(is_on_macvlan(&both) && !is_on_flat_network(&both));
        assert_eq!(subnet(&both), Some("lab"));
        for one in [
            all([(macvlan::IP, "auto"), (macvlan::SUBNET, "")]),
            all([(macvlan::IP, "auto"), (flat_network::SUBNET, "lab")]),
        ] {
            assert!(!is_on_macvlan(&one) && !is_on_flat_network(&one));
        }
        let moved = all([
            (flat_network::IP, "auto"),
            (flat_network::SUBNET, "new"),
            (macvlan::SUBNET, "old"),
        ]);
        assert!(is_on_flat_network(&moved));
        assert_eq!(subnet(&moved), Some("new"));
    }

    #[test]
    fn pods_name_addresses_or_take_what_comes() {
        for (ip, names) in [("auto", false), ("", false), ("10.0.0.5-10.0.0.6", true)] {
            let old = all([(macvlan::IP, ip)]);
            assert_eq!(names_addresses(&old), names, "{ip:?}");
            let moved = all([(macvlan::IP, "10.0.0.9"), (flat_network::IP, ip)]);
            assert_eq!(names_addresses(&moved), names || ip.is_empty(), "{ip:?}");
        }
        assert!(!names_addresses(&Texts::new()));
    }

    #[test]
    fn texts_are_read_from_whatever_is_there() {
        let metadata = serde_json::json!({ "labels": { "a": "b", "c": 1 }, "annotations": null });
        assert_eq!(texts(&metadata, "labels"), all([("a", "b")]));
        assert_eq!(texts(&metadata, "annotations"), Texts::new());
        assert_eq!(texts(&Value::Null, "labels"), Texts::new());
    }
}
