mod asked;
mod multus;
mod neighbours;
mod subnets;

use fipd_crds::flat_network::FlatNetworkSubnetSpec;
use serde_json::{Value, json};

use super::{super::Wrong, subnet::FlatSubnet};

/// A subnet on `eth0.10`, with these fields in the place of its own.
fn spec(fields: &Value) -> FlatNetworkSubnetSpec {
    let mut spec =
        json!({ "flatMode": "macvlan", "master": "eth0", "vlan": 10, "cidr": "10.1.2.0/24" });
    for (key, value) in fields.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

fn read(fields: Value) -> Result<FlatSubnet, Wrong> {
    FlatSubnet::read(&spec(&fields))
}

#[track_caller]
fn subnet(fields: Value) -> FlatSubnet {
    read(fields.clone()).unwrap_or_else(|wrong| panic!("{fields}: {wrong}"))
}

/// The refusal names the field and has the words in it.
#[track_caller]
fn is_wrong<T: std::fmt::Debug>(result: Result<T, Wrong>, field: &str, words: &str) {
    let wrong = result.unwrap_err();
    assert_eq!(wrong.field, field, "{wrong}");
    assert!(
        wrong.allowed.contains(words),
        "{words:?} is not in: {wrong}"
    );
}
