use std::sync::Arc;

use fipd_core::{ClusterId, Origin, PoolSpec, System, testing};
use serde_json::{Value, json};

use super::{IpClaimController, IpClaims, observe::AddressView};
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
    host::probe::Prober,
    systems::cluster_api::{names::CLAIM, pool::growth::PoolUsers},
};

impl Subject for IpClaims {
    const ADDRESS: &'static str = "addressRef";
    const SAYS_ALLOCATED: bool = false;
    const MAKES: Option<&'static str> = Some("ipaddresses");

    fn system() -> System {
        System::cluster_api()
    }

    fn pool(cluster: &ClusterId, name: &str, addresses: &str) -> PoolSpec {
        PoolSpec {
            origin: Origin::Mirror {
                system: System::cluster_api(),
                cluster: cluster.clone(),
                object: name.into(),
                uid: format!("u-{name}").into(),
            },
            prefix_len: Some(24),
            ..testing::pool_spec(&format!("cluster-api/x/{name}"), &[addresses])
        }
    }

    fn controller(
        site: &Arc<Site>,
        remote: Remote,
        events: &Arc<Events>,
    ) -> Arc<IpClaimController> {
        let (site, events) = (Arc::clone(site), Arc::clone(events));
        let context = Context::new(CLAIM, site, remote, events, Objects::new());
        let prober = Prober::beside("/nonexistent/fipd.sock".as_ref());
        IpClaimController::new(
            context,
            Self::new(Vec::new(), &PoolUsers::default(), &prober),
        )
    }

    fn object() -> Value {
        json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim",
            "spec": { "poolRef": {
                "apiGroup": "ipam.cluster.x-k8s.io", "kind": "GlobalInClusterIPPool", "name": "net",
            } },
        })
    }

    fn naming(address: &str) -> Value {
        json!({ "metadata": { "annotations": { "fipd.io/address": address } } })
    }

    fn redirecting(pool: &str) -> Value {
        json!({ "spec": { "poolRef": { "name": pool } } })
    }

    fn address(server: &FakeApi, object: &Value) -> Value {
        let name = object["status"]["addressRef"]["name"].as_str();
        let made = name.and_then(|name| server.made.get(&Key::new("ns", name)));
        made.map_or(Value::Null, |made| made["spec"]["address"].clone())
    }

    fn copy_address(server: &mut FakeApi, from: &Key, to: &Key) {
        let mut made = server.made[from].clone();
        made["metadata"]["name"] = json!(&*to.name);
        made["metadata"]["uid"] = json!("m-copy");
        made["spec"]["claimRef"]["name"] = json!(&*to.name);
        server.made.insert(to.clone(), made);
        let status = json!({ "status": { "addressRef": { "name": &*to.name } } });
        server.edit(to, &status);
    }

    fn observe(controller: &IpClaimController, server: &FakeApi) {
        let store = &controller.user.addresses;
        for key in store.keys() {
            if !server.made.contains_key(&key) {
                store.remove(&key);
            }
        }
        for (key, object) in &server.made {
            let view = AddressView::of(serde_json::from_value(object.clone()).expect("one"));
            if store.get(key).is_none_or(|before| *before != view) {
                store.set(key, view);
                controller.context.queue.add(key.clone());
            }
        }
    }
}
