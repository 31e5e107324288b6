use std::sync::Arc;

use fipd_core::{ClusterId, Origin, PoolSpec, System, testing};
use serde_json::{Value, json};

use super::{GuestFipController, GuestFloatingIps};
use crate::{
    controller::{
        address_user::conformance_tests::Subject, client::Remote, context::Context, events::Events,
        site::Site, store::Objects,
    },
    systems::kube_fip::names::FLOATING_IP,
};

impl Subject for GuestFloatingIps {
    const ADDRESS: &'static str = "address";
    const UNKNOWN_POOL: &'static str = "RangeNotFound";

    fn system() -> System {
        System::kube_fip()
    }

    fn pool(cluster: &ClusterId, name: &str, addresses: &str) -> PoolSpec {
        PoolSpec {
            origin: Origin::Mirror {
                system: System::kube_fip(),
                cluster: cluster.clone(),
                object: name.into(),
                uid: format!("u-{name}").into(),
            },
            ..testing::pool_spec(&format!("kube-fip/x/{name}"), &[addresses])
        }
    }

    fn controller(
        site: &Arc<Site>,
        remote: Remote,
        events: &Arc<Events>,
    ) -> Arc<GuestFipController> {
        let (site, events) = (Arc::clone(site), Arc::clone(events));
        let context = Context::new(FLOATING_IP, site, remote, events, Objects::new());
        GuestFipController::new(context, Self::default())
    }

    fn object() -> Value {
        json!({
            "apiVersion": "kubefip.k8s.binbash.org/v1", "kind": "FloatingIP",
            "metadata": { "annotations": { "clustername": "guest", "fiprange": "net" } },
        })
    }

    fn naming(address: &str) -> Value {
        json!({ "spec": { "ipaddress": address } })
    }

    fn original(address: &str) -> Option<Value> {
        let mut object = Self::object();
        object["spec"] = json!({ "ipaddress": address });
        Some(object)
    }

    fn redirecting(pool: &str) -> Value {
        json!({ "metadata": { "annotations": { "fiprange": pool } } })
    }
}
