use std::sync::Arc;

use fipd_core::System;
use fipd_crds::cluster_api::InClusterIPPool;
use serde_json::{Value, json};

use super::{InClusterSource, InClusterView, growth::PoolUsers};
use crate::{
    controller::{
        kind::Kind,
        pool_source::conformance_tests::{Subject, conforms},
        site::Site,
    },
    systems::cluster_api::{names::POOL, settings::ClusterApiSettings},
};

struct InClusterIpPools;

impl Subject for InClusterIpPools {
    type Source = InClusterSource<false>;

    const KIND: Kind = POOL;

    fn system() -> System {
        System::cluster_api()
    }

    fn source(_: &Arc<Site>) -> Self::Source {
        InClusterSource {
            settings: ClusterApiSettings::default(),
            users: PoolUsers::default(),
        }
    }

    fn object(first: u8, last: u8) -> Value {
        json!({ "addresses": [format!("10.7.0.{first}-10.7.0.{last}")], "prefix": 24 })
    }

    fn view(object: Value) -> Option<InClusterView> {
        let object: Result<InClusterIPPool, _> = serde_json::from_value(object);
        object.ok().map(InClusterView::addresses)
    }
}

#[tokio::test]
async fn in_cluster_pools_conform() {
    assert_eq!(conforms::<InClusterIpPools>().await, Ok(()));
}
