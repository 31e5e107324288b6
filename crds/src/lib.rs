//! Every Kubernetes kind that fipd reads or writes, as typed Rust: one module per API group.
//!
//! Kinds that fipd installs come with their CustomResourceDefinition ([`all`]) and its YAML beside the sources ([`MANIFESTS`]).
//! Foreign kinds name only the fields fipd uses, and leave out what is not set, so that server-side apply touches nothing else.
//!
//! Types here mirror the wire. They decode whatever an API server may hold and judge nothing: values become checked types in the
//! controllers.

#![expect(
    clippy::duplicated_attributes,
    reason = "each printer column names its type and priority"
)]

pub mod cluster_api;
pub mod fipd_io;
pub mod flat_network;
pub mod floating_ip;
mod generate;
pub mod helm_chart;
pub mod ip_rule;
pub mod kube_fip;
mod lenient;
pub mod machine_config;
pub mod macvlan;
pub mod management;
pub mod metallb;
pub mod names;
pub mod network_attachment;
pub mod provisioning;
pub mod purelb;
#[cfg(test)]
mod testing;

pub use floating_ip::labels;
pub use generate::{MANIFESTS, all, file_name, yaml};
