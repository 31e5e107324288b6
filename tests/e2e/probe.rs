//! The check of an address on the wire: the prober and its helper between network namespaces, and claims of Cluster API that
//! wait for it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the verdict"
)]

#[path = "probe/bed.rs"]
mod bed;
#[path = "probe/claims.rs"]
mod claims;
#[path = "probe/stand_in.rs"]
mod stand_in;
#[path = "probe/wire.rs"]
mod wire;
