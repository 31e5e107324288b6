use std::sync::Arc;

use fipd_core::{ClusterId, Origin, PoolSpec, System, testing};
use serde_json::{Value, json};

use super::{FloatingIpController, ManagedFloatingIps, controller};
use crate::{
    controller::{
        address_user::conformance_tests::Subject, client::Remote, events::Events, site::Site,
    },
    systems::rancher_fip::{
        kinds::FLOATING_IP,
        names::PROJECT,
        rancher::{Data, Ranchers},
    },
};

impl Subject for ManagedFloatingIps {
    const ADDRESS: &'static str = "ipAddr";

    fn system() -> System {
        System::rancher_fip()
    }

    fn pool(cluster: &ClusterId, name: &str, addresses: &str) -> PoolSpec {
        PoolSpec {
            origin: Origin::Mirror {
                system: System::rancher_fip(),
                cluster: cluster.clone(),
                object: name.into(),
                uid: format!("u-{name}").into(),
            },
            ..testing::pool_spec(&format!("rancher-fip/x/{name}"), &[addresses])
        }
    }

    fn controller(
        site: &Arc<Site>,
        remote: Remote,
        events: &Arc<Events>,
    ) -> Arc<FloatingIpController> {
        let data = Data::new(site.id.clone(), remote, site.cancel());
        let context = data.context(FLOATING_IP, site, events, &data.fips);
        controller(context, Ranchers::default().get("x"), data)
    }

    fn object() -> Value {
        json!({
            "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIP",
            "metadata": { "labels": { PROJECT: "p-1" } }, "spec": { "floatingIPPool": "net" },
        })
    }

    fn naming(address: &str) -> Value {
        json!({ "spec": { "ipAddr": address } })
    }

    fn redirecting(pool: &str) -> Value {
        json!({ "spec": { "floatingIPPool": pool } })
    }
}
