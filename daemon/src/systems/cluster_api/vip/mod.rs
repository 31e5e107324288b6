//! Addresses of control planes and ingresses: each Cluster gets them by claims, as with capi-vip-allocator.
//!
//! ```text
//!  Cluster --role--> pool of its class --> IPAddressClaim --> IPAddress --+
//!     ^                                                                  |
//!     +-- endpoint, variable, annotation: one server-side apply ---------+
//! ```
//!
//! Nothing waits for a clock: a claim that gets its address queues its Cluster. (One address waits some milliseconds for the other,
//! so that both are in one apply.) An endpoint that somebody else wrote is reserved in the ledger, and no claim is made for it.
//! An address that another provider allocates for a claim is reserved as well, before the Cluster shows it. Each role has a
//! condition of its own that says what it lacks, and neither holds up the other.
//!
//! A Cluster whose networks are dual-stack has a second address of each role, in the family that the first one is not of: a
//! claim, an annotation and a condition of its own.

pub mod choose;
mod claim;
pub mod controller;
mod drift;
pub mod families;
mod half_ready;
mod inventory;
pub mod leave;
mod lookout;
pub mod observe;
pub mod plan;
mod publish;
pub mod report;
mod reserve;
pub mod second;
pub mod watched;
pub mod write;

pub use controller::VipController;
pub use observe::{CapiClusterView, ClassView};
