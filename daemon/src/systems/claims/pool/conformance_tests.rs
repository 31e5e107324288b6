use std::sync::Arc;

use fipd_core::System;
use fipd_crds::fipd_io;
use serde_json::{Value, json};

use super::{
    observe::{PoolObject, namespaced_view, view},
    source::ClaimPoolSource,
};
use crate::{
    controller::{
        kind::Kind,
        pool_source::conformance_tests::{Subject, conforms},
        site::Site,
    },
    systems::claims::{
        names::{NAMESPACED_POOL, POOL},
        settings::ClaimsSettings,
    },
};

struct Pools;

struct NamespacedPools;

impl Subject for Pools {
    type Source = ClaimPoolSource;

    const KIND: Kind = POOL;

    fn system() -> System {
        System::claims()
    }

    fn source(_: &Arc<Site>) -> ClaimPoolSource {
        let settings = toml::from_str::<ClaimsSettings>("pool-objects = true");
        ClaimPoolSource {
            settings: settings.expect("settings"),
        }
    }

    fn object(first: u8, last: u8) -> Value {
        json!({ "addresses": [format!("10.7.0.{first}-10.7.0.{last}")] })
    }

    fn view(object: Value) -> Option<PoolObject> {
        let object: Result<fipd_io::Pool, _> = serde_json::from_value(object);
        object.ok().map(view)
    }
}

impl Subject for NamespacedPools {
    type Source = ClaimPoolSource;

    const KIND: Kind = NAMESPACED_POOL;

    fn system() -> System {
        System::claims()
    }

    fn source(site: &Arc<Site>) -> ClaimPoolSource {
        Pools::source(site)
    }

    fn object(first: u8, last: u8) -> Value {
        Pools::object(first, last)
    }

    fn view(object: Value) -> Option<PoolObject> {
        let object: Result<fipd_io::NamespacedPool, _> = serde_json::from_value(object);
        object.ok().map(namespaced_view)
    }
}

#[tokio::test]
async fn pools_of_clusters_conform() {
    assert_eq!(conforms::<Pools>().await, Ok(()));
}

#[tokio::test]
async fn pools_of_namespaces_conform() {
    assert_eq!(conforms::<NamespacedPools>().await, Ok(()));
}
