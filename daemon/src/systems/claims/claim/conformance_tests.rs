use std::sync::Arc;

use fipd_core::{ClusterId, PoolSpec, System, testing};
use serde_json::{Value, json};

use super::{ClaimController, ManagedClaims};
use crate::{
    clusters::ClusterSession,
    controller::{
        address_user::conformance_tests::Subject, client::Remote, context::Context, events::Events,
        site::Site, store::Objects,
    },
    systems::claims::{names::CLAIM, settings::ClaimsSettings},
};

impl Subject for ManagedClaims {
    const ADDRESS: &'static str = "address";

    fn system() -> System {
        System::claims()
    }

    fn configure(session: &mut ClusterSession) {
        let settings = "pools = [\"net\", \"far\"]\ndefault-pool = \"net\"";
        *session.settings.of_mut() = toml::from_str::<ClaimsSettings>(settings).expect("settings");
    }

    fn pool(_: &ClusterId, name: &str, addresses: &str) -> PoolSpec {
        testing::pool_spec(name, &[addresses])
    }

    fn controller(site: &Arc<Site>, remote: Remote, events: &Arc<Events>) -> Arc<ClaimController> {
        let (site, events) = (Arc::clone(site), Arc::clone(events));
        let context = Context::new(CLAIM, site, remote, events, Objects::new());
        ClaimController::new(context, Self)
    }

    fn object() -> Value {
        json!({ "apiVersion": "fipd.io/v1alpha1", "kind": "AddressClaim", "spec": {} })
    }

    fn naming(address: &str) -> Value {
        json!({ "spec": { "address": address } })
    }

    fn redirecting(pool: &str) -> Value {
        json!({ "spec": { "poolRef": { "name": pool } } })
    }
}
