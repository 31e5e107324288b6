//! IPAddressClaims on pools of the in-cluster provider, with the definitions of Cluster API on a real API server.
//!
//! Most tests share a server and a fipd at the same time, each with namespaces and addresses of its own; the others have the
//! server alone for a while, with a fipd and a store of their own. Numbers of rows are those of the contract's conformance table.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "capi_claims/corners.rs"]
mod corners;
#[path = "capi_claims/crash.rs"]
mod crash;
#[path = "capi_claims/lifecycle.rs"]
mod lifecycle;
#[path = "capi_claims/moved.rs"]
mod moved;
#[path = "capi_claims/originals.rs"]
mod originals;
#[path = "capi_claims/release.rs"]
mod release;
#[path = "capi_claims/surface.rs"]
mod surface;
#[path = "capi_claims/takeover.rs"]
mod takeover;
#[path = "capi_claims/versions.rs"]
mod versions;

use std::collections::BTreeMap;
use std::time::Duration;

use fipd_tests::cluster_api::{ClaimBed as Bed, IpamObjects, ManagementPlane, management_config};
use fipd_tests::scenario::write_kubeconfig;
use fipd_tests::testbed::cluster_api::Versions;
use fipd_tests::testbed::{
    ControlPlane, Fipd, FipdOptions, RESTRICTED_USER, SharedClusters, wait_until,
};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
const CLAIM: &str = "IPAddressClaim";
const ADDRESS: &str = "IPAddress";
const POOL: &str = "InClusterIPPool";
const GLOBAL: &str = "GlobalInClusterIPPool";
