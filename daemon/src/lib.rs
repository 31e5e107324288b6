//! The edges and the wiring of the daemon.
//!
//! `main -> cli -> app -> {systems -> controller -> clusters, api} -> ipam -> store -> core`; only `ipam` writes the store.
//! `ipam` and `store` are in the crate `fipd-store`, and their paths here are the same.

/// Hundreds of small rows a commit, made by one thread and freed by another, are what the C library's allocator is worst
/// at: a durable allocation takes a tenth longer with it, and what is parsed at a start stays resident.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

pub mod admission;
pub mod adopt;
pub mod api;
pub mod app;
#[cfg(test)]
mod arrows_tests;
mod backoff;
pub mod backups;
pub mod child;
pub mod cli;
pub mod clusters;
pub mod cni;
pub mod config;
pub mod connected;
pub mod controller;
pub mod descriptors;
pub mod detach;
pub mod expiry;
pub mod fip_v1;
pub mod foreign_file;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod guests;
pub mod helm;
pub mod host;
pub mod host_name;
pub mod journal;
pub mod logging;
pub mod metrics;
pub mod migrate;
pub mod nodes;
pub mod oidc;
pub mod outgoing;
pub mod reload;
pub mod restore_hold;
pub mod rollup;
pub mod rules;
pub mod settings;
pub mod sockets;
pub mod system;
pub mod systems;
pub mod validation;
pub mod webhooks;

pub(crate) use fipd_store::private_file;
pub use fipd_store::{clock, ipam, liveness, store};
