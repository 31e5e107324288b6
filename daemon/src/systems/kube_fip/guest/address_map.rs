//! ConfigMap `kube-system/kubevip` in a guest, from which kube-vip's cloud provider gives addresses to Services. Pure.
//!
//! Only the keys that carry addresses of this system are written: `cidr-global` for Services of any namespace and
//! `cidr-NAMESPACE` for those of one. An annotation lists them, so that a key goes with its last address.

use std::{collections::BTreeSet, net::IpAddr};

use fipd_core::{AddressSpec, Span};
use fipd_crds::labels::KUBE_VIP_KEYS;
use fipd_crds::names::is_label;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use crate::guests::objects::{Texts, differing};

const GLOBAL: &str = "cidr-global";

/// An address of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestAddress {
    pub address: IpAddr,
    /// The one namespace whose Services may have it; `None`: any.
    pub namespace: Option<String>,
}

/// Whether Services of a namespace of this name can have addresses of their own: `cidr-global` is for those of all.
pub fn is_namespace(name: &str) -> bool {
    is_label(name) && key_of(name) != GLOBAL
}

fn key_of(namespace: &str) -> String {
    format!("cidr-{namespace}")
}

/// The keys for these addresses, each value in the order given.
pub fn wanted(addresses: &[GuestAddress]) -> Texts {
    let mut keys = Texts::new();
    for one in addresses {
        let key = one.namespace.as_ref();
        let key = key.map_or_else(|| GLOBAL.to_owned(), |name| key_of(name));
        let text = keys.entry(key).or_default();
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&ipnet::IpNet::from(one.address).to_string());
    }
    keys
}

/// What to merge into the ConfigMap so that its keys of fipd's are exactly these; `None`: they are.
pub fn change(found: &ConfigMap, wanted: &Texts) -> Option<Value> {
    let have = found.data.clone().unwrap_or_default();
    let mut data = differing(&have, wanted, false).unwrap_or_default();
    let before = noted(found);
    let gone = before.iter().filter(|key| !wanted.contains_key(**key));
    let gone = gone.filter(|key| have.contains_key(**key));
    data.extend(gone.map(|key| ((*key).to_owned(), Value::Null)));
    let now: BTreeSet<&str> = wanted.keys().map(String::as_str).collect();
    let mut change = Map::new();
    if before != now {
        let note = match now.is_empty() {
            true => Value::Null,
            false => json!(keys_of(wanted)),
        };
        change.insert(
            "metadata".into(),
            json!({ "annotations": { KUBE_VIP_KEYS: note } }),
        );
    }
    if !data.is_empty() {
        change.insert("data".into(), Value::Object(data));
    }
    (!change.is_empty()).then_some(Value::Object(change))
}

/// The ConfigMap where there is none.
pub fn new(wanted: &Texts) -> Value {
    json!({ "metadata": { "annotations": { KUBE_VIP_KEYS: keys_of(wanted) } }, "data": wanted })
}

/// Whether it holds nothing but what fipd wrote.
pub fn is_all_ours(found: &ConfigMap) -> bool {
    let noted = noted(found);
    let data = found.data.iter().flatten();
    !noted.is_empty()
        && found
            .binary_data
            .as_ref()
            .is_none_or(|data| data.is_empty())
        && data
            .into_iter()
            .all(|(key, _)| noted.contains(key.as_str()))
}

/// Whether a Service may get the address from these keys: from the CIDRs of a `cidr-...` or the ranges of a `range-...`.
pub fn offers(data: &Texts, address: IpAddr) -> bool {
    let keys = data.iter().filter(|(key, _)| {
        let mut kinds = ["cidr-", "range-"].into_iter();
        kinds.any(|kind| key.starts_with(kind))
    });
    let parts = keys.flat_map(|(_, value)| value.split(','));
    parts
        .filter_map(|part| span(part.trim()))
        .any(|span| span.contains(address))
}

/// A CIDR, which may have host bits, or a range.
fn span(text: &str) -> Option<Span> {
    let net = text.parse().ok().map(Span::of_net);
    net.or_else(|| Some(text.parse::<AddressSpec>().ok()?.span()))
}

fn keys_of(wanted: &Texts) -> String {
    wanted.keys().cloned().collect::<Vec<_>>().join(",")
}

fn noted(found: &ConfigMap) -> BTreeSet<&str> {
    let note = found.annotations().get(KUBE_VIP_KEYS);
    let keys = note.map_or("", String::as_str).split(',');
    keys.filter(|key| !key.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::merge_patch::testing;

    fn addresses(all: &[(&str, Option<&str>)]) -> Vec<GuestAddress> {
        let address = |(text, namespace): &(&str, Option<&str>)| GuestAddress {
            address: text.parse().expect("an address"),
            namespace: namespace.map(str::to_owned),
        };
        all.iter().map(address).collect()
    }

    fn map(value: Value) -> ConfigMap {
        serde_json::from_value(value).expect("a ConfigMap")
    }

    /// The ConfigMap after a merge patch.
    fn merged(found: &ConfigMap, change: &Value) -> ConfigMap {
        let value = serde_json::to_value(found).expect("JSON");
        map(testing::merged(&value, change))
    }

    #[test]
    fn addresses_are_for_any_namespace_or_for_one() {
        let all = [
            ("10.0.0.5", None),
            ("10.0.0.9", Some("shop")),
            ("2001:db8::5", None),
        ];
        let keys = wanted(&addresses(&all));
        let expected = [
            ("cidr-global", "10.0.0.5/32,2001:db8::5/128"),
            ("cidr-shop", "10.0.0.9/32"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(keys, Texts::from(expected));
    }

    #[test]
    fn what_others_wrote_stays_and_a_key_goes_with_its_last_address() {
        let both = wanted(&addresses(&[
            ("10.0.0.5", None),
            ("10.0.0.9", Some("shop")),
        ]));
        let theirs = map(json!({ "data": {
            "cidr-global": "10.0.0.1/32", "range-global": "10.9.0.1-10.9.0.9", "cidr-shop2": "x",
        } }));
        let first = change(&theirs, &both).expect("a change");
        let ours = merged(&theirs, &first);
        let data = ours.data.clone().expect("data");
        assert_eq!(data["cidr-global"], "10.0.0.5/32");
        assert_eq!(data["cidr-shop"], "10.0.0.9/32");
        assert_eq!(data["range-global"], "10.9.0.1-10.9.0.9");
        assert_eq!(change(&ours, &both), None, "nothing more to write");
        let one = wanted(&addresses(&[("10.0.0.5", None)]));
        let ours = merged(&ours, &change(&ours, &one).expect("a change"));
        assert!(!ours.data.clone().expect("data").contains_key("cidr-shop"));
        let none = merged(&ours, &change(&ours, &Texts::new()).expect("a change"));
        let left: Vec<_> = none.data.clone().expect("data").into_keys().collect();
        assert_eq!(left, ["cidr-shop2", "range-global"]);
        assert_eq!(change(&none, &Texts::new()), None);
    }

    #[test]
    fn what_a_map_offers_is_read_as_the_cloud_provider_does() {
        let data = |key: &str, value: &str| Texts::from([(key.to_owned(), value.to_owned())]);
        let offered = |data: &Texts| offers(data, "10.0.0.5".parse().expect("an address"));
        for (key, value) in [
            ("cidr-global", "10.0.0.5/32"),
            ("cidr-shop", "10.0.0.9/32, 10.0.0.0/24"),
            ("cidr-global", "10.0.0.9/24"),
            ("range-global", "10.0.0.1-10.0.0.5"),
        ] {
            assert!(offered(&data(key, value)), "{key}: {value}");
        }
        for (key, value) in [
            ("cidr-global", "10.0.0.6/32,x,2001:db8::/32"),
            ("range-shop", "10.0.0.6-10.0.0.9"),
            ("interface-global", "10.0.0.5"),
        ] {
            assert!(!offered(&data(key, value)), "{key}: {value}");
        }
    }

    #[test]
    fn no_namespace_has_the_key_of_all() {
        assert!(is_namespace("shop"));
        assert!(!is_namespace("global") && !is_namespace("No"));
    }

    #[test]
    fn a_map_with_nothing_else_in_it_is_fipds() {
        let keys = wanted(&addresses(&[("10.0.0.5", None)]));
        let mut made = map(new(&keys));
        assert_eq!(change(&made, &keys), None);
        assert!(is_all_ours(&made));
        made.data
            .get_or_insert_default()
            .insert("x".into(), "y".into());
        assert!(!is_all_ours(&made));
        assert!(!is_all_ours(&map(
            json!({ "data": { "cidr-global": "x" } })
        )));
    }
}
