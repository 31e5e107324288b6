//! The edges and the wiring of the daemon.

pub mod config;
