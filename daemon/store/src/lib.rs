//! The durable address book: `ipam`, the one writer, plans on the ledger of `fipd-core` and commits to `store`, the redb file.
//!
//! A crate of its own because it is compiled for speed and the rest of the daemon for size.

pub mod clock;
pub mod ipam;
pub mod liveness;
pub mod private_file;
pub mod store;
