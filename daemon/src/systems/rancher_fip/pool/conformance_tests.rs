use std::sync::Arc;

use fipd_core::System;
use fipd_crds::floating_ip::FloatingIPPool;
use serde_json::{Value, json};

use super::{FloatingIpPoolSource, view};
use crate::{
    controller::{
        client::Remote,
        kind::Kind,
        pool_source::conformance_tests::{Subject, conforms},
        site::Site,
    },
    systems::rancher_fip::{kinds::POOL, rancher::Data},
};

struct FloatingIpPools;

impl Subject for FloatingIpPools {
    type Source = FloatingIpPoolSource;

    const KIND: Kind = POOL;

    fn system() -> System {
        System::rancher_fip()
    }

    fn source(site: &Arc<Site>) -> FloatingIpPoolSource {
        let remote = Remote::new(site.session.client.clone());
        let data = Data::new(site.id.clone(), remote, site.cancel());
        FloatingIpPoolSource::new(site, &data)
    }

    fn object(first: u8, last: u8) -> Value {
        let [first, last] = [first, last].map(|last| format!("10.7.0.{last}"));
        json!({ "ipConfig": { "subnet": "10.7.0.0/24", "pool": { "start": first, "end": last } } })
    }

    fn view(object: Value) -> Option<FloatingIPPool> {
        serde_json::from_value(object).ok().map(view)
    }
}

#[tokio::test]
async fn floating_ip_pools_conform() {
    assert_eq!(conforms::<FloatingIpPools>().await, Ok(()));
}
