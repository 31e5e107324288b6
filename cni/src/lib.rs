//! The CNI side of fipd: the spec's wire types, those between the plugin and the daemon, and the plugin's work.
//!
//! ```text
//!  environment, standard input --> plugin --ask--> daemon: an address, the host's interfaces
//!                                    |  <-- attachment
//!                                    +--> link/: the container's interface, addresses, routes
//! ```
//!
//! Source of names and numbers: CNI specification 1.1.0, sections 2 to 5.
//! This crate decides nothing: which address a container has, the daemon says.
#![forbid(unsafe_code)]

pub mod announce;
pub mod attachment;
mod config;
mod environment;
mod error;
pub mod frame;
pub mod link;
pub mod namespace;
mod packet_socket;
pub mod plugin;
pub mod probe;
pub mod result;
pub mod spool;
pub mod sysctl;
mod verb;
mod wire;

/// In lower case a text that the plugin's program has and no other: so programs that look for it do not have it.
pub const MARK: &str = "CONTAINER RUNTIMES CALL THIS PROGRAM OF FIPD";

pub use config::{FlatNetworkConf, IpamConf, LinkConf, NetConf, ValidAttachment, wrong_cidr};
pub use environment::{Environment, named_args};
pub use error::{CniError, Code};
pub use verb::{NEWEST, SUPPORTED, Verb, VersionInfo, version};
pub use wire::{Answer, Ask, AskOutcome, AskStep, MAX_MESSAGE, MOST_ADDRESSES, Reply, SOCKET, ask};
