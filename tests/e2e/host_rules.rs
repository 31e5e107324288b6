//! The engine of the host's rules against the real kernel, each test in a network namespace of its own.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the verdict"
)]

#[path = "host_rules/bed.rs"]
mod bed;
#[path = "host_rules/commands.rs"]
mod commands;
#[path = "host_rules/indexed.rs"]
mod indexed;
#[path = "host_rules/kernel.rs"]
mod kernel;
#[path = "host_rules/odd.rs"]
mod odd;
#[path = "host_rules/others.rs"]
mod others;
#[path = "host_rules/restart.rs"]
mod restart;
#[path = "host_rules/stop.rs"]
mod stop;
