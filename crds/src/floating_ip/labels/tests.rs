use std::collections::BTreeMap;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| {
            (
                format!("rancher.k8s.binbash.org/{key}"),
                (*value).to_owned(),
            )
        })
        .collect()
}

fn found(labels: &BTreeMap<String, String>) -> Vec<(Slot, String, String)> {
    let entries = services(labels).into_iter();
    entries
        .map(|entry| (entry.slot, entry.namespace, entry.name))
        .collect()
}

fn entry(slot: Slot, namespace: &str, name: &str) -> (Slot, String, String) {
    (slot, namespace.to_owned(), name.to_owned())
}

#[test]
fn both_generations_are_read_in_order_of_their_numbers() {
    let labels = labels(&[
        ("service-name", "old"),
        ("service-namespace", "shop"),
        ("service-10-name", "ten"),
        ("service-10-namespace", "shop"),
        ("service-2-name", "two"),
        ("service-2-namespace", "shop"),
    ]);
    let wanted = [
        entry(Slot::Single, "shop", "old"),
        entry(Slot::Numbered(2), "shop", "two"),
        entry(Slot::Numbered(10), "shop", "ten"),
    ];
    assert_eq!(found(&labels), wanted);
    assert_eq!(next_service_id(&labels), 11);
}

#[test]
fn one_half_is_enough_and_none_is_nothing() {
    let labels = labels(&[
        ("service-0-name", "lone"),
        ("service-1-namespace", "shop"),
        ("service-2-name", ""),
        ("service-2-namespace", ""),
        ("service-name", ""),
    ]);
    let wanted = [
        entry(Slot::Numbered(0), "", "lone"),
        entry(Slot::Numbered(1), "shop", ""),
    ];
    assert_eq!(found(&labels), wanted);
    assert_eq!(
        next_service_id(&labels),
        3,
        "an empty entry's number is taken all the same"
    );
}

#[test]
fn labels_of_another_form_are_no_services() {
    let mut labels = labels(&[
        ("service-x-name", "a"),
        ("service--name", "a"),
        ("service-+1-name", "a"),
        ("service-1-port", "a"),
        ("service-1-name-2", "a"),
        ("service-99999999999999999999-name", "a"),
        ("service", "a"),
        ("project-name", "p-abcde"),
        ("floatingip-group", "web"),
    ]);
    labels.insert("example.com/service-1-name".to_owned(), "a".to_owned());
    let before = labels.clone();
    assert_eq!(found(&labels), []);
    assert_eq!(next_service_id(&labels), 0);
    assert!(!remove_all_services(&mut labels));
    assert_eq!(labels, before);
}

#[test]
fn adding_uses_the_next_number_once_per_service() {
    let mut found_labels = labels(&[("service-4-name", "four"), ("service-4-namespace", "shop")]);
    assert!(add_service(&mut found_labels, "shop", "five"));
    assert!(!add_service(&mut found_labels, "shop", "five"));
    assert!(!add_service(&mut found_labels, "shop", "four"));
    let wanted = labels(&[
        ("service-4-name", "four"),
        ("service-4-namespace", "shop"),
        ("service-5-name", "five"),
        ("service-5-namespace", "shop"),
    ]);
    assert_eq!(found_labels, wanted);
}

#[test]
fn removing_takes_the_pair_out_of_either_generation() {
    let mut found_labels = labels(&[
        ("service-name", "web"),
        ("service-namespace", "shop"),
        ("service-0-name", "web"),
        ("service-0-namespace", "other"),
        ("service-003-name", "web"),
        ("service-3-namespace", "shop"),
        ("cluster-name", "c-m-1"),
    ]);
    assert!(remove_service(&mut found_labels, "shop", "web"));
    let wanted = labels(&[
        ("service-0-name", "web"),
        ("service-0-namespace", "other"),
        ("cluster-name", "c-m-1"),
    ]);
    assert_eq!(found_labels, wanted);
    assert!(!remove_service(&mut found_labels, "shop", "web"));

    assert!(remove_all_services(&mut found_labels));
    assert_eq!(found_labels, labels(&[("cluster-name", "c-m-1")]));
}

#[test]
fn names_of_downstream_objects() {
    assert_eq!(project_secret("p-abcde"), "rancher-fip-config-p-abcde");
    assert_eq!(pool_object("192.0.2.7".parse().unwrap()), "ip4-192.0.2.7");
    assert_eq!(
        pool_object("2001:DB8::7".parse().unwrap()),
        "ip6-2001.db8.0.0.0.0.0.7"
    );
    assert_eq!(legacy_pool_object("shop", "web"), "rancher-fip-shop-web");
}
