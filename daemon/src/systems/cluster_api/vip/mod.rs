//! Addresses of control planes and ingresses: each Cluster gets them by claims, as with capi-vip-allocator.
//!
//! ```text
//!  Cluster --role--> pool of its class --> IPAddressClaim --> IPAddress --+
//!     ^                                                                  |
//!     +-- endpoint, variable, annotation: one server-side apply ---------+
//! ```
//!
//! Nothing waits for a clock: a claim that gets its address queues its Cluster. An endpoint that somebody else wrote is reserved
//! in the ledger, and no claim is made for it. What the roles lack is said of each by a condition of its own, and neither
//! holds up the other.

pub mod choose;
mod claim;
pub mod controller;
mod inventory;
pub mod leave;
pub mod observe;
pub mod plan;
pub mod report;
pub mod write;
mod publish;
mod reserve;

pub use controller::VipController;
pub use observe::{ClassView, ClusterView};
