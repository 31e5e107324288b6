//! The CNI side of fipd: the spec's wire types, and those between the plugin and the daemon.
//!
//! Source of names and numbers: CNI specification 1.1.0, sections 2 to 5.
//! This crate decides nothing: the plugin hands every verb but `VERSION` to the daemon, which answers in the spec's form.
#![forbid(unsafe_code)]

mod error;
mod verb;
mod wire;

pub use error::{CniError, Code};
pub use verb::{NetConf, SUPPORTED, Verb, VersionInfo, version};
pub use wire::{Ask, MAX_MESSAGE, Reply, SOCKET, ask};
