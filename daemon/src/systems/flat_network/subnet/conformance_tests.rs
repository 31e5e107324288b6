use std::sync::Arc;

use fipd_core::System;
use fipd_crds::flat_network::FlatNetworkSubnet;
use serde_json::{Value, json};

use super::{SubnetSource, SubnetView};
use crate::{
    controller::{
        kind::Kind,
        pool_source::conformance_tests::{Subject, conforms},
        site::Site,
        store::Objects,
    },
    systems::flat_network::{names::SUBNET_OBJECT, settings::FlatNetworkSettings},
};

struct FlatSubnets;

impl Subject for FlatSubnets {
    type Source = SubnetSource;

    const KIND: Kind = SUBNET_OBJECT;

    fn system() -> System {
        System::flat_network()
    }

    fn source(_: &Arc<Site>) -> SubnetSource {
        SubnetSource {
            settings: FlatNetworkSettings {
                namespace: "ns".into(),
                ..FlatNetworkSettings::default()
            },
            subnets: Objects::new(),
            ips: Objects::new(),
            accepted: Arc::default(),
        }
    }

    fn object(first: u8, last: u8) -> Value {
        json!({
            "flatMode": "macvlan", "master": "eth0", "cidr": "10.7.0.0/24",
            "ranges": [{ "from": format!("10.7.0.{first}"), "to": format!("10.7.0.{last}") }],
        })
    }

    fn view(object: Value) -> Option<SubnetView> {
        let object: Result<FlatNetworkSubnet, _> = serde_json::from_value(object);
        object.ok().map(SubnetView::of)
    }
}

#[tokio::test]
async fn flat_network_subnets_conform() {
    assert_eq!(conforms::<FlatSubnets>().await, Ok(()));
}
