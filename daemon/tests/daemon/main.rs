//! The built program from outside: command line, REST, sockets, signals.
//!
//! Every test has a daemon of its own in a temporary directory, started from the program that was just built.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the verdict"
)]

mod agent;
mod attach;
mod backups;
mod beside;
mod beside_tls;
mod cli;
mod compat;
mod harness;
mod history;
mod import;
mod life;
mod monitoring;
mod moves;
mod oidc;
mod other_host;
mod prefixes;
mod probing;
mod provider;
mod quotas;
mod rest;
mod restore;
mod roles;
mod scan;
mod scope;
mod support_bundle;
mod systemd;
mod webhooks;
mod writes;
