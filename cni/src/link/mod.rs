//! Links, addresses and routes of one network namespace, over a blocking netlink socket.
//!
//! A [`Netlink`] works on the namespace of the thread that opened it; [`crate::namespace`] has threads for others.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "attributes of netlink are many, and newer kernels have more"
)]

mod address;
mod interface;
mod kind;
mod link_message;
mod netlink;
mod route;
mod route_message;

pub use address::InterfaceAddress;
pub use interface::{Link, MemberLink};
pub use kind::KindOfLink;
pub use netlink::Netlink;
pub use route::{Family, ListedRoute, MAIN_TABLE, PROTOCOL_BESIDE, Route};
