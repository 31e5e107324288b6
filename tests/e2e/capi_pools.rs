//! Pools of the in-cluster provider, of addresses and of prefixes, with the definitions of Cluster API on a real API server.
//!
//! Most tests share a server and a fipd at the same time, each with namespaces and addresses of its own; the others have the
//! server alone for a while, with a fipd and a store of their own. Numbers of rows are those of the contract's conformance table.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "capi_pools/admission.rs"]
mod admission;
#[path = "capi_pools/networks.rs"]
mod networks;
#[path = "capi_pools/prefixes.rs"]
mod prefixes;
#[path = "capi_pools/usage.rs"]
mod usage;

use std::collections::BTreeMap;
use std::time::Duration;

use fipd_tests::cluster_api::ClaimBed as Bed;
use fipd_tests::testbed::wait_until;
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
const CLAIM: &str = "IPAddressClaim";
const ADDRESS: &str = "IPAddress";
const POOL: &str = "InClusterIPPool";
const GLOBAL: &str = "GlobalInClusterIPPool";
