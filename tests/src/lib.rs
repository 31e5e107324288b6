//! Everything the project needs to prove itself on one machine: the toolchain that fetches and builds the real
//! components, the testbed that starts them, and the runner behind the `cargo` aliases.
//!
//! Nothing here is linked into the daemon. All processes listen on loopback and end with the process that started them.

pub mod alerts;
pub mod bench;
pub mod cluster_api;
#[cfg(test)]
mod defects;
pub mod flat_network;
pub mod kube_fip;
#[cfg(test)]
mod licences;
pub mod namespace;
pub mod netlink;
pub mod process;
#[cfg(test)]
mod rbac;
#[cfg(test)]
mod readme;
pub mod rule_objects;
pub mod rule_site;
pub mod runner;
pub mod say;
pub mod scenario;
pub mod stock;
pub mod testbed;
pub mod toolchain;
pub mod versions;
pub mod wait;
