//! The packages as admins use them: installed by dpkg or rpm on a Debian with a real systemd and journal, upgraded, removed and
//! purged, and the service that they start.
//!
//! They are built of the debug binary, so that `cargo verify` needs no release build; `cargo torture` builds release packages
//! twice, and those of the other architecture.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the verdict"
)]

#[path = "package/calls.rs"]
mod calls;
#[path = "package/components.rs"]
mod components;
#[path = "package/files.rs"]
mod files;
#[path = "package/first_address.rs"]
mod first_address;
#[path = "package/host.rs"]
mod host;
#[path = "package/life.rs"]
mod life;
#[path = "package/plugin.rs"]
mod plugin;
#[path = "package/pod.rs"]
mod pod;
#[path = "package/service.rs"]
mod service;

#[path = "package/release.rs"]
mod release;
