//! The edges and the wiring of the daemon.

pub mod clusters;
pub mod config;
pub mod controllers;
pub mod ipam;
pub mod store;
