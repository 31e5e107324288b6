use std::sync::Arc;

use fipd_core::{ClusterId, Origin, PoolSpec, System, testing};
use serde_json::{Value, json};

use super::{FlatIpController, FlatIps};
use crate::{
    controller::{
        address_user::conformance_tests::Subject,
        client::Remote,
        context::Context,
        events::Events,
        fake_api_tests::FakeApi,
        site::Site,
        store::{Key, Objects},
    },
    systems::flat_network::{names::FLAT_IP, settings::FlatNetworkSettings},
};

impl Subject for FlatIps {
    const SAYS_ALLOCATED: bool = false;
    const ADDRESS: &'static str = "addr";
    const UNKNOWN_POOL: &'static str = "SubnetNotFound";

    fn system() -> System {
        System::flat_network()
    }

    fn pool(cluster: &ClusterId, name: &str, addresses: &str) -> PoolSpec {
        let object = format!("cattle-flat-network/{name}");
        PoolSpec {
            origin: Origin::Mirror {
                system: System::flat_network(),
                cluster: cluster.clone(),
                object: object.as_str().into(),
                uid: format!("u-{name}").into(),
            },
            ..testing::pool_spec(&format!("flat-network/x/{object}"), &[addresses])
        }
    }

    fn controller(site: &Arc<Site>, remote: Remote, events: &Arc<Events>) -> Arc<FlatIpController> {
        let (site, events) = (Arc::clone(site), Arc::clone(events));
        let context = Context::new(FLAT_IP, site, remote, events, Objects::new());
        let settings = FlatNetworkSettings::default();
        FlatIpController::new(context, FlatIps::new(&settings, &Objects::new()))
    }

    fn object() -> Value {
        json!({
            "apiVersion": "flatnetwork.pandaria.io/v1", "kind": "FlatNetworkIP",
            "spec": { "subnet": "net", "podId": "p" },
        })
    }

    fn naming(address: &str) -> Value {
        json!({ "spec": { "addrs": [address] } })
    }

    fn redirecting(pool: &str) -> Value {
        json!({ "spec": { "subnet": pool } })
    }

    fn copy_address(server: &mut FakeApi, from: &Key, to: &Key) {
        let address = server.object(from)["status"]["addr"].clone();
        server.edit(
            to,
            &json!({ "status": { "addr": address, "phase": "Active" } }),
        );
    }
}
