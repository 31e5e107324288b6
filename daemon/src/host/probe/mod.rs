//! Checks whether somebody on the local network already uses an address: ARP probes for IPv4 (RFC 5227), duplicate address
//! detection for IPv6 (RFC 4862).
//!
//! ```text
//!  fipd (CAP_NET_ADMIN)                           fipd-probe@.service (CAP_NET_RAW)
//!  prober -> client::probe -- /run/fipd/probe.sock -->  helper::serve_connection --> detect --> packet_socket
//!                   one JSON line each way                                   |
//!                                                        fipd_cni::frame, schedule, socket_filter: pure
//! ```
//!
//! A probe sees what other hosts answer. It does not see addresses of this host itself, whose kernel ignores its own frames.

mod client;
mod detect;
mod helper;
mod interface_query;
mod local_link;
mod message;
mod packet_socket;
mod prober;
mod schedule;
mod socket_filter;

pub use client::{ProbeError, probe};
pub use helper::{accepted_connection, serve_connection};
pub use local_link::LocalLink;
pub use message::InvalidRequest;
pub use prober::Prober;

pub use fipd_cni::frame::Mac;

/// What a probe found out about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressUse {
    /// Nobody answered.
    Free,
    /// The host with this MAC uses the address, or is probing for it as well.
    InUse { mac: Mac },
}
