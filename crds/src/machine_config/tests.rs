use serde_json::{Value, json};

use super::*;

fn config(fields: &Value) -> HarvesterConfig {
    let mut object = json!({
        "apiVersion": "rke-machine-config.cattle.io/v1", "kind": "HarvesterConfig",
        "metadata": {"name": "nc-guest-pool1-x7k2p", "namespace": "fleet-default"},
    });
    let map = object.as_object_mut().unwrap();
    map.extend(fields.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn networks(fields: &Value) -> Vec<(String, String, String)> {
    let interfaces = config(fields).spec.interfaces();
    interfaces
        .into_iter()
        .map(|found| (found.namespace, found.network, found.mac_address))
        .collect()
}

fn triple(namespace: &str, network: &str, mac: &str) -> (String, String, String) {
    (namespace.to_owned(), network.to_owned(), mac.to_owned())
}

#[test]
fn every_interface_is_read_in_order() {
    let info = r#"{"interfaces":[{"networkName":"tenants/vlan-7","macAddress":"02:00:00:00:00:07"},{"networkName":"tenants/vlan-8"}]}"#;
    let fields = json!({"vmNamespace": "guests", "networkInfo": info, "networkName": "older/ignored", "cpuCount": "4"});
    assert_eq!(config(&fields).spec.vm_namespace, "guests");
    assert_eq!(
        networks(&fields),
        [
            triple("tenants", "vlan-7", "02:00:00:00:00:07"),
            triple("tenants", "vlan-8", "")
        ]
    );
}

#[test]
fn the_older_field_counts_when_the_newer_says_nothing() {
    let older = [triple("tenants", "vlan-7", "")];
    for info in [
        json!(""),
        json!("not json"),
        json!("{}"),
        json!(r#"{"interfaces":null}"#),
        json!(7),
        Value::Null,
    ] {
        let fields = json!({"networkInfo": info, "networkName": "tenants/vlan-7"});
        assert_eq!(networks(&fields), older, "networkInfo {info}");
    }
}

#[test]
fn what_names_no_network_is_left_out() {
    let info = r#"{"interfaces":[{"macAddress":"02:00:00:00:00:07"},{"networkName":"tenants/"},{"networkName":"bare"},7]}"#;
    assert_eq!(
        networks(&json!({"networkInfo": info})),
        [triple("", "bare", "")]
    );
    assert_eq!(networks(&json!({})), []);
}
