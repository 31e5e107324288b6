//! The edges and the wiring of the daemon.
//!
//! `main -> cli -> app -> {controllers -> clusters, api} -> ipam -> store -> core`; only `ipam` writes the store.

pub mod api;
pub mod app;
pub mod cli;
pub mod clock;
pub mod clusters;
pub mod config;
pub mod controllers;
pub mod ipam;
pub mod logging;
pub mod metrics;
pub mod settings;
pub mod store;
