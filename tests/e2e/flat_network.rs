//! Subnets of flat networks and addresses of pods, with the rights of packaging/rbac/flat-network.yaml.
//!
//! Most tests share a cluster and a fipd at the same time; each has namespaces, a VLAN and addresses of its own. No node runs the
//! pods: a stand-in says in the place of the CNI plugin that a pod has its address. Numbers of rows and of defects are those of
//! the contract.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "flat_network/admission.rs"]
mod admission;
#[path = "flat_network/crash.rs"]
mod crash;
#[path = "flat_network/interfaces.rs"]
mod interfaces;
#[path = "flat_network/nodes.rs"]
mod nodes;
#[path = "flat_network/ordinals.rs"]
mod ordinals;
#[path = "flat_network/pods.rs"]
mod pods;
#[path = "flat_network/services.rs"]
mod services;
#[path = "flat_network/subnets.rs"]
mod subnets;
#[path = "flat_network/takeover.rs"]
mod takeover;
#[path = "flat_network/thousand.rs"]
mod thousand;
#[path = "flat_network/workloads.rs"]
mod workloads;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fipd_tests::flat_network::{IP, PodBed, SUBNET, SUBNETS};
use fipd_tests::testbed::wait_until;
use serde_json::{Value, json};

const IP_ERROR: &str = "FlatNetworkIPError";
const DEADLINE: Duration = Duration::from_secs(60);

fn subnet(name: &str) -> String {
    format!("{SUBNETS}/{name}")
}

/// The condition of this type.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .find(|one| one["type"] == kind)
        .unwrap_or(&Value::Null)
}
