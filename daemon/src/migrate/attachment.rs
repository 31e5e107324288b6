//! The annotations by which Multus attaches a pod to networks, and a Service to one.

use fipd_crds::{
    flat_network::names::ATTACHMENT as FLAT_NETWORK, macvlan::names::ATTACHMENT as MACVLAN,
};
use serde_json::Value;

/// What an annotation is after the migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentEdit {
    /// It does not name macvlan's network and stays.
    Keep,
    /// The same with flat-network's network.
    Replace(String),
    /// It names macvlan's network in a form that is not understood.
    Unreadable,
}

/// Replaces macvlan's network by flat-network's; other networks, interfaces and further fields stay.
///
/// Multus takes a JSON list of objects with a `name`, or names separated by commas as `[NAMESPACE/]NAME[@INTERFACE]`.
pub fn convert(text: &str) -> AttachmentEdit {
    let converted = match text.trim_start().starts_with(['[', '{']) {
        true => convert_json(text),
        false => convert_names(text),
    };
    match converted {
        Some(converted) => AttachmentEdit::Replace(converted),
        None if text.contains(MACVLAN) => AttachmentEdit::Unreadable,
        None => AttachmentEdit::Keep,
    }
}

fn convert_json(text: &str) -> Option<String> {
    let mut networks: Value = serde_json::from_str(text).ok()?;
    if !replace(&mut networks) {
        return None;
    }
    // Keeps the order of fields and the spaces where nothing else of the text has that name.
    let in_place = text.replace(&quoted(MACVLAN), &quoted(FLAT_NETWORK));
    let same = serde_json::from_str::<Value>(&in_place).is_ok_and(|read| read == networks);
    Some(if same { in_place } else { networks.to_string() })
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// Whether anything was replaced.
fn replace(networks: &mut Value) -> bool {
    match networks {
        // Each of them, also behind one that was replaced.
        Value::Array(all) => {
            all.iter_mut()
                .map(replace)
                .filter(|replaced| *replaced)
                .count()
                > 0
        }
        Value::Object(network) => match network.get_mut("name") {
            Some(name) if *name == MACVLAN => {
                *name = FLAT_NETWORK.into();
                true
            }
            Some(_) | None => false,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn convert_names(text: &str) -> Option<String> {
    let names = text.split(',').map(str::trim);
    let converted: Vec<(String, bool)> = names
        .map(|name| match convert_name(name) {
            Some(converted) => (converted, true),
            None => (name.to_owned(), false),
        })
        .collect();
    let any = converted.iter().any(|(_, is_new)| *is_new);
    let names: Vec<String> = converted.into_iter().map(|(name, _)| name).collect();
    any.then(|| names.join(","))
}

fn convert_name(text: &str) -> Option<String> {
    let (network, interface) = match text.split_once('@') {
        Some((network, interface)) => (network, format!("@{interface}")),
        None => (text, String::new()),
    };
    let (namespace, name) = match network.rsplit_once('/') {
        Some((namespace, name)) => (format!("{namespace}/"), name),
        None => (String::new(), network),
    };
    (name == MACVLAN).then(|| format!("{namespace}{FLAT_NETWORK}{interface}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str) -> String {
        match convert(text) {
            AttachmentEdit::Replace(converted) => converted,
            other @ (AttachmentEdit::Keep | AttachmentEdit::Unreadable) => {
                panic!("{text}: {other:?}")
            }
        }
    }

    #[test]
    fn the_form_that_the_original_writes_keeps_its_order() {
        for interface in ["eth0", "eth1"] {
            let text =
                format!(r#"[{{"name":"static-macvlan-cni-attach","interface":"{interface}"}}]"#);
            let expected =
                format!(r#"[{{"name":"rancher-flat-network","interface":"{interface}"}}]"#);
            assert_eq!(replaced(&text), expected);
        }
    }

    #[test]
    fn other_spellings_of_the_same_json_are_converted() {
        for (text, expected) in [
            (
                " [ { \"interface\": \"eth1\",\n  \"name\": \"static-macvlan-cni-attach\" } ] ",
                r#"[{"interface":"eth1","name":"rancher-flat-network"}]"#,
            ),
            (
                r#"[{"name":"static\u002dmacvlan-cni-attach","interface":"eth1"}]"#,
                r#"[{"interface":"eth1","name":"rancher-flat-network"}]"#,
            ),
            (
                r#"{"name":"static-macvlan-cni-attach"}"#,
                r#"{"name":"rancher-flat-network"}"#,
            ),
        ] {
            let converted: Value = serde_json::from_str(&replaced(text)).unwrap();
            let expected: Value = serde_json::from_str(expected).unwrap();
            assert_eq!(converted, expected, "{text}");
        }
    }

    #[test]
    fn other_networks_and_fields_stay() {
        let text = r#"[{"name":"storage","namespace":"static-macvlan-cni-attach"},
            {"name":"static-macvlan-cni-attach","namespace":"lab","interface":"eth1","mac":"aa:bb:cc:dd:ee:ff"}]"#;
        let converted: Value = serde_json::from_str(&replaced(text)).unwrap();
        let expected = serde_json::json!([
            { "name": "storage", "namespace": "static-macvlan-cni-attach" },
            { "name": "rancher-flat-network", "namespace": "lab", "interface": "eth1", "mac": "aa:bb:cc:dd:ee:ff" },
        ]);
        assert_eq!(converted, expected);
    }

    #[test]
    fn names_separated_by_commas_are_converted() {
        for (text, expected) in [
            ("static-macvlan-cni-attach", "rancher-flat-network"),
            (
                "storage, kube-system/static-macvlan-cni-attach@eth1",
                "storage,kube-system/rancher-flat-network@eth1",
            ),
        ] {
            assert_eq!(replaced(text), expected);
        }
    }

    #[test]
    fn what_does_not_name_the_network_stays() {
        for text in [
            "",
            "storage",
            "[]",
            r#"[{"name":"rancher-flat-network","interface":"eth1"}]"#,
            "{not json",
        ] {
            assert_eq!(convert(text), AttachmentEdit::Keep, "{text}");
        }
    }

    #[test]
    fn what_names_the_network_and_is_not_understood_is_said() {
        for text in [
            r#"[{"name":"static-macvlan-cni-attach""#,
            "static-macvlan-cni-attach-2",
            r#"[{"network":"static-macvlan-cni-attach"}]"#,
        ] {
            assert_eq!(convert(text), AttachmentEdit::Unreadable, "{text}");
        }
    }
}
